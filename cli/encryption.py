"""Encryption at the command line: keys for files, and who holds the keys of an encrypted volume (volume/encryption.py).

A node never sees a key: what is done here is done by whoever holds one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from ..volume.errors import BadInput, NotFound
from ..volume.ids import VolumeId, is_pattern
from ..volume.user_paths import expanded
from .common_options import Context, Json, argument, flag, option
from .exit_status import Call
from .output import count_of, say, write_facts, write_json
from .progress import Step
from .several import for_each
from .syncing import on_remote

if TYPE_CHECKING:
    from ..remote.portal import BlockingRemote
    from ..sync.edge import Edge
    from ..volume.encryption import KeySlot

Files = list[str] | None


def key(context: Context, file: Annotated[str, argument("FILE", "Where it goes; nothing may be there.")]) -> None:
    """Make an encryption key, in a file that its owner alone can read."""
    from ..remote.keyring import write_key

    write_key(expanded(file))
    say(f"made {file}: keep a copy elsewhere, since nobody can read without it what it encrypts")
    say(f"volumes are encrypted from their first push on where BUDWOOD_KEY_FILE={file}")


def show(
    context: Context,
    name: Annotated[str | None, argument("[NAME]", "A volume.")] = None,
    names: Annotated[bool, flag("--names", "The remote's names, instead.")] = False,
    as_json: Json = False,
) -> None:
    """Show who holds keys of a volume on the remote, or of its names."""
    from ..volume.encryption import EncryptionHeader

    if names == (name is not None):
        raise Call("encryption show takes the name of a volume, or --names")
    with closing(context.edge()) as edge:
        if name is None:
            _show_names(edge, as_json)
            return
        told = _header(*on_remote(edge, name))
    if not told:
        if as_json:
            write_json([{"name": name, "encrypted": False}])
        else:
            write_facts([("name", name), ("encrypted", "no")])
        return
    header = EncryptionHeader.parse(told)
    if as_json:
        write_json([{"name": name, "encrypted": True, "data_key": header.newest, "slots": _slots(header.slots)}])
        return
    opens = _holders(header.slots)
    write_facts([("name", name), ("encrypted", f"with data key {header.newest}"), ("opens with", opens)])


def _show_names(edge: Edge, as_json: bool) -> None:
    from ..remote.encrypted_names import names_header

    connection = edge.connection()
    header = connection.remote.call(names_header)
    if as_json:
        write_json([{"remote": connection.url, "slots": [] if header is None else _slots(header.slots)}])
        return
    opens = "the key that they were first encrypted with" if header is None else _holders(header.slots)
    write_facts([("names at", connection.url), ("open with", opens)])


def _slots(slots: Sequence[KeySlot]) -> list[dict[str, object]]:
    from ..remote.keyring import keyring

    mine = {each.holder for each in keyring().holders}
    return [{"holder": slot.holder.hex(), "passphrase": bool(slot.salt), "here": slot.holder in mine} for slot in slots]


def _holders(slots: Sequence[KeySlot]) -> str:
    return "; ".join(
        ("a passphrase" if slot["passphrase"] else f"key {slot['holder']}")
        + (", which is here" if slot["here"] else "")
        for slot in _slots(slots)
    )


def rekey(
    context: Context,
    names: Annotated[list[str] | None, argument("[NAME]...", "Volumes, or patterns like 'shop/*'.")] = None,
    everything: Annotated[bool, flag("--all", "All encrypted volumes of the remote.")] = False,
    of_names: Annotated[bool, flag("--names", "The remote's names, too; alone, nothing else.")] = False,
    key_files: Annotated[
        Files, option("--key", "FILE", "Who has this key file opens it from here on. May be repeated.")
    ] = None,
    passphrase_files: Annotated[
        Files, option("--passphrase", "FILE", "Who has the passphrase in this file's first line does.")
    ] = None,
    new_data_key: Annotated[
        bool, flag("--new-data-key", "Encrypt what is written from here on with another data key, too.")
    ] = False,
) -> None:
    """Say which keys open volumes on the remote from here on, and no others; those that open them now are at hand.

    With --names they open its names, if they are encrypted (BUDWOOD_ENCRYPT_NAMES).

    Volumes that a pattern, or --all, comes to and that aren't encrypted stay as they are. Run again, it does what is
    left.
    """
    from ..remote.encrypted_names import rekey_names
    from ..remote.keyring import keyring, read_key, read_passphrase
    from ..volume.calls import REKEY, RekeyRequest
    from ..volume.encryption import EncryptionHeader, VolumeKeys
    from ..volume.entry import digest_of

    if (everything and names) or not (everything or names or of_names):
        raise Call("encryption rekey takes names of volumes, or --all; and --names")
    holders = [
        *(read_key(expanded(each)) for each in key_files or ()),
        *(read_passphrase(expanded(each)) for each in passphrase_files or ()),
    ]
    if not holders:
        raise Call("say which keys open it from here on: --key FILE, --passphrase FILE")
    with closing(context.edge()) as edge:
        chosen = _chosen(edge, ["*"] if everything else names or [])

        def rekey_one(name: str, _: Step) -> str:
            """Its name, or "" where it is none that is encrypted."""
            listed = chosen[name]
            remote, vid = on_remote(edge, name) if listed is None else (edge.connection().remote, listed)
            told = _header(remote, vid)
            if not told:
                if listed is not None:
                    return ""
                raise BadInput(
                    f"{name} isn't encrypted: with a key at hand, `budwood export {name} FILE` and "
                    "`budwood import FILE NEW` make a volume of it that is"
                )
            # Of many volumes some may have been rekeyed before an earlier run was cut off.
            keys = VolumeKeys.opened(EncryptionHeader.parse(told), (*keyring().holders, *holders))
            header = keys.rewrapped(*holders, new_data_key=new_data_key).header
            remote.ask(REKEY, RekeyRequest(vid.raw, encryption=header.encoded(), before=digest_of(told)))
            return name

        def tell(name: str) -> None:
            if name:
                say(f"{name} opens with {count_of(len(holders), 'key')} from here on, and no other")

        rekeyed = for_each("rekeying", list(chosen), rekey_one, tell)
        if of_names:
            edge.connection().remote.call(partial(rekey_names, holders=holders))
            say(f"names open with {count_of(len(holders), 'key')} from here on, and no other")
    if not any(rekeyed) and not of_names:
        say(f"nothing to rekey: none of {count_of(len(chosen), 'volume')} is encrypted")


GROUP: Final[dict[str, Callable[..., None]]] = {"key": key, "show": show, "rekey": rekey}


def _chosen(edge: Edge, names: list[str]) -> dict[str, VolumeId | None]:
    """Those that are named; and of the remote's those that fit a pattern, with what each leads to.

    Raises NotFound where none does.
    """
    chosen: dict[str, VolumeId | None] = {}
    there: dict[str, VolumeId] | None = None
    for name in names:
        if not is_pattern(name):
            chosen[name] = None
            continue
        if there is None:
            there = {row["name"]: VolumeId.parse(row["id"]) for row in edge.ls(remote=True)}
        fitting = [name] if name in there else [each for each in there if fnmatchcase(each, name)]
        if not fitting and name != "*":
            raise NotFound(f"no volume of the remote is called like {name!r}: `budwood ls --remote` lists them")
        for each in fitting:
            chosen.setdefault(each, there[each])
    return chosen


def _header(remote: BlockingRemote, vid: VolumeId) -> bytes:
    from ..volume.calls import SNAPSHOT, SnapshotRequest

    return remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, confirm=True)).encryption

"""Fingerprint: one word for what a volume holds on its remote, and whether another remote holds the same.

The word is the same for the same bytes in pages of the same size, however they came to be. Asking for it costs one
request, and no page is read. With --against the exit status is 1 where the two differ.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..volume.byte_sizes import bytes_of
from ..volume.errors import BadInput, NotFound
from .common_options import At, Context, Json, Lsn, Name, option
from .exit_status import Call
from .output import say, write_facts, write_json
from .syncing import on_remote

if TYPE_CHECKING:
    from ..volume.calls import Fingerprint


def fingerprint(
    context: Context,
    name: Name,
    lsn: Lsn = None,
    at: At = None,
    against: Annotated[
        str | None, option("--against", "URL[#NAME]", "Another remote, and its name there if that is another.")
    ] = None,
    against_lsn: Annotated[
        int | None, typer.Option("--against-lsn", metavar="N", min=1, help="As of this LSN there.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what a volume's content comes to on its remote, and whether another remote has the same."""
    from ..volume.as_of import snapshot_request
    from ..volume.calls import FINGERPRINT, SnapshotRequest

    if lsn is not None and at is not None:
        raise BadInput("give an LSN or a time, not both")
    if against is None and against_lsn is not None:
        raise Call("--against-lsn says of which LSN elsewhere: give --against URL too")
    with closing(context.edge()) as edge:
        remote, vid = on_remote(edge, name)
        request = SnapshotRequest(vid.raw, lsn=lsn) if at is None else snapshot_request(vid, at=at)
        ours = remote.ask(FINGERPRINT, request)
        theirs = None if against is None else _of_another(context, against, name, against_lsn)
    if as_json:
        write_json([_row(name, ours), *([_row(against or "", theirs)] if theirs is not None else [])])
    elif theirs is None:
        size = f"{bytes_of(ours.length)}, pages of {bytes_of(ours.page_size)}"
        write_facts([("name", name), ("lsn", str(ours.lsn)), ("size", size), ("fingerprint", ours.word)])
    else:
        say(f"{name} at LSN {ours.lsn}: {ours.word}")
        say(f"{against} at LSN {theirs.lsn}: {theirs.word}")
        say("they hold the same" if ours.word == theirs.word else f"they differ: {_difference(ours, theirs)}")
    if theirs is not None and theirs.word != ours.word:
        raise typer.Exit(1)


VERBS: Final[dict[str, Callable[..., None]]] = {"fingerprint": fingerprint}


def _of_another(context: Context, against: str, name: str, lsn: int | None) -> Fingerprint:
    from ..remote.portal import open_remote
    from ..remote.token import elsewhere
    from ..volume.calls import FINGERPRINT, LOOKUP, LookupRequest, SnapshotRequest
    from ..volume.name_attributes import volume_of

    url, _, other = against.partition("#")
    remote = open_remote(url, token=elsewhere(context.token, context.remote, url), create=lambda: False)
    try:
        entry = remote.ask(LOOKUP, LookupRequest(other or name)).entry
        if entry is None or not entry.target:
            raise NotFound(f"{url} has no volume {other or name!r}: its name there goes behind a '#'")
        return remote.ask(FINGERPRINT, SnapshotRequest(volume_of(entry, url).raw, lsn=lsn))
    finally:
        remote.close()


def _difference(ours: Fingerprint, theirs: Fingerprint) -> str:
    if ours.page_size != theirs.page_size:
        return f"pages of {ours.page_size} and {theirs.page_size} bytes, which can't be compared so"
    if ours.length != theirs.length:
        return f"{ours.length} and {theirs.length} bytes"
    return "other bytes"


def _row(name: str, found: Fingerprint) -> dict[str, object]:
    sizes = {"length": found.length, "page_size": found.page_size}
    return {"name": name, "lsn": found.lsn, **sizes, "fingerprint": found.word}

"""What a volume wants of its commits, at the command line: mode, bindings (volume/rules.py)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Final

from .common_options import Context, Json, Name, flag
from .exit_status import Call
from .output import Column, say, write_facts, write_json, write_table
from .syncing import on_remote

if TYPE_CHECKING:
    from ..volume.calls import Ruled


def mode(
    context: Context,
    name: Name,
    optimistic: Annotated[bool, flag("--optimistic", "Whoever commits first wins.")] = False,
    exclusive: Annotated[
        bool, flag("--exclusive", "This home alone commits, until another says so; without it here, nobody does.")
    ] = False,
    replicated: Annotated[
        bool, flag("--replicated", "Several make the same commits: one lands, and the rest succeed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say who may commit to a volume on the remote; or ask."""
    from ..volume.calls import SET_MODE, TAKE_EPOCH, ModeRequest, VolumeRequest
    from ..volume.rules import EXCLUSIVE, OPTIMISTIC, REPLICATED

    said = {OPTIMISTIC: optimistic, EXCLUSIVE: exclusive, REPLICATED: replicated}
    wanted = [each for each, is_said in said.items() if is_said]
    if len(wanted) > 1:
        raise Call(f"a volume has one mode: give --{wanted[0]} or --{wanted[1]}")
    if wanted and as_json:
        raise Call(f"--json is how a mode is told: leave out --{wanted[0]}")
    with closing(context.edge()) as edge:
        remote, vid = on_remote(edge, name)
        if not wanted:
            told = _rules(context, name)
            row = {"name": name, "mode": told.mode, "writer_epoch": told.writer_epoch}
            if as_json:
                write_json([row])
            else:
                write_facts([("mode", told.mode), ("writer epoch", str(told.writer_epoch))])
            return
        remote.ask(SET_MODE, ModeRequest(vid.raw, mode=wanted[0]))
        if exclusive:
            epoch = remote.ask(TAKE_EPOCH, VolumeRequest(vid.raw)).epoch
            if any(row["name"] == name for row in edge.ls()):
                edge.volume(name).write_under(epoch)
                say(f"{name} is exclusive, and this home its writer (writer epoch {epoch})")
                return
            say(f"{name} is exclusive, and nobody its writer (writer epoch {epoch})")
            return
    say(f"{name} is {wanted[0]}")


def bindings(context: Context, name: Name, as_json: Json = False) -> None:
    """List how far each source of a volume was read, and the LSN that brought it."""
    rows = [{"source": each.source, "offset": each.offset, "lsn": each.lsn} for each in _rules(context, name).sources]
    if as_json:
        write_json(rows)
        return
    write_table(
        [Column("source"), Column("offset", "right"), Column("lsn", "right")],
        [[str(value) for value in row.values()] for row in rows],
        empty=f"{name} has no sources",
    )


VERBS: Final[dict[str, Callable[..., None]]] = {"mode": mode, "bindings": bindings}


def _rules(context: Context, name: str) -> Ruled:
    from ..volume.calls import RULES, VolumeRequest

    with closing(context.edge()) as edge:
        remote, vid = on_remote(edge, name)
        return remote.ask(RULES, VolumeRequest(vid.raw))

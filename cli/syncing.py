"""Syncing at the command line: push, pull, fetch, reset, move."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from ..volume.errors import NotFound, UsageError
from ..volume.ids import VolumeId, check_node
from .common_options import Context, Name, argument, flag, option
from .exit_status import Call
from .output import count_of, say
from .progress import Step, progress
from .several import for_each
from .volumes import missing_pages

if TYPE_CHECKING:
    from ..remote.portal import BlockingRemote
    from ..sync.edge import Edge


OneOrAll = Annotated[str | None, argument("[NAME]", "The volume's name.")]


def _check_one_or_all(verb: str, name: str | None, everything: bool) -> None:
    if everything == (name is not None):
        raise Call(f"{verb} takes a volume's name, or --all")


def push(
    context: Context,
    name: OneOrAll = None,
    everything: Annotated[bool, flag("--all", "All volumes of this home, and what its mount has to say.")] = False,
    as_name: Annotated[str | None, option("--as", "NEW", "The name it gets on the remote.")] = None,
) -> None:
    """Send what was committed here to the remote, as one commit of each volume there."""
    _check_one_or_all("push", name, everything)
    if name is None:
        if as_name is not None:
            raise Call("--as is the name of one volume: give its name here, without --all")
        _push_all(context)
        return
    with closing(context.edge()) as edge:
        volume = edge.volume(name)
        before = volume.status(count=False)
        if mount := context.running():
            mount.ask("push", name, *(["--as", as_name] if as_name else []))
        else:
            with progress(f"pushing {name}") as step:
                volume.push(as_name=as_name, progress=step)
        after = volume.status(count=False)
    # Programs may have committed more through a mount meanwhile, which the remote doesn't have.
    lsn, bound = after["remote_lsn"], after["remote_name"]
    unpushed = before["unpushed"]
    if unpushed:
        say(f"pushed {count_of(unpushed, 'commit')} of {name}{f' as {as_name}' if as_name else ''}: LSN {lsn}")
    elif bound != before["remote_name"]:
        say(f"nothing to push: the remote knows {name} at LSN {lsn} as {bound} now")
    else:
        say(f"nothing to push: {name} is at LSN {lsn}")


def _push_all(context: Context) -> None:
    with closing(context.edge()) as edge:
        mount, rows = context.running(), edge.ls()
        before = _unpushed(rows)
        if before and not any(row["remote"] for row in rows):
            # Raises if none is given either.
            edge.connection()
        try:
            if mount is not None:
                mount.ask("push")
            else:
                for_each("pushing", list(before), lambda name, step: edge.volume_here(name).push(progress=step))
        finally:
            pushed = before.keys() - _unpushed(edge.ls()).keys()
            if pushed:
                commits = count_of(sum(before[name] for name in pushed), "commit")
                say(f"pushed {commits} of {count_of(len(pushed), 'volume')}")
    if not before:
        say("nothing to push")


def _unpushed(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Commits by volume."""
    return {row["name"]: row["unpushed"] for row in rows if row["unpushed"]}


def pull(
    context: Context,
    name: OneOrAll = None,
    everything: Annotated[bool, flag("--all", "All volumes of this home, and what its mount lists.")] = False,
) -> None:
    """Move to the remote's newest commit; changed pages come when they are read."""
    _check_one_or_all("pull", name, everything)
    if name is None:
        _pull_all(context)
        return
    with closing(context.edge()) as edge:
        volume = edge.volume(name)
        before = volume.status(count=False)["lsn"]
        if mount := context.running():
            mount.ask("pull", name)
        else:
            volume.pull()
        lsn = volume.status(count=False)["lsn"]
    say(f"nothing new: {name} is at LSN {lsn}" if lsn == before else f"pulled {name}: LSN {before} to {lsn}")


def _pull_all(context: Context) -> None:
    with closing(context.edge()) as edge:
        mount, before = context.running(), _followed(edge)
        try:
            if mount is not None:
                mount.ask("pull")
            else:
                for_each("pulling", list(before), lambda name, _: edge.volume_here(name).pull())
        finally:
            after = _followed(edge)
            moved = [name for name, lsn in before.items() if after.get(name, lsn) != lsn]
            if moved:
                say(f"pulled {len(moved)} of {count_of(len(before), 'volume')}")
    if not moved:
        what = (
            f"each of {count_of(len(before), 'volume')} is as it was" if before else "no volume here follows a remote"
        )
        say(f"nothing new: {what}")


def _followed(edge: Edge) -> dict[str, str]:
    """The LSNs of those that take in what others push."""
    return {row["name"]: row["lsn"] for row in edge.ls() if row["remote_name"] and row["mode"] in ("pull", "both")}


def fetch(
    context: Context,
    name: OneOrAll = None,
    everything: Annotated[bool, flag("--all", "All volumes of this home, and all that its mount lists.")] = False,
    sql: Annotated[str | None, option("--sql", "QUERY", "Only the pages that this query touches.")] = None,
) -> None:
    """Fetch every page that is missing here, so that the volume can be read offline; or all volumes, with --all."""
    _check_one_or_all("fetch", name, everything)
    if sql is not None:
        if name is None:
            raise Call("--sql is a query of one volume: give its name, without --all")
        _fetch_query(context, name, sql)
        return
    if name is None:
        _fetch_all(context)
        return
    with closing(context.edge()) as edge, progress(f"fetching {name}") as step:
        volume = edge.volume(name)
        if mount := context.running():
            pages = missing_pages(volume, volume.status(count=False)["pages"])
            mount.ask("fetch", name)
        else:
            pages = volume.fetch(progress=step)
    say(f"fetched {count_of(pages, 'page')} of {name}" if pages else f"nothing to fetch: all of {name} is here")


def _fetch_query(context: Context, name: str, sql: str) -> None:
    with closing(context.edge()) as edge, progress(f"fetching {name}") as step:
        pages = edge.volume(name).fetch_query(sql, progress=step)
    said = f"fetched {count_of(pages, 'page')} of {name}"
    say(said if pages else f"nothing to fetch: all that this query touches of {name} is here")


def _fetch_all(context: Context) -> None:
    from ..sync.namespace import Namespace

    with closing(context.edge()) as edge:
        mount = context.running()
        refused = Namespace(edge).adopt_all()
        rows = [row for row in edge.ls() if row["remote_lsn"]]
        if not rows and not refused:
            say("nothing to fetch: no volume here was ever pushed or pulled")
            return
        edge.check_fits(row["length"] for row in rows)

        def fetch_one(name: str, step: Step) -> int:
            # What was refused before is so again, and told.
            volume = edge.volume_here(name)
            if mount is None:
                return volume.fetch(progress=step)
            missing = missing_pages(volume, volume.status(count=False)["pages"])
            mount.ask("fetch", name)
            return missing

        pages = sum(for_each("fetching", [*(row["name"] for row in rows), *refused], fetch_one))
    volumes = count_of(len(rows), "volume")
    say(f"fetched {count_of(pages, 'page')} of {volumes}" if pages else f"nothing to fetch: all of {volumes} is here")


def reset(
    context: Context,
    name: Name,
    keep_as: Annotated[str | None, option("--keep-as", "NEW", "Keep unpushed commits as this volume.")] = None,
    discard: Annotated[bool, flag("--discard", "Drop unpushed commits for good.")] = False,
) -> None:
    """Take the remote's newest commit, whatever was committed here."""
    if keep_as is not None and discard:
        raise Call("--keep-as keeps the unpushed commits and --discard drops them: give one of the two")
    with closing(context.edge()) as edge:
        volume = edge.volume(name)
        if mount := context.running():
            kept = ["--discard"] if discard else ["--keep-as", keep_as] if keep_as is not None else []
            mount.ask("reset", name, *kept)
            lsn = volume.status(count=False)["lsn"]
        else:
            lsn = volume.reset(keep_as=keep_as, discard=discard)
        was_kept = keep_as is not None and any(row["name"] == keep_as for row in edge.ls())
    said = f"reset {name} to LSN {lsn}"
    if was_kept:
        said += f"; what was unpushed is {keep_as} now"
    elif keep_as is not None:
        said += f"; nothing was unpushed, so there is no {keep_as}"
    say(said)


def move(
    context: Context,
    name: Name,
    log: Annotated[str, option("--log", "private|NODE", "Its own log, or a node's.")],
    takeover: Annotated[bool, flag("--takeover", "Though its node can't be reached, and without it.")] = False,
) -> None:
    """Move a volume on the remote to another log."""
    from ..remote.moving import move_volume

    if log != "private":
        check_node(log)
    with closing(context.edge()) as edge:
        remote, vid = on_remote(edge, name)
        to = remote.call(partial(move_volume, vid=vid, to=log, takeover=takeover))
    say(f"moved {name}: it lives in the log {to} now")


def on_remote(edge: Edge, name: str) -> tuple[BlockingRemote, VolumeId]:
    """The volume where it is shared; it need not be here."""
    from ..volume.calls import LOOKUP, LookupRequest
    from ..volume.name_attributes import volume_of

    here = next((row for row in edge.ls() if row["name"] == name), None)
    if here is not None and not here["remote_name"]:
        raise UsageError(f"the remote doesn't have volume {name!r} yet: `budwood push {name}` first")
    if here is None and not edge.remote:
        raise NotFound(f"there is no volume {name!r} here, and no remote is given that could know it")
    remote = edge.connection(here["remote"] if here else "").remote
    if here is not None:
        return remote, VolumeId.parse(here["id"])
    try:
        entry = remote.ask(LOOKUP, LookupRequest(name)).entry
    except NotFound as error:
        raise NotFound(f"there is no volume {name!r} here, and {error}") from error
    if entry is None:
        raise NotFound(f"there is no volume {name!r} here, and {remote.url} knows none")
    return remote, volume_of(entry, remote.url)


VERBS: Final[dict[str, Callable[..., None]]] = {
    "push": push,
    "pull": pull,
    "fetch": fetch,
    "reset": reset,
    "move": move,
}

"""Volumes at the command line: create, import, export, clone, fork, mv, rm, ls, status, log.

Only `create` and `import` make a volume under a name that nobody has. Every other verb takes a name that is known
here, or to the remote, whose volume then comes in without its pages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..sqlite.header import MAGIC
from ..volume.byte_sizes import bytes_of
from ..volume.pageset import span
from .autosyncing import leader_lines, leader_object
from .common_options import At, Context, Json, Lsn, Name, argument, flag, option
from .output import Column, count_of, say, time_of, write_facts, write_json, write_table
from .progress import progress

if TYPE_CHECKING:
    from ..sync.volume import Volume

NewName = Annotated[str, argument("NEW", "The new name.")]
Row = Mapping[str, Any]


def create(
    context: Context,
    name: Name,
    page_size: Annotated[
        int | None, option("--page-size", "N", "Bytes a page: a power of two, 512 to 65536.", default="4096")
    ] = None,
) -> None:
    """Make an empty volume."""
    with closing(context.edge()) as edge:
        edge.create(name, page_size=page_size)
    say(f"created {name}")


def import_(
    context: Context,
    file: Annotated[Path, argument("FILE", "A SQLite database.")],
    name: Name,
    check: Annotated[
        bool, flag("--check/--no-check", "Have SQLite look for damaged pages before; refuse if there are.")
    ] = True,
) -> None:
    """Make a volume from a SQLite database file."""
    with closing(context.edge()) as edge:
        with progress(f"importing {name}") as step:
            volume = edge.import_(file, name, check=check, progress=step, say=_note)
        status = volume.status(count=False)
    say(f"imported {file} as {name}: {count_of(status['pages'], 'page')}, {bytes_of(status['length'])}")


def export(
    context: Context,
    name: Name,
    file: Annotated[Path, argument("FILE", "The file to write.")],
    lsn: Lsn = None,
    at: At = None,
    overwrite: Annotated[bool, flag("--overwrite", "Replace the file if it exists.")] = False,
) -> None:
    """Write a volume to a file of its own, fetching what is missing here."""
    with closing(context.edge()) as edge, progress(f"exporting {name}") as step:
        edge.volume(name).export(file, lsn=lsn, at=at, overwrite=overwrite, progress=step)
    say(f"exported {name} to {file}: {bytes_of(file.stat().st_size)}")


def clone(
    context: Context,
    name: Annotated[str, argument("NAME", "Its name on the remote.")],
    local: Annotated[str | None, argument("[LOCAL]", "Its name here, if another.")] = None,
    fetch: Annotated[bool, flag("--fetch", "Fetch all pages at once.")] = False,
) -> None:
    """Bring a remote volume in; its pages come when they are read."""
    with closing(context.edge()) as edge:
        volume = edge.clone(name, local)
        if fetch:
            with progress(f"fetching {volume.name}") as step:
                volume.fetch(progress=step)
        status = volume.status()
    say(
        f"cloned {name}{f' as {local}' if local else ''}: LSN {status['lsn']}, {bytes_of(status['length'])}, "
        f"{status['held_pages']:,} of {count_of(status['pages'], 'page')} here"
    )


def fork(context: Context, name: Name, new: NewName, lsn: Lsn = None, at: At = None) -> None:
    """Make a new volume that starts as this one stands, or stood in the past; no page is copied on the remote."""
    with closing(context.edge()) as edge:
        status = edge.fork(name, new, lsn=lsn, at=at).status(count=False)
    say(f"forked {name} as {new}: LSN {status['lsn']}")


def mv(
    context: Context,
    old: Annotated[str, argument("OLD", "Its name until now.")],
    new: NewName,
) -> None:
    """Rename a volume, here and on the remote."""
    with closing(context.edge()) as edge:
        edge.mv(old, new)
    say(f"renamed {old} to {new}")


def rm(
    context: Context,
    name: Name,
    discard: Annotated[bool, flag("--discard", "--force", "Remove it even if that loses unpushed commits.")] = False,
    on_remote: Annotated[bool, flag("--on-remote", "Remove it for everybody: the remote forgets it.")] = False,
) -> None:
    """Remove a volume from here; the remote keeps it, unless told otherwise.

    With --on-remote it need not be here. Its forks live on; named snapshots of it go, too, but those
    of what a fork shares.
    """
    with closing(context.edge()) as edge:
        edge.rm(name, discard=discard, remote=on_remote)
    say(f"removed {name}, for everybody" if on_remote else f"removed {name}")


def ls(
    context: Context,
    remote: Annotated[
        str | None, option("--remote", "[URL]", "List what the remote knows; this one, or the one that is set.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the volumes here, or those that the remote knows."""
    on_remote = remote is not None
    with closing(context.edge()) as edge:
        rows = edge.ls(remote=on_remote)
    if as_json:
        write_json(rows)
    elif on_remote:
        write_table(
            [Column("name"), Column("id")], [[row["name"], row["id"]] for row in rows], empty="no volumes there"
        )
    else:
        write_table(
            [Column("name"), Column("lsn", "right"), Column("size", "right"), Column("state")],
            [[row["name"], row["lsn"], bytes_of(row["length"]), state_of(row)] for row in rows],
            empty="no volumes here",
        )


def status(
    context: Context,
    name: Annotated[str | None, argument("[NAME]", "One volume; all of them by default.")] = None,
    as_json: Json = False,
) -> None:
    """Say how volumes stand: LSN, unpushed commits, what is held here, what to do."""
    from ..fuse.host.lost_commits import losses
    from ..sync.autosync_election import leader

    with closing(context.edge()) as edge:
        names = [name] if name is not None else [row["name"] for row in edge.ls()]
        lost = losses(edge.home)
        rows = [_with_missing(edge.volume(each)) for each in names]
        rows = [row | {"lost": lost.get(row["id"], "")} for row in rows]
        syncing = leader(edge.home)
    if as_json:
        write_json([row | {"autosync": None if syncing is None else leader_object(syncing)} for row in rows])
        return
    if name is not None:
        write_facts(_facts(rows[0]))
    else:
        write_table(
            [Column("name"), Column("lsn", "right"), Column("pages here", "right"), Column("state"), Column("remote")],
            [[row["name"], row["lsn"], _pages_held(row), state_of(row), row["remote"] or "none"] for row in rows],
            empty="no volumes here",
        )
    for row in rows:
        if row["diverged"]:
            say(_ways_out(row))
        if row["lost"]:
            say(f"{row['name']}: {row['lost']}")
    for line in leader_lines(syncing):
        say(line)


def log(
    context: Context,
    name: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="How many, newest first.")] = 100,
    as_json: Json = False,
) -> None:
    """List a volume's commits, newest first; the unpushed ones have numbers like 7+1."""
    with closing(context.edge()) as edge:
        rows = edge.volume(name).log(limit=limit)
    if as_json:
        write_json(rows)
        return
    columns = [
        Column("lsn", "right"),
        Column("time"),
        Column("pages", "right"),
        Column("size", "right"),
        Column("state"),
    ]
    write_table(
        columns,
        [
            [
                row["lsn"],
                time_of(round(datetime.fromisoformat(row["time"]).timestamp() * 1000)),
                f"{row['pages']:,}",
                bytes_of(row["length"]),
                "pushed" if row["pushed"] else "here only",
            ]
            for row in rows
        ],
        empty=f"{name} has no commits",
    )


VERBS: Final[dict[str, Callable[..., None]]] = {
    "create": create,
    "import": import_,
    "export": export,
    "clone": clone,
    "fork": fork,
    "mv": mv,
    "rm": rm,
    "ls": ls,
    "status": status,
    "log": log,
}


def state_of(row: Row) -> str:
    """A volume's state in words."""
    if row["diverged"]:
        return "diverged"
    if row["unpushed"]:
        begun = ", a push has begun" if row["pending"] else ""
        return f"{count_of(row['unpushed'], 'commit')} to push{begun}"
    return "nothing to push"


def _ways_out(row: Row) -> str:
    name, unpushed = row["name"], count_of(row["unpushed"], "unpushed commit")
    if row["is_database"]:
        both = f"  budwood replay {name}                keep both in one: your rows applied to the remote's\n"
    else:
        both = f"  budwood merge {name}                 keep both in one, if they changed different pages\n"
    return (
        f"{name} has {unpushed}, and the remote has newer ones. Nothing is lost. Choose:\n"
        f"{both}"
        f"  budwood fork {name} NEW              keep both: yours go on as NEW, too\n"
        f"  budwood reset {name} --keep-as NEW   take the remote's, and keep yours as NEW\n"
        f"  budwood reset {name} --discard       take the remote's, and drop yours"
    )


def _with_missing(volume: Volume) -> dict[str, Any]:
    """The volume's status, and how many pages a read would have to fetch; and whether one that has diverged is a
    database."""
    row = volume.status()
    if row["diverged"]:
        row |= {"is_database": _is_database(volume)}
    return row | {"missing_pages": missing_pages(volume, row["pages"])}


def _is_database(volume: Volume) -> bool:
    """Of one that was written to here, and so its first page, if it is one. Asks no remote."""
    with closing(volume.snapshot()) as view:
        return bool(view.length) and not view.missing(span(1, 1)) and view.read(1).startswith(MAGIC)


def missing_pages(volume: Volume, pages: int) -> int:
    """How many of a volume's pages would have to be fetched."""
    from ..sync.snapshot import LocalSnapshot

    view = volume.snapshot()
    try:
        assert isinstance(view, LocalSnapshot)
        return len(view.missing(span(1, pages)))
    finally:
        view.close()


def _facts(row: Row) -> list[tuple[str, str]]:
    held = (row["pages"] - row["missing_pages"]) * (row["page_size"] or 0)
    return [
        ("name", row["name"]),
        ("lsn", row["lsn"]),
        ("state", state_of(row)),
        ("size", f"{bytes_of(row['length'])}, {count_of(row['pages'], 'page')}"),
        ("held here", f"{bytes_of(held)}, {_pages_held(row)}"),
        ("remote", row["remote"] or "none"),
        ("known as", row["remote_name"] or "not pushed yet"),
        ("id", row["id"]),
    ]


def _pages_held(row: Row) -> str:
    return f"{row['pages'] - row['missing_pages']:,} of {row['pages']:,}" if row["missing_pages"] else "all"


def _note(line: str) -> None:
    print(f"budwood: {line}", file=sys.stderr)

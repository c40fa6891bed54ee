"""Mounting at the command line: mount, umount, mounts.

`mount` returns once programs can use the directory; the mount lives on in a process of its own (`fuse/daemon.py`). With
--foreground the command is that process. Secrets go to it by its environment, since everyone can read a command line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..volume.errors import BudwoodError, NotFound, Unavailable, UsageError, restored
from .autosyncing import OnDivergedName, policy_named
from .common_options import At, Context, Json, Lsn, argument, flag
from .exit_status import Call
from .output import Column, count_of, say, write_json, write_table

if TYPE_CHECKING:
    from ..fuse.host.mount_client import MountInfo

_SETTLE_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 5.0


def mount(
    context: Context,
    # No Path: the parser would look at the directory, and wait for a mount that hangs.
    where: Annotated[str, argument("DIR", "The directory.")],
    read_only: Annotated[bool, flag("--read-only", "Follow what changes, write nothing.")] = False,
    lsn: Lsn = None,
    at: At = None,
    allow_other: Annotated[bool, flag("--allow-other", "Let other users in, too.")] = False,
    no_sync: Annotated[bool, flag("--no-sync", "Push and pull only when told.")] = False,
    on_diverged: OnDivergedName = "tell",
    nonempty: Annotated[bool, flag("--nonempty", "Hide what the directory holds.")] = False,
    foreground: Annotated[bool, flag("--foreground", "Serve from this process.")] = False,
    fuse_option: Annotated[list[str] | None, typer.Option("--fuse-option", hidden=True)] = None,
    quiet: Annotated[bool, flag("--quiet", "-q", "Say nothing unless it fails.")] = False,
    detached: Annotated[bool, typer.Option("--detached", hidden=True)] = False,
) -> None:
    """Show the volumes as files of a directory; with --lsn or --at as they were, for reading."""
    from ..fuse.host.checks import check_directory, check_home, check_machine
    from ..fuse.host.mountinfo import real

    check_machine(allow_other=allow_other)
    if lsn is not None and at is not None:
        raise Call("--lsn and --at each name one moment: give one of the two")
    if at is not None:
        from ..volume.as_of import moment_of

        moment_of(at)
    past = lsn is not None or at is not None
    settle = policy_named(on_diverged)
    # As the table of mounts names it.
    directory = real(where)
    home = context.real_home()
    if foreground:
        from ..fuse.daemon import serve
        from ..fuse.host.mount_options import Options

        options = Options(
            directory=directory,
            home=home,
            remote=context.remote,
            token=context.token,
            read_only=read_only or past,
            lsn=lsn,
            at=at,
            allow_other=allow_other,
            sync=not no_sync,
            on_diverged=settle,
            fuse_options=tuple(fuse_option or ()),
        )
        serve(options, nonempty=nonempty, detached=detached)
        return
    check_directory(directory, home, nonempty=nonempty)
    if not past:
        check_home(home)
    if context.cache_bytes is not None:
        from ..sync.edge import open as open_edge

        # It is kept in the home, where the mount finds it.
        open_edge(home=home, remote="", token="", cache_bytes=context.cache_bytes).close()
    flags = {
        "--read-only": read_only,
        "--allow-other": allow_other,
        "--no-sync": no_sync,
        "--nonempty": nonempty,
        f"--lsn={lsn}": lsn is not None,
        f"--at={at}": at is not None,
        f"--on-diverged={on_diverged}": on_diverged != "tell",
    }
    chosen = [flag for flag, on in flags.items() if on] + [f"--fuse-option={each}" for each in fuse_option or ()]
    line = _start(Context(home, context.remote, context.token), directory, chosen, past=past)
    if not quiet:
        say(line)
    for notice in _notices(home, directory if past else None):
        print(f"budwood: {notice}", file=sys.stderr)


def _notices(home: Path, past: Path | None) -> list[str]:
    """What the user has to know of what an earlier mount left behind, or of what this one can't show."""
    from ..fuse.host import mount_client

    try:
        return list(mount_client.ask(home, "about", past=past, timeout_seconds=_LOOK_SECONDS)["notices"])
    except (NotFound, Unavailable):
        # It was ended as soon as it served; its log has them.
        return []


def _start(context: Context, directory: Path, flags: list[str], *, past: bool) -> str:
    from ..fuse.daemon import start

    package = __name__.partition(".")[0]
    entry = [sys.executable, "-P", "-c", f"from {package}.cli.launch import main; main()"]
    given = {"HOME": context.home, "REMOTE": context.remote, "TOKEN": context.token}
    environment = {
        **{name: value for name, value in os.environ.items() if name not in {f"BUDWOOD_{each}" for each in given}},
        **{f"BUDWOOD_{name}": str(value) for name, value in given.items() if value},
    }
    assert context.home is not None
    command = [*entry, "mount", "--foreground", "--detached", *flags, "--", str(directory)]
    status, line = start(command, context.home, environment, past=directory if past else None)
    if status:
        print(line, file=sys.stderr)
        raise typer.Exit(status)
    return line


def umount(
    context: Context,
    # No Path, here too.
    directory: Annotated[str, argument("DIR", "The directory.")],
    push: Annotated[bool, flag("--push", "Push what is unpushed before.")] = False,
) -> None:
    """Take a mount away, and say what is unpushed."""
    from ..fuse.host.unmount import unmount

    mount = _mount_on(directory)
    if not mount.alive:
        unmount(mount)
        left = "" if mount.past else f"; the next mount of {mount.home} recovers what it left"
        say(f"unmounted {mount.directory}, whose process had died{left}")
        return
    # The past has nothing to push, whatever its home has.
    unpushed = {} if mount.past else _settled(mount)
    if push and not mount.past:
        _push(mount, unpushed)
        unpushed = _settled(mount)
    unmount(mount)
    say(f"unmounted {mount.directory}")
    _say_unpushed(unpushed, "" if not unpushed or mount.home == context.real_home() else f" --home {mount.home}")


def _mount_on(directory: str) -> MountInfo:
    from ..fuse.host.mount_client import info_of
    from ..fuse.host.mountinfo import find

    found = find(directory)
    if found is None:
        raise NotFound(f"nothing is mounted on {directory}: budwood mounts lists what is")
    if not found.ours:
        raise UsageError(f"{directory} is a mount of another kind ({found.kind}): umount {directory}")
    return info_of(found)


def _settled(mount: MountInfo) -> dict[str, int]:
    """Unpushed commits by volume, once everything that programs committed is among them. What has no remote has nothing
    to push."""
    from ..fuse.host.mount_client import ask

    ask(mount.home, "settle", timeout_seconds=_SETTLE_SECONDS)
    rows = ask(mount.home, "status", timeout_seconds=_SETTLE_SECONDS)
    return _unpushed(row for row in rows if row["remote"] or mount.options.get("remote"))


def _unpushed(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    return {row["name"]: row["unpushed"] for row in rows if row["unpushed"]}


def _say_unpushed(unpushed: dict[str, int], where: str) -> None:
    commits = count_of(sum(unpushed.values()), "commit")
    if len(unpushed) == 1:
        (name,) = unpushed
        say(f"{name} has {commits} to push: budwood push {name}{where}")
    elif unpushed:
        say(f"{count_of(len(unpushed), 'volume')} have {commits} to push: budwood push --all{where}")


def _push(mount: MountInfo, unpushed: dict[str, int]) -> None:
    """What keeps one volume from it (it has diverged) is not the others' trouble. Raises the first error, once the rest
    is pushed.
    """
    from ..fuse.host.mount_client import ask

    try:
        ask(mount.home, "push")
    except BudwoodError as error:
        left = unpushed
        with suppress(BudwoodError):
            left = _settled(mount)
        _say_pushed(unpushed, left)
        raise _stays(mount, error, len(left) if isinstance(error, UsageError) else 0) from error
    _say_pushed(unpushed, _settled(mount))


def _say_pushed(unpushed: dict[str, int], left: dict[str, int]) -> None:
    pushed = {name: commits for name, commits in unpushed.items() if name not in left}
    if pushed:
        what = next(iter(pushed)) if len(pushed) == 1 else count_of(len(pushed), "volume")
        say(f"pushed {count_of(sum(pushed.values()), 'commit')} of {what}")


def _stays(mount: MountInfo, error: BudwoodError, volumes: int) -> BudwoodError:
    """The same error, told of the mount."""
    others = f"; nor can {count_of(volumes - 1, 'other volume')} be pushed: budwood status" if volumes > 1 else ""
    return restored(type(error), (f"{mount.directory} stays mounted: {error}{others}",), vars(error))


def mounts(context: Context, as_json: Json = False) -> None:
    """List the mounts of this machine, dead ones too."""
    from ..fuse.host.mount_client import mounts as all_mounts

    rows = [_row(info) for info in all_mounts()]
    if as_json:
        write_json(rows)
        return
    write_table(
        [Column("dir"), Column("home"), Column("mode"), Column("pid", "right"), Column("remote"), Column("unpushed")],
        [[row["dir"], row["home"], row["mode"], _pid(row), row["remote"] or "none", _to_push(row)] for row in rows],
        empty="no mounts",
    )


def _row(info: MountInfo) -> dict[str, Any]:
    from ..fuse.host.mount_client import ask

    unpushed = 0 if info.past else None
    if info.alive and not info.past:
        try:
            unpushed = sum(_unpushed(ask(info.home, "status", timeout_seconds=_LOOK_SECONDS)).values())
        except (Unavailable, UsageError):
            # It ends just now, or is another user's: the listing says what it can.
            unpushed = None
    return {
        "dir": str(info.directory),
        "home": str(info.home),
        "mode": info.mode,
        "alive": info.alive,
        "stopped": info.stopped,
        "pid": info.pid,
        "remote": info.options.get("remote") or "",
        "unpushed": unpushed,
    }


def _pid(row: dict[str, Any]) -> str:
    if not row["alive"]:
        return "dead"
    return f"{row['pid']}, stopped" if row["stopped"] else str(row["pid"] or "unknown")


def _to_push(row: dict[str, Any]) -> str:
    return "unknown" if row["unpushed"] is None else count_of(row["unpushed"], "commit")


VERBS: Final[dict[str, Callable[..., None]]] = {"mount": mount, "umount": umount, "mounts": mounts}

"""Unmount: take a mount away from outside of its process, and see the process end.

The kernel decides whether it is in use: an unmount that were done by the process itself would leave every program with
an open file on its own. So `fusermount3 -u` comes first, and the process ends because its mount has gone. A dead mount
has nobody left who could lose anything: its connection is ended, which frees whoever still waits for an answer (its own
process among them, if that can't end for it), and it is taken away even from under those who stand in it.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ...volume.errors import Busy, Unavailable, UsageError
from .locker import abort
from .mount_client import LOG, MountInfo
from .mountinfo import find
from .process_state import child_of

END_SECONDS: Final = 60.0
"""What a mount process has left to do once its mount has gone is local: closing files, removing sidecars."""

_BUSY_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.05
_NAMED: Final = 3
_TRY_SECONDS: Final = 30.0


def unmount(mount: MountInfo) -> None:
    """Unmount and, if a process serves it, return once that has ended. Raises Busy, naming who uses it."""
    ending = _watched(mount.pid)
    try:
        _detach(mount)
        if ending is not None and not select.select([ending], [], [], END_SECONDS)[0]:
            raise Unavailable(
                f"{mount.directory} is unmounted, but its process {mount.pid} has not ended in {END_SECONDS:g} s:"
                f" look at {mount.folder / LOG}"
            )
    finally:
        if ending is not None:
            os.close(ending)


def _watched(pid: int | None) -> int | None:
    """A descriptor that becomes readable when the process ends; it can't mean another that gets its number."""
    try:
        return os.pidfd_open(pid) if pid else None
    except ProcessLookupError:
        return None


def _detach(mount: MountInfo) -> None:
    if not mount.alive:
        abort(str(mount.directory), mount.device)
    deadline = time.monotonic() + _BUSY_SECONDS
    while (refusal := _tried(mount.directory)) and "busy" in refusal:
        if not mount.alive:
            refusal = _tried(mount.directory, "-z")
            break
        busy = [each for pid, each in users(mount.directory) if not _serves(pid, mount)]
        # What nobody is seen to use is in use for a moment only, by a command that ends or by the mount itself.
        if busy or time.monotonic() > deadline:
            raise Busy(_in_use(mount.directory, busy))
        time.sleep(_PAUSE_SECONDS)
    if refusal and find(mount.directory) is not None:
        raise UsageError(f"{mount.directory} can't be unmounted: {refusal}")


def _serves(pid: int, mount: MountInfo) -> bool:
    """Whether it is the mount's process, or its locker."""
    return mount.pid is not None and (pid == mount.pid or child_of(pid, mount.pid))


def _tried(directory: Path, *options: str) -> str:
    """What fusermount3 has against it; "" for nothing."""
    program = shutil.which("fusermount3")
    if program is None:
        raise UsageError("unmounting needs the program fusermount3: on Debian apt-get install fuse3")
    try:
        done = subprocess.run(
            [program, "-u", *options, "--", str(directory)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=_TRY_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return f"{program} has not ended within {_TRY_SECONDS:g} s"
    return "" if done.returncode == 0 else (done.stderr.strip().lower() or f"status {done.returncode}")


def _in_use(directory: Path, busy: list[str]) -> str:
    named = ", ".join(busy[:_NAMED]) + (f" and {len(busy) - _NAMED} more" if len(busy) > _NAMED else "")
    by = f" by {named}" if named else ""
    return f"{directory} is in use{by}: close the files, leave the directory, then try again; nothing was unmounted"


def users(directory: Path) -> Iterator[tuple[int, str]]:
    """The processes that have a file open within the directory, or stand in it: (pid, "name (pid)"), as far as we may
    look. Nothing of the directory itself is touched.
    """
    for pid in filter(str.isdigit, os.listdir("/proc")):
        process = f"/proc/{pid}"
        if any(_within(link, directory) for link in _links(process)):
            yield int(pid), f"{_name(process)} ({pid})"


def _links(process: str) -> Iterator[str]:
    for each in ("cwd", "root", "exe"):
        yield _target(f"{process}/{each}")
    try:
        files = os.listdir(f"{process}/fd")
    except OSError:
        return
    for each in files:
        yield _target(f"{process}/fd/{each}")


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:  # the process has ended, or is not ours to look at
        return ""


def _within(path: str, directory: Path) -> bool:
    return path == str(directory) or path.startswith(f"{directory}/")


def _name(process: str) -> str:
    try:
        return Path(process, "comm").read_text().strip()
    except OSError:
        return "a process"

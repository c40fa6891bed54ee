"""Mount lock: a home belongs to one mount process. The lock goes with the process that dies: nothing is left to tidy.
Mounts that show the past write nothing, and have a lock each: what dead ones left the next one tidies.

The kernel's locks that programs take on files of a mount hold within that mount alone. Two mounts of one home would let
two programs write one database at once.

A process that has lost its mount still has work to do (a -wal goes into its volume), and holds the home until it ends.
Who mounts the home next waits for that.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from ...sync.ballast import Ballast
from ...sync.file_locks import FileLock
from ...sync.home_permissions import make_home, make_private_dir, open_private
from ...sync.lmdb_errors import NO_ROOM
from ...volume.errors import Busy
from .checks import already, is_mounted
from .mount_client import LOCK, PAST, SOCKET, STATE, folder, stated_in
from .mountinfo import table

_ENDING_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.05


@contextmanager
def hold_home(home: Path, directory: Path, options: Mapping[str, Any], *, past: bool = False) -> Generator[None]:
    """Hold the home for a mount on `directory`, or that directory alone for one of the past, and say so in mount.json.
    `options` must be fit for JSON.

    Raises Busy, saying where the home is mounted, if another process has it.
    """
    own = make_folder(home, directory if past else None)
    state = {
        "pid": os.getpid(),
        "dir": str(directory),
        "options": dict(options),
        "socket": str(own / SOCKET),
        "started": time.time_ns() // 1_000_000,
    }
    with _lock_past(home, directory) if past else _lock(home):
        try:
            try:
                _say(own, state)
            except OSError as error:
                # Programs may want to remove something, and come by the mount.
                if error.errno not in NO_ROOM or not Ballast(home / "store").drop():
                    raise
                _say(own, state)
            yield
        finally:
            (own / STATE).unlink(missing_ok=True)
        if past:
            shutil.rmtree(own)


def _say(own: Path, state: Mapping[str, Any]) -> None:
    fresh = own / f"{STATE}.new"
    with open(open_private(fresh, os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(json.dumps(state) + "\n")
    fresh.replace(own / STATE)


def make_folder(home: Path, past: Path | None) -> Path:
    """Where a mount process of the home keeps its state."""
    make_home(home)
    make_private_dir(folder(home))
    own = folder(home, past)
    make_private_dir(own)
    return own


def _lock(home: Path) -> FileLock:
    deadline = time.monotonic() + _ENDING_SECONDS
    while True:
        try:
            return FileLock(str(folder(home) / LOCK), already(home))
        except Busy:
            if is_mounted(home) or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)


def _lock_past(home: Path, directory: Path) -> FileLock:
    """And remove what dead mounts of the past have left, those that still stand in the kernel's table excepted."""
    own = folder(home, directory)
    lock = FileLock(str(own / LOCK), f"the past of {home} is mounted at {directory} already")
    mounted = {str(mount.directory) for mount in table()}
    for other in folder(home).glob(f"{PAST}*"):
        # One that is being started has said nothing yet.
        if other != own and stated_in(other).get("dir", "") not in {"", *mounted}:
            with suppress(Busy), FileLock(str(other / LOCK), ""):
                shutil.rmtree(other)
    return lock

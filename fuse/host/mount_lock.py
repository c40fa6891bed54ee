"""Mount lock: a home belongs to one mount process. The lock goes with the process that dies: nothing is left to tidy.

The kernel's locks that programs take on files of a mount hold within that mount alone. Two mounts of one home would let
two programs write one database at once.

A process that has lost its mount still has work to do (a -wal goes into its volume), and holds the home until it ends.
Who mounts the home next waits for that.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ...sync.file_locks import FileLock
from ...sync.home_permissions import make_home, make_private_dir, open_private
from ...volume.errors import Busy
from .checks import already, is_mounted
from .mount_client import LOCK, SOCKET, STATE, folder

_ENDING_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.05


@contextmanager
def hold_home(home: Path, directory: Path, options: Mapping[str, Any]) -> Generator[None]:
    """Hold the home for a mount on `directory`, and say so in mount.json. `options` must be fit for JSON.

    Raises Busy, saying where the home is mounted, if another process has it.
    """
    own = folder(home)
    make_home(home)
    make_private_dir(own)
    state = {
        "pid": os.getpid(),
        "dir": str(directory),
        "options": dict(options),
        "socket": str(own / SOCKET),
        "started": time.time_ns() // 1_000_000,
    }
    with _lock(home):
        try:
            fresh = own / f"{STATE}.new"
            with open(open_private(fresh, os.O_WRONLY | os.O_TRUNC), "w") as file:
                file.write(json.dumps(state) + "\n")
            fresh.replace(own / STATE)
            yield
        finally:
            (own / STATE).unlink(missing_ok=True)


def _lock(home: Path) -> FileLock:
    deadline = time.monotonic() + _ENDING_SECONDS
    while True:
        try:
            return FileLock(str(folder(home) / LOCK), already(home))
        except Busy:
            if is_mounted(home) or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_SECONDS)

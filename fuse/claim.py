"""Claim: a home belongs to one mount process. The lock goes with the process that dies: nothing is left to tidy.

The kernel's locks that programs take on files of a mount hold within that mount alone. Two mounts of one home would let
two programs write one database at once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..sync.locks import FileLock
from .checks import already
from .client import LOCK, SOCKET, STATE, folder

__all__ = ["claim"]


@contextmanager
def claim(home: Path, directory: Path, options: Mapping[str, Any]) -> Generator[None]:
    """Hold the home for a mount on `directory`, and say so in mount.json. `options` must be fit for JSON.

    Raises Busy, saying where the home is mounted, if another process has it.
    """
    own = folder(home)
    own.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = {
        "pid": os.getpid(),
        "dir": str(directory),
        "options": dict(options),
        "socket": str(own / SOCKET),
        "started": time.time_ns() // 1_000_000,
    }
    with FileLock(str(own / LOCK), already(home)):
        try:
            fresh = own / f"{STATE}.new"
            fresh.write_text(json.dumps(state) + "\n")
            fresh.replace(own / STATE)
            yield
        finally:
            (own / STATE).unlink(missing_ok=True)

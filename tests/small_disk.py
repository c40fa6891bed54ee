"""A small disk: a file system of its own, which fills up and has room again."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_PIECE_BYTES: Final = 1 << 20


@contextmanager
def small_disk(folder: Path, size_kib: int) -> Generator[Path]:
    """Mounted on `folder`, which is made. Skips the test where nothing may be mounted."""
    folder.mkdir()
    options = f"size={size_kib}k"
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "budwood-test", str(folder)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("a small disk takes the right to mount one")
    try:
        yield folder
    finally:
        # Whoever was left in it by a failure is ended later.
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, left_bytes: int = 0) -> None:
    """Until no more than that is free."""
    room = os.statvfs(disk)
    wanted = room.f_bavail * room.f_frsize - left_bytes
    with (disk / "filler").open("ab", buffering=0) as filler:
        while wanted > 0:
            try:
                wanted -= filler.write(bytes(min(wanted, _PIECE_BYTES))) or wanted
            except OSError:
                return


def relieve(disk: Path) -> None:
    """Of what filled it."""
    (disk / "filler").unlink(missing_ok=True)

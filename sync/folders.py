"""Folders: what is made, removed or renamed in one outlives a power loss once it was flushed."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path


def flush_folder(folder: Path) -> None:
    """Where the file system can do that. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(fd)


def make_folders(folder: Path) -> None:
    """As any program makes them, with all that are missing above, each of them flushed. Raises OSError."""
    if not folder.is_dir():
        make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        flush_above(folder)


def flush_above(path: Path) -> None:
    """The name of a file or folder, where this process may read the folder that it is in. Raises OSError."""
    with suppress(PermissionError):
        flush_folder(path.parent)

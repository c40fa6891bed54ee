"""Home permissions: a home is its owner's alone.

What Budwood makes in a home is for its owner's eyes and hands (0700, 0600), the home's own directory included if
Budwood makes it; one that stood before keeps its mode. Parts of a home that are wider, as earlier versions made them,
are tightened by their owner when the home is opened. The process's umask is left alone.

Nobody is led astray by a home that somebody else made: of such a home no symbolic link is followed, and only root
writes to it. A link in one's own home is one's own, and followed. Looked at when the home is opened.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from ..volume.errors import Unauthorized
from .folders import make_folders

_PARTS: Final = ("store", "locks", "tmp", "cache", "mount")
_STORE: Final = ("data.mdb", "lock.mdb", "sound", "journal", "shared", "touched")
_FILES: Final = ("home.json", *(f"store/{name}" for name in _STORE))
_ROOT: Final = 0


def make_home(home: Path) -> None:
    """The folders above it are made as any program makes them."""
    make_folders(home.parent)
    make_private_dir(home)


def make_private_dir(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)


def open_private(path: str | Path, flags: int) -> int:
    """Made if it isn't there; its descriptor. No link is followed."""
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def check_permissions(home: Path) -> None:
    """Raises Unauthorized where this process would be led, or let, to what isn't its own. Tightens what is."""
    owner, me = os.stat(home).st_uid, os.geteuid()
    ours = owner in (me, _ROOT)
    paths = [home / each for each in (*_PARTS, *_FILES)]
    if not ours:
        # Whoever made it may have put anything anywhere.
        paths += [Path(entry) for part in _PARTS if part != "cache" for entry in _entries(home / part)]
    for path in paths:
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(found.st_mode):
            if not ours or found.st_uid not in (me, _ROOT):
                raise Unauthorized(f"{path} is a link that somebody else made: take a home of your own with --home")
        elif found.st_uid not in (me, _ROOT, owner):
            raise Unauthorized(f"{path} belongs to another user: take a home of your own with --home")
        elif found.st_uid == me and found.st_mode & 0o077:
            _tighten(path, found.st_mode & 0o700)


def is_foreign(home: Path) -> bool:
    """It is somebody else's."""
    return os.geteuid() not in (_ROOT, owner := os.stat(home).st_uid) and owner != _ROOT


def _entries(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries]
    except OSError:
        return []


def _tighten(path: Path, mode: int) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        # Not even its owner may open it, or it has just gone.
        return
    try:
        os.fchmod(fd, mode)
    except OSError:
        # On a file system that is read-only it stays as it is.
        pass
    finally:
        os.close(fd)

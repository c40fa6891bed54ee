"""The kernel's table of mounts, as text: which directory is a mount, of what.

Read from /proc, never by looking at a directory itself: one whose mount process hangs or is dead blocks whoever does,
or fails. A mount of ours has the type `fuse.budwood` and its home as the source.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Final, NamedTuple

TYPE: Final = "fuse.budwood"

_TABLE: Final = "/proc/self/mountinfo"
_MOST_LINKS: Final = 40
"""As the kernel follows."""
_OCTAL: Final = re.compile(rb"\\([0-7]{3})")


class Mountpoint(NamedTuple):
    directory: Path
    kind: str
    """The file system's type: ext4, fuse.budwood."""
    source: str
    options: frozenset[str]
    """Of the mount and of the file system: ro, allow_other, …"""
    device: int
    """The minor number of its device, by which the kernel knows a FUSE connection."""

    @property
    def ours(self) -> bool:
        return self.kind == TYPE


def table() -> list[Mountpoint]:
    """Every mount that this process sees, in the order they were made; the last on a directory covers the others."""
    with open(_TABLE, "rb") as file:
        return parse(file.read())


def find(directory: str | os.PathLike[str], mounts: list[Mountpoint] | None = None) -> Mountpoint | None:
    """The mount on `directory` itself, which isn't looked at."""
    mounts = table() if mounts is None else mounts
    by_path = {mount.directory: mount for mount in mounts}
    return by_path.get(Path(os.path.abspath(directory))) or by_path.get(real(directory, mounts))


def real(directory: str | os.PathLike[str], mounts: list[Mountpoint] | None = None) -> Path:
    """The path without links, as the table has it: as `os.path.realpath`, except that a mount of ours is not looked at,
    nor what lies in it, since the process behind it may be dead or stopped.
    """
    ours = {mount.directory for mount in (table() if mounts is None else mounts) if mount.ours}
    found, left, links = Path("/"), list(reversed(Path(os.getcwd(), directory).parts[1:])), 0
    while left:
        part = left.pop()
        found = found.parent if part == ".." else found / part
        if found in ours:
            return found.joinpath(*reversed(left))
        try:
            target = Path(os.readlink(found))
        except OSError:
            # No link; or nothing, and then nor is the rest.
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(directory))
        left += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        found = Path("/") if target.is_absolute() else found.parent
    return found


def parse(text: bytes) -> list[Mountpoint]:
    """Lines of /proc/PID/mountinfo: id parent dev root DIRECTORY OPTIONS [tag…] - TYPE SOURCE SUPER-OPTIONS."""
    mounts: list[Mountpoint] = []
    for line in text.splitlines():
        before, _, after = line.partition(b" - ")
        left, right = before.split(b" "), after.split(b" ")
        options = {_plain(option) for field in (left[5], right[2]) for option in field.split(b",")}
        device = int(left[2].partition(b":")[2])
        mounts.append(Mountpoint(Path(_plain(left[4])), _plain(right[0]), _plain(right[1]), frozenset(options), device))
    return mounts


def source_option(home: Path) -> str:
    """The FUSE option that names a mount's source. libfuse parts options at commas, unless they are escaped."""
    return "fsname=" + str(home).replace("\\", "\\\\").replace(",", "\\,")


def _plain(field: bytes) -> str:
    """The kernel writes blanks, tabs, line feeds, backslashes and `#` as octal."""
    return os.fsdecode(_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), field))

"""A mount and a plain directory, driven by the same calls: the same bytes, sizes and errnos after each of them.

The plain directory is the model. Beside the calls, the machine takes the mount away and brings it back:

- cleanly: then everything is there again;
- by SIGKILL: then every change of names, modes and times is there, and of each file what was fsynced or closed; a file
  with writes after that has the content of some moment since then, whole: never a mixture.

A time that was set lies in the past here (`PAST`), one that a write set does not: so whether a set time was kept, or
was moved by a write, can be compared without knowing when anything was written.

One mount serves all examples; each has a fresh folder in it. MOUNT_DIRECTORY names a folder to drive instead, so
that the machine can be tried itself.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import mmap
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ..mounts import MODULE_SECONDS, Mount, mounted, needs_fuse

pytestmark = needs_fuse

PAST = 1_500_000_000_000_000_000
"""Nanoseconds; the years before it are for times that a test sets."""

RENAME_NOREPLACE = 1
AT_FDCWD = -100

NAMES = ("a", "b", "c.txt", "d", "d/a", "d/b", "d/e", "d/e/a", "e", "e/a", "é ü", "l", "l/a", "no/where", "n" * 255)
LINKED = ("a", "d", "../d/a", "d/e", "l", "nothing", "x" * 300)
EDGES = (0, 1, 7, 511, 4095, 4096, 4097, 8191, 8192, 12_289, 65_535, 65_536, 131_072, 131_075, 270_001)


def pattern(byte: int, length: int) -> bytes:
    """Bytes whose period is no power of two, so that a page in the place of another shows."""
    return (bytes((byte + at * 7) & 255 for at in range(61)) * (length // 61 + 1))[:length]


places = st.sampled_from(EDGES) | st.integers(0, 300_000)
lengths = st.sampled_from((0, 1, 2, 100, 4096, 4097, 8192, 140_000)) | st.integers(0, 20_000)
contents = st.builds(pattern, st.integers(0, 255), lengths)
times = st.integers(0, PAST)
modes = st.sampled_from((0o644, 0o600, 0o755, 0o444, 0o000, 0o1777))
flags = st.sampled_from(
    (
        os.O_RDONLY,
        os.O_RDONLY | os.O_TRUNC,
        os.O_RDONLY | os.O_NOFOLLOW,
        os.O_RDONLY | os.O_CREAT,
        os.O_RDWR,
        os.O_RDWR | os.O_TRUNC,
        os.O_RDWR | os.O_APPEND,
        os.O_RDWR | os.O_CREAT,
        os.O_RDWR | os.O_CREAT | os.O_TRUNC,
        os.O_RDWR | os.O_CREAT | os.O_EXCL,
        os.O_WRONLY,
        os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
        os.O_WRONLY | os.O_CREAT | os.O_APPEND,
        os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND,
    )
)

_libc = ctypes.CDLL(None, use_errno=True)


def rename_without_replacing(old: str, new: str) -> None:
    if _libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), RENAME_NOREPLACE) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


class Refused(str):
    """The name of an errno."""


@dataclass
class Side:
    """One of the two trees, and what is open in it."""

    root: Path
    fds: dict[int, int] = field(default_factory=dict[int, int])

    def __truediv__(self, name: str) -> str:
        return f"{self.root}/{name}"

    def outcome(self, call: Callable[[Side], object]) -> object:
        try:
            return call(self)
        except OSError as error:
            return Refused(errno.errorcode.get(error.errno or 0, str(error)))

    def close(self) -> None:
        for fd in self.fds.values():
            with suppress(OSError):
                os.close(fd)
        self.fds.clear()

    def walk(self) -> Iterator[tuple[str, os.stat_result]]:
        for folder, directories, files in os.walk(self.root):
            for name in sorted([*directories, *files]):
                path = os.path.join(folder, name)
                yield os.path.relpath(path, self.root), os.lstat(path)


def content_of(fd: int, *, cached: bool) -> bytes:
    """All of it; from the file system and not the kernel's cache, if so told."""
    if not cached:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return b"".join(iter(_reader(fd), b""))


def _reader(fd: int) -> Callable[[], bytes]:
    offsets = itertools.count(0, 1 << 20)
    return lambda: os.pread(fd, 1 << 20, next(offsets))


def told(found: os.stat_result, *, dirty: bool = False) -> tuple[object, ...]:
    """What must be the same of a file's attributes: a directory's size and links are the file system's own matter. Of
    a `dirty` file the time may not have moved yet: a mount moves it when it commits.
    """
    plain = not stat.S_ISDIR(found.st_mode)
    size, links = (found.st_size, found.st_nlink) if plain else (0, 0)
    moved = "now" if found.st_mtime_ns > PAST else str(found.st_mtime_ns)
    timeless = dirty or stat.S_ISLNK(found.st_mode)
    return oct(found.st_mode), found.st_uid, found.st_gid, size, links, "any" if timeless else moved


def difference(plain: object, mount: object) -> str:
    if isinstance(plain, bytes) and isinstance(mount, bytes) and not isinstance(plain, Refused):
        first = next((at for at, pair in enumerate(zip(plain, mount, strict=False)) if pair[0] != pair[1]), None)
        at = min(len(plain), len(mount)) if first is None else first
        return (
            f"{len(plain)} bytes and {len(mount)}; at {at} a plain directory has {plain[at : at + 12]!r}, "
            f"the mount {mount[at : at + 12]!r}"
        )
    return f"a plain directory says {plain!r:.400}, the mount {mount!r:.400}"


class Files(RuleBasedStateMachine):
    mount: ClassVar[Mount | None]
    instead: ClassVar[Path]
    folder: ClassVar[Path]
    count: ClassVar[Iterator[int]]

    @initialize(ending=st.sampled_from(("look", "look", "look", "look", "look", "look", "remount", "crash")))
    def begin(self, ending: str) -> None:
        if self.mount is not None and not self.mount.lives:
            self.mount.end()
            self.mount.start()
        name = f"example {next(self.count)}"
        root = self.instead if self.mount is None else self.mount.directory
        self.sides = Side(self.folder / "plain" / name), Side(root / name)
        self.plain, self.mounted = self.sides
        self.ending, self.handles, self.failed = ending, itertools.count(), False
        self.unsure: dict[int, set[bytes] | None] = {}
        """By the plain file's inode: the contents that a crash may leave, if not only the present one. None: any."""
        self.dirty: set[int] = set()
        """The plain files' inodes that were written to since their time was set."""
        self.plain.root.parent.mkdir(exist_ok=True)
        for side in self.sides:
            side.root.mkdir()
        self.both("mkdir d", lambda side: os.mkdir(side / "d"))
        self.both("write a", lambda side: Path(side / "a").write_bytes(b"some bytes to begin with\n" * 400))
        self.both("write d/a", lambda side: Path(side / "d/a").write_bytes(b"x"))
        self._open("a", os.O_RDWR, 0)

    def teardown(self) -> None:
        if not hasattr(self, "sides"):
            return
        try:
            if not self.failed:
                self.end()
        finally:
            for side in self.sides:
                side.close()
            shutil.rmtree(self.plain.root)
            if self.mount is None or self.mount.lives:
                shutil.rmtree(self.mounted.root, ignore_errors=self.failed)

    def end(self) -> None:
        match self.ending:
            case "remount":
                self.remount()
            case "crash":
                self.crash(synced=True)
            case _:
                self.look_at_everything(cached=False)

    def both(self, what: str, call: Callable[[Side], object]) -> object:
        """What the call came to, which is the same on both sides, or the test fails."""
        plain, mount = (side.outcome(call) for side in self.sides)
        self.failed = plain != mount
        assert not self.failed, f"{what}: {difference(plain, mount)}"
        return plain

    def _draw_name(self, data: st.DataObject) -> str:
        """Often one that there is."""
        here = [path for path, _ in self.plain.walk()]
        known = data.draw(st.sampled_from((True, True, True, False)))
        return data.draw(st.sampled_from(here if here and known else NAMES), "name")

    def _draw_handle(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(list(self.plain.fds)), "handle")

    def _with_handle(self, what: str, handle: int, call: Callable[[int], object]) -> object:
        return self.both(f"{what} of handle {handle}", lambda side: call(side.fds[handle]))

    def _check_handle(self, handle: int) -> None:
        self._check_attributes(handle)
        self.both("content", lambda side: content_of(side.fds[handle], cached=True))

    def _check_attributes(self, handle: int) -> None:
        dirty = self._is_dirty(os.fstat(self.plain.fds[handle]))
        self._with_handle("fstat", handle, lambda fd: told(os.fstat(fd), dirty=dirty))

    def _is_dirty(self, found: os.stat_result) -> bool:
        """Whether its time may not have moved on the mount: a directory's is kept when it is set, and else not."""
        return found.st_ino in self.dirty or (stat.S_ISDIR(found.st_mode) and found.st_mtime_ns > PAST)

    def _check_name(self, name: str) -> None:
        for act in (os.lstat, os.stat):
            self._check_stat(name, act)

    def _check_stat(self, name: str, act: Callable[[str], os.stat_result]) -> None:
        found = self.plain.outcome(lambda side: act(side / name))
        dirty = isinstance(found, os.stat_result) and self._is_dirty(found)
        self.both(f"{act.__name__} {name!r}", lambda side: told(act(side / name), dirty=dirty))

    # What a crash may leave.

    def _content_here(self, inode: int) -> bytes | None:
        for path, found in self.plain.walk():
            if found.st_ino == inode and stat.S_ISREG(found.st_mode):
                return Path(self.plain / path).read_bytes()
        return None

    def _before_write(self, handle: int) -> None:
        inode = os.fstat(self.plain.fds[handle]).st_ino
        self.dirty.add(inode)
        if inode not in self.unsure and (content := self._content_here(inode)) is not None:
            self.unsure[inode] = {content}

    def _after_write(self, handle: int, *, torn: bool = False) -> None:
        inode = os.fstat(self.plain.fds[handle]).st_ino
        seen = self.unsure.get(inode)
        if torn:
            self.unsure[inode] = None
        elif seen is not None and (content := self._content_here(inode)) is not None:
            seen.add(content)

    def _committed(self, inode: int) -> None:
        self.unsure.pop(inode, None)

    # Calls on names.

    @precondition(lambda self: len(self.plain.fds) < 6)
    @rule(data=st.data(), flag=flags, mode=modes)
    def open(self, data: st.DataObject, flag: int, mode: int) -> None:
        self._open(self._draw_name(data), flag, mode)

    def _open(self, name: str, flag: int, mode: int) -> None:
        handle = next(self.handles)

        def call(side: Side) -> None:
            side.fds[handle] = os.open(side / name, flag, mode)

        path = self.plain / name
        existed = os.path.exists(path)
        before = _read(path) if flag & os.O_TRUNC and os.path.isfile(path) else None
        outcome = self.both(f"open {name!r} with {flag:#o}", call)
        if isinstance(outcome, Refused):
            return
        inode = os.fstat(self.plain.fds[handle]).st_ino
        if not existed:
            self._committed(inode)
            self.dirty.discard(inode)
        elif before is not None:
            # What is cut when it is opened may be committed with what is written then.
            self.dirty.add(inode)
            seen = self.unsure.setdefault(inode, {before})
            if seen is not None:
                seen.add(b"")

    @rule(data=st.data(), size=places)
    def truncate(self, data: st.DataObject, size: int) -> None:
        name = self._draw_name(data)
        outcome = self.both(f"truncate {name!r} to {size}", lambda side: os.truncate(side / name, size))
        if not isinstance(outcome, Refused):
            self.dirty.add(os.stat(self.plain / name).st_ino)
            seen = self.unsure.get(os.stat(self.plain / name).st_ino)
            if seen is not None:
                seen.add(Path(self.plain / name).read_bytes())

    @rule(data=st.data(), replace=st.sampled_from((True, True, True, False)))
    def rename(self, data: st.DataObject, replace: bool) -> None:
        old, new = self._draw_name(data), self._draw_name(data)
        over = os.path.lexists(self.plain / new)
        act = os.rename if replace else rename_without_replacing
        outcome = self.both(f"{act.__name__} {old!r} to {new!r}", lambda side: act(side / old, side / new))
        if over and not isinstance(outcome, Refused) and old != new:
            self._committed(os.lstat(self.plain / new).st_ino)
            self.both("content after a rename", lambda side: _read(side / new))

    @rule(data=st.data(), content=contents)
    def save_atomically(self, data: st.DataObject, content: bytes) -> None:
        """As an editor does."""

        name = self._draw_name(data)

        def call(side: Side) -> None:
            fd = os.open(side / "saving~", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640)
            try:
                os.write(fd, content)
                os.fsync(fd)
            finally:
                os.close(fd)
            try:
                os.rename(side / "saving~", side / name)
            except OSError:
                os.unlink(side / "saving~")
                raise

        self.both(f"save {name!r}", call)

    @rule(data=st.data())
    def unlink(self, data: st.DataObject) -> None:
        name = self._draw_name(data)
        self.both(f"unlink {name!r}", lambda side: os.unlink(side / name))

    @rule(data=st.data())
    def rmdir(self, data: st.DataObject) -> None:
        name = self._draw_name(data)
        self.both(f"rmdir {name!r}", lambda side: os.rmdir(side / name))

    @rule(data=st.data(), mode=modes)
    def mkdir(self, data: st.DataObject, mode: int) -> None:
        name = self._draw_name(data)
        self.both(f"mkdir {name!r}", lambda side: os.mkdir(side / name, mode))

    @rule(leads_to=st.sampled_from(LINKED), name=st.sampled_from(("l", "d/l", "e", "b")))
    def symlink(self, leads_to: str, name: str) -> None:
        self.both(f"symlink {name!r}", lambda side: os.symlink(leads_to, side / name))
        self.both(f"readlink {name!r}", lambda side: os.readlink(side / name))

    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        name = self._draw_name(data)
        self._check_name(name)
        self.both(f"readlink {name!r}", lambda side: os.readlink(side / name))
        self.both(f"list {name!r}", lambda side: _listed(side / name))
        self.both(f"open a folder {name!r}", lambda side: _sync_folder(side / name))
        self.both(f"read {name!r}", lambda side: _read(side / name))

    @rule(data=st.data(), mode=modes)
    def chmod(self, data: st.DataObject, mode: int) -> None:
        name = self._draw_name(data)
        self.both(f"chmod {name!r}", lambda side: os.chmod(side / name, mode))
        self._check_name(name)

    @rule(data=st.data(), accessed=times, modified=times)
    def utime(self, data: st.DataObject, accessed: int, modified: int) -> None:
        name = self._draw_name(data)

        def call(side: Side) -> tuple[int, int]:
            os.utime(side / name, ns=(accessed, modified))
            found = os.stat(side / name)
            return found.st_atime_ns, found.st_mtime_ns

        if not isinstance(self.both(f"utime {name!r}", call), Refused):
            self.dirty.discard(os.stat(self.plain / name).st_ino)

    # Calls on handles.

    @precondition(lambda self: self.plain.fds)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        handle = self._draw_handle(data)
        inode = os.fstat(self.plain.fds[handle]).st_ino
        wrote = fcntl.fcntl(self.plain.fds[handle], fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        self._with_handle("close", handle, os.close)
        for side in self.sides:
            del side.fds[handle]
        if wrote:
            self._committed(inode)

    @precondition(lambda self: self.plain.fds)
    @rule(data=st.data(), offset=places, content=contents)
    def pwrite(self, data: st.DataObject, offset: int, content: bytes) -> None:
        handle = self._draw_handle(data)
        self._before_write(handle)
        self._with_handle(f"pwrite of {len(content)} at {offset}", handle, lambda fd: os.pwrite(fd, content, offset))
        self._after_write(handle)
        self._check_handle(handle)

    @precondition(lambda self: self.plain.fds)
    @rule(data=st.data(), content=contents)
    def write(self, data: st.DataObject, content: bytes) -> None:
        """Where the handle stands, or at the end (O_APPEND)."""
        handle = self._draw_handle(data)
        self._before_write(handle)
        self._with_handle(f"write of {len(content)}", handle, lambda fd: os.write(fd, content))
        self._after_write(handle)
        self._with_handle("position", handle, lambda fd: os.lseek(fd, 0, os.SEEK_CUR))
        self._check_handle(handle)

    @precondition(lambda self: self.plain.fds)
    @rule(data=st.data(), offset=places, length=lengths)
    def pread(self, data: st.DataObject, offset: int, length: int) -> None:
        self._with_handle(
            f"pread of {length} at {offset}", self._draw_handle(data), lambda fd: os.pread(fd, length, offset)
        )

    @precondition(lambda self: self.plain.fds)
    @rule(data=st.data(), length=lengths)
    def read(self, data: st.DataObject, length: int) -> None:
        self._with_handle(f"read of {length}", self._draw_handle(data), lambda fd: os.read(fd, length))

    @precondition(lambda self: self.plain.fds)
    @rule(data=st.data(), size=places)
    def ftruncate(self, data: st.DataObject, size: int) -> None:
        handle = self._draw_handle(data)
        self._before_write(handle)
        self._with_handle(f"ftruncate to {size}", handle, lambda fd: os.ftruncate(fd, size))
        self._after_write(handle)
        self._check_handle(handle)

    @precondition(lambda self: self.plain.fds)
    @rule(data=st.data(), act=st.sampled_from((os.fsync, os.fdatasync)))
    def fsync(self, data: st.DataObject, act: Callable[[int], None]) -> None:
        handle = self._draw_handle(data)
        self._with_handle(act.__name__, handle, act)
        self._committed(os.fstat(self.plain.fds[handle]).st_ino)
        self.both("content", lambda side: content_of(side.fds[handle], cached=False))

    @precondition(lambda self: self.plain.fds)
    @rule(data=st.data(), mode=modes, modified=times)
    def set_attributes(self, data: st.DataObject, mode: int, modified: int) -> None:
        """As `cp -p` does before it closes: what was written before must not move the time again."""
        handle = self._draw_handle(data)
        self._with_handle("fchmod", handle, lambda fd: os.fchmod(fd, mode))
        self._with_handle("futimens", handle, lambda fd: os.utime(fd, ns=(modified, modified)))
        self.dirty.discard(os.fstat(self.plain.fds[handle]).st_ino)
        self._check_attributes(handle)

    @precondition(lambda self: self.plain.fds)
    @rule(
        data=st.data(),
        offset=places,
        content=contents,
        access=st.sampled_from((mmap.ACCESS_WRITE, mmap.ACCESS_COPY, mmap.ACCESS_READ)),
        synced=st.booleans(),
        later=st.none() | places,
    )
    def map(
        self, data: st.DataObject, offset: int, content: bytes, access: int, synced: bool, later: int | None
    ) -> None:
        """Write through a mapping, and beside it by the handle: both see both, unless the mapping is private."""
        handle = self._draw_handle(data)
        self._before_write(handle)

        def call(fd: int) -> tuple[bytes, bytes]:
            with mmap.mmap(fd, 0, access=access) as mapped:
                put = content[: max(0, len(mapped) - offset)]
                before = mapped[offset : offset + 100]
                if access != mmap.ACCESS_READ:
                    mapped[offset : offset + len(put)] = put
                if later is not None:
                    os.pwrite(fd, b"beside", later)
                if synced and access == mmap.ACCESS_WRITE:
                    mapped.flush()
                return before, mapped[:]

        def safely(fd: int) -> object:
            try:
                return call(fd)
            except ValueError as error:
                return str(error)  # An empty file can't be mapped.

        self._with_handle(f"mapped write of {len(content)} at {offset}", handle, safely)
        self._after_write(handle, torn=access == mmap.ACCESS_WRITE)
        self._check_handle(handle)

    @precondition(lambda self: len(self.plain.fds) > 1)
    @rule(data=st.data(), start=places, end=places, length=lengths)
    def copy_range(self, data: st.DataObject, start: int, end: int, length: int) -> None:
        taken, given = self._draw_handle(data), self._draw_handle(data)
        self._before_write(given)
        self.both(
            f"copy {length} from {start} of handle {taken} to {end} of {given}",
            lambda side: os.copy_file_range(side.fds[taken], side.fds[given], length, start, end),
        )
        self._after_write(given)
        self._check_handle(given)

    # The whole.

    @invariant()
    def the_same_inodes_and_attributes(self) -> None:
        if hasattr(self, "sides"):
            dirty = {path for path, found in self.plain.walk() if self._is_dirty(found)}
            self.both("the tree", lambda side: {path: told(found, dirty=path in dirty) for path, found in side.walk()})
            self.both("which names and handles are one file", _alike)

    @rule(cached=st.booleans())
    def look_at_everything(self, cached: bool) -> None:
        for handle in self.plain.fds:
            self._look_at_handle(handle, cached=cached)
        for path, found in self.plain.walk():
            if stat.S_ISREG(found.st_mode):
                self._look_at_file(path, cached=cached)

    def _look_at_handle(self, handle: int, *, cached: bool) -> None:
        self.both(f"content of handle {handle}", lambda side: content_of(side.fds[handle], cached=cached))

    def _look_at_file(self, path: str, *, cached: bool) -> None:
        self.both(f"content of {path!r}", lambda side: _read(side / path, cached=cached))

    @rule()
    def remount(self) -> None:
        for side in self.sides:
            side.close()
        self.unsure.clear()
        if self.mount is not None:
            self.mount.remount()
        self.the_same_inodes_and_attributes()
        self.look_at_everything(cached=False)

    @rule(synced=st.booleans())
    def crash(self, synced: bool) -> None:
        if self.mount is None:
            return
        if synced:
            for handle in self.plain.fds:
                self._with_handle("fsync", handle, os.fsync)
                self._committed(os.fstat(self.plain.fds[handle]).st_ino)
        self.mount.kill()
        for side in self.sides:
            side.close()
        self.mount.start()
        for path, found in self.plain.walk():
            if found.st_ino in self.unsure and stat.S_ISREG(found.st_mode):
                self._take_what_was_left(path, self.unsure[found.st_ino])
        self.unsure.clear()
        self.the_same_inodes_and_attributes()
        self.look_at_everything(cached=False)

    def _take_what_was_left(self, path: str, allowed: set[bytes] | None) -> None:
        """After a crash the mount says how the file stands, within what is allowed."""
        left = Path(self.mounted / path).read_bytes()
        assert allowed is None or left in allowed, (
            f"{path!r} has {len(left)} bytes that it never had as a whole; nearest: "
            + min((difference(content, left) for content in allowed), key=len)
        )
        modified = os.stat(self.mounted / path).st_mtime_ns
        Path(self.plain / path).write_bytes(left)
        os.utime(self.plain / path, ns=(modified, modified))


def _read(path: str, *, cached: bool = True) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        return content_of(fd, cached=cached)
    finally:
        os.close(fd)


def _listed(path: str) -> list[tuple[str, bool, bool, bool]]:
    with os.scandir(path) as entries:
        return sorted(
            (entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink(), entry.is_file(follow_symlinks=False))
            for entry in entries
        )


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _alike(side: Side) -> list[list[str]]:
    """Names and handles, those of one inode together."""
    groups: dict[int, list[str]] = {}
    for path, found in side.walk():
        groups.setdefault(found.st_ino, []).append(path)
    for handle, fd in side.fds.items():
        groups.setdefault(os.fstat(fd).st_ino, []).append(f"handle {handle}")
    return sorted(sorted(group) for group in groups.values())


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The mount of all examples."""
    Files.folder, Files.count = tmp_path_factory.mktemp("files"), itertools.count(1)
    trial = os.environ.get("MOUNT_DIRECTORY")
    if trial:
        Files.mount, Files.instead = None, Path(trial)
        yield
    else:
        with mounted(Files.folder, limit_seconds=MODULE_SECONDS) as mount:
            Files.mount = mount
            yield


# Each example is hundreds of system calls, and every fourth a new mount.
Files.TestCase.settings = settings(
    max_examples=settings().max_examples // 3, stateful_step_count=settings().stateful_step_count
)
TestFiles = pytest.mark.longest(pytest.mark.usefixtures("stand")(Files.TestCase))


@pytest.mark.parametrize("commit", [os.fsync, os.close])
def test_a_commit_moves_the_time_though_someone_looked_before(tmp_path: Path, commit: Callable[[int], None]) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        path = mount.directory / "a"
        path.write_bytes(b"x" * 10_000)
        os.utime(path, ns=(PAST, PAST))
        fd = os.open(path, os.O_RDWR)
        os.pwrite(fd, b"new", 5)
        os.stat(path)
        commit(fd)
        assert os.stat(path).st_mtime_ns > PAST
        if commit is os.fsync:
            os.close(fd)


def test_what_no_volume_can_be_is_refused(tmp_path: Path) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        path = mount.directory / "a"
        path.write_bytes(b"x")
        attempts: tuple[Callable[[], None], ...] = (
            lambda: os.link(path, mount.directory / "b"),
            lambda: os.mkfifo(mount.directory / "b"),
            lambda: os.mknod(mount.directory / "b", stat.S_IFCHR | 0o600, os.makedev(1, 3)),
        )
        for refused in attempts:
            with pytest.raises(OSError, match=r"not (permitted|supported)") as caught:
                refused()
            assert caught.value.errno in (errno.EPERM, errno.EOPNOTSUPP)
        assert os.listdir(mount.directory) in (["a"], ["a", ".budwood"], [".budwood", "a"])

"""Tree: a directory that holds objects as files; blocking calls, for directory_store.py to put into threads.

An object is created in five steps, and only after the last but one is it acknowledged: write a temporary file under
`.tmp/`, fsync it, link it to its name (which fails if the name stands), fsync the name's directory, unlink the
temporary name.

Invariants:
- A name never shows half an object, in any crash: it is linked when its bytes are durable.
- A file with two links may not be durable under its name yet. Whoever reads one first syncs its directory, so that
  nothing that was ever read can vanish. `sweep` syncs before it takes the second link away.
- The directories kept open are durable, and so are all above them: each was opened, then its parent was synced, also
  where it stood already, since another process may have made it a moment before. Kept open, an inode can't be used
  again, and a link into a directory that was pruned meanwhile fails instead of going nowhere.
- What it makes is for its owner alone, the directory itself included. A directory that stood before, and that its group
  may write, is the group's: so is what is made in it, as far as the umask lets it.
- Empty directories are pruned by `remove`, or listings would grow with all that ever was.

Crash windows (each a fault point, each cut by tests/fault/test_store_crash.py):
  store: temp written, not linked · store: linked, directory not synced · store: directory synced, temp not removed
A temporary file left by a crash never shows, and goes at the next open: at once if it was linked, after an hour if not.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from ...volume import faults
from ...volume.errors import (
    AlreadyExists,
    BadInput,
    BudwoodError,
    Full,
    NotFound,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from .listing import walk
from .protocol import Buffer, Data, Keys, Sizes, buffers

_TEMP: Final = ".tmp"
_OLD_SECONDS: Final = 3600
_KEPT_OPEN: Final = 256
_PIECES: Final = 512
"""Buffers given to one writev; the kernel takes 1,024."""
_TRIES: Final = 16
_REMEMBERED: Final = 10_000
_NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_READ: Final = os.O_RDONLY | os.O_CLOEXEC
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
_CLASH: Final = frozenset({errno.ENOTDIR, errno.EISDIR})

_WRITTEN = faults.point("store: temp written, not linked")
_LINKED = faults.point("store: linked, directory not synced")
_SYNCED = faults.point("store: directory synced, temp not removed")


class _Directory:
    """An open directory. One that is no longer kept is closed when the last thread that uses it lets go."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self, close: Callable[[int], None] = os.close) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            close(fd)

    __del__ = close


class Tree:
    """Thread-safe. Any number of processes may use one directory."""

    def __init__(self, path: str, *, create: bool = True, now: Callable[[], float] = time.time) -> None:
        """Opens the directory and sweeps it. Raises NotFound if it isn't there and shan't be made."""
        self.path = os.path.abspath(path)
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Directory] = OrderedDict()
        self._durable: set[tuple[int, int]] = set()
        """Inode and change time of files with two links whose directory this process has synced."""
        try:
            if create:
                _make_root(self.path)
            self._root = _Directory(os.open(self.path, _READ | os.O_DIRECTORY))
            self._mode = 0o770 if os.fstat(self._root.fd).st_mode & stat.S_IWGRP else 0o700
            self._sweep(now())
        except FileNotFoundError as error:
            raise NotFound(f"there is no store at {self.path}: no such directory") from error
        except OSError as error:
            raise _translated(error, f"can't open the store at {self.path}") from error

    def read(self, key: str, start: int, end: int | None, *, at_once: int | None = None) -> tuple[bytes, int] | None:
        """Bytes [start, end) and the object's length; a negative start counts from the end.

        With `at_once` it answers None rather than wait for the disk or read more than so many bytes.
        """
        try:
            fd = os.open(key, _READ, dir_fd=self._root.fd)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.ENOTDIR}:
                raise NotFound(f"no object {key}") from None
            raise _translated(error, f"can't read {key}") from error
        try:
            return self._read(fd, key, start, end, at_once)
        except OSError as error:
            raise _translated(error, f"can't read {key}") from error
        finally:
            os.close(fd)

    def place(self, key: str, data: Data) -> None:
        """Create the object; durable when it returns."""
        name = f"{_TEMP}/{os.getpid():x}-{os.urandom(8).hex()}"
        try:
            self._write(name, buffers(data))
        except OSError as error:
            self._unlink_temp(name)
            raise _translated(error, f"can't write {key}") from error
        _WRITTEN()
        try:
            directory = self._link(name, key)
        except BudwoodError:
            self._unlink_temp(name)
            raise
        except OSError as error:
            self._unlink_temp(name)
            if error.errno in _NO_LINKS:
                raise Unsupported(f"the file system of {self.path} has no hard links, which file:// needs") from error
            raise _translated(error, f"can't create {key}") from error
        _LINKED()
        try:
            os.fsync(directory.fd)
        except OSError as error:
            # The temporary name stays: the second link says that this name may not be durable.
            raise _translated(error, f"can't make {key} durable", determinate=False) from error
        _SYNCED()
        self._unlink_temp(name)

    def replace(self, key: str, data: Data) -> None:
        """The object, whatever stood there; durable when it returns. Its name may be read before it is durable: what
        two_phase_store.py copies is durable elsewhere until then."""
        name = f"{_TEMP}/{os.getpid():x}-{os.urandom(8).hex()}"
        try:
            self._write(name, buffers(data))
            # It must be held: one that nobody holds is closed.
            directory = self._rename(name, key)
            os.fsync(directory.fd)
        except BudwoodError:
            self._unlink_temp(name)
            raise
        except OSError as error:
            self._unlink_temp(name)
            raise _translated(error, f"can't write {key}", determinate=False) from error

    def remove(self, key: str) -> None:
        """Unlink the object and the directories that it leaves empty. Not synced: it may come back at a power loss."""
        try:
            os.unlink(key, dir_fd=self._root.fd)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}:
                raise _translated(error, f"can't delete {key}", determinate=False) from error
        parent = os.path.dirname(key)
        while parent:
            try:
                os.rmdir(parent, dir_fd=self._root.fd)
            except OSError:
                return  # Not empty, or someone else was first.
            parent = os.path.dirname(parent)

    def list(self, prefix: str, start: str, limit: int | None) -> Keys:
        try:
            return walk(self.path, prefix, start, limit)
        except OSError as error:
            raise _translated(error, f"can't list {prefix!r}") from error

    def sizes(self, prefix: str, start: str, limit: int | None) -> Sizes:
        found: Sizes = []
        for key in self.list(prefix, start, limit):
            try:
                found.append((key, os.stat(key, dir_fd=self._root.fd, follow_symlinks=False).st_size))
            except (FileNotFoundError, NotADirectoryError):
                found.append((key, 0))  # Deleted meanwhile: whoever lists in parts counts on it.
            except OSError as error:
                raise _translated(error, f"can't tell the size of {key}") from error
        return found

    def close(self) -> None:
        """Let the directories go. Idempotent."""
        with self._lock:
            for directory in (self._root, *self._kept.values()):
                directory.close()
            self._kept.clear()

    def _read(self, fd: int, key: str, start: int, end: int | None, at_once: int | None) -> tuple[bytes, int] | None:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise NotFound(f"no object {key}")
        identity = (status.st_ino, status.st_ctime_ns)
        if status.st_nlink > 1 and identity not in self._durable:
            if at_once is not None:
                return None
            self._make_durable(key, identity)
        size = status.st_size
        first = max(size + start, 0) if start < 0 else min(start, size)
        length = (size if end is None else min(end, size)) - first
        if at_once is None:
            return _read_span(fd, first, length), size
        data = _read_cached(fd, first, length) if length <= at_once else None
        return None if data is None else (data, size)

    def _make_durable(self, key: str, identity: tuple[int, int]) -> None:
        os.fsync(self._directory(os.path.dirname(key)).fd)
        if len(self._durable) > _REMEMBERED:
            self._durable.clear()
        self._durable.add(identity)

    def _write(self, name: str, pieces: Sequence[Buffer]) -> None:
        self._directory(_TEMP)
        fd = os.open(
            name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self._mode & 0o666, dir_fd=self._root.fd
        )
        try:
            for at in range(0, len(pieces), _PIECES):
                _write_all(fd, pieces[at : at + _PIECES])
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def _link(self, name: str, key: str) -> _Directory:
        return self._moved(os.link, name, key)

    def _rename(self, name: str, key: str) -> _Directory:
        return self._moved(os.rename, name, key)

    def _moved(self, move: Callable[..., None], name: str, key: str) -> _Directory:
        parent, _, last = key.rpartition("/")
        for _ in range(_TRIES):
            try:
                directory = self._directory(parent)
                move(name, last, src_dir_fd=self._root.fd, dst_dir_fd=directory.fd)
                return directory
            except FileExistsError:
                raise self._standing(key) from None
            except FileNotFoundError:
                self._forget(parent)  # Someone pruned it: make it again.
        raise Unavailable(f"can't create {key}: its directory, or the temporary file, vanished {_TRIES} times over")

    def _standing(self, key: str) -> BudwoodError:
        if os.path.isdir(os.path.join(self.path, key)):
            return BadInput(f"{key} can't be an object: other keys have it as their directory")
        return AlreadyExists(f"the object {key} exists")

    def _directory(self, path: str) -> _Directory:
        """The directory, made where missing, and durable with all above it."""
        if not path:
            return self._root
        with self._lock:
            found = self._kept.get(path)
            if found is not None:
                self._kept.move_to_end(path)
                return found
        above, _, name = path.rpartition("/")
        parent = self._directory(above)
        with suppress(FileExistsError):
            os.mkdir(name, self._mode, dir_fd=parent.fd)
        # Open first, sync then: were it pruned and made anew in between, ours is the dead one, and no link into it
        # succeeds.
        made = _Directory(os.open(name, _READ | os.O_DIRECTORY, dir_fd=parent.fd))
        os.fsync(parent.fd)
        with self._lock:
            self._kept[path] = made
            while len(self._kept) > _KEPT_OPEN:
                self._kept.popitem(last=False)
        return made

    def _forget(self, path: str) -> None:
        with self._lock:
            while path:
                self._kept.pop(path, None)
                path = os.path.dirname(path)

    def _unlink_temp(self, name: str) -> None:
        with suppress(OSError):  # Swept, or unreachable; what is left goes at a later open.
            os.unlink(name, dir_fd=self._root.fd)

    def _sweep(self, now: float) -> None:
        linked: list[str] = []
        old: list[str] = []
        for entry in _scan(os.path.join(self.path, _TEMP)):
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # Its writer has just finished.
            if status.st_nlink > 1:
                linked.append(entry.name)
            elif now - status.st_mtime > _OLD_SECONDS:
                old.append(entry.name)
        if linked:
            os.sync()  # Where they are linked to isn't known, so everything is made durable.
        for name in linked + old:
            self._unlink_temp(f"{_TEMP}/{name}")


def _scan(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _make_root(path: str) -> None:
    """The directory, durable in its parent. That one must be there: a path whose beginning is wrong names no store."""
    parent = os.path.dirname(path)
    if parent != path and not os.path.isdir(path):
        if not os.path.isdir(parent):
            raise NotFound(f"no store can be made at {path}: there is no directory {parent}")
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        fd = os.open(parent, _READ | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _write_all(fd: int, pieces: Sequence[Buffer]) -> None:
    views = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
    while views:
        written = os.writev(fd, views)
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]


def _read_span(fd: int, offset: int, size: int) -> bytes:
    if size <= 0:
        return b""
    data = os.pread(fd, size, offset)
    if len(data) == size:
        return data
    parts = [data]  # One call reads at most 2 GiB.
    while data and (size := size - len(data)) > 0:
        offset += len(data)
        data = os.pread(fd, size, offset)
        parts.append(data)
    return b"".join(parts)


def _read_cached(fd: int, offset: int, size: int) -> bytes | None:
    """What the page cache holds whole, else None."""
    if size <= 0:
        return b""
    if _NOWAIT is None:
        return None
    data = bytearray(size)
    try:
        if os.preadv(fd, [data], offset, _NOWAIT) != size:
            return None
    except OSError as error:
        if error.errno in {errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
            return None
        raise
    return bytes(data)


def _translated(error: OSError, what: str, *, determinate: bool = True) -> BudwoodError:
    text = f"{what}: {error.strerror or error}"
    if error.errno in _FULL:
        return Full(f"{text}: make room on the disk", determinate=determinate)
    if error.errno in _DENIED:
        return Unauthorized(f"{text}: let this user read and write the directory")
    if error.errno in _CLASH:
        return BadInput(f"{what}: a part of it is an object already")
    if error.errno == errno.EBADF:
        text = f"{what}: the store was closed"
    return Unavailable(text, determinate=determinate)

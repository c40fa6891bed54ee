"""Chunks: where the cache keeps its pieces of objects, on disk or in memory, up to a byte limit (S2.19).

A file of the cache is a hint, not a promise: it is written by temp file and rename, without fsync, and carries a
checksum over its own name and bytes. A torn, flipped or misplaced one is dropped; a vanished one is a miss. So
several processes may share a directory. A full disk stops the cache from growing, never a read.

The folder may hold other things, a file system's `lost+found` among them: what isn't named as the cache names its own
is neither looked into, nor counted, nor deleted. Nothing that the system says about a file of the cache ends a read or
a write of the store: it is logged, and the file is as good as not there.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from ...volume.envelope import checksum
from ...volume.lru_cache import LruCache

CACHE_BYTES: Final = 1 << 30
MEMORY_BYTES: Final = 64 << 20

_HEADER: Final = struct.Struct("<4sIQ")
"""Magic, length, xxh3-64 of the chunk's name and of its bytes' xxh3-64."""
_MAGIC: Final = b"BWCC"
_FOLDER: Final = re.compile("[0-9a-f]{2}")
_CHUNK: Final = re.compile("[0-9a-f]{32}")
_TEMPORARY: Final = re.compile(r"\.[0-9]+-[0-9]+\.tmp")
_STALE_SECONDS: Final = 3600
_log: Final = logging.getLogger(__name__)

Piece: TypeAlias = bytes | memoryview


class Chunks(Protocol):
    """Where chunks lie. Synchronous, and safe to call from several threads."""

    @property
    def chunk_bytes(self) -> int: ...

    @property
    def on_disk(self) -> bool: ...

    @property
    def held_bytes(self) -> int:
        """As far as this process knows."""
        ...

    def get(self, name: bytes) -> Piece | None: ...
    def put(self, name: bytes, data: bytes | memoryview) -> None: ...


class MemoryChunks:
    """The newest used chunks, in memory."""

    def __init__(self, limit_bytes: int, *, chunk_bytes: int = 64 * 1024) -> None:
        self.chunk_bytes = chunk_bytes
        self.on_disk = False
        self._chunks = LruCache[bytes, bytes](limit_bytes, len)

    @property
    def held_bytes(self) -> int:
        return self._chunks.held

    def get(self, name: bytes) -> bytes | None:
        return self._chunks.get(name)

    def put(self, name: bytes, data: bytes | memoryview) -> None:
        self._chunks.put(name, bytes(data))


class DiskChunks:
    """One file a chunk: `folder/ab/abcdef…`. The least recently used go first; their mtime is when they were last used.

    The table of files is read from the folder at the first write, and again after each eighth of the limit written,
    since other processes may write there too: together they stay below the limit but for an eighth each.
    """

    def __init__(self, folder: Path, limit_bytes: int, *, chunk_bytes: int = 256 * 1024) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.chunk_bytes = chunk_bytes
        self.on_disk = True
        self.held_bytes = 0
        self._files: OrderedDict[str, int] = OrderedDict()
        self._unscanned_bytes = limit_bytes
        self._lock = threading.Lock()
        self._numbers = count()
        self._folder = str(folder)

    def get(self, name: bytes) -> Piece | None:
        text = name.hex()
        path = self._path(text)
        try:
            with open(path, "rb", buffering=0) as file:
                stored = file.read()
        except FileNotFoundError:
            self._forget(text)
            return None
        except OSError as error:
            _log.warning("the cache can't read %s: %s", path, error)
            return None
        data = _check(name, stored)
        if data is None:
            _log.warning("dropped %s from the cache: its checksum does not match", path)
            self._remove(text)
            return None
        # Another user's file, or a file system that is read-only, is as good to read; it only looks unused.
        with suppress(OSError):
            os.utime(path)
        with self._lock:
            if text in self._files:
                self._files.move_to_end(text)
        return data

    def put(self, name: bytes, data: bytes | memoryview) -> None:
        text = name.hex()
        path = self._path(text)
        temporary = f"{self._folder}/.{os.getpid()}-{next(self._numbers)}.tmp"
        header = _HEADER.pack(_MAGIC, len(data), _sum(name, data))
        try:
            # For the owner alone, as the home or the store is that they are of.
            os.makedirs(self._folder, 0o700, exist_ok=True)
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            _write(temporary, (header, data))
            os.rename(temporary, path)
        except OSError as error:
            # A cache that can't grow is slow, not wrong.
            _log.warning("the cache can't write %s: %s", path, error)
            _unlink(temporary)
            return
        self._note(text, _HEADER.size + len(data))

    def _note(self, text: str, size: int) -> None:
        victims: list[str] = []
        with self._lock:
            self._unscanned_bytes += size
            if self._unscanned_bytes * 8 > self.limit_bytes:
                self._scan()
            self.held_bytes += size - self._files.pop(text, 0)
            self._files[text] = size
            while self.held_bytes > self.limit_bytes:
                victim, held = self._files.popitem(last=False)
                self.held_bytes -= held
                victims.append(victim)
        for victim in victims:
            _unlink(self._path(victim))

    def _scan(self) -> None:
        found = sorted(_files(self._folder))
        self._files = OrderedDict((text, size) for _, text, size in found)
        self.held_bytes = sum(self._files.values())
        self._unscanned_bytes = 0

    def _remove(self, text: str) -> None:
        _unlink(self._path(text))
        self._forget(text)

    def _forget(self, text: str) -> None:
        with self._lock:
            self.held_bytes -= self._files.pop(text, 0)

    def _path(self, text: str) -> str:
        return f"{self._folder}/{text[:2]}/{text}"


def _sum(name: bytes, data: bytes | memoryview) -> int:
    return checksum(name + checksum(data).to_bytes(8, "little"))


def _check(name: bytes, stored: bytes) -> memoryview | None:
    """The chunk, unless these are not the bytes that were put under this name."""
    if len(stored) < _HEADER.size:
        return None
    magic, length, expected = _HEADER.unpack_from(stored)
    data = memoryview(stored)[_HEADER.size :]
    if magic != _MAGIC or len(data) != length or _sum(name, data) != expected:
        return None
    return data


def _write(path: str, pieces: Sequence[bytes | memoryview]) -> None:
    with open(path, "xb", buffering=0, opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        expected = sum(map(len, pieces))
        if os.writev(file.fileno(), pieces) != expected:
            raise OSError("short write")


def _unlink(path: str) -> None:
    # Another process may have been quicker, and a file that stays is found by the next scan.
    try:
        os.unlink(path)
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            _log.warning("the cache can't delete %s: %s", path, error)


def _files(folder: str) -> Iterator[tuple[float, str, int]]:
    """(mtime, name, size) of every chunk; temp files that a crash left behind are deleted on the way."""
    for entry in _listing(folder):
        if _FOLDER.fullmatch(entry.name):
            for file in _listing(entry.path):
                status = _status(file) if _CHUNK.fullmatch(file.name) else None
                if status is not None:
                    yield status.st_mtime, file.name, status.st_size
        elif _TEMPORARY.fullmatch(entry.name):
            status = _status(entry)
            if status is not None and time.time() - status.st_mtime > _STALE_SECONDS:
                _unlink(entry.path)


def _listing(folder: str) -> list[os.DirEntry[str]]:
    """What is in the folder; nothing where it can't be listed, since nothing of ours can be told there."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []
    except OSError as error:
        _log.warning("the cache can't list %s: %s", folder, error)
        return []


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Of a regular file; None for anything else, and for what has vanished."""
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as error:
        _log.warning("the cache can't look at %s: %s", entry.path, error)
        return None
    return status if stat.S_ISREG(status.st_mode) else None

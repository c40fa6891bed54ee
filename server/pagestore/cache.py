"""Chunk cache: aligned pieces of immutable objects, on disk or in memory, up to a byte limit (S2.19).

Rules:
- Objects are write-once, so a chunk that checks out is right for ever; nothing is ever invalidated.
- A file of the cache is a hint, not a promise: it is written by temp file and rename, without fsync, and carries a
  checksum over its own name and bytes. A torn, flipped or misplaced one is dropped and fetched again; a vanished one
  is a miss. So several processes may share a directory.
- Single flight: of all who miss a chunk at once, one asks the store, and the others take its answer. If that one is
  cancelled, another goes.
- Missing chunks that lie next to each other are one ranged GET.
- A full disk stops the cache from growing, never a read.
"""

from __future__ import annotations

import hashlib
import logging
import os
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import anyio
from anyio import to_thread

from ...volume.envelope import checksum
from ...volume.errors import Corrupt, NotFound
from ..store.protocol import Store
from ..store.settle import PATIENT, Patience, get_retried

__all__ = ["CACHE_BYTES", "MEMORY_BYTES", "ChunkCache", "Chunks", "DiskChunks", "MemoryChunks"]

CACHE_BYTES: Final = 1 << 30
MEMORY_BYTES: Final = 64 << 20

_INLINE_BYTES: Final = 512 * 1024
"""Up to here reading files takes less time than the hop to a worker thread and back (~0.1 ms) is worth."""

_HEADER: Final = struct.Struct("<4sIQ")
"""Magic, length, xxh3-64 of the chunk's name and bytes."""
_MAGIC: Final = b"BWCC"
_STALE_SECONDS: Final = 3600
_log: Final = logging.getLogger(__name__)

Piece: TypeAlias = bytes | memoryview


class Chunks(Protocol):
    """Where chunks lie. Synchronous, and safe to call from several threads."""

    @property
    def chunk_bytes(self) -> int: ...

    @property
    def on_disk(self) -> bool: ...

    def get(self, name: bytes) -> Piece | None: ...
    def put(self, name: bytes, data: bytes | memoryview) -> None: ...


class MemoryChunks:
    """The newest used chunks, in memory."""

    def __init__(self, limit_bytes: int, *, chunk_bytes: int = 64 * 1024) -> None:
        self.limit_bytes = limit_bytes
        self.chunk_bytes = chunk_bytes
        self.on_disk = False
        self.held_bytes = 0
        self._chunks: OrderedDict[bytes, bytes] = OrderedDict()

    def get(self, name: bytes) -> bytes | None:
        data = self._chunks.get(name)
        if data is not None:
            self._chunks.move_to_end(name)
        return data

    def put(self, name: bytes, data: bytes | memoryview) -> None:
        if name not in self._chunks:
            self._chunks[name] = bytes(data)
            self.held_bytes += len(data)
        while self.held_bytes > self.limit_bytes:
            self.held_bytes -= len(self._chunks.popitem(last=False)[1])


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
            os.utime(path)
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
            os.makedirs(os.path.dirname(path), exist_ok=True)
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
    with open(path, "xb", buffering=0) as file:
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
        try:
            if entry.name.endswith(".tmp"):
                if time.time() - entry.stat().st_mtime > _STALE_SECONDS:
                    _unlink(entry.path)
            elif entry.is_dir():
                for file in _listing(entry.path):
                    status = file.stat()
                    yield status.st_mtime, file.name, status.st_size
        except FileNotFoundError:
            continue


def _listing(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return list(found)


class _Flight:
    """A GET under way for a run of chunks. Once `landed` is set, `data` holds the bytes from `start` on, or `error`
    says why there are none; neither means that it was cancelled."""

    __slots__ = ("data", "error", "landed", "names", "start")

    def __init__(self, start: int, names: list[bytes]) -> None:
        self.start = start
        self.names = names
        self.landed = anyio.Event()
        self.data: bytes | None = None
        self.error: Exception | None = None


class ChunkCache:
    """Ranges of objects, through the cache. One instance belongs to one event loop."""

    def __init__(self, store: Store, chunks: Chunks, *, salt: str = "", patience: Patience = PATIENT) -> None:
        self.store = store
        self.patience = patience
        self.chunks = chunks
        self._salt = salt.encode()
        self._flights: dict[bytes, _Flight] = {}

    async def read(self, key: str, size: int, start: int, end: int) -> bytes | memoryview:
        """The bytes [start, end) of the object, whose whole length is `size`.

        Raises Corrupt if the object is missing or shorter, Unavailable.
        """
        if start >= end:
            return b""
        length = self.chunks.chunk_bytes
        wanted = range(start // length, -(-end // length))
        names = {number: self._name(key, size, number) for number in wanted}
        found = await self._lookup(names)
        while len(found) < len(wanted):
            await self._fetch(key, size, names, found)
        pieces = [found[number] for number in wanted]
        base = wanted[0] * length
        if len(pieces) == 1:
            return memoryview(pieces[0])[start - base : end - base]
        # Only the ends are cut, so that the middle is copied once.
        pieces[0] = memoryview(pieces[0])[start - base :]
        pieces[-1] = memoryview(pieces[-1])[: end - wanted[-1] * length]
        return b"".join(pieces)

    async def seed(self, key: str, data: bytes) -> None:
        """Keep a whole object that the caller holds anyway."""
        length = self.chunks.chunk_bytes
        names = [self._name(key, len(data), number) for number in range(-(-len(data) // length))]
        await self._keep(names, data)

    def _name(self, key: str, size: int, number: int) -> bytes:
        # The object's size belongs to the name, so that a wrong size in a request can't leave a short chunk for others.
        digest = hashlib.blake2b(b"%b\0%d\0%d\0" % (self._salt, size, number), digest_size=16)
        digest.update(key.encode())
        return digest.digest()

    async def _lookup(self, names: dict[int, bytes]) -> dict[int, Piece]:
        if self.chunks.on_disk and len(names) * self.chunks.chunk_bytes > _INLINE_BYTES:
            return await to_thread.run_sync(self._lookup_now, names)
        return self._lookup_now(names)

    def _lookup_now(self, names: dict[int, bytes]) -> dict[int, Piece]:
        looked_up = ((number, self.chunks.get(name)) for number, name in names.items() if name not in self._flights)
        return {number: data for number, data in looked_up if data is not None}

    async def _fetch(self, key: str, size: int, names: dict[int, bytes], found: dict[int, Piece]) -> None:
        """Adds what is missing to `found`, but for what a cancelled flight of someone else's was to bring."""
        # No await between looking for flights and registering our own: so no chunk is asked for twice.
        missing = [number for number in names if number not in found]
        joined = [(number, self._flights[names[number]]) for number in missing if names[number] in self._flights]
        own: list[tuple[list[int], _Flight]] = []
        for run in _runs(number for number in missing if names[number] not in self._flights):
            flight = _Flight(run[0] * self.chunks.chunk_bytes, [names[number] for number in run])
            self._flights.update(dict.fromkeys(flight.names, flight))
            own.append((run, flight))
        try:
            for run, flight in own:
                data = await self._fly(key, size, flight)
                found.update((number, self._chunk(flight, number, data)) for number in run)
        finally:
            for _, flight in own:
                self._land(flight)
        for number, flight in joined:
            await flight.landed.wait()
            if flight.error is not None:
                raise flight.error
            if flight.data is not None:
                found[number] = self._chunk(flight, number, flight.data)

    async def _fly(self, key: str, size: int, flight: _Flight) -> bytes:
        end = min(size, flight.start + len(flight.names) * self.chunks.chunk_bytes)
        try:
            data = await get_retried(self.store, key, start=flight.start, end=end, patience=self.patience)
            if len(data) != end - flight.start:
                raise Corrupt(key, f"it ends at byte {flight.start + len(data)} where {size} belong")
        except NotFound as error:
            flight.error = Corrupt(key, "the object is missing")
            raise flight.error from error
        except Exception as error:
            flight.error = error
            raise
        flight.data = data
        flight.landed.set()
        # Those who wait have their bytes; who comes while the files are written still meets the flight, not the store.
        await self._keep(flight.names, data)
        return data

    def _land(self, flight: _Flight) -> None:
        for name in flight.names:
            if self._flights.get(name) is flight:
                del self._flights[name]
        flight.landed.set()

    def _chunk(self, flight: _Flight, number: int, data: bytes) -> Piece:
        length = self.chunks.chunk_bytes
        at = number * length - flight.start
        return data if len(data) <= length else memoryview(data)[at : at + length]

    async def _keep(self, names: list[bytes], data: bytes) -> None:
        if self.chunks.on_disk:
            await to_thread.run_sync(self._keep_now, names, data)
        else:
            self._keep_now(names, data)

    def _keep_now(self, names: list[bytes], data: bytes) -> None:
        view, length = memoryview(data), self.chunks.chunk_bytes
        for number, name in enumerate(names):
            self.chunks.put(name, view[number * length : (number + 1) * length])


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    """Ascending numbers, parted where one is missing."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] + 1 == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs

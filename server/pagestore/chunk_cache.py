"""Chunk cache: ranges of immutable objects, in aligned pieces that are kept (S2.19).

Rules:
- Objects are write-once, so a chunk that checks out is right for ever; nothing is ever invalidated.
- Single flight: of all who miss a chunk at once, one asks the store, and the others take its answer. If that one is
  cancelled, another goes.
- Missing chunks that lie next to each other are one ranged GET.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import anyio

from ...volume.errors import Corrupt, NotFound
from ..in_thread import in_thread
from ..store.protocol import Store
from ..store.retrying import PATIENT, Patience, get_retried
from .chunks import Chunks, Piece

_INLINE_BYTES: Final = 512 * 1024
"""Up to here reading files takes less time than the hop to a worker thread and back (~0.1 ms) is worth."""


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
        self.hits = 0
        self.misses = 0
        """Chunks that were asked for; one that somebody else has asked the store for already is a hit."""

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
        missed = sum(names[number] not in self._flights for number in wanted if number not in found)
        self.misses += missed
        self.hits += len(wanted) - missed
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
            return await in_thread(self._lookup_now, names)
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
            await in_thread(self._keep_now, names, data)
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

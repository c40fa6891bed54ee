"""TwoPhaseStore: create-if-absent for a store that has none, by records in a transactional store beside it (DESIGN §3;
S0.6, S0.11, S0.12).

A create takes five steps:

    1  put the bytes under a name that nobody else has (temporaries.py)
    2  record {source, dest, not committed}: unique on dest, so one of all creators wins
    3  copy: put them under the key
    4  mark the record committed
    5  delete the temporary object

From step 2 on the object stands: whatever happens, anyone can do the rest, any number of times, at once or years later.
So a create whose later steps fail has succeeded. There is no lock, and nothing that times out (S0.14).

A delete marks the record as deleted, deletes the objects, and lets the record go.

- A reader of a missing key asks the records: what is recorded and not copied is read at its source. A listing asks them
  first and lists then: what was copied in between is listed, what was not is known (B7).
- A put that was sent may arrive at any time, after a delete too: then the object is back, which costs room. It can't
  fall on another's bytes, since a key isn't free as long as a hand is on its record (records.py).
- The clock decides nothing: see the floor in records.py.

Crash windows (each a fault point, each cut by tests/fault/test_two_phase_killed.py):
  two-phase: temporary written, no record · two-phase: recorded, not copied · two-phase: copied, not marked ·
  two-phase: marked, temporary not deleted · two-phase: temporary deleted, not acknowledged ·
  two-phase: buried, not deleted · two-phase: deleted, record still there
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from ...volume import faults
from ...volume.errors import AlreadyExists, BudwoodError, Corrupt, NotFound, Unavailable
from .protocol import Data, Keys, PlainStore, Sizes, check_prefix, length_of
from .records import Record, Records, State
from .retrying import PATIENT
from .temporaries import BEHIND, FOLDER, check_dest, checksum_of, new_temporary, parse_temporary

T = TypeVar("T")

_TRIES: Final = 8
OLD_MS: Final = 3 * 86_400_000
"""How old a temporary object without a record is before it is taken for one that nobody will record."""
_LATE_SECONDS: Final = OLD_MS / 2000
"""Whoever has slept for so long goes no further: the hand that he laid on a record may be taken for a dead one's."""

_WRITTEN = faults.point("two-phase: temporary written, no record")
_RECORDED = faults.point("two-phase: recorded, not copied")
_COPIED = faults.point("two-phase: copied, not marked")
_MARKED = faults.point("two-phase: marked, temporary not deleted")
_REMOVED = faults.point("two-phase: temporary deleted, not acknowledged")
_BURIED = faults.point("two-phase: buried, not deleted")
_DELETED = faults.point("two-phase: deleted, record still there")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class TwoPhaseStore:
    """See protocol.Store."""

    def __init__(
        self,
        plain: PlainStore,
        records: Records,
        *,
        now_ms: Callable[[], int] = _now_ms,
        boot: Callable[[], float] = PATIENT.boot,
    ) -> None:
        self.plain = plain
        self.records = records
        self.now_ms = now_ms
        self._boot = boot
        self._floor_ms = 0

    @property
    def url(self) -> str:
        return f"{self.plain.url}?records={self.records.url}"

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        return await self._read(key, lambda at: self.plain.get(at, start=start, end=end))

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        return await self._read(key, lambda at: self.plain.get_tail(at, size))

    async def create(self, key: str, data: Data) -> None:
        began = self._boot()
        source = await self._record(check_dest(key), data)
        # It stands. What fails from here on is done by whoever comes next.
        _RECORDED()
        with suppress(BudwoodError):
            await self._copy(key, source, data, began)
        _REMOVED()

    async def delete(self, key: str) -> None:
        began = self._boot()
        was = await self.records.bury(check_dest(key), self.now_ms())
        _BURIED()
        if self._is_late(began):
            raise Unavailable(f"can't delete {key}: this machine has slept meanwhile: try again", determinate=False)
        await self.plain.delete(key)
        if was.state is State.WRITTEN:
            await self.plain.delete(was.source)
        _DELETED()
        await self.records.leave(key, was.source)

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        if not check_prefix(prefix, limit) or limit == 0:
            return []
        # In this order: see above.
        written = await self.records.written(prefix, start=start, limit=limit)
        found = await _visible(self.plain.list, _same, prefix, start, limit)
        return sorted({*found, *(record.dest for record in written)})[:limit]

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        if not check_prefix(prefix, limit) or limit == 0:
            return []
        written = await self.records.written(prefix, start=start, limit=limit)
        found = await _visible(self.plain.sizes, _key_of, prefix, start, limit)
        return sorted({**{record.dest: record.size for record in written}, **dict(found)}.items())[:limit]

    async def aclose(self) -> None:
        await self.records.aclose()
        await self.plain.aclose()

    async def _copy(self, dest: str, source: str, data: Data, began: float) -> None:
        """Steps 3 to 5, by whoever has laid a hand on the record since then."""
        if self._is_late(began):
            await self.records.leave(dest, source)
            return
        await self.plain.put(dest, data)
        _COPIED()
        state = await self.records.commit(dest, source)
        _MARKED()
        if state is State.DELETED:
            # Meanwhile; and this put may have come after that.
            await self.plain.delete(dest)
            await self.records.leave(dest, source)
        await self.plain.delete(source)

    async def finish(self, record: Record) -> None:
        """Another's create, from the record on. Raises Corrupt where its bytes aren't there."""
        dest, source, began = record.dest, record.source, self._boot()
        if not await self.records.begin(dest, source, self.now_ms()):
            return
        try:
            data = await self._whole(record)
        except (NotFound, Corrupt) as error:
            await self.records.leave(dest, source)
            if isinstance(error, Corrupt):
                raise
            now = await self.records.find(dest)
            if now is not None and now.source == source and now.state is State.WRITTEN:
                raise _lost(record) from error
            return
        await self._copy(dest, source, data, began)

    def _is_late(self, began: float) -> bool:
        return self._boot() - began >= _LATE_SECONDS

    async def _record(self, dest: str, data: Data) -> str:
        """Steps 1 and 2: the source. Raises AlreadyExists."""
        checksum, size = checksum_of(data), length_of(data)
        for _ in range(_TRIES):
            time_ms = max(self.now_ms(), self._floor_ms)
            source = new_temporary(dest, time_ms, checksum)
            await self._put(source, data)
            _WRITTEN()
            try:
                taken = await self.records.insert(dest, source, size, time_ms)
            except BudwoodError as error:
                if getattr(error, "determinate", True):
                    await self._drop(source)
                raise
            if taken.record is not None and taken.record.source == source:
                return source
            await self._drop(source)
            if taken.record is not None:
                raise AlreadyExists(_taken_words(taken.record))
            # The floor rose meanwhile, or this clock is far behind: what begins there isn't too late.
            self._floor_ms = taken.floor_ms
        raise Unavailable(f"can't record {dest}: the floor rose {_TRIES} times over")

    async def _put(self, source: str, data: Data) -> None:
        try:
            await self.plain.put(source, data)
        except Unavailable as error:
            # Whether it arrives or not, nothing will lead there.
            raise Unavailable(str(error), hopeless=error.hopeless) from error

    async def _drop(self, source: str) -> None:
        with suppress(BudwoodError):  # Collected, then; and the first error is the one to tell.
            await self.plain.delete(source)

    async def _whole(self, record: Record) -> bytes:
        data = await self.plain.get(record.source)
        named = parse_temporary(record.source)
        if named is None or len(data) != record.size or checksum_of(data) != named.checksum:
            raise Corrupt(record.source, "its bytes are not those that were recorded")
        return data

    async def _read(self, key: str, read: Callable[[str], Awaitable[T]]) -> T:
        check_dest(key)
        was: Record | None = None
        for _ in range(_TRIES):
            try:
                return await read(key)
            except NotFound:
                record = await self.records.find(key)
                if record is None or record.state is State.DELETED:
                    raise
                if was is not None and (was.source, was.state) == (record.source, record.state):
                    if record.state is State.COMMITTED:
                        # It was looked for when it stood.
                        raise
                    raise _lost(record) from None
                was = record
                if record.state is State.WRITTEN:
                    with suppress(NotFound):  # Finished meanwhile.
                        return await read(record.source)
        raise Unavailable(f"{key} comes and goes: try again")


def _same(key: str) -> str:
    return key


def _key_of(listed: tuple[str, int]) -> str:
    return listed[0]


async def _visible(
    lister: Callable[..., Awaitable[list[T]]], key_of: Callable[[T], str], prefix: str, start: str, limit: int | None
) -> list[T]:
    """What is listed without temporary objects."""
    found = await lister(prefix, start=start, limit=limit)
    seen = [each for each in found if not key_of(each).startswith(FOLDER)]
    if len(seen) == len(found):
        return seen
    before = [each for each in seen if key_of(each) < FOLDER]
    rest = None if limit is None else limit - len(before)
    return before + await lister(prefix, start=max(start, BEHIND), limit=rest)


def _lost(record: Record) -> Corrupt:
    return Corrupt(record.source, f"it is missing, though {record.dest} is recorded to be a copy of it")


def _taken_words(record: Record) -> str:
    if record.state is State.DELETED:
        return f"the object {record.dest} was deleted, and somebody who was cut off may still write it"
    return f"the object {record.dest} exists"


def two_phase(store: object) -> TwoPhaseStore | None:
    """The store that this is, or that it wraps; None where creates are the store's own."""
    while not isinstance(store, TwoPhaseStore):
        store = getattr(store, "inner", None)
        if store is None:
            return None
    return store

"""What two-phase creates leave behind: finishing what others were cut off in, and collecting what nobody needs (S0.12,
S0.38, S0.39).

Anyone may do either, any number at once. What goes:

- temporary objects without a record that is WRITTEN: once they are strictly older than the floor, since nobody can
  record them from then on;
- records of deleted keys that a hand was left on: once the last was laid there strictly before the floor. Their objects
  go once more before.

The floor is raised to what is `OLD_MS` old.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from ...volume.errors import BudwoodError, NotFound, Unavailable, Unsupported
from .protocol import Store
from .records import State
from .retrying import Patience, retried
from .temporaries import FOLDER, checksum_of, parse_temporary
from .two_phase_store import OLD_MS, TwoPhaseStore, two_phase

_FEW: Final = 1000


async def tidy(store: Store) -> int:
    """Finish and collect, where the store's creates go through records: how many objects and records went. Raises
    Corrupt if the bytes of a create are lost, once all others are finished; Unavailable, Unauthorized."""
    opened = two_phase(store)
    if opened is None:
        return 0
    await recover(opened)
    return await collect(opened)


async def recover(store: TwoPhaseStore) -> int:
    """Finish what is recorded and not committed: how many. Raises as `tidy`."""
    finished, start = 0, ""
    failure: BudwoodError | None = None
    while records := await store.records.written(start=start, limit=_FEW):
        for record in records:
            try:
                await store.finish(record)
                finished += 1
            except Unavailable:
                raise
            except BudwoodError as error:
                failure = failure or error
        start = records[-1].dest + "\0"
    if failure is not None:
        raise failure
    return finished


async def collect(store: TwoPhaseStore, *, old_ms: int = OLD_MS) -> int:
    """How many objects and records went. Raises Unavailable, Unauthorized."""
    records, gone = store.records, 0
    floor_ms = await records.raise_floor(max(store.now_ms() - old_ms, 0))
    async for key in left_behind(store, floor_ms):
        await store.plain.delete(key)
        gone += 1
    while stale := await records.stale(limit=_FEW):
        for record in stale:
            await store.plain.delete(record.dest)
            if record.source:
                await store.plain.delete(record.source)
            await records.forget(record.dest, record.source)
            gone += 1
    return gone


async def left_behind(store: TwoPhaseStore, before_ms: int) -> AsyncGenerator[str, None]:
    """Temporary objects from before then that no record leads to."""
    start = ""
    while keys := await store.plain.list(FOLDER, start=start, limit=_FEW):
        for key in keys:
            named = parse_temporary(key)
            if named is None or named.time_ms >= before_ms:
                continue
            record = await store.records.find(named.dest)
            if record is None or record.source != key or record.state is not State.WRITTEN:
                yield key
        start = keys[-1] + "\0"


async def cut_off(store: Store) -> AsyncGenerator[str, None]:
    """What `tidy` would take out, of temporary objects; nothing is written."""
    opened = two_phase(store)
    if opened is not None:
        async for key in left_behind(opened, opened.now_ms() - OLD_MS):
            yield key


async def check_records(store: TwoPhaseStore, key: str, data: bytes, patience: Patience) -> None:
    """Raises Unsupported unless this object was created through these records."""
    try:
        record = await retried(f"find {key}", lambda: store.records.find(key), patience)
    except NotFound as error:
        raise Unsupported(f"{error}: give those that the store was made with") from error
    named = None if record is None else parse_temporary(record.source)
    if named is None or named.checksum != checksum_of(data):
        raise Unsupported(
            f"{store.records.url} has the records of another store than {store.plain.url}, or of none: give those that "
            "it was made with"
        )

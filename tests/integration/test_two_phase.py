"""Two-phase creates over SQLite's and PostgreSQL's records: durable at the record, finished by anyone, read at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from budwood.server.node import Node
from budwood.server.store.records import Records, State, Taken
from budwood.server.store.retrying import create_settled
from budwood.server.store.temporaries import FOLDER, parse_temporary
from budwood.server.store.two_phase_store import TwoPhaseStore
from budwood.server.store.two_phase_upkeep import recover
from budwood.server.upkeep.upkeep import HASTY
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume import faults
from budwood.volume.errors import (
    AlreadyExists,
    BadInput,
    Corrupt,
    NotFound,
    Unavailable,
)

from ..record_stores import KINDS, RecordPlace
from ..two_phase import STEPS, Stirred, cut, cut_at, memory, temporaries

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> RecordPlace:
    return RecordPlace.new(tmp_path, request.getfixturevalue("postgres") if request.param == "postgresql" else None)


@pytest.fixture
async def store(place: RecordPlace) -> AsyncGenerator[TwoPhaseStore]:
    async with place.store(MemoryStore()) as opened:
        yield opened


class Away:
    """Records whose insert fails: before it happened, or behind it."""

    def __init__(self, inner: Records, *, determinate: bool) -> None:
        self._inner = inner
        self._determinate = determinate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def insert(self, dest: str, source: str, size: int, time_ms: int) -> Taken:
        if not self._determinate:
            await self._inner.insert(dest, source, size, time_ms)
        raise Unavailable("no answer", determinate=self._determinate)


async def test_a_create_takes_its_steps_in_order(place: RecordPlace) -> None:
    """S0.11: the temporary object first, named by its key, a uuid and a checksum; the record; the copy; and it goes."""
    plain = RiggedStore(MemoryStore())
    async with place.store(plain) as store:
        await store.create("logs/x/1", b"one")
        assert [request.op for request in plain.requests] == ["put", "put", "delete"]
        source = plain.requests[0].key
        assert [request.key for request in plain.requests[1:]] == ["logs/x/1", source]
        named = parse_temporary(source)
        assert named is not None
        assert (named.dest, len(named.checksum)) == ("logs/x/1", 16)
        record = await store.records.find("logs/x/1")
        assert record is not None
        assert (record.source, record.size) == (source, 3)
    assert place.all() == [("logs/x/1", State.COMMITTED, 0)]


async def test_it_is_durable_at_the_record_and_not_before(place: RecordPlace) -> None:
    """S0.11: what fails behind the record fails nobody's create; what fails before it leaves nothing behind."""
    plain = RiggedStore(MemoryStore())
    async with place.store(plain) as store:
        lost = plain.add(Rule(op="put", key="a", before=Unavailable("gone")))
        await store.create("a", b"one")
        assert lost.fired == 1
        assert await store.get("a") == b"one"
        plain.add(Rule(op="put", key=f"{FOLDER}*", before=Unavailable("gone", determinate=False)))
        with pytest.raises(Unavailable) as told:
            await store.create("b", b"two")
        assert told.value.determinate, "nothing leads to a temporary object without a record"
        with pytest.raises(NotFound):
            await store.get("b")
        assert place.all() == [("a", State.WRITTEN, 1)]


async def test_a_create_where_records_are_away_is_never_acknowledged(place: RecordPlace) -> None:
    """S0.11: whether it may have been recorded is told, and so whether its bytes may go."""
    plain = MemoryStore()
    for determinate in (True, False):
        async with place.store(plain) as store:
            store.records = cast("Records", Away(store.records, determinate=determinate))
            with pytest.raises(Unavailable) as told:
                await store.create("a", b"one")
            assert told.value.determinate is determinate
            assert len(temporaries(store)) == (0 if determinate else 1)
    async with place.store(plain) as store:
        assert await store.list("") == ([] if determinate else ["a"]), "the answer was lost, and not the record"
        assert await create_settled(store, "a", b"one") is None
        assert await create_settled(store, "a", b"two") == b"one"


@pytest.mark.parametrize(("point", "stands"), STEPS.items())
async def test_anyone_finishes_what_was_cut(place: RecordPlace, point: str, stands: bool) -> None:
    """S0.12: behind each of the five steps another client sees all or nothing, and finishes it; twice does no harm."""
    plain = MemoryStore()
    async with place.store(plain) as dead, place.store(plain) as other:
        await cut_at(point, dead, "a/b", b"one")
        assert await other.list("") == (["a/b"] if stands else [])
        assert await other.sizes("a") == ([("a/b", 3)] if stands else [])
        if stands:
            assert await other.get("a/b") == b"one"
            assert await other.get_tail("a/b", 2) == (b"ne", 3)
            with pytest.raises(AlreadyExists):
                await other.create("a/b", b"other")
        for _ in range(2):
            await recover(other)
            assert await other.list("") == (["a/b"] if stands else [])
        if not stands:
            with pytest.raises(NotFound):
                await other.get("a/b")
            await other.create("a/b", b"one")
        assert plain.objects["a/b"] == b"one"
        assert await other.get("a/b") == b"one"


async def test_a_recovery_that_is_cut_is_finished_by_the_next(store: TwoPhaseStore) -> None:
    """S0.12: recoveries are cut as creates are."""
    await cut_at("two-phase: recorded, not copied", store, "a", b"one")
    for point in ("two-phase: copied, not marked", "two-phase: marked, temporary not deleted"):
        assert [record.dest for record in await store.records.written()] == ["a"]
        faults.arm(point, cut)
        with pytest.raises(faults.Cut):
            await recover(store)
        faults.disarm()
        assert memory(store).objects["a"] == b"one"
    assert await store.records.written() == []
    assert await recover(store) == 0
    assert await store.get("a") == b"one"


async def test_many_recoveries_at_once_come_to_one_object(place: RecordPlace) -> None:
    """S0.12: and so do they and the writer, who was only slow."""
    plain = RiggedStore(MemoryStore())
    slow = plain.add(Rule(op="put", key="a", gate=anyio.Event()))
    async with place.store(plain) as writer, place.store(plain) as one, place.store(plain) as two:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.create, "a", b"one")
            await slow.reached.wait()
            assert await one.get("a") == b"one", "before anybody has copied it"
            async with anyio.create_task_group() as recoveries:
                for store in (one, two) * 4:
                    recoveries.start_soon(recover, store)
            assert await two.list("") == ["a"]
            assert slow.gate is not None
            slow.gate.set()
        assert await one.get("a") == b"one"
        assert place.all() == [("a", State.COMMITTED, 0)]
        assert await plain.list(FOLDER) == []


async def test_a_listing_shows_what_is_copied_while_it_looks(place: RecordPlace) -> None:
    """B7: the records are asked before the store is, so that nothing slips through between them."""
    plain = RiggedStore(MemoryStore())
    async with place.store(plain) as reader, place.store(plain) as writer:
        await cut_at("two-phase: recorded, not copied", writer, "a", b"one")
        found: list[list[str]] = []
        gate = plain.add(Rule(op="list", key="", gate=anyio.Event()))

        async def look() -> None:
            found.append(await reader.list(""))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            await gate.reached.wait()
            await recover(writer)
            assert gate.gate is not None
            gate.gate.set()
        assert found == [["a"]]
        await cut_at("two-phase: recorded, not copied", writer, "b", b"two")
        async with place.store(Stirred(plain.inner, "list", partial(recover, writer))) as other:
            assert await other.list("") == ["a", "b"], "it was copied after it had been looked for"


async def test_a_reader_of_a_missing_key_asks_the_records(place: RecordPlace) -> None:
    """B7: also where it is copied, and its source deleted, while the reader looks."""
    plain = RiggedStore(MemoryStore())
    async with place.store(plain) as store, place.store(plain) as other:
        await cut_at("two-phase: recorded, not copied", store, "a", b"one")
        assert await other.get("a", start=1, end=2) == b"n"
        source = plain.add(Rule(op="get", key=f"{FOLDER}*", gate=anyio.Event()))
        found: list[bytes] = []

        async def look() -> None:
            found.append(await other.get("a"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            await source.reached.wait()
            await recover(store)
            assert source.gate is not None
            source.gate.set()
        assert found == [b"one"]


async def test_temporary_objects_never_show(store: TwoPhaseStore) -> None:
    for key in ("a", "root", "temporary-x", "temporaryz", "volumes/b"):
        await store.create(key, b"x")
    for number in range(3):
        await cut_at("two-phase: temporary written, no record", store, f"cut/{number}", b"y")
    keys = ["a", "root", "temporary-x", "temporaryz", "volumes/b"]
    assert await store.list("") == keys
    for limit in range(7):
        assert await store.list("", limit=limit) == keys[:limit]
        assert await store.list("t", limit=limit) == keys[2:4][:limit]
        assert await store.sizes("", start="temporary/", limit=limit) == [(key, 1) for key in keys[3:]][:limit]
    assert await store.list(FOLDER) == []
    for key in (f"{FOLDER}a", "x" * 151):
        with pytest.raises(BadInput):
            await store.create(key, b"")


async def test_a_node_finishes_what_others_left(place: RecordPlace) -> None:
    """S0.12: with the rest of its upkeep."""
    plain = RiggedStore(MemoryStore())
    async with place.store(plain) as store:
        await cut_at("two-phase: recorded, not copied", store, "a", b"one")
        copied = plain.add(Rule(op="delete", key=f"{FOLDER}a.*"))
        async with Node.open(store, name="main", upkeep=True, pace=HASTY):
            await copied.reached.wait()
        assert await plain.get("a") == b"one"


async def test_lost_and_damaged_bytes_are_told(store: TwoPhaseStore) -> None:
    for key in ("a", "b", "c"):
        await cut_at("two-phase: recorded, not copied", store, key, key.encode() * 100)
    lost, damaged, _ = sorted(temporaries(store))
    memory(store).delete_now(lost)
    memory(store).objects[damaged] = b"b" * 99 + b"x"
    with pytest.raises(Corrupt) as told:
        await recover(store)
    assert told.value.key == lost
    with pytest.raises(Corrupt):
        await store.get("a")
    assert await store.get("c") == b"c" * 100
    assert [record.dest for record in await store.records.written()] == ["a", "b"], "and the others were finished"

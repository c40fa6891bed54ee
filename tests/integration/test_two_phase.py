"""Two-phase creates over SQLite's and PostgreSQL's records: durable at the record, finished by anyone, read at once,
and let go of strictly behind the floor."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from anyio.to_thread import run_sync

from budwood.server.node import Node
from budwood.server.store.native import to_native
from budwood.server.store.protocol import Data, Keys, Store
from budwood.server.store.records import Records, State, Taken
from budwood.server.store.retrying import create_settled
from budwood.server.store.root import open_root
from budwood.server.store.sql_records import Execute
from budwood.server.store.temporaries import FOLDER, parse_temporary
from budwood.server.store.two_phase_store import OLD_MS, TwoPhaseStore
from budwood.server.store.two_phase_upkeep import collect, cut_off, recover, tidy
from budwood.server.upkeep.upkeep import HASTY
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume import faults
from budwood.volume.errors import (
    AlreadyExists,
    BadInput,
    Corrupt,
    NotFound,
    Unavailable,
    Unsupported,
)

from ..record_stores import KINDS, RecordPlace
from ..waits import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

STEPS = {
    "two-phase: temporary written, no record": False,
    "two-phase: recorded, not copied": True,
    "two-phase: copied, not marked": True,
    "two-phase: marked, temporary not deleted": True,
    "two-phase: temporary deleted, not acknowledged": True,
}
"""Each step that a create may be cut behind, and whether the object stands then."""
LATER = OLD_MS + 1


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> RecordPlace:
    return RecordPlace.new(tmp_path, request.getfixturevalue("postgres") if request.param == "postgresql" else None)


@pytest.fixture
async def store(place: RecordPlace) -> AsyncGenerator[TwoPhaseStore]:
    async with place.store(MemoryStore()) as opened:
        yield opened


class Stirred(RiggedStore):
    """Something happens behind each call of one kind."""

    def __init__(self, inner: Store, op: str, then: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner)
        self._op = op
        self._then = then

    async def put(self, key: str, data: Data) -> None:
        await super().put(key, data)
        await self._stir("put")

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        found = await super().list(prefix, start=start, limit=limit)
        await self._stir("list")
        return found

    async def _stir(self, op: str) -> None:
        if op == self._op:
            await self._then()


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


def memory(store: TwoPhaseStore) -> MemoryStore:
    assert isinstance(store.plain, MemoryStore)
    return store.plain


def cut() -> None:
    raise faults.Cut


async def cut_at(point: str, store: TwoPhaseStore, key: str, data: bytes) -> None:
    faults.arm(point, cut)
    with pytest.raises(faults.Cut):
        await store.create(key, data)
    faults.disarm()


def temporaries(store: TwoPhaseStore) -> list[str]:
    return [key for key in memory(store).objects if key.startswith(FOLDER)]


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


async def test_inserts_and_a_change_of_the_floor_or_the_way_are_in_one_order(place: RecordPlace) -> None:
    """S0.13, S0.39: who is let in is seen by whoever closes the door, since that one waits."""
    records, closed = place.records(), place.records()
    inside, seen = threading.Event(), threading.Event()
    database, beside = place.database(), place.database()

    def somebody_waits() -> bool:
        """For a row of PostgreSQL's; in SQLite whoever writes is alone from the first word on."""
        words = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        return place.url.startswith("sqlite:") or bool(beside.transact(lambda execute: execute(words, ())))

    def insert(execute: Execute) -> None:
        rows = execute(f"SELECT native FROM budwood_state{database.for_share}", ())
        assert rows == [(0,)]
        inside.set()
        wait_until(lambda: seen.is_set() or somebody_waits())
        execute("INSERT INTO budwood_records VALUES ('a', 'x', 1, 0, 1, 0)", ())

    await records.find("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_sync, database.transact, insert)
        await run_sync(inside.wait)
        await closed.go_native()
        found = await records.written()
        seen.set()
        assert [record.dest for record in found] == ["a"]
    for each in (database, beside):
        await run_sync(each.close)
    await records.aclose()
    await closed.aclose()


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


async def test_temporary_objects_go_strictly_behind_the_floor(place: RecordPlace) -> None:
    """S0.38, S0.39: one as old as the floor stays; one that is older goes; one that is recorded is never lost."""
    now, plain = 1_000_000 * OLD_MS, MemoryStore()
    async with place.store(plain, now_ms=lambda: now) as store:
        await cut_at("two-phase: temporary written, no record", store, "lost", b"one")
        await cut_at("two-phase: recorded, not copied", store, "kept", b"two")
        now += OLD_MS
        assert [key async for key in cut_off(store)] == []
        assert await collect(store) == 0
        assert len(temporaries(store)) == 2
        now += 1
        (left,) = [key async for key in cut_off(store)]
        assert left.startswith(f"{FOLDER}lost.")
        assert await collect(store) == 1
        assert await store.get("kept") == b"two"
        assert await tidy(store) == 0
        assert plain.objects == {"kept": b"two"}


async def test_who_was_too_slow_begins_anew(place: RecordPlace) -> None:
    """S0.14, S0.39: whether a temporary object is too old to be recorded the records say, in one order with its
    collection; and a clock that is far behind stops nobody."""
    now, plain = 1_000_000 * OLD_MS, MemoryStore()
    async with place.store(plain, now_ms=lambda: now + LATER) as other:
        slow = Stirred(plain, "put", partial(collect, other))
        async with place.store(slow, now_ms=lambda: now) as store:
            await store.create("a", b"one")
        assert slow.count("put", f"{FOLDER}a.*") == 2
        assert await other.get("a") == b"one"
        assert list(plain.objects) == ["a"]


async def test_a_deleted_key_is_free_when_no_hand_is_on_it(place: RecordPlace) -> None:
    """S0.39: a put that was sent before the delete may arrive after it; it never falls on another's bytes, and the
    stale record goes strictly behind the floor."""
    now = 1_000_000 * OLD_MS
    plain = RiggedStore(MemoryStore())
    slow = plain.add(Rule(op="put", key="a", gate=anyio.Event()))
    async with (
        place.store(plain, now_ms=lambda: now) as writer,
        place.store(plain, now_ms=lambda: now) as other,
    ):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.create, "a", b"one")
            await slow.reached.wait()
            await other.delete("a")
            with pytest.raises(NotFound):
                await other.get("a")
            assert await other.list("") == []
            with pytest.raises(AlreadyExists, match="may still write"):
                await other.create("a", b"two")
            assert slow.gate is not None
            slow.gate.set()
        # The writer found out, took back what it had put, and its hand off.
        with pytest.raises(NotFound):
            await other.get("a")
        assert place.all() == []
        await other.create("a", b"two")
        assert await other.get("a") == b"two"
        # Who was killed never takes it off.
        await cut_at("two-phase: copied, not marked", writer, "b", b"one")
        await other.delete("b")
        now += OLD_MS
        assert await collect(other) == 0
        assert place.all() == [("a", State.COMMITTED, 0), ("b", State.DELETED, 1)]
        with pytest.raises(AlreadyExists):
            await other.create("b", b"two")
        await plain.put("b", b"one")
        now += 1
        assert await collect(other) == 1
        assert place.all() == [("a", State.COMMITTED, 0)]
        await other.create("b", b"two")
        assert await other.get("b") == b"two"


async def test_who_slept_over_it_leaves_it_to_others(place: RecordPlace) -> None:
    """S0.39: what he would send could meet a key that is free again."""
    boots = iter(range(0, 1_000_000_000, OLD_MS // 2000))
    plain = MemoryStore()
    sleeper = TwoPhaseStore(plain, place.records(), boot=lambda: next(boots))
    await sleeper.create("a", b"one")
    assert [key for key in plain.objects if not key.startswith(FOLDER)] == []
    assert place.all() == [("a", State.WRITTEN, 0)]
    assert await sleeper.get("a") == b"one"
    async with place.store(plain) as store:
        assert await recover(store) == 1
        with pytest.raises(Unavailable, match="slept"):
            await sleeper.delete("a")
        assert plain.objects == {"a": b"one"}
        await store.delete("a")
        assert plain.objects == {}
    await sleeper.aclose()


async def test_a_node_finishes_what_others_left(place: RecordPlace) -> None:
    """S0.12: with the rest of its upkeep."""
    plain = RiggedStore(MemoryStore())
    async with place.store(plain) as store:
        await cut_at("two-phase: recorded, not copied", store, "a", b"one")
        copied = plain.add(Rule(op="delete", key=f"{FOLDER}a.*"))
        async with Node.open(store, name="main", upkeep=True, pace=HASTY):
            await copied.reached.wait()
        assert await plain.get("a") == b"one"


@pytest.mark.parametrize("point", ["two-phase: buried, not deleted", "two-phase: deleted, record still there"])
async def test_a_delete_that_was_cut_is_finished(place: RecordPlace, point: str) -> None:
    now, plain = 1_000_000 * OLD_MS, MemoryStore()
    async with place.store(plain, now_ms=lambda: now) as store:
        await store.create("a", b"one")
        await cut_at("two-phase: recorded, not copied", store, "b", b"two")
        for key in ("a", "b"):
            faults.arm(point, cut)
            with pytest.raises(faults.Cut):
                await store.delete(key)
            faults.disarm()
        now += LATER
        await tidy(store)
        assert plain.objects == {}
        assert place.all() == []


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


async def test_a_store_with_records_is_opened_with_them_alone(place: RecordPlace, tmp_path: Path) -> None:
    """S0.5, S0.6: of a mixed fleet two would create one key."""
    plain = MemoryStore("test://x")
    async with place.store(plain) as store:
        root = await open_root(store)
        assert (root.cas, root.generation) == ("two-phase", 1)
        assert await open_root(store) == root
    with pytest.raises(Unsupported, match=r"go through records: open it as test://x\?records="):
        await open_root(plain)
    async with RecordPlace.new(tmp_path, None).store(plain) as wrong:
        with pytest.raises(Unsupported, match="the records of another store"):
            await open_root(wrong)
    native = MemoryStore()
    await open_root(native)
    async with place.store(native) as wrong:
        with pytest.raises(Unsupported, match=r"open it without \?records="):
            await open_root(wrong)
    absent = TwoPhaseStore(plain, RecordPlace.new(tmp_path, None).records(create=False))
    with pytest.raises(Unsupported, match="there are no records at"):
        await open_root(absent)
    await absent.aclose()


async def test_a_store_is_switched_to_native_and_no_key_changes_its_name(place: RecordPlace) -> None:
    """S0.13: everything is finished first; whoever is still at it in two phases finds out at the next create."""
    plain = MemoryStore("test://x")
    async with place.store(plain) as store, place.store(plain) as old:
        root = await open_root(store)
        for number, point in enumerate(STEPS):
            await cut_at(point, store, f"keys/{number}", b"%d" % number)
        await store.create("keys/9", b"9")
        before = {key: await store.get(key) for key in await store.list("")}
        assert list(before) == ["keys/1", "keys/2", "keys/3", "keys/4", "keys/9", "root"]
        newest = await to_native(store, plain)
        assert (newest.cas, newest.generation) == ("native", 2)
        added = {key: data for key, data in plain.objects.items() if key not in before}
        assert {key: plain.objects[key] for key in before} == before
        assert list(added) == ["roots/0000000000000002"]
        assert await open_root(plain) == newest
        assert (newest.store, newest.names) == (root.store, root.names)
        with pytest.raises(Unsupported, match=r"open it without \?records="):
            await open_root(old)
        for call in (old.create("late", b""), old.delete("keys/9"), collect(old)):
            with pytest.raises(Unsupported, match="switched to native create"):
                await call
        assert temporaries(store) == []
        await plain.create("keys/10", b"10")
        assert await old.get("keys/10") == b"10", "what is left of the old way can still read"
        assert await to_native(store, plain) == newest, "and again"


async def test_a_create_under_way_is_either_finished_by_the_switch_or_refused(place: RecordPlace) -> None:
    """S0.13: the switch and all creates are in one order."""
    plain = RiggedStore(MemoryStore("test://x"))
    async with place.store(plain) as store, place.store(plain) as writer:
        await open_root(store)
        early = plain.add(Rule(op="put", key="early", gate=anyio.Event()))
        late = plain.add(Rule(op="put", key=f"{FOLDER}late*", gate=anyio.Event()))
        refused: list[Unsupported] = []

        async def create_late() -> None:
            try:
                await writer.create("late", b"late")
            except Unsupported as error:
                refused.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.create, "early", b"early")
            tasks.start_soon(create_late)
            await early.reached.wait()
            await late.reached.wait()
            await to_native(store, plain)
            assert await plain.get("early") == b"early"
            for gate in (early.gate, late.gate):
                assert gate is not None
                gate.set()
        assert len(refused) == 1
        assert await plain.list("") == ["early", "root", "roots/0000000000000002"]


async def test_only_a_store_that_honours_create_is_switched(place: RecordPlace) -> None:
    class Careless(MemoryStore):
        async def create(self, key: str, data: Data) -> None:
            await self.put(key, data)

    plain = Careless("test://x")
    async with place.store(plain) as store:
        root = await open_root(store)
        with pytest.raises(Unsupported, match=r"doesn't honour create.*\?records="):
            await to_native(store, plain)
        await store.create("a", b"still in two phases")
        assert await open_root(store) == root
        with pytest.raises(NotFound, match="no Budwood store"):
            async with place.store(MemoryStore()) as empty:
                await to_native(empty, MemoryStore())

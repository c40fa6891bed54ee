"""How two-phase creates end, over SQLite's and PostgreSQL's records: what is left goes strictly behind the floor, a
deleted key is free when nobody can write it any more, and a store is switched to its own creates."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync

from budwood.server.store.native import to_native
from budwood.server.store.protocol import Data
from budwood.server.store.records import State
from budwood.server.store.root import open_root
from budwood.server.store.sql_records import Execute
from budwood.server.store.temporaries import FOLDER
from budwood.server.store.two_phase_store import OLD_MS, TwoPhaseStore
from budwood.server.store.two_phase_upkeep import collect, cut_off, recover, tidy
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume import faults
from budwood.volume.errors import (
    AlreadyExists,
    NotFound,
    Unavailable,
    Unsupported,
)

from ..record_stores import KINDS, RecordPlace
from ..two_phase import LATER, STEPS, Stirred, cut, cut_at, temporaries
from ..waits import wait_until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> RecordPlace:
    return RecordPlace.new(tmp_path, request.getfixturevalue("postgres") if request.param == "postgresql" else None)


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

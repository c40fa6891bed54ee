"""A node counts what it asks of its store: by kind and day, and by whose objects that is about."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from budwood.server.node import Node
from budwood.server.store import counted
from budwood.server.store.counted import DAY_MS, CountedStore
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import CREATE, REQUESTS, CreateRequest, Done, RequestCounts
from budwood.volume.errors import Unavailable
from budwood.volume.ids import ClientId, VolumeId

from ..rolling import hasty

pytestmark = pytest.mark.anyio

ANN = ClientId.new()
PAGE = 512


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.fixture
async def node(store: RiggedStore) -> AsyncIterator[Node]:
    async with Node.open(store, name="main", patience=hasty()) as node:
        yield node


async def volume(node: Node, number: int) -> VolumeId:
    """Of so many commits."""
    vid = VolumeId.new()
    await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    for base in range(number):
        await node.commit(*commit_of(vid, base, {1: bytes([base + 1]) * PAGE}, client=ANN, page_size=PAGE))
    return vid


def totals(counts: RequestCounts) -> dict[str, int]:
    names = ("gets", "creates", "deletes", "lists", "received_bytes", "sent_bytes")
    return {name: sum(getattr(day, name) for day in counts.days) for name in names}


async def test_every_request_is_counted_by_kind(store: RiggedStore, node: Node) -> None:
    vid = await volume(node, 5)
    await pages_at(node, vid)
    counts = totals(await node.ask(REQUESTS, Done()))
    assert counts == {
        "gets": store.count("get") + store.count("get_tail"),
        "creates": store.count("create"),
        "deletes": store.count("delete"),
        "lists": store.count("list"),
        "received_bytes": store.received_bytes("get") + store.received_bytes("get_tail"),
        "sent_bytes": store.sent_bytes("create"),
    }
    assert counts["creates"] > 5
    assert counts["lists"] > 0


async def test_what_is_a_volumes_is_told_and_shared_entries_are_divided(store: RiggedStore, node: Node) -> None:
    one, two, third = await volume(node, 1), await volume(node, 0), await volume(node, 0)
    before = {each.owner: each.entries for each in (await node.ask(REQUESTS, Done())).owners}
    gate = store.add(Rule(op="create", key="logs/main/entries/*", gate=anyio.Event()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(node.commit, *commit_of(one, 1, {1: b"a" * PAGE}, client=ANN, page_size=PAGE))
        await gate.reached.wait()
        # These two wait for the one that is on its way, and go together.
        tasks.start_soon(node.commit, *commit_of(two, 0, {1: b"b" * PAGE}, client=ANN, page_size=PAGE))
        tasks.start_soon(node.commit, *commit_of(third, 0, {1: b"c" * PAGE}, client=ANN, page_size=PAGE))
        await anyio.wait_all_tasks_blocked()
        assert gate.gate is not None
        gate.gate.set()
    owners = {each.owner: each for each in (await node.ask(REQUESTS, Done())).owners}
    assert owners[str(one)].entries == before[str(one)] + 1
    assert owners[str(two)].entries + owners[str(third)].entries in {1, 2}
    assert owners[str(third)].creates == 1, "its birth"
    entries = store.count("create", "logs/main/entries/*")
    shares = sum(each.entries for each in owners.values())
    assert shares == pytest.approx(entries - 2), "but for the anchor and the fence"


async def test_a_private_log_is_its_volumes_own(store: RiggedStore) -> None:
    async with Node.open(store, patience=hasty()) as node:
        vid = await volume(node, 3)
        (owner,) = (await node.ask(REQUESTS, Done())).owners
        assert owner.owner == str(vid)
        assert owner.creates == store.count("create", f"logs/{vid}/*") + store.count("create", f"volumes/{vid}/*")
        assert owner.entries == 0, "they are among its creates"


async def test_days_are_told_apart_and_the_last_32_are_kept() -> None:
    now_ms = 10 * DAY_MS
    inner = MemoryStore()
    store = CountedStore(inner, lambda: now_ms)
    for number in range(40):
        for _ in range(number):
            await store.create(f"a/{number}/{_}", b"12")
        now_ms += DAY_MS
    told = store.told()
    assert [day.day for day in told.days] == list(range(10 + 8, 10 + 40))
    assert [day.creates for day in told.days] == list(range(8, 40))
    assert (told.since_ms, told.now_ms) == (10 * DAY_MS, now_ms)
    assert not told.owners


async def test_a_request_that_failed_was_made() -> None:
    rigged = RiggedStore(MemoryStore())
    rigged.add(Rule(op="create", before=Unavailable("no answer")))
    store = CountedStore(rigged, lambda: 0)
    with pytest.raises(Unavailable):
        await store.create("a", b"1")
    assert store.told().days[0].creates == 1


async def test_a_long_listing_is_several_requests_and_sizes_are_a_listing() -> None:
    inner = MemoryStore()
    for number in range(2500):
        await inner.create(f"volumes/x/{number}", b"")
    store = CountedStore(inner, lambda: 0)
    assert len(await store.list("volumes/")) == 2500
    assert store.told().days[0].lists == 3
    assert await store.sizes("none") == []
    assert len(await store.sizes("volumes/x/", limit=1000)) == 1000
    assert store.told().days[0].lists == 5
    assert store.told().owners[0].lists == 1, "of one volume alone"


async def test_of_many_owners_those_that_wrote_most_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted, "_TOLD", 3)
    store = CountedStore(MemoryStore(), lambda: 0)
    store.owners.limit = 5
    for number in range(8):
        for each in range(number):
            await store.create(f"volumes/v{number}/{each}", b"")
    assert [each.owner for each in store.told().owners] == ["v7", "v6", "v5"]
    assert len(store.owners) == 5
    assert store.told().days[0].creates == sum(range(8))

"""A node is taken out of a store for good: afterwards nothing of it comes to stand in a shared log, whenever it was
doing what (S1.22)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.lowlevel import checkpoint

from budwood.server.log.term import take_transaction
from budwood.server.metastore.log_ownership import Takeover
from budwood.server.metastore.standby import MISSES, Standby
from budwood.server.node import Node
from budwood.server.upkeep.scrub import open_scrub
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    DECOMMISSION,
    HELLO,
    CreateRequest,
    Decommissioned,
    DecommissionRequest,
    Done,
    SinceRequest,
)
from budwood.volume.entry import EpochRecord
from budwood.volume.errors import BadInput, Corrupt, NotFound, NotOwner, Unauthorized, Unavailable
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.owner import Liveness
from budwood.volume.retirement import retired_key

from ..damage import Heard
from ..rolling import roll_up
from ..second_reader import Store as SecondReader
from ..waits import LIMIT_SECONDS
from .standbys import look

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN = ClientId.new()
ONE, TWO, THREE = "http://one", "http://two", "http://three"


class Fleet:
    """Nodes by name, and how each answers those who ask whether it lives: by what it holds, unless told otherwise."""

    def __init__(self) -> None:
        self.store = RiggedStore(MemoryStore())
        self.nodes: dict[str, Node] = {}
        self.lives: dict[str, Liveness] = {}

    async def probe(self, owner: EpochRecord) -> Liveness:
        if owner.node in self.lives:
            return self.lives[owner.node]
        node = self.nodes.get(owner.node)
        if node is None:
            return Liveness.GONE
        held = [(own.log, own.epoch) for own in (await node.ask(HELLO, Done())).logs]
        return Liveness.ANSWERS if (owner.log, owner.n) in held else Liveness.GONE

    @asynccontextmanager
    async def node(self, name: str, *, takeover: bool = False, takes_back: bool = False) -> AsyncGenerator[Node]:
        address = f"http://{name}"
        async with Node.open(
            self.store, name=name, address=address, probe_owner=self.probe, takeover=takeover, takes_back=takes_back
        ) as node:
            self.nodes[name] = node
            try:
                yield node
            finally:
                del self.nodes[name]


async def born(node: Node) -> VolumeId:
    vid = VolumeId.new()
    await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


async def put(node: Node, vid: VolumeId, base: int, letter: bytes = b"a") -> int:
    return (await node.commit(*commit_of(vid, base, {1: letter * PAGE}, client=ANN, page_size=PAGE))).lsn


async def take_out(node: Node, name: str, *, force: bool = False) -> Decommissioned:
    return await node.ask(DECOMMISSION, DecommissionRequest(node=name, force=force))


async def wrong(store: RiggedStore) -> list[str]:
    """The objects that a scrub finds wrong."""
    heard = Heard()
    async with open_scrub(store, heard) as scrub:
        await scrub.run()
    return [finding.key for finding in heard.findings]


async def owners(store: RiggedStore) -> dict[str, str]:
    async with Node.open(store) as reader:
        found = dict[str, str]()
        for name in ("one", "two", "three"):
            owner = await reader.logs.owner(await reader.logs.get(name))
            found[name] = owner.node if owner else ""
        return found


async def test_a_living_nodes_logs_go_on_under_another_and_it_owns_nothing_any_more() -> None:
    fleet = Fleet()
    async with fleet.node("one") as one, fleet.node("two") as two:
        vid, private = await born(one), VolumeId.new()
        async with Node.open(fleet.store) as embedded:
            await embedded.ask(CREATE, CreateRequest(private.raw, page_size=PAGE))
        assert await put(one, vid, 0) == await put(one, private, 0) == 1
        done = await take_out(two, "one")
        assert (done.node, done.by, [(own.log, own.epoch) for own in done.taken]) == ("one", "two", [("one", 2)])
        assert (done.left, done.says) == ((), ("one",)), "it has not noticed yet"
        assert await put(two, vid, 1, b"b") == 2
        for of, words in (vid, "owned by http://two"), (vid, "one was taken out of this store"), (private, "for good"):
            with pytest.raises(NotOwner, match=words) as lost:
                await put(one, of, 2)
            assert lost.value.owner == TWO
        with pytest.raises(NotOwner, match="taken out"):
            await born(one)
        again = await take_out(two, "one")
        assert (again.taken, again.left, again.says, again.time) == ((), (), (), done.time)
        assert await pages_at(one, vid) == {1: b"b" * PAGE}, "it answers reads"
        assert (await one.ask(HELLO, Done())).logs == ()
    assert (await owners(fleet.store))["one"] == "two"


async def test_a_node_that_was_taken_out_says_so_when_it_comes_back_and_ends() -> None:
    fleet = Fleet()
    async with fleet.node("one"):
        pass
    async with fleet.node("two") as two:
        assert (await take_out(two, "one", force=True)).left == ()
    for takeover in (False, True):
        with pytest.raises(NotOwner, match=r"node one was taken out of this store for good on .*: start a node of ano"):
            async with fleet.node("one", takeover=takeover):
                pass
    assert await owners(fleet.store) == {"one": "two", "two": "two", "three": ""}


async def test_a_node_that_does_not_answer_is_taken_out_when_forced() -> None:
    fleet = Fleet()
    async with fleet.node("one") as one, fleet.node("two") as two:
        vid = await born(one)
        for life in (Liveness.GONE, Liveness.UNKNOWN):
            fleet.lives["one"] = life
            with pytest.raises(Unavailable, match=r"owns log one and doesn't answer at http://one.*--force"):
                await take_out(two, "one")
        assert await put(one, vid, 0) == 1, "nothing was begun"
        done = await take_out(two, "one", force=True)
        assert (done.left, done.says) == ((), ())
        for words in ("owned by http://two", "taken out"):
            with pytest.raises(NotOwner, match=words):
                await put(one, vid, 1)
        assert await put(two, vid, 1) == 2


async def test_whoever_can_not_be_taken_out_is_said() -> None:
    fleet = Fleet()
    async with fleet.node("two") as two:
        with pytest.raises(NotFound, match="no node named 'one'"):
            await take_out(two, "one")
        with pytest.raises(BadInput, match="ask another one"):
            await take_out(two, "two")
        with pytest.raises(BadInput):
            await take_out(two, "No Such Name")
        async with Node.open(fleet.store) as embedded:
            with pytest.raises(BadInput, match="ask one with --remote"):
                await take_out(embedded, "two")


async def test_what_it_had_taken_over_of_others_goes_too() -> None:
    fleet = Fleet()
    async with fleet.node("three") as three:
        vid = await born(three)
    async with fleet.node("one") as one, fleet.node("two") as two:
        await one.logs.take_over(await one.logs.get("three"), Takeover.IF_GONE, stays=True)
        done = await take_out(two, "one")
        assert [own.log for own in done.taken] == ["one", "three"]
        assert await put(two, vid, 0) == 1
        standby = Standby(one.logs)
        fleet.lives["two"] = Liveness.GONE
        for _ in range(MISSES + 1):
            await look(standby)
        assert await put(two, vid, 1) == 2, "it takes over nothing"
    assert await owners(fleet.store) == {"one": "two", "two": "two", "three": "two"}


async def test_a_node_has_again_what_it_had_when_it_ended() -> None:
    """Else the logs of whoever was taken out would be nobody's once its heir is started anew."""
    fleet = Fleet()
    async with fleet.node("one") as one, fleet.node("three"), fleet.node("two") as two:
        vid = await born(one)
        await take_out(two, "one")
        await take_out(two, "three")
    with anyio.fail_after(LIMIT_SECONDS):
        async with fleet.node("two", takes_back=True) as two:
            while len((await two.ask(HELLO, Done())).logs) < 3:
                await checkpoint()
            assert await put(two, vid, 0) == 1
    async with fleet.node("four") as four:
        await four.logs.take_over(await four.logs.get("one"), Takeover.IF_GONE, stays=True)
        async with fleet.node("two") as two:
            await two.logs.take_back(lambda _: True)
            assert [own.log for own in (await two.ask(HELLO, Done())).logs] == ["three", "two"], "another's by now"
            assert await put(four, vid, 1) == 2


async def test_folds_that_it_left_are_rejected() -> None:
    fleet = Fleet()
    async with fleet.node("one") as one, fleet.node("two") as two:
        vid = await born(one)
        await put(one, vid, 0)
        await put(one, vid, 1)
        await one.ask(ADVANCE, SinceRequest(vid.raw, since=2))
        await roll_up(one, "one")
        writer, now = ANN.raw, one.logs.now_ms()
        number = await take_transaction(
            fleet.store, "one", above=0, writer=writer, now_ms=now, node="one", stream=vid.raw
        )
        assert [each.number for each in await one.transactions.of("one")] == [number]
        assert (await take_out(two, "one")).rejected == (("one", number),)
        assert (await take_out(two, "one")).rejected == ()


class Standing:
    """What came of a take that was held up."""

    def __init__(self) -> None:
        self.ended = False
        self.owns = False


async def taken_meanwhile(held_at: int) -> int | None:
    """Node one takes log three while it is taken out, and is held up at one of its requests until that is done: what
    stands afterwards. None if it makes fewer requests."""
    fleet, standing = Fleet(), Standing()
    async with fleet.node("three") as three:
        vid = await born(three)
    async with fleet.node("one") as one, fleet.node("two") as two:
        log, mine = await one.logs.get("three"), await one.logs.get("one")
        gate = fleet.store.add(Rule(key="*", nth=held_at + 1, gate=anyio.Event()))

        async def take() -> None:
            try:
                await one.logs.take_over(log, Takeover.ALWAYS, stays=True)
                standing.owns = True
            except NotOwner:
                pass
            standing.ended = True

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take)
            while not standing.ended and not gate.fired:
                await checkpoint()
            if standing.ended:
                return None
            assert (await take_out(two, "one", force=True)).left == ()
            assert gate.gate is not None
            gate.gate.set()
        assert (await owners(fleet.store))["three"] != "one", "whatever came to stand late is void"
        assert (await take_out(two, "one", force=True)).left == ()
        for of in (mine, log):
            await one.logs.refresh(of, confirm=True)
            with pytest.raises(NotOwner):
                await one.logs.writer(of)
        if (await owners(fleet.store))["three"] == "two":
            assert await put(two, vid, 0) == 1
        return held_at


async def test_whatever_it_was_taking_is_given_up_or_void_wherever_it_was_held_up() -> None:
    """Both write first and look afterwards."""
    held_at = 0
    while await taken_meanwhile(held_at) is not None:
        held_at += 1
    assert held_at > 5


async def test_one_that_is_cut_off_is_ended_by_the_same_call_again() -> None:
    """At each request to the store, one after another."""
    at = 0
    while True:
        fleet = Fleet()
        async with fleet.node("one") as one, fleet.node("two") as two:
            vid = await born(one)
            assert await put(one, vid, 0) == 1
            down = fleet.store.add(Rule(key="*", nth=at + 1, before=Unauthorized("cut off")))
            try:
                done = await take_out(two, "one", force=True)
            except Unauthorized:
                done = await take_out(two, "one", force=True)
            assert done.left == ()
            ended, down.times = not down.fired, 0
            assert await put(two, vid, 1) == 2
            if ended:
                break
        at += 1
    assert at > 8


async def test_a_mark_that_is_damaged_is_found_and_named() -> None:
    fleet = Fleet()
    async with fleet.node("one"):
        pass
    async with fleet.node("two") as two:
        await take_out(two, "one", force=True)
    key, memory = retired_key("one"), fleet.store.inner
    assert isinstance(memory, MemoryStore)
    assert key in SecondReader(memory.objects).liveness().live
    assert await wrong(fleet.store) == []
    memory.objects[key] = memory.objects[key][:-1] + bytes([memory.objects[key][-1] ^ 1])
    assert await wrong(fleet.store) == [key]
    with pytest.raises(Corrupt, match=key):
        async with fleet.node("one"):
            pass

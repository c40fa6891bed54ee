"""Regions are hints: a volume is made where its maker would have it, if a node runs there, and whoever takes over
prefers its own (S2.23)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from budwood.remote.routed import Routed
from budwood.server.metastore.births import read_birth
from budwood.server.metastore.standby import FARTHER_MISSES, MISSES, Standby
from budwood.server.node import Node
from budwood.server.store.retrying import PATIENT
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import (
    CREATE,
    DECOMMISSION,
    HELLO,
    SNAPSHOT,
    CreateRequest,
    DecommissionRequest,
    Done,
    SnapshotRequest,
)
from budwood.volume.entry import EpochRecord
from budwood.volume.errors import BadInput, NotOwner
from budwood.volume.ids import VolumeId
from budwood.volume.owner import Liveness

from .standbys import look

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


class Fleet:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.nodes: dict[str, Node] = {}

    async def probe(self, owner: EpochRecord) -> Liveness:
        return Liveness.ANSWERS if owner.address in self.nodes else Liveness.GONE

    @asynccontextmanager
    async def node(self, name: str, region: str) -> AsyncGenerator[Node]:
        address = f"http://{name}"
        async with Node.open(
            self.store, name=name, address=address, probe_owner=self.probe, region=region
        ) as self.nodes[address]:
            try:
                yield self.nodes[address]
            finally:
                del self.nodes[address]

    def through(self, home: Node) -> Routed:
        async def nothing() -> None: ...

        return Routed(home, self.nodes.__getitem__, lambda refused: refused.owner, nothing)

    async def born(self, home: Node, region: str) -> str:
        """The log that a volume for that region is made in, by a client that was given that node."""
        vid, remote = VolumeId.new(), self.through(home)
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=512, region=region))
        assert (await read_birth(self.store, vid, PATIENT)).region == region
        return (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))).log


async def test_a_volume_is_made_by_a_node_of_its_region_where_one_answers() -> None:
    fleet = Fleet()
    async with fleet.node("one", "north") as one, fleet.node("two", "south") as two:
        assert (await one.ask(HELLO, Done())).region == "north"
        for home, region, log in (
            (one, "", "one"),
            (one, "north", "one"),
            (one, "south", "two"),
            (two, "north", "one"),
            (one, "west", "one"),
        ):
            assert await fleet.born(home, region) == log
        with pytest.raises(BadInput, match="can't name a region"):
            await fleet.born(one, "No Region")
    async with fleet.node("one", "north") as one:
        assert await fleet.born(one, "south") == "one", "nobody answers there"


async def test_a_stand_by_of_another_region_waits_for_those_of_the_owners() -> None:
    fleet = Fleet()
    async with fleet.node("one", "north"):
        pass
    async with fleet.node("two", "south") as two, fleet.node("three", "north") as three:
        far, near = Standby(two.logs), Standby(three.logs)
        for _ in range(MISSES + 1):
            await look(far)
            await look(near)
        assert [own.log for own in (await three.ask(HELLO, Done())).logs] == ["one", "three"]
        assert [own.log for own in (await two.ask(HELLO, Done())).logs] == ["two"]
    async with fleet.node("two", "south") as two:
        far = Standby(two.logs)
        for _ in range(FARTHER_MISSES):
            await look(far)
        assert [own.log for own in (await two.ask(HELLO, Done())).logs] == ["two"]
        await look(far)
        assert [own.log for own in (await two.ask(HELLO, Done())).logs] == ["one", "three", "two"], "nobody else did"


async def test_who_is_taken_out_has_its_heir_in_its_region_unless_told_otherwise() -> None:
    fleet = Fleet()
    async with (
        fleet.node("one", "north"),
        fleet.node("two", "south") as two,
        fleet.node("three", "north"),
        fleet.node("four", "north"),
    ):
        with pytest.raises(NotOwner, match="in the region of one") as lost:
            await two.ask(DECOMMISSION, DecommissionRequest(node="one"))
        assert lost.value.owner == "http://four"
        for _ in range(2):
            done = await fleet.through(two).ask(DECOMMISSION, DecommissionRequest(node="one", force=True))
            assert (done.heir, done.by, done.left) == ("http://four", "four", ())
        done = await fleet.through(two).ask(DECOMMISSION, DecommissionRequest(node="three", force=True, here=True))
        assert (done.heir, done.left) == ("http://two", ())

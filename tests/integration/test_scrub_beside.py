"""A scrub of a store that is folded and collected meanwhile: what goes under it is no damage, and real damage is."""

from __future__ import annotations

import anyio
import pytest

from budwood.server.upkeep.scrub import open_scrub
from budwood.testing.stores import MemoryStore, RiggedStore, Rule

from ..damage import Heard
from ..rolling import hasty, memory, small_nodes
from .test_collection import INTERVAL_MS, Filled, Scene
from .test_live import Holdings

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

PLACES = 14


async def test_a_scrub_beside_collections_finds_nothing_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """S4.20: whoever reads a log for hours need not hold it back. At each of many requests it falls asleep, and all
    that can go goes, two collections' worth."""
    small_nodes(monkeypatch)
    scene = Scene(RiggedStore(MemoryStore()))
    async with scene.node("main") as node:
        holdings = await Holdings.made(scene, node)
        await holdings.use()
        await holdings.fold()
        for place in range(PLACES):
            await holdings.use()
            await holdings.fold()
            for log in holdings.logs():
                await node.collector.collect(log)
            scene.store.forget()
            async with open_scrub(scene.store, Heard(), patience=hasty()) as scrub:
                await scrub.run()
            requests, heard = scene.store.count(), Heard()
            scene.store.rules.clear()
            asleep = scene.store.add(Rule(gate=anyio.Event(), nth=1 + place * requests // PLACES))

            async def run(heard: Heard = heard) -> None:
                async with open_scrub(scene.store, heard, patience=hasty()) as scrub:
                    await scrub.run()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await asleep.reached.wait()
                stood = set(memory(scene.store).objects)
                scene.now_ms += INTERVAL_MS
                await holdings.collect()
                assert len(stood - set(memory(scene.store).objects)) > 10
                assert asleep.gate is not None
                asleep.gate.set()
            assert [str(each) for each in heard.findings] == [], f"asleep at request {asleep.nth} of {requests}"
        await holdings.check()


async def test_a_boundary_that_gives_way_to_a_higher_one_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """S4.20: it was listed, and is gone when it is read."""
    small_nodes(monkeypatch)
    scene = Scene(RiggedStore(MemoryStore()))
    async with scene.node() as node:
        volume = await Filled.born(node)
        log, heard = str(volume.vid), Heard()
        await volume.write(40)
        await volume.forget()
        for _ in range(2):
            await node.collector.collect(log)
            scene.now_ms += INTERVAL_MS
        await volume.write(40)
        await volume.forget()
        await node.collector.collect(log)
        *_, lowest = scene.keys(f"logs/{log}/boundary/")

        async def run() -> None:
            async with open_scrub(scene.store, heard, patience=hasty()) as scrub:
                await scrub.run()

        asleep = scene.store.add(Rule(op="get", key=lowest, gate=anyio.Event()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await asleep.reached.wait()
            scene.now_ms += INTERVAL_MS
            await node.collector.collect(log)
            assert lowest not in scene.keys("")
            assert asleep.gate is not None
            asleep.gate.set()
        assert [str(each) for each in heard.findings] == []

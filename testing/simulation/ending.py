"""Ending: the network is calm, everybody is awake, and all of it is looked at once more (schedule.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias, TypeVar

import trio

from ...server.metastore import rollups
from ...server.node import Node
from ...server.store.two_phase_store import OLD_MS
from ...server.upkeep.collector import Stage
from ...server.upkeep.findings import Finding
from ...server.upkeep.position import Position
from ...server.upkeep.scrub import open_scrub
from ...volume.calls import UNPIN, UnpinRequest
from ...volume.errors import BadInput, Conflict, NotFound, NotOwner, ReadOnly, Unavailable
from ...volume.ids import VolumeId
from ...volume.wire import Committed
from .keepers import PAST_INTERVAL
from .model import Attempt, Violation, Volume
from .network import CALM
from .process import Process
from .reading import changes_between, commits_of, newest, read_at, rules_of
from .record_store import tidied
from .world import World

T = TypeVar("T")

Pages: TypeAlias = Mapping[int, bytes]
Audit: TypeAlias = Callable[[Mapping[str, bytes], Mapping[bytes, Mapping[int, Pages]]], None]
"""Of a store's objects, and of pages by volume and LSN."""

_FEWEST: Final = rollups.FEWEST

_ROUNDS: Final = 8
"""Of collections, at the most."""


async def end(world: World, audit: Audit | None) -> None:
    """See above. Raises Violation, and whatever else the product met."""
    trace = world.trace
    trace("the end", "is near")
    world.network.weather, world.ended = CALM, True
    for process in world.processes:
        process.trap, process.fault = None, ""
        process.join()
        process.wake()
    # What is on its way arrives, and who slept goes on.
    await trio.sleep(2 * 3600.0)
    for process in world.processes:
        if process.broken is not None:
            raise process.broken
    for process in world.processes:
        await process.stop()
    await _switch(world)
    all_of = [world.process(f"last {log}", log) for log in world.shared]
    other = world.process("fresh", None)
    all_of.append(other)
    for process in all_of:
        if not await process.start():
            raise Violation(f"a store that was left in peace can't be opened: {process.name}")
    for volume in world.volumes:
        await _settle(all_of, volume)
        await _read_all(other, volume)
    trace("the end", "lets go")
    # A collection's own entries are not worth a rollup any more, which would be collected in its turn.
    rollups.FEWEST = _FEWEST  # type: ignore[misc]
    for volume in world.volumes:
        await _let_go(all_of, volume)
    await trio.sleep(PAST_INTERVAL)
    await _collect_all(world, all_of)
    await _tidy(world, other)
    for process in all_of:
        await process.stop()
    last = world.process("bare", None)
    if not await last.start():
        raise Violation("a store that was collected can't be opened")
    for volume in world.volumes:
        await _read_all(last, volume)
    await last.stop()
    await _scrub(world)
    if audit is not None:
        audit(await world.creates.recorded(), {volume.vid.raw: _promised(volume) for volume in world.volumes})


async def _switch(world: World) -> None:
    """Who has begun to, comes to the end."""
    if world.creates.switching and not world.creates.native:
        operator = world.process("operator", None)
        if not await operator.start():
            raise Violation("a store that was being switched to native creates can't be opened")
        await world.creates.switch(operator)
        await operator.stop()


async def _tidy(world: World, process: Process) -> None:
    """Nothing is left of creates that were cut off, once they are old."""
    if world.creates.two_phase:
        await trio.sleep(OLD_MS / 1000 + 3600.0)
        await process.ask(tidied)
        await world.creates.check()


async def _settle(all_of: Sequence[Process], volume: Volume) -> None:
    """Asks what became of each commit, by sending it once more."""
    for lsn in sorted(volume.attempts):
        for attempt in volume.attempts[lsn]:
            if not attempt.acknowledged_ms and not attempt.refused and not attempt.landed:
                await _ask_again(all_of, volume, attempt)


async def _ask_again(all_of: Sequence[Process], volume: Volume, attempt: Attempt) -> None:
    async def send(node: Node) -> Committed:
        return await node.commit(attempt.request, attempt.segment)

    try:
        volume.acknowledge(attempt, await _any_of(all_of, send))
    except (Conflict, ReadOnly, BadInput):
        volume.refuse(attempt)


async def _read_all(process: Process, volume: Volume) -> None:
    info = await newest(process, volume)
    if info.lsn > volume.start:
        await read_at(process, volume, info.lsn)
    if info.lsn not in (volume.head, volume.start) and volume.at(info.lsn) is None:
        raise Violation(f"{volume}: its newest LSN {info.lsn} is nobody's")
    readable = volume.readable()
    for lsn in range(volume.start + 1, volume.head + 1):
        await read_at(process, volume, lsn)
    for first, last in pairwise(readable):
        await changes_between(process, volume, first, last)
    await commits_of(process, volume)
    await rules_of(process, volume)


def _promised(volume: Volume) -> dict[int, Pages]:
    return {
        lsn: snapshot.pages for lsn, snapshot in volume.known.items() if lsn > volume.start and volume.promised(lsn)
    }


async def _let_go(all_of: Sequence[Process], volume: Volume) -> None:
    """Of every other pin."""
    for number, pin in enumerate(list(volume.held)):
        if number % 2:
            continue

        async def unpin(node: Node, raw: bytes = pin.raw) -> None:
            await node.ask(UNPIN, UnpinRequest(volume.vid.raw, pin=raw))

        volume.held.pop(pin)
        try:
            await _any_of(all_of, unpin)
        except NotFound:
            # It has ended.
            continue


async def _collect_all(world: World, all_of: Sequence[Process]) -> None:
    for volume in world.volumes:

        async def fold(node: Node, vid: VolumeId = volume.vid) -> None:
            await node.folder.fold(vid, relocate=True)

        await _any_of(all_of, fold)
    for _ in range(_ROUNDS):
        stages = list[Stage]()
        for log in world.logs():

            async def collect(node: Node, name: str = log) -> Stage:
                return (await node.collector.collect(name)).stage

            stages.append(await _any_of(all_of, collect))
        world.trace("the end", f"collects: {', '.join(stage.value for stage in stages)}")
        if set(stages) == {Stage.NOTHING}:
            return
        await trio.sleep(PAST_INTERVAL)
    raise Violation(f"after {_ROUNDS} collections in peace there still is something to collect")


async def _any_of(all_of: Sequence[Process], work: Callable[[Node], Awaitable[T]]) -> T:
    """By the one that owns the log."""
    for process in all_of[:-1]:
        try:
            return await process.ask(work)
        except (NotOwner, Unavailable):
            continue
    return await all_of[-1].ask(work)


class _Findings:
    """See server.upkeep.scrub.Watcher."""

    def __init__(self) -> None:
        self.found_wrong: list[Finding] = []

    def found(self, finding: Finding) -> None:
        self.found_wrong.append(finding)

    def passed(self, position: Position, objects: int, size_bytes: int) -> None:
        """It ends soon."""


async def _scrub(world: World) -> None:
    findings = _Findings()
    async with open_scrub(world.creates.bare(), findings) as scrub:
        await scrub.run()
    if findings.found_wrong:
        raise Violation(f"a scrub finds {'; '.join(map(str, findings.found_wrong))}")

"""Rounds over a store that no node serves: what changed is tended, and what rests costs two listings of a log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import anyio
import pytest

from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.server.store.root import GC_INTERVAL_SECONDS
from budwood.server.upkeep.rounds import EVERY_SECONDS, Rounds
from budwood.server.upkeep.upkeep import COMMITS, DAY_SECONDS, NEW_ENTRIES, RETAIN_SECONDS, Extent, Pace, Turn
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import ADVANCE, CREATE, CreateRequest, SinceRequest
from budwood.volume.errors import BudwoodError, Conflict, NotOwner, Unavailable
from budwood.volume.ids import ClientId, VolumeId

from ..rolling import comes_true, memory

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

PAGE = 512
ANN = ClientId.new()


@dataclass
class Told:
    """See rounds.Watcher."""

    turns: list[tuple[str, Turn]] = field(default_factory=list[tuple[str, Turn]])
    errors: list[tuple[str, BudwoodError]] = field(default_factory=list[tuple[str, BudwoodError]])
    objects: int = 0

    def turned(self, log: str, turn: Turn) -> None:
        self.turns.append((log, turn))

    def left(self, log: str, why: NotOwner | Conflict) -> None:
        self.errors.append((log, why))

    def failed(self, log: str, error: BudwoodError) -> None:
        self.errors.append((log, error))

    def deleted(self, log: str, objects: int) -> None:
        self.objects += objects


@dataclass
class Scene:
    node: Node
    store: RiggedStore
    clock: ManualClock
    told: Told
    rounds: Rounds
    vid: VolumeId
    head: int = 0
    pages: dict[int, bytes] = field(default_factory=dict[int, bytes])

    async def write(self, commits: int) -> None:
        for _ in range(commits):
            wrote = {self.head % 7 + 1: b"%8d" % self.head * (PAGE // 8)}
            request, segment = commit_of(self.vid, self.head, wrote, client=ANN, page_size=PAGE, length=7 * PAGE)
            self.head = (await self.node.commit(request, segment)).lsn
            self.pages |= wrote

    async def goes_round(self, seconds: float = EVERY_SECONDS) -> None:
        """Time goes on, and the round after that has ended."""
        slept = len(self.clock.slept)
        self.clock.advance(seconds)
        await comes_true(lambda: len(self.clock.slept) > slept)

    def entries(self) -> int:
        return sum(1 for key in memory(self.store).objects if key.startswith(f"logs/{self.vid}/entries/"))


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    store, clock, told = RiggedStore(MemoryStore()), ManualClock(1000.0), Told()
    patience = Patience(deadline_seconds=0, now=clock.now, boot=clock.now, sleep=clock.sleep)
    pace = Pace(rest=0.0, deletes_a_second=0.0)

    def now_ms() -> int:
        return 1_700_000_000_000 + clock.now_ms()

    async with (
        Node.open(store, patience=patience, now_ms=now_ms) as node,
        Node.open(store, patience=patience, now_ms=now_ms, pace=pace) as other,
        anyio.create_task_group() as tasks,
    ):
        vid = VolumeId.new()
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        rounds = Rounds(other.logs, other.upkeep, told, Extent.FREED)
        scene = Scene(node, store, clock, told, rounds, vid)
        await scene.write(1)
        tasks.start_soon(rounds.for_ever)
        await comes_true(lambda: clock.sleepers)
        yield scene
        tasks.cancel_scope.cancel()


async def test_what_rests_costs_a_listing_of_each_log_and_one_of_its_newest_entry(scene: Scene) -> None:
    await scene.goes_round()
    scene.store.forget()
    scene.told.turns.clear()
    for _ in range(5):
        await scene.goes_round()
    assert scene.store.count() == scene.store.count("list") == 5 * 3
    assert not scene.told.turns


async def test_much_is_tended_at_once_and_a_little_in_an_hour(scene: Scene) -> None:
    scene.told.turns.clear()
    await scene.write(1)
    await scene.goes_round()
    assert not scene.told.turns
    await scene.write(NEW_ENTRIES)
    await scene.goes_round()
    assert [log for log, _ in scene.told.turns] == [str(scene.vid)]
    await scene.write(1)
    await scene.goes_round()
    assert len(scene.told.turns) == 1
    await scene.goes_round(RETAIN_SECONDS)
    assert len(scene.told.turns) == 2
    await scene.goes_round(RETAIN_SECONDS)
    assert len(scene.told.turns) == 2, "nothing has come since"
    await scene.goes_round(DAY_SECONDS)
    assert len(scene.told.turns) == 3


async def test_what_is_forgotten_goes_as_soon_as_it_may(scene: Scene) -> None:
    await scene.write(COMMITS)
    await scene.node.ask(ADVANCE, SinceRequest(scene.vid.raw, since=scene.head))
    await scene.goes_round()
    assert scene.told.turns[-1][1].folded == 1
    assert scene.entries() > COMMITS
    await scene.goes_round(GC_INTERVAL_SECONDS + 60)
    assert scene.told.objects == scene.told.turns[-1][1].deleted > COMMITS
    assert scene.entries() < 10
    assert await pages_at(scene.node, scene.vid) == scene.pages
    assert not scene.told.errors


async def test_a_store_that_does_not_answer_is_asked_again(scene: Scene) -> None:
    away = scene.store.add(Rule(op="list", key="logs/*", before=Unavailable("away")))
    await scene.goes_round()
    assert away.fired
    ((log, error),) = scene.told.errors
    assert not log
    assert isinstance(error, Unavailable)
    await scene.write(NEW_ENTRIES)
    scene.told.turns.clear()
    await scene.goes_round()
    assert scene.told.turns

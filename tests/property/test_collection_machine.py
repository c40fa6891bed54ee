"""Collections of logs whose volumes are folded, forked, pinned and moved, by two processes that may sleep for any time,
against a plain model of every snapshot (DESIGN §9: whatever is collected, what can be read reads as it did).

A process that slept knows what was so when it fell asleep. It reads and writes on, as if no time had passed.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from budwood.server.log.boundary import OVER, boundary_key
from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.server.store.root import GC_INTERVAL_SECONDS
from budwood.server.upkeep import upkeep
from budwood.server.upkeep.collector import Stage
from budwood.server.upkeep.upkeep import Extent
from budwood.testing.clock import ManualClock
from budwood.testing.commits import pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import ADVANCE, UNPIN, SinceRequest, UnpinRequest
from budwood.volume.errors import Conflict
from budwood.volume.ids import VolumeId

from ..histories import WIDTH, Model, World
from ..rolling import after_every, memory, small_nodes

SLEEPS = (60, GC_INTERVAL_SECONDS // 2 + 1, GC_INTERVAL_SECONDS + 61, 7 * 86_400)
"""In seconds."""


@dataclass
class Clock:
    """The one that all go by."""

    boot: ManualClock = field(default_factory=lambda: ManualClock(1000.0, jumps=True))

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.boot.now_ms()

    @property
    def patience(self) -> Patience:
        return Patience(deadline_seconds=5, now=self.boot.now, boot=self.boot.now, sleep=self.boot.sleep)


class Collected(World):
    def __init__(self, store: RiggedStore, nodes: list[Node], clock: Clock) -> None:
        super().__init__(store, nodes)
        self.clock = clock

    def logs(self) -> list[str]:
        """The shared one, and those that a volume was in at any time, but for those that are over."""
        found = {key.split("/")[1] for key in memory(self.store).objects if key.startswith("logs/")}
        here = (name for name in found if boundary_key(name, OVER) not in memory(self.store).objects)
        return sorted(here, key=lambda name: (name != "main", name))

    async def collect(self, at: int, choice: int) -> Stage:
        logs = self.logs()
        log = logs[choice % len(logs)]
        return (await self.nodes[0 if log == "main" else at].collector.collect(log)).stage

    async def force(self, at: int, choice: int) -> None:
        """A plan now, whatever stands and whatever is garbage, as for a transaction that is to be rejected."""
        logs = self.logs()
        log = logs[choice % len(logs)]
        with suppress(Conflict):
            await self.nodes[0 if log == "main" else at].collector.reject(log, 1 << 40)

    async def collect_all(self) -> None:
        """Several times, so that what one left to the next goes too."""
        for _ in range(4):
            for number in range(len(self.logs())):
                await self.collect(0, number)
            self.clock.boot.advance(GC_INTERVAL_SECONDS + 61)

    async def tend_all(self) -> None:
        """What upkeep does by itself; then no log is held back by anybody, however little it forgets."""
        logs = self.logs()
        for _ in range(4):
            for log in logs:
                turn = await self.nodes[0].upkeep.tend(log, Extent.WORTH_IT)
                assert not turn.failures, turn.failures
            self.clock.boot.advance(GC_INTERVAL_SECONDS + 61)
        for log in self.logs():
            holds = (await self.nodes[0].collector.survey(log)).holds
            assert not holds, f"{log} is held back by {[VolumeId(hold.stream) for hold in holds]}"

    async def let_go(self) -> None:
        """All that is held, but the newest."""
        for volume in self.volumes:
            if volume.removed:
                continue
            for pin in volume.pins:
                await self.nodes[0].ask(UNPIN, UnpinRequest(volume.vid.raw, pin=pin.raw))
            volume.pins.clear()
            if volume.head > volume.start:
                node = self.nodes[1 if volume.private else 0]
                volume.since = (await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=volume.head))).since
                await self.fold(node, volume)

    def check_space(self) -> None:
        """What is left follows what is live, and not what was."""
        kinds = Counter("/".join(key.split("/")[:3:2]) for key in memory(self.store).objects)
        places = len(self.volumes) + len(self.logs())
        assert {kind: count for kind, count in kinds.items() if count > 12 * places} == {}, kinds

    async def read_as_known(self, at: int, volume: Model, choice: int) -> None:
        """An LSN that can be read, without a look at what has become of it."""
        if lsns := volume.readable():
            lsn = lsns[choice % len(lsns)]
            assert await pages_at(self.nodes[at], volume.vid, lsn) == volume.snapshots[lsn].pages


Step = tuple[str, int, int, set[int], int, bool]
"""What, on which node, a number to choose a volume and more by, pages, length, whether a fragment; and of a fold,
whether it relocates, too."""

STEPS = (
    "advance",
    "advance",
    "pin",
    "unpin",
    "fork",
    "fork",
    "move",
    "remove",
    "born",
    "fold",
    "fold",
    "sleep",
    "read",
    "read",
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["commit"] * 6 + ["collect"] * 4 + ["force", *STEPS]),
        st.integers(0, 1),
        st.integers(0, 5),
        st.sets(st.integers(1, WIDTH), max_size=4),
        st.integers(1, WIDTH),
        st.booleans(),
    ),
    min_size=15,
    max_size=40,
)


def commits(number: int, choice: int = 0, at: int = 0) -> list[Step]:
    return [("commit", at, choice, {1 + i % WIDTH, 2}, WIDTH, i % 3 == 0) for i in range(number)]


def step(what: str, at: int = 0, choice: int = 0, *, relocate: bool = False) -> Step:
    return (what, at, choice, set(), 1, relocate)


FOLDED = [step("advance"), step("fold")]
COLLECTED = [step("collect"), step("sleep", choice=2), step("collect")]

ASLEEP: list[Step] = [
    *commits(6),
    step("read", 1),
    *FOLDED,
    *commits(3),
    *COLLECTED,
    step("read", 1),
    *commits(3),
    *FOLDED,
    *COLLECTED,
    step("read", 1),
]
"""One of the two reads from what was collected while it slept."""

HELD: list[Step] = [
    *commits(4),
    step("pin", choice=1),
    *commits(2),
    step("fork", choice=3),
    *commits(3),
    *FOLDED,
    *commits(2, choice=1),
    *COLLECTED,
    *commits(4),
    step("unpin"),
    *FOLDED,
    *COLLECTED,
    *FOLDED,
    *COLLECTED,
]
"""A pin and a fork hold what all around them goes."""

MOVED: list[Step] = [
    *commits(5),
    step("read", 1),
    step("move"),
    *commits(4, at=1),
    *COLLECTED,
    step("read", 0),
    step("advance", 1),
    step("fold", 1),
    *commits(3, at=1),
    *COLLECTED,
    step("collect", 0, 1),
    step("sleep", choice=3),
    step("collect", 1, 1),
    step("read", 0),
    step("move"),
    *commits(3),
    *FOLDED,
    *COLLECTED,
    step("read", 1),
]
"""The volume goes to a log of its own and comes back."""


RELOCATED = step("fold", relocate=True)

FORGETS_NOTHING: list[Step] = [
    *commits(6),
    step("read", 1),
    RELOCATED,
    *commits(3),
    *COLLECTED,
    step("read", 1),
    step("fork", choice=2),
    *commits(2, choice=1),
    step("fold", choice=1, relocate=True),
    *commits(3),
    RELOCATED,
    *COLLECTED,
    step("move"),
    *commits(2, at=1),
    step("fold", 1, relocate=True),
    *COLLECTED,
    step("collect", 1, 1),
    step("sleep", choice=2),
    step("collect", 1, 1),
    step("read", 0),
    *FOLDED,
    *COLLECTED,
]
"""Every LSN stays readable, through a fork, a move and collections; at last it is all forgotten."""


FORCED: list[Step] = [
    *commits(6),
    *FOLDED,
    *commits(3),
    step("collect"),
    *commits(4),
    *FOLDED,
    step("force"),
    *commits(2),
    step("force"),
    step("sleep", choice=2),
    step("collect"),
    step("read", 1),
    *commits(3),
]
"""Plans that give way to others."""


REMOVED: list[Step] = [
    *commits(4),
    step("fork", choice=2),
    step("fork", choice=1),
    *commits(3),
    step("remove"),
    step("fold"),
    *COLLECTED,
    *commits(2, choice=2),
    step("remove", choice=1),
    step("fold", choice=1),
    *COLLECTED,
    *COLLECTED,
    step("fold"),
    *COLLECTED,
    step("read", choice=2),
]
"""A volume, and a fork of it; what that was forked to from what the two share lives on."""


MOVED_AND_REMOVED: list[Step] = [
    *commits(4),
    step("born"),
    *commits(3, choice=1),
    step("move"),
    *commits(2),
    step("remove"),
    step("fold"),
    *[step("collect", choice=1), step("sleep", choice=2)] * 3,
]
"""Nothing is left of a volume that has pages in the log that it came from."""


@example(script=MOVED_AND_REMOVED, rolled=2)
@example(script=REMOVED, rolled=2)
@example(script=REMOVED, rolled=1000)
@example(script=FORCED, rolled=2)
@example(script=FORCED, rolled=1000)
@example(script=ASLEEP, rolled=2)
@example(script=FORGETS_NOTHING, rolled=2)
@example(script=HELD, rolled=2)
@example(script=HELD, rolled=1000)
@example(script=MOVED, rolled=2)
@given(script=steps, rolled=st.sampled_from([2, 1000]))
def test_whatever_is_collected_every_lsn_that_can_be_read_reads_as_it_did(script: list[Step], rolled: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        after_every(rolled, patched)
        small_nodes(patched)
        patched.setattr(upkeep, "ENTRIES", 1)
        anyio.run(play, script)


async def play(script: list[Step]) -> None:
    store, clock = RiggedStore(MemoryStore()), Clock()
    opened = partial(Node.open, store, patience=clock.patience, now_ms=clock.now_ms)
    async with opened(name="main") as node, opened() as other:
        world = Collected(store, [node, other], clock)
        await world.born()
        for what, at, choice, pages, length, apart in script:
            volume = world.volumes[choice % len(world.volumes)]
            node = world.nodes[at if volume.private else 0]
            if volume.removed and what not in {"fold", "collect", "force", "sleep"}:
                continue
            match what:
                case "commit":
                    await world.commit(node, volume, pages, length, apart)
                case "fold":
                    await world.fold(node, volume, relocate=apart)
                case "collect":
                    await world.collect(at, choice)
                case "force":
                    await world.force(at, choice)
                case "sleep":
                    clock.boot.advance(SLEEPS[choice % len(SLEEPS)])
                case "read":
                    await world.read_as_known(at, volume, choice)
                case "born":
                    await world.born()
                case _:
                    await getattr(world, what)(node, volume, choice)
    async with opened(name="main") as node, opened() as other:
        # They know nothing but what stands in the store.
        world.nodes[:] = node, other
        await world.check(other)
        await world.tend_all()
        await world.let_go()
        await world.collect_all()
        world.check_space()
        async with opened() as fresh:
            await world.check(fresh)

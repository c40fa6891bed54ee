"""Retainers of two processes, collectors, pins and commits at once: what a policy keeps can be read (DESIGN §5).

The steps are those of test_retention_machine.py, on a volume that has a policy all the while, with hours of 40 seconds.
After each step, whatever the order was and whoever was cut where, beside what holds there:

- an LSN can be read that another followed no longer ago than every LSN stays
- the volume can be read as it was at each full hour for which one an hour stays
- nothing stands twice for an hour
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.server.metastore.pin_store import BELIEVED_SECONDS
from budwood.server.node import Node
from budwood.server.upkeep import retention_schedule
from budwood.testing.commits import commit_of
from budwood.volume import faults
from budwood.volume.calls import PINS, RETAIN, SNAPSHOT, RetainRequest, SnapshotRequest, VolumeRequest
from budwood.volume.errors import Conflict
from budwood.volume.pins import OF_POLICIES
from budwood.volume.retention_policy import RetentionPolicy

from ..reread import reread
from .test_retention_machine import ANN, PAGE, POINTS, Step, World, call_of, play

HOUR_MS = 40_000
POLICY = RetentionPolicy(all_ms=25_000, hourly_ms=200_000, daily_ms=500_000)
OWN_POINTS = [*POINTS[:4], "retain: pins made, since not moved", "retain: since moved, caller not told"]


@pytest.fixture(autouse=True, scope="module")
def short_hours() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(retention_schedule, "HOUR_MS", HOUR_MS)
        patched.setattr(retention_schedule, "DAY_MS", 3 * HOUR_MS)
        yield


@dataclass
class WithPolicy(World):
    times: list[int] = field(default_factory=list[int])
    """Of the LSNs from 1 on."""

    async def begin(self) -> None:
        await self.nodes[0].ask(RETAIN, RetainRequest(self.vid.raw, policy=POLICY))

    async def commit(self, node: Node) -> None:
        head = (await node.ask(SNAPSHOT, SnapshotRequest(self.vid.raw))).lsn
        request = commit_of(self.vid, head, {1: bytes([head % 256]) * PAGE}, client=ANN, page_size=PAGE)
        try:
            committed = await node.commit(*request)
        except Conflict:
            return
        self.times.insert(committed.lsn - 1, committed.time)

    async def enforce(self, node: Node, _: int) -> None:
        try:
            await node.retainer.enforce(self.vid)
        except BaseExceptionGroup as group:
            # Pins are made by tasks.
            if group.split(faults.Cut)[1] is not None:
                raise
            raise faults.Cut from None

    async def collect(self, node: Node, number: int) -> None:
        """Of what is forgotten already."""
        since, held = await node.retention.begin_collect(self.vid)
        self.clock.advance(BELIEVED_SECONDS + 1)
        await self.store.turn()
        self.deleted |= set(range(1, since)) - held
        await node.retention.end_collect(self.vid, since)

    def held(self) -> set[int]:
        now = self.clock.now_ms()
        oldest = bisect_right(self.times, now - POLICY.all_ms)
        return super().held() | {*range(max(1, oldest), len(self.times) + 1)} | self.stands_for(now)

    def maybe_held(self) -> set[int]:
        # All that stood for an hour once.
        return super().maybe_held() | self.stands_for(self.clock.now_ms(), ever=True)

    def stands_for(self, now: int, *, ever: bool = False) -> set[int]:
        found: set[int] = set()
        for period, lasting in ((HOUR_MS, POLICY.hourly_ms), (3 * HOUR_MS, POLICY.daily_ms)):
            first = max(self.times[0], 0 if ever else now - lasting + 1)
            found |= {bisect_right(self.times, at) for at in range(-(-first // period) * period, now + 1, period)}
        return found

    async def check(self) -> None:
        await super().check()
        pins = (await self.nodes[0].ask(PINS, VolumeRequest(self.vid.raw))).pins
        many = Counter((pin.lsn, pin.kind) for pin in pins if pin.kind in OF_POLICIES)
        assert not [which for which, count in many.items() if count > 1]


policy_steps = st.lists(
    st.tuples(
        st.tuples(
            call_of("enforce"), call_of("enforce", "collect", "collect"), call_of("enforce", "pin", "unpin", "commit")
        ).flatmap(lambda three: st.sampled_from([list(three[:1]), list(three[:2]), list(three)])),
        st.sampled_from([None, None, *OWN_POINTS]),
        st.booleans(),
        st.permutations(range(3)),
        st.lists(st.integers(1, 40), max_size=2),
        st.sampled_from([1.0, 15.0, 15.0, 30.0, 90.0]),
    ),
    min_size=2,
    max_size=10,
)


@given(policy_steps)
def test_what_a_policy_keeps_stays_whatever_the_order(script: list[Step]) -> None:
    async def run() -> None:
        await reread(await play(script, WithPolicy))

    anyio.run(run)

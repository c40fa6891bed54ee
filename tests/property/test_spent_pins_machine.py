"""Pins whose revisions are collected, by processes that sleep between any two requests (docs/design/0088-leftovers.md).

As tests/property/test_retention_machine.py, whose steps and checks these are, with a collector of pins among the calls:
what is spent is planned and verified, the store's interval goes by, and it is deleted key by key. Whoever else is on
his way then has slept, in whatever step he was. Labels are taken and let go of, too.

After each step, beside what is checked there:

- every process says the same of each pin, and of each label which pin has it: one at most
- what was released, or has expired, does not come back
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.server.upkeep.left_check import LeftCheck
from budwood.server.upkeep.spent_pins import spent
from budwood.volume.calls import PIN, PINS, SNAPSHOT, UNPIN, PinRequest, SnapshotRequest, UnpinRequest, VolumeRequest
from budwood.volume.errors import AlreadyExists, BadInput, Forgotten, NotFound
from budwood.volume.garbage import GarbagePlan
from budwood.volume.pins import PinState

from ..reread import reread
from . import test_retention_machine as machine
from .test_retention_machine import SKEW, Call, Step, World, play

INTERVAL = 1000
LABEL = "best"


@dataclass
class Spending(World):
    ended: set[bytes] = field(default_factory=set[bytes])
    """Pins that somebody has seen to have ended."""
    labelled: set[int] = field(default_factory=set[int])

    async def open(self) -> Node:
        clock = self.clock
        patience = Patience(deadline_seconds=5, now=clock.now, boot=clock.now, sleep=clock.sleep)
        return await self.stack.enter_async_context(
            Node.open(
                self.store, patience=patience, now_ms=clock.now_ms, skew_seconds=SKEW, gc_interval_seconds=INTERVAL
            )
        )

    def maybe_held(self) -> set[int]:
        return super().maybe_held() | self.labelled

    async def sweep(self, node: Node, _: int) -> None:
        """As a collector does it."""
        store, patience = node.store, node.logs.patience
        planned = await spent(store, node.retention.pins, self.vid, patience)
        plan = GarbagePlan(log=str(self.vid), number=1, rollup="", fragments_since=1, pins=tuple(planned))
        try:
            await LeftCheck(store, patience).check_pins(plan, 1)
        except (BadInput, NotFound):
            # Another has swept, or made a revision, since.
            return
        self.clock.advance(INTERVAL + 1)
        await self.store.turn()
        collector = node.collector
        for each in planned:
            if each.ended:
                await collector.keep_end(each)

        async def delete(keys: list[str], _why: str) -> None:
            for key in keys:
                await store.delete(key)

        for each in planned:
            await collector.garbage.each_of_pin(each, delete)

    async def wait(self, _: Node, __: int) -> None:
        """Until every lease is over that was made before."""
        await self.store.turn()
        self.clock.advance(700)

    async def label(self, node: Node, number: int) -> None:
        head = (await node.ask(SNAPSHOT, SnapshotRequest(self.vid.raw))).lsn
        lsn = max(1, head - number)
        self.labelled.add(lsn)
        with suppress(AlreadyExists, Forgotten):
            await node.ask(PIN, PinRequest(self.vid.raw, lsn=lsn, seconds=0.0, label=LABEL))

    async def unlabel(self, node: Node, _: int) -> None:
        for pin in (await node.ask(PINS, VolumeRequest(self.vid.raw))).pins:
            if pin.label:
                with suppress(NotFound):
                    await node.ask(UNPIN, UnpinRequest(self.vid.raw, pin=pin.id))

    async def check(self) -> None:
        await super().check()
        said = list[dict[bytes, PinState]]()
        for node in [*self.nodes, await self.open()]:
            stand = {pin.id: pin for pin in await node.retention.pins.all(self.vid)}
            said.append({raw: pin.state for raw, pin in stand.items() if pin.holds})
            labelled = [pin for pin in stand.values() if pin.label and pin.holds]
            assert len(labelled) <= 1, "a label stands twice"
            for raw, pin in stand.items():
                assert pin.state is not PinState.LIVE or raw not in self.ended, "it had ended"
            for one in self.pins:
                found = await node.retention.pins.find(self.vid, one)
                assert (found is not None and found.holds) == (one.raw in said[-1])
                if found is not None and not found.holds:
                    self.ended.add(one.raw)
        assert all(each == said[0] for each in said)


def call_of(*kinds: str) -> st.SearchStrategy[Call]:
    return st.tuples(
        st.sampled_from(kinds), st.integers(0, 1), st.integers(0, 2), st.sampled_from([600.0, 5000.0, 0.0])
    )


ONE = call_of("pin", "again", "renew", "unpin", "label", "unlabel")
steps = st.lists(
    st.tuples(
        st.lists(st.one_of(ONE, ONE, call_of("sweep"), call_of("commit", "collect", "wait")), min_size=1, max_size=3),
        st.sampled_from([None, None, *machine.POINTS[:3]]),
        st.booleans(),
        st.permutations(range(3)),
        st.lists(st.integers(1, 14), max_size=3),
        st.sampled_from([0.0, 15.0, 2000.0]),
    ),
    min_size=2,
    max_size=7,
)


@pytest.mark.parametrize("late", ["renew", "unpin", "again", "label"])
def test_every_step_that_somebody_can_sleep_in(late: str) -> None:
    """While the pin ends, and is collected."""
    made: list[Step] = [
        ([("pin", 0, 1, 600.0)], None, False, [0, 1, 2], [], 0.0),
        ([("label", 0, 1, 0.0)], None, False, [0, 1, 2], [], 0.0),
        ([("unlabel", 0, 1, 0.0)], None, False, [0, 1, 2], [], 0.0),
        ([("label", 0, 1, 0.0)], None, False, [0, 1, 2], [], 0.0),
        ([("renew", 1, 0, 600.0)], None, False, [0, 1, 2], [], 15.0),
    ]
    ends: list[Call] = [("unpin", 0, 0, 0.0), ("unlabel", 0, 0, 0.0), ("wait", 0, 0, 0.0)]
    ways: list[list[int]] = [[], *([change] for change in range(1, 10)), *map(list, combinations(range(1, 6), 2))]
    for end, changes in product(ends, ways):
        script: list[Step] = [
            *made,
            ([(late, 1, 0, 5000.0), end, ("sweep", 0, 0, 0.0)], None, False, [0, 1, 2], changes, 0.0),
            ([("sweep", 0, 0, 0.0)], None, False, [0, 1, 2], [], 0.0),
            ([("label", 1, 1, 0.0)], None, False, [0, 1, 2], [], 0.0),
            ([("again", 1, 0, 0.0)], None, False, [0, 1, 2], [], 0.0),
        ]
        anyio.run(play, script, Spending)


@settings(max_examples=2 * settings().max_examples)
@given(steps)
def test_what_has_ended_does_not_come_back_whatever_the_order(script: list[Any]) -> None:
    async def run() -> None:
        await reread(await play(script, Spending))

    anyio.run(run)

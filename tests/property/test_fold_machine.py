"""Folds of volumes and of forks, by two processes at once, against a plain model of every snapshot (DESIGN §5, §9).

After each step every LSN that can be read reads as it did when it was made, for both processes and for one that has
just come; what changed between any two of them is told; and the commits since are told as they were.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from budwood.server.node import Node
from budwood.testing.stores import MemoryStore, RiggedStore

from ..damage import scrubbed
from ..histories import WIDTH, World
from ..reread import reread
from ..rolling import after_every, hasty, memory, small_nodes

Step = tuple[str, int, int, set[int], int, bool]
"""What, on which node, a number to choose a volume and more by, pages, length, whether a fragment; and of a fold,
whether it relocates, too."""

steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["commit"] * 5 + ["advance", "advance", "pin", "unpin", "fork", "move", "remove"] + ["fold"] * 3
        ),
        st.integers(0, 1),
        st.integers(0, 5),
        st.sets(st.integers(1, WIDTH), max_size=4),
        st.integers(1, WIDTH),
        st.booleans(),
    ),
    min_size=10,
    max_size=30,
)


HELD_AND_CUT: list[Step] = [
    ("commit", 0, 0, {1, 2, 3, 4, 5, 6, 7}, 7, True),
    ("commit", 0, 0, {1, 6}, 6, False),
    ("pin", 0, 0, set(), 1, False),
    ("commit", 0, 0, {2}, 3, False),
    ("commit", 0, 0, {2, 5}, 8, False),
    ("fork", 0, 3, set(), 1, False),
    ("commit", 0, 0, {3, 4}, 4, False),
    ("advance", 0, 0, set(), 1, False),
    ("fold", 0, 0, set(), 1, False),
    ("commit", 0, 1, {1}, 2, False),
    ("commit", 0, 1, {9}, 9, False),
    ("commit", 0, 1, {4}, 9, False),
    ("advance", 0, 1, set(), 1, False),
    ("fold", 0, 1, set(), 1, False),
    ("commit", 0, 0, {1, 2, 3, 4}, 4, False),
    ("unpin", 0, 0, set(), 1, False),
    ("commit", 0, 0, {9}, 9, True),
    ("move", 0, 0, set(), 1, False),
    ("commit", 1, 0, {6}, 9, False),
    ("commit", 1, 0, {6, 7}, 9, False),
    ("advance", 0, 0, set(), 1, False),
    ("fold", 1, 0, set(), 1, False),
    ("commit", 1, 0, {1}, 9, False),
    ("commit", 1, 0, {1}, 9, False),
]
"""Pins and a fork hold what a shrink and a regrowth come between; then the volume moves."""


RELOCATED: list[Step] = [
    ("commit", 0, 0, {1, 2, 3}, 4, False),
    ("commit", 0, 0, {1, 4}, 4, False),
    ("fold", 0, 0, set(), 1, True),
    ("commit", 0, 0, {1}, 4, True),
    ("commit", 0, 0, set(), 2, False),
    ("commit", 0, 0, {1, 5}, 6, False),
    ("pin", 0, 0, set(), 1, False),
    ("fold", 0, 0, set(), 1, True),
    ("fork", 0, 3, set(), 1, False),
    ("commit", 0, 1, {2}, 6, False),
    ("commit", 0, 1, {2, 3}, 6, False),
    ("fold", 0, 1, set(), 1, True),
    ("advance", 0, 2, set(), 1, False),
    ("fold", 0, 0, set(), 1, False),
    ("commit", 0, 0, {1}, 6, False),
    ("move", 0, 0, set(), 1, False),
    ("commit", 1, 0, {2}, 6, False),
    ("fold", 1, 0, set(), 1, True),
    ("commit", 1, 0, {2}, 6, False),
    ("move", 0, 0, set(), 1, False),
    ("commit", 0, 0, {3}, 6, False),
    ("advance", 0, 0, set(), 1, False),
    ("fold", 0, 0, set(), 1, False),
]
"""Of a volume, a fork of it, and in two logs; then all of it is folded."""


@example(script=HELD_AND_CUT, rolled=2)
@example(script=RELOCATED, rolled=2)
@example(script=RELOCATED, rolled=1000)
@example(script=HELD_AND_CUT, rolled=1000)
@given(script=steps, rolled=st.sampled_from([2, 1000]))
def test_whatever_is_folded_every_lsn_that_can_be_read_reads_as_it_did(script: list[Step], rolled: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        after_every(rolled, patched)
        small_nodes(patched)
        anyio.run(play, script)


async def play(script: list[Step]) -> None:
    store = RiggedStore(MemoryStore())
    async with AsyncExitStack() as stack:

        async def opened(name: str | None = None) -> Node:
            return await stack.enter_async_context(Node.open(store, name=name, patience=hasty()))

        world = World(store, [await opened("main"), await opened()])
        await world.born()
        for what, at, choice, pages, length, apart in script:
            volume = world.volumes[choice % len(world.volumes)]
            node = world.nodes[at if volume.private else 0]
            if volume.removed and what != "fold":
                continue
            match what:
                case "commit":
                    await world.commit(node, volume, pages, length, apart)
                case "fold":
                    await world.fold(node, volume, relocate=apart)
                case _:
                    await getattr(world, what)(node, volume, choice)
        async with Node.open(store, patience=hasty()) as fresh:
            await world.check(fresh)
            objects = dict(memory(store).objects)
            await reread(objects)
            assert await scrubbed(objects) == {}

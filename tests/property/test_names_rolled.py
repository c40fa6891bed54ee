"""Names in rollups: a namespace that is rolled up now and then, let go of, opened anew, and read while it moves on; by
several nodes at once, against a dict and against a namespace that is followed from its first record on.

Two nodes change the names: one keeps nothing open, one everything. After each step each tells the same of all of them:
what stands, what is listed from where, what became of them since any revision, how they stood at any time, and which
change a repetition is of. In the end every rollup is what the second reader makes of the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budwood.server.metastore import recent_changes
from budwood.server.node import Node
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import (
    CHANGE_NAME,
    LIST_NAMES,
    LOOKUP,
    PULL_NAMES,
    LookupRequest,
    NamesRequest,
    PullNamesRequest,
)
from budwood.volume.errors import BudwoodError
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.wire import NameEntry, NameRequest

from ..rolling import check_logs, only_when_told, roll_up, small_nodes
from ..second_reader import rolled_streams

CLIENTS = [ClientId.new().raw for _ in range(3)]
REMEMBERED = 6
EVERYTHING = 1 << 40

NAMES = [
    "a", "b", "a/a", "a/b", "a/b/a", "a/b/b", "b/a", "b/b", "a.b", "a/a.b", "b0", "ü", "ü/a", "ü/\U0001f333", "c/a/b",
]  # fmt: skip
OPS = ["bind", "bind", "bind", "bind", "move", "move", "unbind"]
ENOUGH = 100


class Step(NamedTuple):
    op: str
    name: str
    new: str
    node: int
    client: int
    rolls: str
    """Afterwards, by the same node: "no", "at once", or "meanwhile", that is while the next step is taken."""
    after: int
    part: int


steps = st.builds(
    Step,
    st.sampled_from(OPS),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.integers(0, 1),
    st.integers(0, 2),
    st.sampled_from(["no", "no", "at once", "meanwhile"]),
    st.integers(0, len(NAMES) - 1),
    st.integers(1, 5),
)


class World:
    def __init__(self) -> None:
        self.store = RiggedStore(MemoryStore())
        self.nodes: list[Node] = []
        self.model: dict[str, tuple[bytes, int, Any]] = {}
        """Target, revision, attributes."""
        self.at: list[dict[str, int]] = [{}]
        """Each name's revision, at each LSN."""
        self.then: list[dict[str, tuple[bytes, Any]]] = [{}]
        """Each name's target and attributes, at each LSN."""
        self.times: list[int] = [1]
        """Of each LSN."""
        self.made: list[tuple[NameRequest, int]] = []

    async def change(self, step: Step, count: int) -> None:
        revision = self.model[step.name][1] if step.name in self.model else 0
        if step.op == "bind":
            more: dict[str, Any] = {
                "target": VolumeId.new().raw,
                "attributes": {"mode": count, "more": {"x": [count, "y"]}},
            }
        elif step.op == "move":
            more = {"new": step.new, "new_revision": self.model[step.new][1] if step.new in self.model else 0}
        else:
            more = {}
        request = NameRequest(op=step.op, name=step.name, revision=revision, client=CLIENTS[step.client], **more)
        try:
            lsn = (await self.nodes[step.node].ask(CHANGE_NAME, request)).lsn
        except BudwoodError:
            return
        if lsn < len(self.at):
            # It was asked for before, and what it made stands.
            return
        assert lsn == len(self.at)
        self.take(request, lsn)
        # What an unbind leaves tells no time.
        names = await (await self.nodes[step.node]._names("")).get()  # pyright: ignore[reportPrivateUsage]
        self.times.append(names.state.time)
        self.made.append((request, lsn))

    def take(self, request: NameRequest, lsn: int) -> None:
        if request.op == "bind":
            self.model[request.name] = request.target, lsn, request.attributes
        elif request.op == "unbind":
            del self.model[request.name]
        else:
            old, new = request.name, request.new
            moving = [name for name in self.model if name.startswith(f"{old}/") or (name == old and request.revision)]
            moved = {new + name[len(old) :]: self.model.pop(name) for name in moving}
            self.model.pop(new, None)
            self.model |= {name: (target, lsn, attributes) for name, (target, _, attributes) in moved.items()}
        self.at.append({name: each[1] for name, each in self.model.items()})
        self.then.append({name: (target, attributes) for name, (target, _, attributes) in self.model.items()})

    async def check(self, node: Node, step: Step) -> None:
        head, ordered = len(self.at) - 1, sorted(self.model)
        for name in (step.name, step.new):
            found = (await node.ask(LOOKUP, LookupRequest(name))).entry
            assert (None if found is None else told(found)) == self.model.get(name)
        prefix, after = step.name[:1], NAMES[step.after]
        listed = await node.ask(LIST_NAMES, NamesRequest(prefix=prefix, after=after, limit=step.part))
        wanted = [name for name in ordered if name.startswith(prefix) and name > after]
        assert [entry.name for entry in listed.entries] == wanted[: step.part]
        assert (listed.next, listed.head) == (wanted[step.part - 1] if len(wanted) > step.part else "", head)
        whole = (await node.ask(LIST_NAMES, NamesRequest(limit=ENOUGH))).entries
        assert {entry.name: told(entry) for entry in whole} == self.model
        for since in {0, 1, head - REMEMBERED - 1, head - REMEMBERED, head - 2, head} & {*range(head + 1)}:
            await self.check_delta(node, since, step.part)
        for lsn in {0, head - REMEMBERED, head - REMEMBERED + 1, head - 2, head} & {*range(head + 1)}:
            await self.check_past(node, lsn, step.part)

    async def check_delta(self, node: Node, since: int, part: int) -> None:
        """Put over the names of that revision it makes those of now. It is told as long as it is remembered."""
        head, after = len(self.at) - 1, ""
        known, first = dict(self.at[since]), True
        while first or after:
            delta = await node.ask(PULL_NAMES, PullNamesRequest(since=since, after=after, limit=part))
            assert delta.head == head
            assert delta.since == (since if since >= head - REMEMBERED else 0)
            if first and not delta.since:
                known.clear()
            for name in delta.gone:
                below = name.endswith("/")
                known = {one: at for one, at in known.items() if not (one.startswith(name) if below else one == name)}
            known |= {entry.name: entry.revision for entry in delta.entries}
            first, after = False, delta.next
        assert known == self.at[head]

    async def check_past(self, node: Node, lsn: int, part: int) -> None:
        """From the time of an LSN to that of the next, the names are those of that LSN; or of the earliest for which it
        is remembered."""
        head = len(self.at) - 1
        earliest = max(0, head - REMEMBERED)
        for at in {self.times[lsn], self.times[lsn + 1] - 1 if lsn < head else self.times[lsn] + 1}:
            told = at if lsn > earliest or not earliest else self.times[earliest + 1] - 1
            after, more, entries = "", True, list[NameEntry]()
            while more:
                listed = await node.ask(LIST_NAMES, NamesRequest(after=after, limit=part, at=at))
                assert (listed.at, listed.head) == (told, max(lsn, earliest))
                entries += listed.entries
                after, more = listed.next, bool(listed.next)
            assert {entry.name: (entry.target, entry.attributes) for entry in entries} == self.then[max(lsn, earliest)]
            assert [entry.name for entry in entries] == sorted(self.then[max(lsn, earliest)])

    async def check_repeats(self) -> None:
        """The newest change of each client is known, by what stands or by its token; and nothing lands again."""
        newest = {request.client: (request, lsn) for request, lsn in self.made}
        for node in self.nodes:
            for request, lsn in newest.values():
                if request.revision:
                    assert (await node.ask(CHANGE_NAME, request)).lsn == lsn


def told(entry: NameEntry) -> tuple[bytes, int, Any]:
    return entry.target, entry.revision, entry.attributes


async def play(script: list[Step]) -> None:
    world = World()
    async with AsyncExitStack() as stack:
        for memory_bytes in (0, EVERYTHING):
            world.nodes.append(await stack.enter_async_context(Node.open(world.store, memory_bytes=memory_bytes)))
        log = str(world.nodes[0].root.names_id)
        for count, step in enumerate(script):
            await world.change(step, count)
            for node in world.nodes:
                await world.check(node, step)
            held = await world.nodes[step.node].logs.get(log)
            if step.rolls != "no" and held.reader.chain.next - 1 > held.rolled.slot:
                roller = world.nodes[step.node]
                if step.rolls == "meanwhile" and count + 1 < len(script):
                    await roll_up_while(world, roller, log, partial(world.change, script[count + 1], -1))
                else:
                    await roll_up(roller, log)
                for node in world.nodes:
                    await world.check(node, step)
        await world.check_repeats()
    check_logs(world.store)


async def roll_up_while(world: World, node: Node, log: str, work: Callable[[], Awaitable[None]]) -> None:
    gate = world.store.add(Rule(op="create", key=f"logs/{log}/rollups/*", gate=anyio.Event()))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(roll_up, node, log)
        await gate.reached.wait()
        await work()
        assert gate.gate is not None
        gate.gate.set()


@pytest.mark.parametrize("kept_bytes", [0, 1 << 20], ids=["few nodes", "all nodes"])
def test_names_read_as_they_are_whatever_is_rolled_up(kept_bytes: int) -> None:
    @settings(max_examples=settings().max_examples // 2)
    @given(st.lists(steps, min_size=1, max_size=25))
    def run(script: list[Step]) -> None:
        with pytest.MonkeyPatch.context() as patched:
            only_when_told(patched)
            small_nodes(patched, kept_bytes=kept_bytes)
            patched.setattr(recent_changes, "MOST_REMEMBERED", REMEMBERED)
            patched.setattr(rolled_streams, "REMEMBERED", REMEMBERED)
            anyio.run(play, script)

    run()

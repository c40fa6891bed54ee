"""Transactions of folds: what beginning one answers, the states that they are in, and the operator's force (DESIGN §5).
Every pair of state and event: tests/unit/test_transaction.py; the command: test_cli_transactions.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress

import anyio
import pytest
from anyio.lowlevel import checkpoint

from budwood.server.log.transaction import State
from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.server.upkeep.collector import Stage
from budwood.testing.clock import ManualClock
from budwood.testing.commits import pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import ADVANCE, PIN, PinRequest, SinceRequest
from budwood.volume.checkpoint import Deadlist, deadlist_key
from budwood.volume.entry import EpochRecord, entry_key, epoch_key
from budwood.volume.envelope import DEADLIST, decode, unseal
from budwood.volume.errors import Conflict, Corrupt, NotFound, NotOwner
from budwood.volume.ids import PinId
from budwood.volume.owner import Liveness

from ..reread import reread
from ..rolling import hasty, memory
from .test_collection import DIGEST_DIGITS, INTERVAL_MS, Filled, Scene, cut_off

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


@pytest.fixture
def scene() -> Scene:
    return Scene(RiggedStore(MemoryStore()))


@pytest.fixture
async def node(scene: Scene) -> AsyncIterator[Node]:
    async with scene.node() as node:
        yield node


async def states(node: Node, log: str) -> dict[int, State]:
    return {each.number: each.state for each in await node.transactions.of(log)}


def base_of(scene: Scene, checkpoint: str) -> str:
    """What the deadlist of a transaction says that it began with."""
    key = deadlist_key(checkpoint)
    return decode(key, unseal(key, DEADLIST, memory(scene.store).objects[key]), Deadlist).base


async def checked(scene: Scene, volume: Filled) -> None:
    """By both readers, and by one that knows nothing yet."""
    await volume.check()
    await reread(dict(memory(scene.store).objects))
    async with scene.node() as fresh:
        await volume.check(fresh)


async def test_beginning_one_dooms_nobody_until_one_of_them_is_granted(scene: Scene, node: Node) -> None:
    """S1.6: each is told a number of its own and the checkpoint that was granted last; the first to ask is granted,
    whichever began first, and the other never is."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    for first in (True, False):
        await volume.write(10)
        await volume.forget()
        stands = (await node.volumes.get(volume.vid)).state.fold
        assert stands is not None
        await volume.write(10)
        await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=volume.head))
        told = dict[str, str]()

        async def fold(by: Node, which: str, told: dict[str, str]) -> None:
            try:
                done = await by.folder.fold(volume.vid)
                told[which] = "" if done is None else done.fold.checkpoint
            except Conflict as error:
                told[which] = str(error)

        one = two = granted = pending = 0
        winner, loser = ("first", "second") if first else ("second", "first")
        async with scene.node() as other, anyio.create_task_group() as tasks:
            gates = list[Rule]()
            for by, which in ((node, "first"), (other, "second")):
                gate = scene.store.add(Rule(op="create", key="logs/*/t/*/deadlist", gate=anyio.Event()))
                gates.append(gate)
                tasks.start_soon(fold, by, which, told)
                await gate.reached.wait()
            *_, one, two = sorted(await states(node, log))
            found = await states(node, log)
            assert (found[one], found[two]) == (State.OPEN, State.OPEN)
            quick, slow = gates if first else gates[::-1]
            assert quick.gate is not None
            assert slow.gate is not None
            quick.gate.set()
            while winner not in told:
                await checkpoint()
            granted, pending = (one, two) if first else (two, one)
            assert (await states(node, log))[granted] is State.COMMITTED
            slow.gate.set()
        assert "was folded by another meanwhile: begin anew" in told[loser]
        assert (await states(node, log))[pending] is State.REJECT_PENDING
        assert told[winner] == f"logs/{log}/t/{granted:016x}"
        for number in (one, two):
            assert base_of(scene, f"logs/{log}/t/{number:016x}") == stands.checkpoint
        await checked(scene, volume)


async def test_every_state_as_it_stands_in_the_store(scene: Scene, node: Node) -> None:
    """S1.8: from begun to collected, and back by who writes on."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(40)
    (late, *_) = await cut_off(scene, volume)
    assert await states(node, log) == {1: State.OPEN}
    await volume.write(40)
    await volume.forget()
    assert await states(node, log) == {1: State.REJECT_PENDING, 2: State.COMMITTED}
    await node.collector.collect(log)
    assert await states(node, log) == {1: State.REJECT_ACKNOWLEDGED, 2: State.COMMITTED}
    room = await node.transactions.room(log, 1)
    assert room.objects == len(scene.keys(f"logs/{log}/t/{1:016x}/")) > 0
    assert room.bytes == sum(len(memory(scene.store).objects[key]) for key in scene.keys(f"logs/{log}/t/{1:016x}/"))
    scene.now_ms += INTERVAL_MS
    await node.collector.collect(log)
    assert await states(node, log) == {1: State.GARBAGE_COLLECTED}
    await scene.store.create(late, b"late")
    assert await states(node, log) == {1: State.REJECT_ACKNOWLEDGED}
    for _ in range(2):
        await volume.write(80)
        await volume.forget()
        await node.collector.collect(log)
        scene.now_ms += INTERVAL_MS
        await node.collector.collect(log)
    assert late not in scene.keys("")
    assert await states(node, log) == {}
    await checked(scene, volume)


async def test_what_is_listed_costs_no_write(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    await volume.write(40)
    await cut_off(scene, volume)
    stood = scene.keys("")
    async with scene.node() as fresh:
        assert await states(fresh, str(volume.vid)) == {1: State.OPEN}
    assert scene.keys("") == stood


async def test_a_fold_that_was_rejected_by_force_is_told_so_and_nothing_of_it_is_seen(scene: Scene, node: Node) -> None:
    """S1.7, S1.8: the log rejects it though there is nothing else to be collected, and whoever holds it."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(40)
    gate = scene.store.add(Rule(op="create", key="logs/*/t/*/deadlist", gate=anyio.Event()))
    told = list[str]()

    async def fold() -> None:
        with pytest.raises(Conflict) as error:
            await volume.forget()
        told.append(str(error.value))

    async with scene.node() as operator, anyio.create_task_group() as tasks:
        tasks.start_soon(fold)
        await gate.reached.wait()
        assert await states(operator, log) == {1: State.OPEN}
        progress = await operator.transactions.reject(log, 1)
        assert progress.stage is Stage.WAITING
        assert await states(operator, log) == {1: State.REJECT_ACKNOWLEDGED}
        stood = scene.keys("")
        assert (await operator.transactions.reject(log, 1)).stage is Stage.NOTHING
        assert scene.keys("") == stood, "it is rejected, and nothing need be written for it"
        assert gate.gate is not None
        gate.gate.set()
    assert told == [f"the fold of volume {log} took too long, and is rejected: begin anew"]
    assert (await node.volumes.get(volume.vid, confirm=True)).state.fold is None
    assert scene.keys(f"logs/{log}/t/{1:016x}/"), "it goes when the plan is carried out"
    await checked(scene, volume)
    scene.now_ms += INTERVAL_MS
    assert (await node.collector.collect(log)).stage is Stage.DONE
    assert not scene.keys(f"logs/{log}/t/{1:016x}/")
    assert await node.folder.fold(volume.vid) is not None
    await checked(scene, volume)


async def test_a_plan_that_waits_gives_way_to_force_and_all_that_it_takes_out_goes(scene: Scene, node: Node) -> None:
    """S1.8: a log has one plan at a time, and force doesn't wait for it."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(40)
    left = await cut_off(scene, volume)
    await volume.forget()
    await volume.write(40)
    assert (await node.collector.collect(log)).stage is Stage.WAITING
    planned = await node.collector.planned(log)
    assert planned is not None
    assert planned.slot > 40
    goes = scene.keys(f"logs/{log}/entries/")[-planned.slot :]
    await volume.write(3)
    left += await cut_off(scene, volume)
    *_, number = await states(node, log)
    scene.now_ms += INTERVAL_MS // 2
    progress = await node.transactions.reject(log, number)
    assert progress.due_ms > scene.now_ms + INTERVAL_MS // 2, "what goes now waits for as long as anything does"
    scene.now_ms += INTERVAL_MS // 2
    # Of the plan that gave way nothing is carried out by itself, and it stands no more.
    assert (await node.collector.collect(log)).stage is Stage.WAITING
    assert len([key for key in scene.keys(f"logs/{log}/gc/") if key.endswith("/plan")]) == 1
    await checked(scene, volume)
    scene.now_ms += INTERVAL_MS
    assert (await node.collector.collect(log)).stage is Stage.DONE
    stays = scene.keys("")
    assert not set(left) & set(stays)
    assert len(set(goes) & set(stays)) == 1, "the anchor"
    await checked(scene, volume)


async def test_what_may_still_be_written_is_rejected_anew_by_the_plan_that_comes_instead(
    scene: Scene, node: Node
) -> None:
    """S1.8: two forces in a row don't settle a transaction that nothing lies of yet."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(10)
    numbered = scene.store.add(Rule(op="create", key="logs/*/t/*", gate=anyio.Event()))

    async def fold() -> None:
        with suppress(Conflict):
            await volume.forget()

    gone = list[str]()
    async with anyio.create_task_group() as tasks, scene.node() as operator:
        tasks.start_soon(fold)
        await numbered.reached.wait()
        await operator.transactions.reject(log, 1)
        await volume.write(5)
        gone = await cut_off(scene, Filled(operator, volume.vid, volume.pages, volume.head))
        *_, number = await states(operator, log)
        await operator.transactions.reject(log, number)
        assert numbered.gate is not None
        numbered.gate.set()
    scene.now_ms += INTERVAL_MS
    await node.collector.collect(log)
    assert not set(gone) & set(scene.keys(""))
    assert not scene.keys(f"logs/{log}/t/{1:016x}/")
    await checked(scene, volume)


async def test_force_rejects_nothing_that_was_granted_or_is_none(scene: Scene, node: Node) -> None:
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(20)
    await volume.forget()
    stood = scene.keys("")
    with pytest.raises(Conflict, match="was granted"):
        await node.transactions.reject(log, 1)
    with pytest.raises(NotFound, match="has no transaction 7"):
        await node.transactions.reject(log, 7)
    assert scene.keys("") == stood
    await volume.check()


async def alive(_: EpochRecord) -> Liveness:
    await checkpoint()
    return Liveness.ANSWERS


async def test_in_a_log_that_lives_only_its_owner_forces_anything(scene: Scene) -> None:
    async with scene.node("main") as owner:
        volume = await Filled.born(owner)
        await volume.write(20)
        left = await cut_off(scene, volume)
        operating = Node.open(scene.store, patience=hasty(), now_ms=lambda: scene.now_ms, probe_owner=alive)
        async with operating as operator:
            with pytest.raises(NotOwner):
                await operator.transactions.reject("main", 2)
        assert (await owner.transactions.reject("main", 2)).stage is Stage.WAITING
        assert await states(owner, "main") == {2: State.REJECT_ACKNOWLEDGED}
        scene.now_ms += INTERVAL_MS
        await owner.collector.collect("main")
        assert not set(left) & set(scene.keys(""))
        await volume.check()


async def told_by(by: Node, volume: Filled, told: list[Conflict]) -> None:
    """What a fold is told that begins anew, or should."""
    with pytest.raises(Conflict, match="begin anew") as error:
        await by.folder.fold(volume.vid)
    told.append(error.value)


async def collected_twice(scene: Scene, node: Node, log: str) -> None:
    for _ in range(4):
        await node.collector.collect(log)
        scene.now_ms += INTERVAL_MS


async def test_a_fold_whose_pages_were_collected_learns_its_fate_and_not_that_they_are_damaged(
    scene: Scene, node: Node
) -> None:
    """S1.18: it slept over its first page, another was granted, and what it was to read is gone."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(40)
    await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=volume.head))
    told = list[Conflict]()
    async with scene.node() as sleeper, anyio.create_task_group() as tasks:
        await sleeper.volumes.get(volume.vid)
        asleep = scene.store.add(Rule(op="get", key=entry_key(log, 5), gate=anyio.Event()))
        tasks.start_soon(told_by, sleeper, volume, told)
        await asleep.reached.wait()
        assert await node.folder.fold(volume.vid) is not None
        await volume.write(3)
        await collected_twice(scene, node, log)
        assert asleep.gate is not None
        asleep.gate.set()
    assert isinstance(told[0].__cause__, Corrupt), "what it missed"
    await checked(scene, volume)


async def test_a_fold_whose_base_was_collected_learns_its_fate(scene: Scene, node: Node) -> None:
    """S1.18: the nodes of the checkpoint that it began with are what it misses."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(30)
    await volume.forget()
    (base,) = [key for key in scene.keys(f"logs/{log}/t/") if len(key.rpartition("/")[2]) == DIGEST_DIGITS]
    await volume.write(30)
    await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=volume.head))
    told = list[Conflict]()
    async with scene.node() as sleeper, anyio.create_task_group() as tasks:
        await sleeper.volumes.get(volume.vid)
        asleep = scene.store.add(Rule(op="get", key=base, gate=anyio.Event()))
        tasks.start_soon(told_by, sleeper, volume, told)
        await asleep.reached.wait()
        assert await node.folder.fold(volume.vid) is not None
        await collected_twice(scene, node, log)
        assert base not in scene.keys("")
        assert asleep.gate is not None
        asleep.gate.set()
    assert isinstance(told[0].__cause__, Corrupt)
    await checked(scene, volume)


async def test_a_fold_that_misses_something_while_it_may_be_granted_says_what(scene: Scene, node: Node) -> None:
    """S1.18: damage stays damage."""
    volume = await Filled.born(node)
    await volume.write(10)
    async with scene.node() as fresh:
        await fresh.ask(ADVANCE, SinceRequest(volume.vid.raw, since=volume.head))
        gone = scene.keys(f"logs/{volume.vid}/entries/")[4]
        del memory(scene.store).objects[gone]
        with pytest.raises(Corrupt) as error:
            await fresh.folder.fold(volume.vid)
    assert error.value.key == gone


async def test_a_number_that_was_settled_is_nobody_elses(scene: Scene, node: Node) -> None:
    """S1.3, S1.8: create forgets deleted names, so whoever slept while it took a number takes another."""
    volume = await Filled.born(node)
    log, clock = str(volume.vid), ManualClock(1000.0, jumps=True)
    await volume.write(40)
    await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=volume.head))
    patience = Patience(deadline_seconds=5, now=clock.now, boot=clock.now, sleep=clock.sleep)
    told, standing = list[Conflict](), list[str]()
    async with (
        Node.open(scene.store, patience=patience, now_ms=lambda: scene.now_ms) as sleeper,
        anyio.create_task_group() as tasks,
    ):
        asleep = scene.store.add(Rule(op="create", key=epoch_key(log, 1), gate=anyio.Event()))
        tasks.start_soon(told_by, sleeper, volume, told)
        await asleep.reached.wait()
        assert await node.folder.fold(volume.vid) is not None
        await volume.write(3)
        await collected_twice(scene, node, log)
        assert epoch_key(log, 1) not in scene.keys("")
        standing = scene.keys(f"logs/{log}/t/{1:016x}/")
        clock.advance(INTERVAL_MS / 1000)
        assert asleep.gate is not None
        asleep.gate.set()
    assert scene.keys(f"logs/{log}/t/{1:016x}/") == standing
    assert max(await states(node, log)) > 2
    await checked(scene, volume)


async def test_a_number_that_was_settled_meanwhile_is_no_damage(scene: Scene, node: Node) -> None:
    """Of two who look at a log one lists a number, which the other deletes before it is read."""
    volume = await Filled.born(node)
    log = str(volume.vid)
    await volume.write(20)
    await volume.forget()
    await node.collector.collect(log)
    scene.now_ms += INTERVAL_MS
    found = dict[int, State]()

    async def look(by: Node) -> None:
        found.update(await states(by, log))

    async with scene.node() as other, anyio.create_task_group() as tasks:
        asleep = scene.store.add(Rule(op="get", key=epoch_key(log, 1), gate=anyio.Event()))
        tasks.start_soon(look, other)
        await asleep.reached.wait()
        await node.collector.collect(log)
        assert epoch_key(log, 1) not in scene.keys("")
        assert asleep.gate is not None
        asleep.gate.set()
    assert 1 not in found


async def test_a_node_that_a_log_is_not_assigned_to_is_refused(scene: Scene) -> None:
    """S1.9: at its beginning; and at its end, where the log was taken from it meanwhile, though it lives."""

    def opened(*, takeover: bool) -> AbstractAsyncContextManager[Node]:
        return Node.open(
            scene.store,
            name="main",
            patience=hasty(),
            now_ms=lambda: scene.now_ms,
            probe_owner=alive,
            takeover=takeover,
        )

    async with opened(takeover=False) as owner:
        volume = await Filled.born(owner)
        await volume.write(20)
        await owner.ask(ADVANCE, SinceRequest(volume.vid.raw, since=volume.head))
        before = scene.keys("logs/main/")
        async with scene.node() as stranger:
            with pytest.raises(NotOwner):
                await stranger.folder.fold(volume.vid)
        assert scene.keys("logs/main/") == before
        asleep = scene.store.add(Rule(op="create", key="logs/main/t/*/deadlist", gate=anyio.Event()))
        told = list[NotOwner]()

        async def fold() -> None:
            with pytest.raises(NotOwner) as error:
                await owner.folder.fold(volume.vid)
            told.append(error.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fold)
            await asleep.reached.wait()
            async with opened(takeover=True) as other:
                assert asleep.gate is not None
                asleep.gate.set()
                while not told:
                    await checkpoint()
                assert (await other.volumes.get(volume.vid, fresh=True)).state.fold is None
                assert await other.folder.fold(volume.vid) is not None
                (granted,) = [n for n, state in (await states(other, "main")).items() if state is State.COMMITTED]
                stands = (await other.volumes.get(volume.vid, fresh=True)).state.fold
                assert stands is not None
                assert stands.checkpoint == f"logs/main/t/{granted:016x}"
                assert await pages_at(other, volume.vid) == volume.pages


async def test_a_fold_that_asked_who_holds_what_before_another_went_further_lets_go_of_nothing(
    scene: Scene, node: Node
) -> None:
    """It slept while it asked, and has seen since what the other did."""
    volume = await Filled.born(node)
    await volume.write(3)
    await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=2))
    assert await node.folder.fold(volume.vid) is not None
    held = await pages_at(node, volume.vid, 2)
    await volume.write(3)
    told = list[Conflict]()
    async with scene.node() as other, anyio.create_task_group() as tasks:
        await other.ask(PIN, PinRequest(volume.vid.raw, lsn=2, pin=PinId.new().raw, seconds=0.0))
        asleep = scene.store.add(Rule(op="list", key=f"volumes/{volume.vid}/pins/*", gate=anyio.Event()))
        tasks.start_soon(told_by, node, volume, told)
        await asleep.reached.wait()
        await other.ask(ADVANCE, SinceRequest(volume.vid.raw, since=6))
        assert await other.folder.fold(volume.vid) is not None
        await node.volumes.get(volume.vid, fresh=True)
        assert asleep.gate is not None
        asleep.gate.set()
    assert told
    async with scene.node() as fresh:
        assert await pages_at(fresh, volume.vid, 2) == held
    await checked(scene, volume)

"""Nodes that open logs behind rollups: everything reads as it was, whatever a volume went through. How rollups come to
be written: test_rollups_written.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

import msgspec
import pytest
from anyio.lowlevel import checkpoint

from budwood.server import in_thread as server_in_thread
from budwood.server.metastore import rollup_builder
from budwood.server.metastore.rolled_names import NamesBehind
from budwood.server.metastore.rolled_stream import RolledStream
from budwood.server.node import Node
from budwood.server.store.retrying import Patience
from budwood.server.store.root import GC_INTERVAL_SECONDS
from budwood.server.store.tree_nodes import loading
from budwood.testing.clock import ManualClock
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import (
    ADVANCE,
    CHANGE_NAME,
    FORK,
    LIST_NAMES,
    OUTCOME,
    SNAPSHOT,
    ForkRequest,
    NamesRequest,
    OutcomeRequest,
    SinceRequest,
    SnapshotRequest,
)
from budwood.volume.entry import parse_entry
from budwood.volume.errors import AlreadyExists, BudwoodError, Conflict, Corrupt, Forgotten
from budwood.volume.ids import VolumeId
from budwood.volume.records import Fork, Open, encode_records
from budwood.volume.rollup import parse_rollup, rollup_key, seal_rollup
from budwood.volume.wire import NameRequest

from ..damage import scrubbed
from ..rolling import (
    ANN,
    BOB,
    CAT,
    DAN,
    PAGE,
    Told,
    check_all,
    check_logs,
    clients,
    goes_by,
    memory,
    only_when_told,
    roll_up,
    small_nodes,
)
from .test_streams_stop import UNFOLLOWED, append, stands_still

pytestmark = pytest.mark.anyio


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.fixture(autouse=True)
def when_told(monkeypatch: pytest.MonkeyPatch) -> None:
    only_when_told(monkeypatch)


@pytest.fixture
async def node(store: RiggedStore, when_told: None) -> AsyncIterator[Node]:
    async with Node.open(store, name="main", address="http://main") as node:
        yield node


async def counted(store: RiggedStore, count: int) -> tuple[int, list[int], int]:
    """Requests to open a log of so many commits, and for the first snapshots of its volumes; and what was received."""
    async with Node.open(store, name="main") as node:
        told = [await Told.born(node) for _ in range(3)]
        for at in range(count):
            await told[at % 3].commit(node, clients[at % 4])
        await roll_up(node, "main")
        for each in told:
            await each.commit(node)
    async with Node.open(store) as fresh:
        store.forget()
        await fresh.logs.get("main")
        opening, received, first = store.count(), store.received_bytes(), list[int]()
        for each in told:
            store.forget()
            assert (await fresh.ask(SNAPSHOT, SnapshotRequest(each.vid.raw))).lsn == each.head
            first.append(store.count())
        for each in told:
            await each.check(fresh)
    return opening, first, received


async def test_opening_a_log_costs_as_much_however_long_it_is() -> None:
    short, long = RiggedStore(MemoryStore()), RiggedStore(MemoryStore())
    opening, first, received = await counted(short, 90)
    opening_long, first_long, received_long = await counted(long, 300)
    assert opening_long == opening
    assert received_long <= received * 1.1
    assert max(first) <= 5
    assert max(first_long) <= 5
    check_all(long)


@pytest.mark.parametrize(("volumes", "commits", "turns"), [(64, 1, 8), (2, 130, 0)])
async def test_others_have_their_turns_while_streams_are_rolled_up(
    store: RiggedStore, node: Node, monkeypatch: pytest.MonkeyPatch, volumes: int, commits: int, turns: int
) -> None:
    """In between, or, where one has a long tail, since that is for a thread."""
    told = [await Told.born(node) for _ in range(volumes)]
    for each in told:
        await each.commit_many(node, commits)
    given, in_threads = 0, 0

    async def give() -> None:
        nonlocal given
        given += 1
        await checkpoint()

    async def in_thread(work: Callable[..., list[object]], *arguments: object) -> list[object]:
        nonlocal in_threads
        in_threads += 1
        return await server_in_thread.in_thread(work, *arguments)

    monkeypatch.setattr(rollup_builder, "checkpoint", give)
    monkeypatch.setattr(rollup_builder, "in_thread", in_thread)
    await roll_up(node, "main")
    assert given >= turns
    assert in_threads == (0 if turns else volumes)
    for each in told:
        await each.check(node)
    check_all(store)


async def test_what_was_cut_off_and_forgotten_stays_so(store: RiggedStore, node: Node) -> None:
    told = await Told.born(node)
    await told.commit_many(node, 20)
    await told.commit(node, length=3, pages={2: b"c" * PAGE})
    await told.commit(node, pages={8: b"g" * PAGE})
    await told.commit_many(node, 20)
    child = await told.fork(node, 21)
    await child.commit_many(node, 3, BOB)
    await roll_up(node, "main")
    async with Node.open(store) as fresh:
        await told.check(fresh)
        await child.check(fresh)
    await told.commit(node)
    assert (await node.ask(ADVANCE, SinceRequest(told.vid.raw, since=30))).since == 30
    await roll_up(node, "main")
    await told.commit(node)
    async with Node.open(store) as fresh:
        assert (await fresh.ask(SNAPSHOT, SnapshotRequest(told.vid.raw))).since == 30
        with pytest.raises(Forgotten):
            await pages_at(fresh, told.vid, 29)
        for lsn in (21, 30, told.head):
            assert await pages_at(fresh, told.vid, lsn) == told.pages[lsn]
        await child.check(fresh)
    check_all(store)


def opens(store: RiggedStore, log: str) -> list[Open]:
    """Those of a log, oldest first."""
    objects = memory(store).objects
    found = [parse_entry(key, data) for key, data in objects.items() if key.startswith(f"logs/{log}/entries/")]
    found.sort(key=lambda entry: entry.header.i)
    records = [
        record for entry in found for carried in entry.header.streams.values() for record in carried.decode(entry.key)
    ]
    return [record for record in records if isinstance(record, Open)]


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("twice", [False, True])
async def test_a_volume_that_moved_to_and_fro_is_followed_through_the_rollups_of_its_logs(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch, *, small: bool, twice: bool
) -> None:
    """The process that moves it stays open through all of it, and carries every client and fork on."""
    if small:
        small_nodes(monkeypatch)
    async with Node.open(store, name="main") as node, Node.open(store) as embedded:
        told, children = await Told.born(embedded), list[Told]()
        for client in clients:
            await told.commit_many(node, 5, client)
            children.append(await told.fork(node, told.head - 2))
            await roll_up(node, told.id if client in (ANN, CAT) else "main")
            await told.commit(node, client)
            if twice:
                await roll_up(node, told.id if client in (ANN, CAT) else "main")
            await told.move(node, "main" if client in (ANN, CAT) else "private")
            await told.check_repeats(node)
        await told.commit(node, ANN)
        await roll_up(node, told.id)
        await roll_up(node, "main")
        for log in (told.id, "main"):
            for record in opens(store, log):
                moved = record.head // 6
                assert {client for client, *_ in record.clients} == {client.raw for client in clients[:moved]}
                assert {child for child, _ in record.forks} == {child.vid.raw for child in children[:moved]}
        async with Node.open(store) as fresh:
            for reader in (node, embedded, fresh):
                await told.check(reader)
                await told.check_repeats(reader)
                for child in children:
                    await child.check(reader)
                    with pytest.raises(AlreadyExists):
                        await reader.ask(FORK, ForkRequest(told.vid.raw, child=child.vid.raw, lsn=child.start + 1))
        await told.move(node, "main")
        (*_, newest) = opens(store, "main")
        last = {request.client: (request.token, made.lsn - 1, made.lsn) for request, _, made in told.made}
        assert {client: rest for client, *rest in newest.clients} == {raw: list(rest) for raw, rest in last.items()}
        assert dict(newest.forks) == {child.vid.raw: child.start for child in children}
        await told.commit(node, BOB)
        async with Node.open(store) as fresh:
            await told.check(fresh)
            await told.check_clients(fresh)
        await told.check_repeats(node)
    check_all(store)


async def test_a_move_that_was_cut_off_is_finished_behind_a_rollup(
    store: RiggedStore, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close lies in the rollup; the log that it names knows nothing of the volume yet."""
    told = await Told.born(node)
    await told.commit_many(node, 3)
    volume = await node.volumes.get(told.vid)
    log = await node.logs.get("main")
    with monkeypatch.context() as patched:
        patched.setattr("budwood.server.metastore.move.Mover.finish", fails)
        with pytest.raises(ZeroDivisionError):
            await told.move(node, "private")
    assert volume.closed_at is not None
    await roll_up(node, "main")
    other = await Told.born(node)
    await other.commit(node)
    assert log.streams.tail(told.id) == []
    async with Node.open(store) as fresh:
        await told.check(fresh)
        await told.commit(fresh, BOB)
        await told.check_repeats(fresh)
    await told.check(node)
    check_all(store)


async def fails(*_: object, **__: object) -> None:
    raise ZeroDivisionError


async def kept(node: Node, log: str, told: Told) -> list[int]:
    """The slots of what the rollup of that log keeps of the volume as it stands."""
    rolled = RolledStream((await node.logs.get(log)).rolled, told.id)
    return [part.slot for part in await loading(rolled.parts)]


@pytest.mark.parametrize("case", UNFOLLOWED)
async def test_what_can_not_be_followed_is_kept_and_stops_its_own_volume(
    store: RiggedStore, node: Node, case: str
) -> None:
    stopped, other = await Told.born(node), await Told.born(node)
    for told in (stopped, other):
        await told.commit(node)
    stream, kind, words = UNFOLLOWED[case](stopped.vid)
    await append(node, "main", {stopped.id: stream})
    await other.commit(node)
    await roll_up(node, "main")
    log = await node.logs.get("main")
    assert log.streams.tail(stopped.id) == []
    parts = await kept(node, "main", stopped)
    assert len(parts) == 1
    later = Fork(vid=stopped.vid.raw, child=VolumeId.new().raw, lsn=1)
    await append(node, "main", {stopped.id: encode_records([later])})
    await other.commit(node)
    await stands_still(node, stopped.vid, kind, words)
    async with Node.open(store) as fresh:
        await stands_still(fresh, stopped.vid, kind, words)
        await other.check(fresh)
    await roll_up(node, "main")
    await other.commit(node)
    await stands_still(node, stopped.vid, kind, words)
    await other.check_repeats(node)
    async with Node.open(store) as fresh:
        await stands_still(fresh, stopped.vid, kind, words)
        await other.check(fresh)
        assert await kept(fresh, "main", stopped) == [*parts, parts[0] + 2]
    check_logs(store)


async def test_a_rollup_says_that_all_of_it_was_followed(store: RiggedStore, node: Node) -> None:
    """Until something was not; and scrub finds one that says so wrongly."""
    told, other = await Told.born(node), await Told.born(node)
    await told.commit(node)
    await roll_up(node, "main")
    assert (await node.logs.get("main")).rolled.followed
    await append(node, "main", {told.id: UNFOLLOWED["unknown"](told.vid)[0]})
    for _ in range(2):
        await other.commit(node)
        await roll_up(node, "main")
        rolled = (await node.logs.get("main")).rolled
        assert not rolled.followed
        objects = dict(memory(store).objects)
        rollup = parse_rollup("main", rolled.name, objects[rollup_key("main", rolled.name)])
        name, data = seal_rollup(msgspec.structs.replace(rollup, followed=True))
        key = rollup_key("main", name)
        before = await scrubbed(objects)
        assert key not in before
        found = await scrubbed({**objects, key: data})
        assert "every part was followed" in found[key].what


@pytest.mark.parametrize("case", UNFOLLOWED)
async def test_a_volume_that_nobody_opened_stops_at_the_part_that_its_rollup_kept(
    store: RiggedStore, node: Node, case: str
) -> None:
    """In the process that made the rollup, too."""
    stopped, other = await Told.born(node), await Told.born(node)
    await stopped.commit(node)
    stream, kind, words = UNFOLLOWED[case](stopped.vid)
    await append(node, "main", {stopped.id: stream})
    await other.commit(node)
    async with Node.open(store) as embedded, Node.open(store, name="main") as again:
        await roll_up(again, "main")
        await roll_up(embedded, "main")
        for reader in (again, embedded):
            await stands_still(reader, stopped.vid, kind, words)
            await other.check(reader)
    check_logs(store)


async def test_names_stay_as_one_rollup_has_them(store: RiggedStore) -> None:
    """Whoever lists them may be in the midst of it when the next one is there."""
    async with Node.open(store) as node:
        log = await node.logs.get(str(node.root.names_id))

        async def bind(name: str, revision: int = 0) -> None:
            target = node.root.names_id.raw
            await node.ask(CHANGE_NAME, NameRequest(op="bind", name=name, revision=revision, target=target))

        async def revisions(names: NamesBehind) -> dict[str, int]:
            return {name: bound.revision for name, bound in await loading(lambda: list(names.between("", "")))}

        await bind("a")
        await roll_up(node, log.name)
        before = NamesBehind(log.rolled, log.name)
        await bind("a", 1)
        await bind("b")
        await roll_up(node, log.name)
        after = NamesBehind(log.rolled, log.name)
        assert await revisions(before) == {"a": 1}
        assert await revisions(after) == {"a": 2, "b": 3}


async def test_the_namespace_is_rolled_up_as_it_stands(store: RiggedStore, node: Node) -> None:
    names = [f"shop/{at}" for at in range(40)]
    log = str(node.root.names_id)
    for at, name in enumerate(names):
        await node.ask(CHANGE_NAME, NameRequest(op="bind", name=name, target=VolumeId.new().raw, client=ANN.raw))
        if at in (9, 29):
            await roll_up(node, log)
    opened = await node.logs.get(log)
    assert len(opened.streams.tail(log)) == 10
    async with Node.open(store) as fresh:
        for reader in (node, fresh):
            assert {entry.name for entry in (await reader.ask(LIST_NAMES, NamesRequest())).entries} >= set(names)
        await fresh.ask(CHANGE_NAME, NameRequest(op="bind", name="till", target=VolumeId.new().raw, client=BOB.raw))
        assert len((await fresh.logs.get(log)).streams.tail(log)) == 11
    assert "till" in {entry.name for entry in (await node.ask(LIST_NAMES, NamesRequest())).entries}
    check_all(store)


@pytest.mark.parametrize("small", [False, True])
async def test_the_outcome_of_a_commit_that_lies_in_the_rollup_is_known(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch, *, small: bool
) -> None:
    if small:
        small_nodes(monkeypatch)
    async with Node.open(store, name="main") as node:
        told = await Told.born(node)
        for at in range(40):
            await told.commit(node, clients[at % 3])
        await roll_up(node, "main")
        await told.commit(node, DAN)
    async with Node.open(store, name="main") as fresh:
        for request, segment, made in told.made:
            for base in (request.base, None):
                asked = OutcomeRequest(told.vid.raw, client=request.client, token=request.token, base=base)
                found = await fresh.ask(OUTCOME, asked)
                assert (found.lsn, found.time, found.head) == (made.lsn, made.time, told.head)
            assert await fresh.commit(request, segment) == made
            for unknown in (
                OutcomeRequest(told.vid.raw, client=DAN.raw, token=request.token, base=request.base),
                OutcomeRequest(told.vid.raw, client=request.client, token=bytes(16), base=request.base),
            ):
                if request.client != DAN.raw or unknown.token != request.token:
                    assert (await fresh.ask(OUTCOME, unknown)).lsn == 0
            with pytest.raises(Conflict) as error:
                await fresh.commit(
                    *commit_of(told.vid, request.base, {1: b"!" * PAGE}, client=ANN, page_size=PAGE, length=8 * PAGE)
                )
            assert error.value.head == told.head
        await told.commit(fresh)
        await told.check(fresh)


async def refused(objects: dict[str, bytes], told: list[Told]) -> list[BudwoodError | None]:
    """What a fresh node meets at each of the volumes, if anything."""
    damaged = MemoryStore()
    for key, data in objects.items():
        await damaged.create(key, data)
    met = list[BudwoodError | None]()
    async with Node.open(damaged) as fresh:
        for each in told:
            try:
                await each.check(fresh)
                await each.check_clients(fresh)
                met.append(None)
            except BudwoodError as error:
                met.append(error)
    return met


@pytest.mark.parametrize("how", ["missing", "flipped", "swapped"])
async def test_a_damaged_node_or_rollup_is_named_by_whoever_needs_it(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """And a volume whose part lies elsewhere is read."""
    small_nodes(monkeypatch)
    async with Node.open(store, name="main") as node:
        told = [await Told.born(node) for _ in range(4)]
        for each in told:
            await each.commit_many(node, 6)
        await roll_up(node, "main")
        for each in told:
            await each.commit(node)
    objects = memory(store).objects
    rollup = next(key for key in objects if "/rollups/" in key)
    nodes = sorted(key for key in objects if "/nodes/" in key)
    assert len(nodes) > 8
    read = 0
    for at, key in enumerate([rollup, *nodes]):
        damaged = dict(objects)
        match how:
            case "missing":
                del damaged[key]
            case "flipped":
                data = bytearray(objects[key])
                data[len(data) // 2] ^= 1
                damaged[key] = bytes(data)
            case _:
                damaged[key] = objects[nodes[at - 2]]
        met = await refused(damaged, told)
        errors = [error for error in met if error is not None]
        assert errors, f"nobody needs {key}"
        assert all(isinstance(error, Corrupt) and error.key == key for error in errors)
        if key == rollup:
            assert len(errors) == len(told)
        read += len(told) - len(errors)
    assert read > len(nodes), "most volumes need no more than their own nodes"


async def test_a_volume_that_fell_behind_before_its_reader_slept_is_read_from_what_stands(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it waits to take needs nodes of a rollup that was collected meanwhile."""
    small_nodes(monkeypatch, kept_bytes=0)
    clock = ManualClock(1_000_000.0, jumps=True)
    patience = Patience(deadline_seconds=5, now=clock.now, boot=clock.now, sleep=clock.sleep)
    opened = partial(Node.open, store, patience=patience, now_ms=clock.now_ms)
    async with opened(name="main") as node, opened() as reader:
        told, other = await Told.born(node), await Told.born(node)
        await told.commit_many(node, 12)
        children = [await told.fork(node, lsn) for lsn in range(1, 13)]
        await roll_up(node, "main")
        await told.commit(node)
        await told.check(reader)
        volume = await reader.volumes.get(told.vid)
        children.append(await told.fork(node, 5))
        await other.commit(node)
        await reader.volumes.get(other.vid, fresh=True)
        assert volume.behind, "its fork is asked for in a node that isn't in memory"
        for _ in range(3):
            await told.commit(node)
            await node.collector.collect("main")
            clock.advance(GC_INTERVAL_SECONDS + 61)
        assert (await reader.ask(SNAPSHOT, SnapshotRequest(told.vid.raw))).lsn == told.head
        for each in (told, other, *children):
            await each.check(reader)


async def test_a_volume_that_falls_behind_catches_up_with_whoever_reads_it(
    store: RiggedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a fork is known is asked of a rollup that isn't in memory: what comes then waits, through rollups."""
    small_nodes(monkeypatch, kept_bytes=0)
    async with Node.open(store, name="main") as node, Node.open(store) as reader:
        told, other = await Told.born(node), await Told.born(node)
        for each in (told, other):
            await each.commit_many(node, 12)
        children = [await told.fork(node, lsn) for lsn in range(1, 13)]
        await roll_up(node, "main")
        await told.commit(node)
        await told.check(reader)
        volume = await reader.volumes.get(told.vid)
        for again in range(3):
            await other.check(reader)
            children.append(await told.fork(node, 5))
            await told.commit(node)
            if again == 1:
                await roll_up(node, "main")
            await other.commit(node)
            await reader.volumes.get(other.vid, fresh=True)
            if again == 1:
                await goes_by(reader, "main", (await node.logs.get("main")).rolled.slot)
            assert volume.behind, "its fork is asked for in a node that isn't in memory"
            assert volume.state.head == told.head - 1
            await told.check(reader)
            assert not volume.behind
            await told.check_clients(reader)
            assert await loading(partial(volume.state.forks.get, children[-1].vid.raw)) == 5
        for each in (told, other, *children):
            await each.check(reader)
            await each.check(node)
    check_all(store)

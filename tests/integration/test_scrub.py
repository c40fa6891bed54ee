"""Scrub: every object that is wrong is named, and nothing else; what it is said to spoil is what readers can't read."""

from __future__ import annotations

import random

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budwood.server.node import Node
from budwood.server.store.directory_store import FileStore
from budwood.server.upkeep.position import Position
from budwood.server.upkeep.scrub import open_scrub
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import CREATE, CreateRequest
from budwood.volume.entry import entry_key, parse_entry, seal_entry
from budwood.volume.envelope import decode, encode, head_length
from budwood.volume.errors import BadInput, NotFound
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.records import Commit, Open
from budwood.volume.rollup import RolledCommit, nodes_folder, parse_rollup, rollup_key, seal_rollup, slot_of_rollup
from budwood.volume.tree_node import Node as TreeNode
from budwood.volume.tree_node import node_key, parse_node, seal_node

from ..damage import (
    Heard,
    Interrupted,
    Objects,
    Old,
    copy_of,
    cut,
    drawn,
    flip,
    grow,
    is_newest,
    kind_of,
    names_in,
    of_kind,
    read_all,
    scrubbed,
    spoilt,
    stopped,
    swapped,
    unmissed,
    without,
)
from ..estate import build_store, fill
from ..stored import unpack

pytestmark = pytest.mark.anyio

KINDS = ["root", "birth", "pins", "epochs", "boundary", "entries", "private entries", "t", "rollups", "nodes"]
DAMAGES = ["flipped early", "flipped late", "cut", "missing", "swapped", "longer"]


@pytest.fixture(scope="module")
def old() -> Old:
    return anyio.run(grow)


@pytest.fixture(scope="module")
def forgotten(old: Old) -> set[tuple[VolumeId, int]]:
    """What can't be read of it in any case."""
    return anyio.run(read_all, old.objects, old)


def chosen(keys: list[str], how: str) -> str:
    """The first, the last, or one between: of each kind of object each meets two of the damages."""
    return (keys[0], keys[len(keys) // 2], keys[-1])[DAMAGES.index(how) % 3]


def damaged(objects: Objects, key: str, how: str) -> dict[str, bytes]:
    size = len(objects[key])
    match how:
        case "flipped early":
            return flip(objects, key, 8 * (size // 5) + 3)
        case "flipped late":
            return flip(objects, key, 8 * (size - size // 3))
        case "cut":
            return cut(objects, key, size // 2)
        case "missing":
            return without(objects, key)
        case "longer":
            return {**objects, key: objects[key] + b"\0"}
        case _:
            others = [each for each in of_kind(objects, kind_of(key)) if each != key]
            return swapped(objects, key, others[len(others) // 2]) if others else cut(objects, key, 0)


async def check(before: Old, forgotten: set[tuple[VolumeId, int]], after: Objects) -> None:
    """Scrub names what differs and nothing else; readers get what was written, or one typed error that scrub told."""
    differ = {key for key in {*before.objects, *after} if before.objects.get(key) != after.get(key)}
    found = await scrubbed(after)
    unknowable = {key for key in differ if key not in after and key in unmissed(before.objects)}
    assert set(found) == differ - unknowable, [str(each) for each in found.values()]
    if not any(key not in after and (key in unknowable or is_newest(before.objects, key)) for key in differ):
        failed = await read_all(after, before) - forgotten
        untold = {each for each in failed - spoilt(found, before) if each[0] not in stopped(found, before)}
        assert not untold, [str(each) for each in found.values()]
        names = await names_in(after)
        assert names is None or names == before.names


async def test_every_kind_of_object_stands(old: Old) -> None:
    assert {kind_of(key) for key in old.objects} == set(KINDS)
    trees = [parse_rollup(*_named(key), old.objects[key]).tree for key in of_kind(old.objects, "rollups")]
    assert max(tree.level for tree in trees if tree is not None) >= 2


async def test_an_untouched_store_has_no_finding(old: Old) -> None:
    heard = Heard()
    async with open_scrub(await copy_of(old.objects), heard) as scrub:
        await scrub.run()
        assert scrub.objects >= sum(kind_of(key) in {"entries", "pins", "t"} for key in old.objects)
    assert heard.findings == []


async def test_a_store_of_before_has_no_finding(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("stored")
    unpack(folder)
    heard = Heard()
    store = await FileStore.open(str(folder / "store"))
    async with open_scrub(store, heard) as scrub:
        await scrub.run()
    await store.aclose()
    assert heard.findings == []


@pytest.mark.slow
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
async def test_one_damaged_object_is_named_and_no_other(
    old: Old, forgotten: set[tuple[VolumeId, int]], kind: str, how: str
) -> None:
    await check(old, forgotten, damaged(old.objects, chosen(of_kind(old.objects, kind), how), how))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("kind", ["entries", "nodes"])
async def test_whichever_is_lost_hides_nothing_behind_it(
    old: Old, forgotten: set[tuple[VolumeId, int]], kind: str, part: int
) -> None:
    """The chain goes on, and so do streams, whatever an entry had of them; and of a node all is told that it had."""
    for key in of_kind(old.objects, kind)[part::4]:
        await check(old, forgotten, without(old.objects, key))


@pytest.mark.slow
async def test_whichever_revision_of_a_pin_is_lost_is_missed_if_any_can_be(
    old: Old, forgotten: set[tuple[VolumeId, int]]
) -> None:
    keys = of_kind(old.objects, "pins")
    assert set(keys) - unmissed(old.objects)
    for key in keys:
        await check(old, forgotten, without(old.objects, key))


@pytest.mark.slow
@given(st.integers(0, 1 << 62), st.sampled_from(KINDS))
@settings(max_examples=25)
def test_whatever_is_damaged_is_named(old: Old, forgotten: set[tuple[VolumeId, int]], seed: int, kind: str) -> None:
    rng = random.Random(seed)
    key = rng.choice(of_kind(old.objects, kind))
    anyio.run(check, old, forgotten, drawn(rng, old.objects, key)[1])


@pytest.mark.slow
@given(st.integers(0, 1 << 62), st.integers(2, 5))
@settings(max_examples=15)
def test_much_damage_at_once_stops_nothing(old: Old, seed: int, count: int) -> None:
    """What stands beside it is named all the same, and nothing that is whole."""
    rng = random.Random(seed)
    after = dict(old.objects)
    for key in rng.sample([key for key in sorted(after) if kind_of(key) in {"birth", "pins", "t", "entries"}], count):
        after = flip(after, key, rng.randrange(8 * len(after[key])))
    differ = {key for key in after if old.objects[key] != after[key]}
    found = anyio.run(scrubbed, after)
    # What a head that can't be read had named isn't looked at.
    fragments = {key for key in differ if kind_of(key) == "t"}
    assert differ - fragments <= set(found) <= differ
    if not any(kind_of(key) == "entries" for key in differ):
        assert set(found) == differ


async def test_the_lsns_of_a_damaged_page_are_exact(old: Old, forgotten: set[tuple[VolumeId, int]]) -> None:
    """From the commit that wrote it to the last before it was written anew, forks among them; and no other."""
    private = f"logs/{old.names['private']}/"
    entries = [key for key in of_kind(old.objects, "private entries") if key.startswith(private)]
    entries = [key for key in entries if parse_entry(key, old.objects[key]).header.body_digest]
    ended = 0
    for key in (*of_kind(old.objects, "t"), *entries[2::5]):
        # The first frame: of an entry, that of its body.
        at = head_length(old.objects[key]) if key in entries else 0
        after = flip(old.objects, key, 8 * (at + 5))
        failed = await read_all(after, old) - forgotten
        assert failed
        assert failed == spoilt(await scrubbed(after), old) - forgotten
        ended += all((vid, len(old.history[vid]) - 1) not in failed for vid in old.history)
    assert ended


async def test_an_entry_is_missed_without_a_rollup() -> None:
    store = MemoryStore()
    await build_store(store)
    assert not of_kind(store.objects, "rollups")
    for key in (*of_kind(store.objects, "entries"), *of_kind(store.objects, "private entries")):
        assert set(await scrubbed(without(store.objects, key))) == ({key} - unmissed(store.objects)), key


async def test_whoever_goes_on_at_a_slot_looks_at_it(old: Old) -> None:
    for name in (_named(key)[1] for key in of_kind(old.objects, "rollups") if "/main/" in key):
        key = entry_key("main", slot_of_rollup(name))
        heard = Heard()
        async with open_scrub(await copy_of(flip(old.objects, key, 99)), heard) as scrub:
            await scrub.run(Position(log="main", slot=slot_of_rollup(name)))
        assert {finding.key for finding in heard.findings} == {key}


async def test_a_damaged_node_that_leads_to_another_hides_none(old: Old) -> None:
    """The root of a rollup's tree, and a node that it alone leads to."""
    key = of_kind(old.objects, "rollups")[-1]
    log, name = _named(key)
    tree = parse_rollup(log, name, old.objects[key]).tree
    assert tree is not None
    root = node_key(nodes_folder(log), tree)
    child = parse_node(root, old.objects[root], tree).children[-1]
    below = node_key(nodes_folder(log), child)
    assert child.number == tree.number
    found = await scrubbed(flip(flip(old.objects, root, 99), below, 99))
    assert set(found) == {root, below}


@pytest.mark.slow
async def test_an_interrupted_scrub_goes_on(old: Old, forgotten: set[tuple[VolumeId, int]]) -> None:
    after = dict(old.objects)
    rng = random.Random(5)
    for kind in KINDS:
        if kind != "root":
            after = flip(after, rng.choice(of_kind(after, kind)), rng.randrange(1 << 20))
    whole = (await scrubbed(after)).values()
    assert len(whole) >= 7
    failed = await read_all(after, old) - forgotten
    heard = Heard()
    async with open_scrub(await copy_of(after), heard) as scrub:
        await scrub.run()
    for at in range(1, len(heard.positions), 2):
        first, second = Heard(stop_behind=at), Heard()
        with pytest.raises(ExceptionGroup) as stop:
            async with open_scrub(await copy_of(after), first) as scrub:
                await scrub.run()
        assert stop.group_contains(Interrupted)
        async with open_scrub(await copy_of(after), second) as scrub:
            await scrub.run(Position.parse(str(first.positions[-1])))
        # What a lost entry spoils is told from the last rollup that was found right; the second begins behind the
        # newest whose head can be read.
        told = {each.key: each for each in (*second.findings, *first.findings)}
        assert {(each.key, each.stops) for each in told.values()} == {(each.key, each.stops) for each in whole}
        untold = {each for each in failed - spoilt(told, old) if each[0] not in stopped(told, old)}
        assert not untold, [str(each) for each in told.values()]


@pytest.mark.slow
async def test_a_scrub_that_goes_on_by_a_damaged_rollup_is_not_stopped_by_it(old: Old) -> None:
    """Whoever began it has named the damage."""
    heard = Heard()
    async with open_scrub(await copy_of(old.objects), heard) as scrub:
        await scrub.run()
    stops = [position for position in heard.positions if position.log]
    assert len({position.log for position in stops}) >= 2
    for at, key in enumerate(of_kind(old.objects, "nodes")):
        after = flip(old.objects, key, 99)
        # A third of the places where a scrub may have stopped, for each node another.
        for position in stops[at % 3 :: 3]:
            if key.startswith(f"logs/{position.log}/"):
                async with open_scrub(await copy_of(after), second := Heard()) as scrub:
                    await scrub.run(position)
                assert {finding.key for finding in second.findings} <= {key}


@pytest.mark.parametrize(
    "text", ["", "log:main", "log:main:-1", "log:Main:1", "log::1", "log:main:1:x", "volume:x", "entry:main:1"]
)
async def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is no position"):
        Position.parse(text)


@pytest.mark.slow
async def test_what_is_appended_meanwhile_is_no_error() -> None:
    store = MemoryStore()
    estate = await build_store(store)
    large = list(estate.history)[1]
    heard = Heard()
    async with Node.open(store, name="main", takeover=True) as node, anyio.create_task_group() as tasks:

        async def write() -> None:
            for turn in range(200):
                await estate.commit(node, large, {turn % 90 + 1: fill("m")}, length=90)

        tasks.start_soon(write)
        for _ in range(10):
            async with open_scrub(store, heard) as scrub:
                await scrub.run()
    assert heard.findings == []


async def test_volumes_alone_are_scrubbed_with_their_parents_and_logs(old: Old) -> None:
    child = next(vid for vid in old.history if old.logs[vid] >= {"main"} and len(old.logs[vid]) > 1)
    names = {name: vid for name, vid in old.names.items() if vid == child}
    private = old.names["private"]
    after = old.objects
    for key in (f"volumes/{child}/birth", f"volumes/{private}/birth"):
        after = flip(after, key, 300)
    heard = Heard()
    async with open_scrub(await copy_of(after), heard) as scrub:
        assert await scrub.find(["private"]) == [private]
        assert await scrub.find([*names, str(child)]) == [child] * (len(names) + 1)
        with pytest.raises(NotFound):
            await scrub.find(["nobody"])
        await scrub.of_volumes([private])
    assert [finding.key for finding in heard.findings] == [f"volumes/{private}/birth"]


async def test_where_there_is_no_store_that_is_said() -> None:
    with pytest.raises(NotFound):
        async with open_scrub(MemoryStore(), Heard()):
            pass


async def test_a_commit_that_lies_about_its_pages_is_found() -> None:
    """Sealed anew, so that every checksum and digest is right."""
    store = MemoryStore()
    vid = VolumeId.new()
    async with Node.open(store) as node:
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=512))
        await node.commit(*commit_of(vid, 0, {1: fill("a"), 2: fill("b")}, client=ClientId.new(), page_size=512))
    (key, *_) = sorted(key for key in store.objects if key.startswith(f"logs/{vid}/entries/"))
    entry, data = parse_entry(key, store.objects[key]), store.objects[key]
    (record,) = entry.header.streams[str(vid)].decode(key)
    assert isinstance(record, Commit)
    for name, value in {
        "content": bytes(32),
        "token": bytes(32),
        "length": 512,
        "floor": 5000,
        "base": 3,
        "locations": (msgspec.structs.replace(record.locations[0], slot=1),),
    }.items():
        told = msgspec.structs.replace(record, **{name: value})
        part = msgspec.structs.replace(entry.header.streams[str(vid)], records=(encode(told),))
        header = msgspec.structs.replace(entry.header, streams={str(vid): part})
        found = await scrubbed({**store.objects, key: seal_entry(header, data[head_length(data) :])})
        assert set(found) == {key}, name
        assert {span.stream for span in found[key].spoils} == {str(vid)}


async def test_a_stream_that_goes_on_otherwise_than_it_was_closed_is_found() -> None:
    """In the newest entry of its log, sealed anew."""
    store = MemoryStore()
    child = list((await build_store(store)).history)[2]
    key = min(key for key in store.objects if key.startswith(f"logs/{child}/entries/"))
    entry = parse_entry(key, store.objects[key])
    (record,) = entry.header.streams[str(child)].decode(key)
    assert isinstance(record, Open)
    assert record.forks
    for name, value in {"since": 1, "clients": (), "forks": (), "head": 3, "length": 1, "slot": 2}.items():
        told = msgspec.structs.replace(record, **{name: value})
        part = msgspec.structs.replace(entry.header.streams[str(child)], records=(encode(told),))
        header = msgspec.structs.replace(entry.header, streams={str(child): part})
        found = await scrubbed({**store.objects, key: seal_entry(header)})
        assert set(found) == {key}, name
        assert "otherwise than it was closed" in found[key].what


async def test_another_store_s_root_is_found(old: Old) -> None:
    other = MemoryStore()
    async with Node.open(other):
        pass
    found = await scrubbed({**old.objects, "root": other.objects["root"]})
    assert any("not the store's namespace" in finding.what for finding in found.values())


async def test_a_rollup_that_says_otherwise_than_its_log_is_found(old: Old) -> None:
    """Sealed anew from its leaf up, and named by nobody but itself."""
    key = f"logs/{old.names['private']}/rollups/"
    key = next(each for each in of_kind(old.objects, "rollups") if each.startswith(key))
    log, name = _named(key)
    rollup = parse_rollup(log, name, old.objects[key])
    assert rollup.tree is not None
    folder = nodes_folder(log)
    path = [rollup.tree]
    nodes: list[TreeNode] = []
    while True:
        under = node_key(folder, path[-1])
        nodes.append(parse_node(under, old.objects[under], path[-1]))
        if not nodes[-1].level:
            break
        path.append(nodes[-1].children[0])
    leaf = nodes[-1]
    at = next(at for at, item in enumerate(leaf.keys) if item[16:17] == b"c")
    told = decode("", leaf.values[at], RolledCommit)
    values = list(leaf.values)
    values[at] = encode(msgspec.structs.replace(told, before=told.before + 1))
    after = dict(old.objects)
    pointer, data = seal_node(TreeNode(keys=leaf.keys, values=tuple(values)), path[-1].number, setsum=path[-1].setsum)
    after[node_key(folder, pointer)] = data
    for node, above in zip(reversed(nodes[:-1]), reversed(path[:-1]), strict=True):
        children = (pointer, *node.children[1:])
        pointer, data = seal_node(TreeNode(level=node.level, children=children), above.number)
        after[node_key(folder, pointer)] = data
    name, data = seal_rollup(msgspec.structs.replace(rollup, tree=pointer))
    after[rollup_key(log, name)] = data
    found = await scrubbed(after)
    assert set(found) == {rollup_key(log, name)}
    assert "what its log does not" in found[rollup_key(log, name)].what


async def test_a_rollup_of_another_slot_than_its_log_stands_at_is_found(old: Old) -> None:
    key = of_kind(old.objects, "rollups")[-1]
    log, name = _named(key)
    rollup = parse_rollup(log, name, old.objects[key])
    name, data = seal_rollup(msgspec.structs.replace(rollup, n=rollup.n + 1))
    found = await scrubbed({**old.objects, rollup_key(log, name): data})
    assert set(found) == {rollup_key(log, name)}
    assert "does not stand" in found[rollup_key(log, name)].what


def _named(key: str) -> tuple[str, str]:
    """Log and name of a rollup's key."""
    return key.split("/")[1], key.partition("/rollups/")[2]

"""A reader that was written from docs/formats.md alone reads what stands in a store and a home, to the byte."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import xxhash

from budwood.server.metastore import rollups
from budwood.server.metastore.rolled_stream import weigh
from budwood.server.node import Node
from budwood.server.store.directory_store import FileStore
from budwood.testing.commits import pages_at
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import LIST_NAMES, SNAPSHOT, NamesRequest, SnapshotRequest
from budwood.volume.envelope import decode, encode, seal
from budwood.volume.errors import BudwoodError, Forgotten
from budwood.volume.ids import VolumeId
from budwood.volume.rollup import (
    RolledCommit,
    RolledPart,
    RolledRun,
    RolledState,
    nodes_folder,
    parse_rollup,
    rollup_key,
    seal_rollup,
    slot_of_rollup,
)
from budwood.volume.setsum import Setsum
from budwood.volume.tree_node import Node as TreeNode
from budwood.volume.tree_node import node_key, seal_node

from ..estate import Estate, build_home, build_store, fill
from ..reread import check_home, copy_of, reread
from ..second_reader import Damaged, Store, TooNew, base58, directory
from ..second_reader.envelopes import unseal
from ..second_reader.rollups import check_rollups
from ..second_reader.trees import Pointer, items_of
from ..waits import LIMIT_SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    memory = MemoryStore()
    anyio.run(build_store, memory)
    return memory.objects


async def test_every_volume_reads_the_same_at_every_lsn() -> None:
    store = MemoryStore()
    estate = await build_store(store)
    second = await reread(store.objects)
    assert set(second.volumes) == {vid.raw for vid in estate.history}
    for vid, history in estate.history.items():
        for lsn, pages in enumerate(history):
            if lsn:
                expected = {page: data for page, data in pages.items() if any(data)}
                assert second.volume(vid.raw).pages_at(lsn) == expected
    assert {name: bound.target for name, bound in second.names().items()} == {
        name: vid.raw for name, vid in estate.names.items()
    }


def test_a_home_reads_as_its_programs_saw_it(tmp_path: Path) -> None:
    async def build() -> Estate:
        store = await FileStore.open(str(tmp_path / "store"))
        try:
            return await build_store(store)
        finally:
            await store.aclose()

    estate = anyio.run(build)
    seen = build_home(tmp_path / "home", f"file://{tmp_path}/store", estate)
    home = check_home(tmp_path / "home", Store(directory(tmp_path / "store")), seen)
    assert set(home.names()) >= {"empty", "empty/link", *seen}


def dumped(store: Store) -> object:
    """All that a store says."""
    store.check()
    volumes = [store.volume(vid) for vid in store.volumes]
    pages = {volume.vid: {lsn: volume.pages_at(lsn) for lsn in store.readable(volume.vid)} for volume in volumes}
    return pages, store.names(), [store.pins(volume.vid) for volume in volumes]


async def told(objects: Mapping[str, bytes], volumes: list[bytes]) -> object:
    """The same by a node, but for the pins, of which it asks what it needs."""
    async with Node.open(await copy_of(objects), create=False, now_ms=lambda: 0) as node:
        pages: dict[bytes, dict[int, dict[int, bytes]]] = {}
        for vid in volumes:
            newest = await node.ask(SNAPSHOT, SnapshotRequest(vid))
            pages[vid] = {}
            for lsn in range(newest.parent_lsn + 1, newest.upper):
                with suppress(Forgotten):
                    pages[vid][lsn] = await pages_at(node, VolumeId(vid), lsn)
        return pages, (await node.ask(LIST_NAMES, NamesRequest(limit=10_000))).entries


async def test_a_byte_that_is_another_is_refused_or_says_the_same() -> None:
    memory = MemoryStore()
    await build_store(memory)
    volumes = Store(memory.objects).volumes
    expected, ours = dumped(Store(memory.objects)), await told(memory.objects, volumes)
    drawn, refused = random.Random(9), 0
    for key in sorted(memory.objects):
        data = bytearray(memory.objects[key])
        data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
        damaged = {**memory.objects, key: bytes(data)}
        try:
            assert dumped(Store(damaged)) == expected, key
        except (Damaged, TooNew):
            refused += 1
        with suppress(BudwoodError):
            assert await told(damaged, volumes) == ours, key
    assert refused > len(memory.objects) * 2 // 3


def resealed(objects: Mapping[str, bytes], key: str, *, version: int = 2, features: int = 0, **fields: Any) -> bytes:
    """The object with other fields, and a checksum that fits."""
    data = objects[key]
    head = 32 + int.from_bytes(data[16:20], "little")
    header = msgspec.msgpack.encode(msgspec.msgpack.decode(data[32:head]) | fields)
    sealed = seal(data[:4], header, data[head:], features=features)
    if version != 2:
        sealed = sealed[:4] + version.to_bytes(2, "little") + sealed[6:]
        checksum = xxhash.xxh3_64_intdigest(sealed[:24] + sealed[32 : len(sealed) - len(data[head:])])
        sealed = sealed[:24] + checksum.to_bytes(8, "little") + sealed[32:]
    return sealed


REFUSED: dict[str, tuple[str, dict[str, Any], type[Exception]]] = {
    "a format of before": ("logs/main/entries/*f0", {"version": 1}, TooNew),
    "a newer format": ("logs/main/entries/*f0", {"version": 3}, TooNew),
    "an unknown feature": ("volumes/*/birth", {"features": 4}, TooNew),
    "creates that go through something else": ("root", {"cas": "two-phase"}, TooNew),
    "an unknown kind of entry": ("logs/main/entries/*f0", {"kind": "rollup"}, TooNew),
    "a fence where none belongs": ("logs/main/entries/*f0", {"kind": "fence"}, Damaged),
    "a field without its bit": ("logs/main/entries/*f0", {"garbage": ["gc/1"]}, Damaged),
    "an entry of another slot": ("logs/main/entries/*f0", {"i": 99}, Damaged),
    "an entry that follows another": ("logs/main/entries/*f0", {"previous_digest": bytes(32)}, Damaged),
    "a sum that is none": ("logs/main/entries/*f0", {"total": b"\xff" * 32}, Damaged),
    "a page size that is none": ("volumes/*/birth", {"page_size": 1000}, Damaged),
    "the birth of another volume": ("volumes/*/birth", {"vid": bytes(16)}, Damaged),
    "another revision of a pin": ("volumes/*/pins/*", {"rev": 7}, Damaged),
    "a state that no pin has": ("volumes/*/pins/*", {"state": "lost"}, Damaged),
    "another's epoch": ("logs/main/epochs/*1", {"writer": bytes(16)}, Damaged),
}


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_what_the_document_says_is_refused_is_refused(what: str, objects: dict[str, bytes]) -> None:
    pattern, changes, error = REFUSED[what]
    key = next(key for key in sorted(objects) if fnmatchcase(key, pattern))
    with pytest.raises(error):
        dumped(Store({**objects, key: resealed(objects, key, **changes)}))


async def test_an_entry_that_is_missing_is_a_gap_only_if_nobody_had_acknowledged_it() -> None:
    memory = MemoryStore()
    estate = await build_store(memory)
    keys = sorted(key for key in memory.objects if key.startswith("logs/main/entries/"))
    with pytest.raises(Damaged, match="acknowledged"):
        dumped(Store({key: data for key, data in memory.objects.items() if key != keys[1]}))
    short = Store({key: data for key, data in memory.objects.items() if key != keys[0]})
    short.check()
    (large,) = [vid for vid, history in estate.history.items() if any(90 in pages for pages in history)]
    assert short.volume(large.raw).head == len(estate.history[large]) - 2


async def test_a_record_of_an_unknown_kind_stops_its_own_volume() -> None:
    memory = MemoryStore()
    estate = await build_store(memory)
    last, *_ = sorted(key for key in memory.objects if key.startswith("logs/main/entries/"))
    (large,) = [vid for vid, history in estate.history.items() if any(90 in pages for pages in history)]
    streams = {str(large): {"records": [msgspec.msgpack.encode({"k": "later", "vid": large.raw})]}}
    before = unseal(last, b"BWLE", memory.objects[last]).fields
    entry = resealed(memory.objects, last, streams=streams, total=before.data("prev_sum"), body_digest=b"")
    end = 32 + int.from_bytes(entry[16:20], "little")
    header = entry[32:end]
    second = Store({**memory.objects, last: seal(b"BWLE", header)})
    for vid in second.volumes:
        if vid == large.raw:
            with pytest.raises(TooNew, match="later"):
                second.volume(vid)
        else:
            assert second.volume(vid).head == len(estate.history[VolumeId(vid)]) - 1


def soon(patched: pytest.MonkeyPatch) -> None:
    """Rollups are due after every other entry, whatever they cost."""
    patched.setattr(rollups, "FEWEST", 2)
    patched.setattr(rollups, "A_NODE", 0)


async def roll_up(store: MemoryStore, estate: Estate, vid: VolumeId) -> None:
    """Commit until an entry of `main` names a rollup of everything that stood before."""
    async with Node.open(store, name="main", address="http://rolling") as node:
        wanted = (await node.logs.get("main")).reader.chain.next - 1
        last = max(estate.history[vid][-1], default=1)
        with anyio.fail_after(LIMIT_SECONDS):
            while _named(store.objects) < wanted:
                await estate.commit(node, vid, {1: fill("y"), last: fill("z")}, length=last, floor=last - 1)
        names = await node.logs.get(str(node.root.names_id))
        await names.rollup.write_newest()


def _named(objects: Mapping[str, bytes]) -> int:
    newest = min(key for key in objects if key.startswith("logs/main/entries/"))
    name = unseal(newest, b"BWLE", objects[newest]).fields.text("rollup", "")
    return slot_of_rollup(name) if name else -1


@pytest.fixture(scope="module")
def rolled() -> dict[str, bytes]:
    async def build(store: MemoryStore) -> None:
        estate = await build_store(store)
        large = max(estate.history, key=lambda vid: len(estate.history[vid][-1]))
        async with Node.open(store, name="main", address="http://busy") as node:
            for length in range(90, 71, -1):
                await estate.commit(node, large, {3: fill("w"), length: fill("x")}, length=length)
        await roll_up(store, estate, large)
        await reread(store.objects)

    memory = MemoryStore()
    with pytest.MonkeyPatch.context() as patched:
        soon(patched)
        anyio.run(build, memory)
    return memory.objects


def newest_rollup(objects: Mapping[str, bytes], log: str = "main") -> str:
    return max(key for key in objects if key.startswith(f"logs/{log}/rollups/"))


def raw_items(objects: Mapping[str, bytes], key: str) -> list[tuple[bytes, bytes]]:
    _, log, _, name = key.split("/", 3)
    tree = parse_rollup(log, name, objects[key]).tree
    assert tree is not None
    root = Pointer(tree.number, tree.digest, tree.size, tree.level, tree.first, tree.count, tree.setsum)
    return items_of(objects, nodes_folder(log), root, lambda _, at, value: weigh(at, value).digest)


def test_a_rollup_holds_everything_that_the_document_has(rolled: dict[str, bytes]) -> None:
    store, key = Store(rolled), newest_rollup(rolled)
    store.check()
    assert {at[16:17] for at in check_rollups(rolled, store.log("main"))[key]} == {b"s", b"c", b"r", b"k", b"f"}
    states = [decode(key, value, RolledState) for at, value in raw_items(rolled, key) if at[16:] == b"s"]
    assert any(len(state.stays) == 2 and state.stays[0].closed and state.stays[1].opened for state in states)
    assert any(stay.collected for state in states for stay in state.stays)
    names = store.log(base58(store.namespace))
    assert {at[16:17] for at in check_rollups(rolled, names)[newest_rollup(rolled, names.name)]} == {
        b"n",
        b"b",
        b"k",
        b"h",
    }


async def test_a_byte_of_a_rollup_that_is_another_is_told(rolled: dict[str, bytes]) -> None:
    keys = sorted(key for key in rolled if "/rollups/" in key or "/nodes/" in key)
    drawn, volumes = random.Random(9), Store(rolled).volumes
    ours = await told(rolled, volumes)
    for key in {newest_rollup(rolled), *drawn.sample(keys, 8)}:
        data = bytearray(rolled[key])
        data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
        damaged = {**rolled, key: bytes(data)}
        with pytest.raises((Damaged, TooNew)):
            Store(damaged).check()
        with suppress(BudwoodError):
            assert await told(damaged, volumes) == ours, key


Change = Callable[[dict[bytes, bytes]], None]


def changed(kind: str, struct: type[Any], **fields: Any) -> Change:
    """The first item of that kind says something else."""

    def change(items: dict[bytes, bytes]) -> None:
        at = next(at for at in sorted(items) if at[16:17] == kind.encode())
        items[at] = encode(msgspec.structs.replace(decode("", items[at], struct), **fields))

    return change


def left_out(kind: str) -> Change:
    def change(items: dict[bytes, bytes]) -> None:
        del items[next(at for at in sorted(items) if at[16:17] == kind.encode())]

    return change


def kept_raw(items: dict[bytes, bytes]) -> None:
    """All of the first stream, of which nothing stands then but its state."""
    first = min(items)[:16]
    for at in [at for at in items if at.startswith(first)]:
        del items[at]


SAYS_ELSE: dict[str, Change] = {
    "a commit less": left_out("c"),
    "a commit in another slot": changed("c", RolledCommit, slot=1),
    "a commit on another length": changed("c", RolledCommit, before=1),
    "a state less": left_out("s"),
    "another page size": changed("s", RolledState, page_size=1024),
    "a volume that is finished": changed("s", RolledState, finished=True),
    "a run less": left_out("r"),
    "a run of fewer pages": changed("r", RolledRun, pages=bytes(8)),
    "a run that cuts more": changed("r", RolledRun, floor=0),
    "a client less": left_out("k"),
    "a fork less": left_out("f"),
    "a stream less": kept_raw,
}


@pytest.mark.parametrize("what", sorted(SAYS_ELSE))
def test_a_rollup_that_says_something_else_than_its_log_is_told(what: str, rolled: dict[str, bytes]) -> None:
    key = newest_rollup(rolled)
    items = dict(raw_items(rolled, key))
    forged = forge(rolled, key, items)
    Store(forged).check()
    SAYS_ELSE[what](items)
    with pytest.raises(Damaged):
        Store(forge(rolled, key, items)).check()


def forge(objects: Mapping[str, bytes], key: str, items: dict[bytes, bytes]) -> dict[str, bytes]:
    """With another rollup of the same slot, of these items in one leaf, whose sums are right. What the tree lacks was
    collected, by its word."""
    rollup = parse_rollup("main", key.split("/", 3)[3], objects[key])
    live = Setsum.of_sums(weigh(at, value).digest for at, value in items.items())
    leaf = TreeNode(keys=tuple(sorted(items)), values=tuple(items[at] for at in sorted(items)))
    tree, data = seal_node(leaf, rollup.slot, live.digest)
    collected = (Setsum.of_sums([rollup.total]) - live).digest
    name, sealed = seal_rollup(msgspec.structs.replace(rollup, tree=tree, collected=collected))
    return {**objects, node_key(nodes_folder("main"), tree): data, rollup_key("main", name): sealed}


async def test_a_stream_that_stopped_is_kept_in_a_rollup_as_it_stands() -> None:
    memory = MemoryStore()
    estate = await build_store(memory)
    last, *_ = sorted(key for key in memory.objects if key.startswith("logs/main/entries/"))
    large = max(estate.history, key=lambda vid: len(estate.history[vid][-1]))
    record = msgspec.msgpack.encode({"k": "later", "vid": large.raw})
    before = unseal(last, b"BWLE", memory.objects[last]).fields
    entry = resealed(
        memory.objects,
        last,
        streams={str(large): {"records": [record]}},
        total=before.data("prev_sum"),
        body_digest=b"",
    )
    store = await copy_of(
        {**memory.objects, last: seal(b"BWLE", entry[32 : 32 + int.from_bytes(entry[16:20], "little")])}
    )
    estate.history[large].pop()
    with pytest.MonkeyPatch.context() as patched:
        soon(patched)
        await roll_up(store, estate, list(estate.history)[-1])
    second = Store(store.objects)
    items = check_rollups(store.objects, second.log("main"))[newest_rollup(store.objects)]
    stored = raw_items(store.objects, newest_rollup(store.objects))
    kept = [decode("", value, RolledPart) for at, value in stored if at[:17] == large.raw + b"p"]
    assert [each.part.records for each in kept] == [(record,)]
    assert large.raw + b"c" + (1).to_bytes(8, "big") in items


REFUSED_NAMES = {
    "a rollup that doesn't stand": "0" * 16 + "/" + "0" * 64,
    "no rollup at all": "first",
    "a rollup of a later slot": "f" * 16 + "/" + "0" * 64,
    "no rollup, after one": "",
}


@pytest.mark.parametrize("what", sorted(REFUSED_NAMES))
def test_what_an_entry_names_is_a_rollup_that_stands_and_never_an_older_one(
    what: str, rolled: dict[str, bytes]
) -> None:
    key = min(key for key in rolled if key.startswith("logs/main/entries/"))
    with pytest.raises(Damaged):
        Store({**rolled, key: resealed(rolled, key, features=2, rollup=REFUSED_NAMES[what])}).check()


def test_the_first_rollup_that_is_named_stands(rolled: dict[str, bytes]) -> None:
    keys = sorted((key for key in rolled if key.startswith("logs/main/entries/")), reverse=True)
    named = [unseal(key, b"BWLE", rolled[key]).fields.text("rollup", "") for key in keys]
    assert not named[0]
    assert named[-1]
    for name in {name for name in named if name}:
        with pytest.raises(Damaged, match="missing"):
            Store({key: data for key, data in rolled.items() if key != rollup_key("main", name)}).check()

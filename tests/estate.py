"""A small store and a home in which every kind of object, record and row stands: for tests of the formats.

The store: a shared log that was owned twice, with a void entry; volumes that shrank and grew again, that came in
fragments, that were forked, moved and moved back, collected and pinned, and have policies; names that were bound, moved
and removed. The home: volumes that are held in part, changed and not pushed, forked, diverged, and of small and large
pages; names that no volume has.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from budwood.server.node import Node
from budwood.server.store.protocol import Store
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.namespace import Namespace
from budwood.testing.commits import commit_of
from budwood.volume.calls import (
    ADVANCE,
    CHANGE_NAME,
    CREATE,
    FORK,
    LOOKUP,
    MOVE_LOG,
    PIN,
    RENEW,
    RETAIN,
    RETAIN_DEFAULT,
    UNPIN,
    CreateRequest,
    ForkRequest,
    LookupRequest,
    MoveRequest,
    PinRequest,
    RenewRequest,
    RetainDefaultRequest,
    RetainRequest,
    SinceRequest,
    UnpinRequest,
)
from budwood.volume.entry import entry_key, parse_entry, seal_entry
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.pack import Packer
from budwood.volume.pageset import PageSet
from budwood.volume.protocols import Durability
from budwood.volume.retention_policy import EVERYTHING, RetentionPolicy
from budwood.volume.wire import NameRequest

from .namespaces import DIRECTORY, FILE, link

PAGE = 512
ANN = ClientId.new()

Pages = dict[int, bytes]


def fill(letter: str, size: int = PAGE) -> bytes:
    """A page that tells itself from any other, and packs badly."""
    return (letter.encode() * 7 + os.urandom(9)).ljust(size, letter.encode())


@dataclass
class Estate:
    """What the store holds."""

    history: dict[VolumeId, list[Pages]] = field(default_factory=dict[VolumeId, list[Pages]])
    """Of each volume: its pages by LSN, from 0."""
    names: dict[str, VolumeId] = field(default_factory=dict[str, VolumeId])

    async def born(self, node: Node) -> VolumeId:
        vid = VolumeId.new()
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        self.history[vid] = [{}]
        return vid

    async def commit(self, node: Node, vid: VolumeId, pages: Pages, *, length: int, floor: int | None = None) -> None:
        """In the entry itself. Lengths in pages."""
        history = self.history[vid]
        cut = length if floor is None else floor
        request = commit_of(
            vid, len(history) - 1, pages, client=ANN, page_size=PAGE, length=length * PAGE, floor=cut * PAGE
        )
        await node.commit(*request)
        history.append({page: data for page, data in history[-1].items() if page <= cut} | pages)

    async def commit_fragments(self, node: Node, vid: VolumeId, parts: list[Pages], *, length: int) -> None:
        """Where two hold the same page, the later one has the higher order."""
        pages: Pages = {}
        locations = [
            msgspec.structs.replace(await node.write_pages(vid, segment_of(vid, part)), order=order)
            for order, part in enumerate(parts)
        ]
        for part in parts:
            pages |= part
        history = self.history[vid]
        old = max(history[-1], default=0)
        request, _ = commit_of(
            vid,
            len(history) - 1,
            pages,
            client=ANN,
            page_size=PAGE,
            length=length * PAGE,
            floor=min(old, length) * PAGE,
            locations=tuple(locations),
        )
        await node.commit(request)
        history.append(history[-1] | pages)

    async def fork(self, node: Node, vid: VolumeId, lsn: int) -> VolumeId:
        child = VolumeId.new()
        await node.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=lsn))
        self.history[child] = self.history[vid][: lsn + 1]
        return child

    async def bind(self, node: Node, name: str, vid: VolumeId, **attributes: object) -> None:
        await node.ask(CHANGE_NAME, NameRequest(op="bind", name=name, target=vid.raw, attributes=attributes))
        self.names[name] = vid

    async def move_name(self, node: Node, old: str, new: str) -> None:
        """A directory that has no name of its own, or one name."""
        found = (await node.ask(LOOKUP, LookupRequest(old))).entry
        revision = found.revision if found else 0
        await node.ask(CHANGE_NAME, NameRequest(op="move", name=old, revision=revision, new=new))
        self.names = {
            new + name[len(old) :] if f"{name}/".startswith(f"{old}/") else name: vid
            for name, vid in self.names.items()
        }


def segment_of(vid: VolumeId, pages: Pages) -> bytes:
    packer = Packer(vid, 1, PAGE, pages.__getitem__)
    (packed,) = packer.segments(PageSet(), PageSet(pages))
    return packed.data


async def build_store(store: Store) -> Estate:
    estate = Estate()
    async with Node.open(store, name="main", address="http://old") as node:
        first = await estate.born(node)
        await estate.commit(node, first, {1: fill("a"), 2: fill("b"), 3: fill("c"), 4: bytes(PAGE)}, length=4, floor=0)
        await estate.commit(node, first, {1: fill("d")}, length=1)
        await estate.commit(node, first, {3: fill("e")}, length=3, floor=1)
        await estate.commit(node, first, {}, length=9, floor=3)
        large = await estate.born(node)
        await estate.commit_fragments(
            node, large, [{page: fill("f") for page in range(1, 80)}, {7: fill("g"), 90: fill("h")}], length=90
        )
        child = await estate.fork(node, first, 2)
        await estate.commit(node, child, {2: fill("i")}, length=2, floor=1)
        await estate.commit(node, child, {1: fill("j")}, length=2)
        grandchild = await estate.fork(node, child, 3)
        named = PinRequest(first.raw, pin=PinId.new().raw, lsn=1, seconds=0, kind="named", owner="a person")
        await node.ask(PIN, named)
        label = PinRequest(child.raw, lsn=3, seconds=0, kind="named", label="as it was")
        await node.ask(PIN, label)
        policy = RetentionPolicy(all_ms=86_400_000, daily_ms=10 * 86_400_000)
        await node.ask(RETAIN, RetainRequest(first.raw, policy=policy))
        await node.ask(RETAIN, RetainRequest(large.raw, policy=EVERYTHING))
        await node.ask(RETAIN_DEFAULT, RetainDefaultRequest(policy=policy))
        ended = await node.ask(PIN, PinRequest(first.raw, pin=PinId.new().raw, lsn=3, seconds=600))
        await node.ask(UNPIN, UnpinRequest(first.raw, pin=ended.id))
        kept = await node.ask(PIN, PinRequest(child.raw, pin=PinId.new().raw, lsn=4, seconds=600))
        await node.ask(RENEW, RenewRequest(child.raw, pin=kept.id, seconds=900))
        await estate.bind(node, "docs/a", first, mode=0o100644, size=9 * PAGE)
        await estate.bind(node, "docs/b", large, x={"deep": [1, "two", b"three", None, True]})
        await estate.bind(node, "child", child)
        await estate.bind(node, "gone", grandchild)
        await estate.move_name(node, "docs", "papers")
        await estate.move_name(node, "child", "kind")
        found = (await node.ask(LOOKUP, LookupRequest("gone"))).entry
        assert found is not None
        await node.ask(CHANGE_NAME, NameRequest(op="unbind", name="gone", revision=found.revision))
        del estate.names["gone"]
    async with Node.open(store, name="main", address="http://new") as node:
        await node.ask(MOVE_LOG, MoveRequest(first.raw, to="private"))
        await estate.commit(node, first, {2: fill("k")}, length=9)
        await node.ask(MOVE_LOG, MoveRequest(first.raw, to="main"))
        await estate.commit(node, first, {9: fill("l")}, length=9)
        await node.ask(MOVE_LOG, MoveRequest(child.raw, to="private"))
        await estate.commit(node, grandchild, {1: fill("m")}, length=1)
        await node.ask(ADVANCE, SinceRequest(first.raw, since=4))
        await node.retention.begin_collect(first)
        await node.retention.end_collect(first, 4)
        head = (await node.logs.get("main")).reader.chain.next - 1
    await leave_void(store, head)
    async with Node.open(store, name="main", address="http://newest") as node:
        await estate.commit(node, large, {1: fill("n")}, length=90)
    return estate


async def leave_void(store: Store, head: int) -> None:
    """What a deposed owner sends when it doesn't know yet: an entry of an epoch that is over."""
    last = parse_entry(entry_key("main", head), await store.get(entry_key("main", head)))
    stale = msgspec.structs.replace(last.header, i=head + 1, epoch=1, n=99)
    await store.create(entry_key("main", head + 1), seal_entry(stale))


def build_home(home: Path, url: str, estate: Estate) -> dict[str, Pages]:
    """What each of its volumes reads as; the home is closed."""
    with open_edge(home=home, remote=url) as edge:
        seen: dict[str, Pages] = {}
        held = edge.volume("papers/b")
        snapshot = held.snapshot()
        snapshot.read(7)
        snapshot.close()
        seen["papers/b"] = estate.history[estate.names["papers/b"]][-1]
        seen["papers/a"] = write(edge, "papers/a", estate.history[estate.names["papers/a"]][-1], 2, {5: fill("o")})
        edge.fork("papers/a", "mine")
        seen["mine"] = write(edge, "mine", seen["papers/a"], None, {2: fill("p")})
        seen["mine"] = write(edge, "mine", seen["mine"], None, {1: fill("q"), 2: fill("r")})
        edge.fork("kind", "kin")
        seen["kin"] = seen["kind"] = estate.history[estate.names["kind"]][-1]
        edge.create("large pages", page_size=4096)
        seen["large pages"] = write(edge, "large pages", {}, None, {1: fill("s", 4096), 3: fill("t", 4096)}, 4096)
        names = Namespace(edge)
        names.make_directory("empty", DIRECTORY)
        names.make_link("empty/link", link("../large pages"))
        names.make_file("/".join(["long" * 50] * 3), FILE)
        names.pull()
        return seen


def write(edge: Edge, name: str, before: Pages, cut: int | None, pages: Pages, size: int = PAGE) -> Pages:
    """Commits at the edge alone. `cut` is a length in pages."""
    writer = edge.volume(name).writer(page_size=size)
    if cut is not None:
        writer.truncate(cut * size)
    for page, data in pages.items():
        writer.write(page, data)
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()
    return {page: data for page, data in before.items() if cut is None or page <= cut} | pages

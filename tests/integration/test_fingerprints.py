"""Fingerprints: equal for the same bytes, however they came to be, and for no others; found without a page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budwood.server.node import Node
from budwood.server.pagestore import fingerprint
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    FINGERPRINT,
    FORK,
    CreateRequest,
    Fingerprint,
    ForkRequest,
    SinceRequest,
    SnapshotRequest,
)
from budwood.volume.errors import Forgotten
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.pageset import page_count
from budwood.volume.setsum import Setsum, item_hash

from ..rolling import hasty
from .cli import Command

pytestmark = pytest.mark.anyio

PAGE = 512
ANN = ClientId.new()

Pages = dict[int, bytes]


@pytest.fixture
def store() -> RiggedStore:
    return RiggedStore(MemoryStore())


@pytest.fixture
async def node(store: RiggedStore) -> AsyncIterator[Node]:
    async with Node.open(store, name="main", patience=hasty()) as node:
        yield node


def fill(number: int) -> bytes:
    return b"%8d" % number * (PAGE // 8)


class Kept:
    """A volume, and what it holds."""

    def __init__(self, node: Node, vid: VolumeId, pages: Pages | None = None, length: int = 0, head: int = 0) -> None:
        self.node, self.vid, self.pages, self.length, self.head = node, vid, dict(pages or {}), length, head

    @classmethod
    async def born(cls, node: Node) -> Kept:
        kept = cls(node, VolumeId.new())
        await node.ask(CREATE, CreateRequest(kept.vid.raw, page_size=PAGE))
        return kept

    async def write(self, wrote: Pages, length: int | None = None, *, apart: bool = False) -> None:
        """`length` in bytes."""
        length = max(self.length, max(wrote, default=0) * PAGE) if length is None else length
        floor = min(self.length, length)
        sizes = {"client": ANN, "page_size": PAGE, "length": length, "floor": floor}
        request, segment = commit_of(self.vid, self.head, wrote, **sizes)  # type: ignore[arg-type]
        if apart:
            location = await self.node.write_pages(self.vid, segment)
            request, segment = commit_of(self.vid, self.head, wrote, **sizes, locations=(location,))  # type: ignore[arg-type]
        self.head = (await self.node.commit(request, segment)).lsn
        left = page_count(floor, PAGE)
        self.pages = {page: data for page, data in self.pages.items() if page <= left} | wrote
        self.length = length

    async def fork(self) -> Kept:
        child = VolumeId.new()
        await self.node.ask(FORK, ForkRequest(self.vid.raw, child=child.raw, lsn=self.head))
        return Kept(self.node, child, self.pages, self.length, self.head)

    async def fold(self) -> None:
        await self.node.ask(ADVANCE, SinceRequest(self.vid.raw, since=self.head))
        assert await self.node.folder.fold(self.vid) is not None

    def expected(self) -> Setsum:
        """From the bytes."""
        items = list[bytes]()
        for page, data in self.pages.items():
            own = data[: max(0, self.length - (page - 1) * PAGE)].ljust(PAGE, b"\0")
            items += [item_hash(page, own)] if any(own) else []
        return Setsum.of(b"".join(items))

    async def found(self, node: Node | None = None) -> Fingerprint:
        return await (node or self.node).ask(FINGERPRINT, SnapshotRequest(self.vid.raw))

    async def check(self, *nodes: Node) -> Fingerprint:
        every = [await self.found(node) for node in nodes or (self.node,)]
        for found in every:
            assert (found.lsn, found.length, found.page_size) == (self.head, self.length, PAGE)
            assert found.content == self.expected().digest
        return every[-1]


async def test_the_same_bytes_by_another_history_are_equal(node: Node) -> None:
    at_once, bit_by_bit = await Kept.born(node), await Kept.born(node)
    await at_once.write({page: fill(page) for page in range(1, 20)})
    for page in range(1, 20):
        await bit_by_bit.write({page: fill(99)}, apart=page % 2 == 0)
    for page in range(19, 0, -1):
        await bit_by_bit.write({page: fill(page)})
    assert (await at_once.check()).word == (await bit_by_bit.check()).word


async def test_one_page_or_one_byte_of_length_that_is_another_differs(node: Node) -> None:
    one = await Kept.born(node)
    await one.write({page: fill(page) for page in range(1, 20)})
    word = (await one.check()).word
    for wrote, length in [
        ({7: fill(8)}, None),
        ({}, 20 * PAGE),
        ({}, 19 * PAGE - 1),
        ({7: fill(7), 20: fill(1)}, None),
    ]:
        other = await one.fork()
        assert (await other.check()).word == word, "a fork is what it was forked from"
        await other.write(wrote, length)
        assert (await other.check()).word != word
    swapped = await one.fork()
    await swapped.write({3: fill(4), 4: fill(3)})
    assert (await swapped.check()).word != word


async def test_zeros_count_as_nothing_whether_they_were_written_or_not(node: Node) -> None:
    written, never = await Kept.born(node), await Kept.born(node)
    await written.write({1: fill(1), 2: bytes(PAGE), 3: bytes(PAGE), 4: fill(4)}, 9 * PAGE)
    await written.write({9: bytes(PAGE)})
    await never.write({1: fill(1), 4: fill(4)}, 9 * PAGE)
    assert (await written.check()).word == (await never.check()).word


async def test_what_lies_behind_the_end_is_no_part_of_it(node: Node) -> None:
    one, two = await Kept.born(node), await Kept.born(node)
    await one.write({1: fill(1), 2: b"same".ljust(100, b".") + bytes([1]) * (PAGE - 100)}, PAGE + 100)
    await two.write({1: fill(1), 2: b"same".ljust(100, b".") + bytes([2]) * (PAGE - 100)}, PAGE + 100)
    assert (await one.check()).word == (await two.check()).word
    await one.write({3: fill(3)}, 3 * PAGE)
    await two.write({3: fill(3)}, 3 * PAGE)
    assert (await one.check()).word != (await two.check()).word


async def test_a_fold_changes_nothing(store: RiggedStore, node: Node) -> None:
    kept = await Kept.born(node)
    for number in range(30):
        await kept.write({number % 7 + 1: fill(number), 9: fill(-number)}, apart=number % 3 == 0)
    before = await kept.check()
    await kept.fold()
    async with Node.open(store, patience=hasty()) as fresh:
        assert (await kept.check(fresh)).word == before.word
    await kept.write({2: fill(77)})
    assert (await kept.check()).word != before.word


async def test_no_page_is_read_and_the_next_goes_on_from_the_last(
    store: RiggedStore, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = await Kept.born(node)
    await kept.write({page: bytes([page % 251 + 1]) * PAGE for page in range(1, 3000)}, apart=True)
    async with Node.open(store, patience=hasty()) as fresh:
        read = list[int]()

        def counted(key: str, volume: object, hashes: bytes, wanted: object, page_size: int) -> Setsum:
            read.append(len(wanted))  # type: ignore[arg-type]
            return summed(key, volume, hashes, wanted, page_size)  # type: ignore[arg-type]

        summed = fingerprint.sum_of
        monkeypatch.setattr(fingerprint, "sum_of", counted)

        def never(*_: object) -> None:
            raise AssertionError("a page was unpacked")

        monkeypatch.setattr(fingerprint, "unpack_frame", never)
        await kept.check(fresh)
        assert sum(read) == 2999
        read.clear()
        await kept.check(fresh)
        assert not read
        await kept.write({5: fill(5), 3001: fill(1)}, 3001 * PAGE)
        await kept.check(fresh)
        assert sum(read) == 3, "page 5 as it was and as it is, and the new one"


async def test_any_lsn_that_can_be_read_has_one(node: Node) -> None:
    kept = await Kept.born(node)
    sums = {0: Setsum()}
    for number in range(12):
        await kept.write({number % 5 + 1: fill(number)})
        sums[kept.head] = kept.expected()
    for lsn in (12, 3, 7, 8, 1):
        found = await node.ask(FINGERPRINT, SnapshotRequest(kept.vid.raw, lsn=lsn))
        assert (found.lsn, found.content) == (lsn, sums[lsn].digest)
    await kept.fold()
    with pytest.raises(Forgotten):
        await node.ask(FINGERPRINT, SnapshotRequest(kept.vid.raw, lsn=3))


Step = tuple[str, int, int, bool]
steps = st.lists(
    st.tuples(st.sampled_from(["write", "write", "zero", "cut", "fold", "look", "fork"]), st.integers(1, 12),
              st.integers(0, 12 * PAGE), st.booleans()),
    max_size=25,
)  # fmt: skip


@given(steps)
@settings(max_examples=40)
async def test_it_is_what_the_bytes_come_to_whatever_was_done(taken: list[Step]) -> None:
    store = RiggedStore(MemoryStore())
    async with Node.open(store, name="main", patience=hasty()) as node, Node.open(store, patience=hasty()) as other:
        kept = await Kept.born(node)
        for number, (what, page, length, apart) in enumerate(taken):
            if what in {"write", "zero"}:
                data = fill(number) if what == "write" else bytes(PAGE)
                await kept.write({page: data, (page + 3) % 12 + 1: data}, apart=apart)
            elif what == "cut":
                await kept.write({}, length)
            elif what == "fork":
                kept = await kept.fork()
            elif what == "fold" and kept.head > 1:
                await node.ask(ADVANCE, SinceRequest(kept.vid.raw, since=kept.head))
                await node.folder.fold(kept.vid)
            elif what == "look":
                await kept.check(other)
        await kept.check(node, other)
        async with Node.open(store, patience=hasty()) as fresh:
            await kept.check(fresh)
            assert await pages_at(fresh, kept.vid) == {
                page: data for page, data in kept.pages.items() if any(data) and (page - 1) * PAGE < kept.length
            }


def test_two_stores_are_compared_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = [Command(capsys, tmp_path / at, (tmp_path / f"store {at}").as_uri()) for at in ("a", "b")]
    one.sql_made("shop")
    one.ok("export", "shop", str(tmp_path / "shop.db"))
    one.ok("push", "shop")
    two.ok("import", str(tmp_path / "shop.db"), "shop")
    two.ok("push", "shop")
    against = (tmp_path / "store b").as_uri()
    said = one.ok("fingerprint", "shop", "--against", against)
    assert said.endswith("they hold the same\n")
    (row,) = json.loads(one.ok("fingerprint", "shop", "--json"))
    assert f"fingerprint  {row['fingerprint']}" in one.ok("fingerprint", "shop")
    assert len(row["fingerprint"]) == 64
    two.sql("shop", "INSERT INTO t VALUES (100, 'one more')")
    two.ok("push", "shop")
    told = one("fingerprint", "shop", "--against", against)
    assert (told.code, told.err) == (1, "")
    assert "they differ: other bytes" in told.out
    assert one.ok("fingerprint", "shop", "--against", f"{against}#shop", "--against-lsn", "1").endswith("the same\n")
    rows = json.loads(one("fingerprint", "shop", "--json", "--against", against).out)
    assert len({row["fingerprint"] for row in rows}) == 2
    assert "has no volume 'none'" in one("fingerprint", "shop", "--against", f"{against}#none").line()
    assert "give --against URL too" in one("fingerprint", "shop", "--against-lsn", "1").line(2)
    assert "give an LSN or a time" in one("fingerprint", "shop", "--lsn", "1", "--at", "2026-01-01").line(2)
    assert "there is no volume 'none'" in one("fingerprint", "none").line()

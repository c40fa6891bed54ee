"""Sums that mean something: what a log says that it added is computed from item hashes, and these are the pages'
(S4.6, S4.24; DESIGN §8)."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.reread import reread
from tests.served import client, serving

from budwood.server.log.submission import Admission
from budwood.server.metastore.entry_draft import Change, Drafted, EntryDraft
from budwood.server.metastore.open_stream import OpenStream
from budwood.server.node import Node
from budwood.server.pagestore import write_segment
from budwood.testing.commits import altered, commit_of
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import CREATE, SNAPSHOT, CreateRequest, SnapshotRequest
from budwood.volume.entry import EntryHeader, Fragment, parse_entry
from budwood.volume.errors import BadInput
from budwood.volume.frame import pack_frame
from budwood.volume.ids import ClientId, SegmentId, VolumeId
from budwood.volume.protocols import Remote
from budwood.volume.records import Commit, Location, Record
from budwood.volume.segment import SegmentIndex, SegmentWriter, parse_footer
from budwood.volume.setsum import Setsum, item_hash, log_sum
from budwood.volume.wire import CommitRequest

pytestmark = pytest.mark.anyio

CLIENT = ClientId.new()
PAGE = 512
LARGE = 3000
"""Pages that don't fit an entry."""


def some(count: int) -> dict[int, bytes]:
    return {index: os.urandom(PAGE) for index in range(1, count + 1)}


def commit(
    vid: VolumeId, base: int, pages: Mapping[int, bytes], *locations: Location, **fields: Any
) -> tuple[CommitRequest, bytes]:
    """One with other fields, and the token that belongs to them."""
    request, segment = commit_of(vid, base, pages, client=CLIENT, page_size=PAGE, locations=locations)
    return altered(request, **fields), segment


def summed(vid: VolumeId, lsn: int, pages: Mapping[int, bytes]) -> Setsum:
    return log_sum(vid.raw, lsn, pages, b"".join(item_hash(index, page) for index, page in pages.items()))


def with_a_wrong_hash(vid: VolumeId, pages: Mapping[int, bytes]) -> bytes:
    """A segment of which every checksum holds, and whose last page is another than its item hash says."""
    writer = SegmentWriter(SegmentId.new())
    for at in range(0, len(pages), 64):
        own = dict(list(pages.items())[at : at + 64])
        info, stored = pack_frame(list(own), own.values())
        hashes = [item_hash(index, page) for index, page in own.items()]
        if at + 64 >= len(pages):
            hashes[-1] = item_hash(9, b"another page")
        writer.add(vid, PAGE, info, stored, b"".join(hashes))
    return writer.finish()


@asynccontextmanager
async def over_http() -> AsyncGenerator[Remote]:
    async with serving(MemoryStore()) as address, client(address) as remote:
        yield remote


@asynccontextmanager
async def embedded() -> AsyncGenerator[Remote]:
    async with Node.open(MemoryStore()) as node:
        yield node


@pytest.mark.parametrize("reach", [over_http, embedded])
@pytest.mark.parametrize("count", [0, 1, LARGE])
@pytest.mark.parametrize("field", ["setsum", "content"])
async def test_a_clients_word_for_a_sum_is_computed_anew(reach: Any, count: int, field: str) -> None:
    """An all-zero setsum was accepted."""
    vid, pages = VolumeId.new(), some(count)
    async with reach() as remote:
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        honest, segment = commit(vid, 0, pages)
        said = {bytes(32), summed(VolumeId.new(), 1, pages).digest, summed(vid, 2, pages).digest, os.urandom(32)}
        for digest in said - {getattr(honest, field)}:
            with pytest.raises(BadInput, match=f"names (another|other) {field}"):
                await remote.commit(commit(vid, 0, pages, **{field: digest})[0], segment)
        if pages:
            written = await remote.write_pages(vid, segment)
            with pytest.raises(BadInput, match=f"names (another|other) {field}"):
                await remote.commit(commit(vid, 0, pages, written, **{field: bytes(32)})[0])
        assert (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 0
        assert (await remote.commit(honest, segment)).lsn == 1


@pytest.mark.parametrize("reach", [over_http, embedded])
@pytest.mark.parametrize("count", [1, 100])
async def test_a_page_that_its_item_hash_does_not_speak_of_is_refused(reach: Any, count: int) -> None:
    """Where pages travel in the entry; whoever unpacks a fragment compares its pages (DESIGN §8)."""
    vid, pages = VolumeId.new(), some(count)
    async with reach() as remote:
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        wrong = with_a_wrong_hash(vid, pages)
        index = SegmentIndex.of_segment("wrong", wrong)
        hashes = index.hashes("wrong", wrong)
        sums = {"content": Setsum.of(hashes).digest, "setsum": log_sum(vid.raw, 1, pages, hashes).digest}
        with pytest.raises(BadInput, match=f"page {count} does not match its item hash"):
            await remote.commit(commit(vid, 0, pages, **sums)[0], wrong)


@pytest.mark.parametrize("reach", [over_http, embedded])
@pytest.mark.parametrize("count", [1, 100, LARGE])
async def test_a_frame_that_is_not_what_the_index_says_is_refused(reach: Any, count: int) -> None:
    """A byte of it flipped; or it claims to be fewer pages than it has. Sent with the commit, and ahead of it."""
    vid, pages = VolumeId.new(), some(count)
    info, stored = pack_frame([1, 2], [b"a" * PAGE, b"b" * PAGE])
    writer = SegmentWriter(SegmentId.new())
    writer.add(vid, PAGE, msgspec.structs.replace(info, pages=(1,)), stored, item_hash(1, b"a" * PAGE))
    async with reach() as remote:
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        request, segment = commit(vid, 0, pages)
        flipped = bytearray(segment)
        flipped[count * PAGE // 2] ^= 1
        for wrong, words in ((bytes(flipped), "does not match its checksum"), (writer.finish(), "where 512 belong")):
            with pytest.raises(BadInput, match=words):
                await remote.commit(request, wrong)
            with pytest.raises(BadInput, match=words):
                await remote.write_pages(vid, wrong)


@pytest.mark.parametrize(("count", "page_size"), [(1, 512), (LARGE, 512), (400, 65536)])
async def test_what_takes_long_is_not_checked_by_the_loop(
    count: int, page_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor where many pages take little room in their segment."""
    loop, hashed, summed_pages = threading.get_ident(), list[int](), list[int]()

    def hashing(page: int, data: bytes) -> bytes:
        if threading.get_ident() == loop:
            hashed.append(len(data))
        return item_hash(page, data)

    def summing(vid: bytes, lsn: int, pages: Sequence[int], hashes: bytes) -> Setsum:
        if threading.get_ident() == loop:
            summed_pages.append(len(pages))
        return log_sum(vid, lsn, pages, hashes)

    vid = VolumeId.new()
    content = dict.fromkeys(range(1, count + 1), b"x" * page_size)
    request, segment = commit_of(vid, 0, content, client=CLIENT, page_size=page_size)
    monkeypatch.setattr(write_segment, "item_hash", hashing)
    monkeypatch.setattr("budwood.server.metastore.content.log_sum", summing)
    async with Node.open(MemoryStore()) as node:
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=page_size))
        await node.commit(request, segment)
    assert sum(hashed) <= 64 * 1024
    assert sum(summed_pages) <= 2000


def headers(store: MemoryStore, log: str) -> list[tuple[EntryHeader, bytes]]:
    """Of the log's entries, oldest first."""
    found = sorted((key for key in store.objects if key.startswith(f"logs/{log}/entries/")), reverse=True)
    return [(parse_entry(key, store.objects[key]).header, store.objects[key]) for key in found]


def added(header: EntryHeader) -> Setsum:
    return Setsum.of_sums([header.total]) - Setsum.of_sums([header.prev_sum])


def of_fragments(header: EntryHeader) -> Setsum:
    return sum((Setsum.of_sums([fragment.setsum]) for fragment in header.fragments), Setsum())


async def test_a_fragments_sum_is_of_what_the_entry_takes_from_it() -> None:
    store, vid = MemoryStore(), VolumeId.new()
    older, newer = some(9), {5: os.urandom(PAGE), 7: os.urandom(PAGE)}
    async with Node.open(store) as node:
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        low = await node.write_pages(vid, commit(vid, 0, older)[1])
        high = await node.write_pages(vid, commit(vid, 0, newer)[1])
        hidden = await node.write_pages(vid, commit(vid, 0, {5: bytes(PAGE)})[1])
        await node.commit(commit(vid, 0, older | newer, hidden, low, high)[0])
    ((_, _), (header, _)) = headers(store, str(vid))
    taken = {index: page for index, page in older.items() if index not in newer}
    assert [(fragment.key, fragment.setsum) for fragment in header.fragments] == [
        (low.object, summed(vid, 1, taken).digest),
        (high.object, summed(vid, 1, newer).digest),
    ]
    assert of_fragments(header) == added(header)
    await reread(store.objects)


async def test_the_fragments_and_the_inline_pages_of_an_entry_are_all_that_it_adds() -> None:
    store, vid = MemoryStore(), VolumeId.new()
    commits = [some(3) | {LARGE: os.urandom(PAGE)}, some(LARGE), some(64) | {LARGE: os.urandom(PAGE)}]
    async with Node.open(store) as node:
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        for base, pages in enumerate(commits):
            await node.commit(*commit(vid, base, pages))
    for lsn, (header, data) in enumerate(headers(store, str(vid))):
        body = Setsum()
        if header.body_digest:
            segment = data[-parse_footer("body", data).segment_size :]
            hashes = SegmentIndex.of_segment("body", segment).hashes("body", segment)
            body = log_sum(vid.raw, lsn, commits[lsn - 1], hashes)
        assert of_fragments(header) + body == added(header)
        assert (of_fragments(header) != Setsum()) == (lsn == 2)
    await reread(store.objects)


class _Stream(OpenStream[int]):
    def apply(self, state: int, record: Record) -> int:
        return state + 1

    def rebase(self) -> bool:
        raise AssertionError("nothing is rolled up here")


def test_two_commits_of_an_entry_that_take_from_one_fragment_are_both_in_its_sum() -> None:
    draft, vid = EntryDraft(0), VolumeId.new()
    stream = _Stream(vid, 0)
    record = Commit(
        vid=vid.raw, lsn=1, base=0, length=0, floor=0, pages=b"", client=b"", token=b"", nonce=b"", content=b"",
        setsum=bytes(32),
    )  # fmt: skip
    sums = [summed(vid, lsn, some(2)) for lsn in (1, 2)]
    for setsum in sums:
        fragment = Fragment(key="f", epoch=0, length=1, digest=b"d", setsum=setsum.digest)
        change = Change(stream, lambda state, now_ms: Drafted(record, None), fragments=(fragment,))
        assert draft.admit(change) is Admission.TAKEN
    (fragment,) = draft.finish().fragments
    assert fragment.setsum == (sums[0] + sums[1]).digest

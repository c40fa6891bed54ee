"""Commits for tests that talk to a Remote: what an edge would send, from a dict of pages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from ..remote.page_fetch import unpack_valid
from ..volume.calls import SNAPSHOT, SnapshotRequest
from ..volume.encryption import VolumeKeys
from ..volume.ids import ClientId, VolumeId
from ..volume.pack import Packer
from ..volume.pageset import PageSet, page_count, span
from ..volume.protocols import Remote
from ..volume.records import Location
from ..volume.wire import CommitRequest, with_token


def commit_of(
    vid: VolumeId,
    base: int,
    pages: Mapping[int, bytes],
    *,
    client: ClientId,
    page_size: int = 4096,
    length: int | None = None,
    floor: int | None = None,
    nonce: bytes | None = None,
    locations: tuple[Location, ...] = (),
    keys: VolumeKeys | None = None,
) -> tuple[CommitRequest, bytes]:
    """A request, and the segment that holds its pages (empty where `locations` name them, or there are none); with
    `keys` they are encrypted.

    `length` defaults to the end of the last page, `floor` to 0 for a first commit and to `length` for any other.
    """
    packer = Packer(vid, base + 1, page_size, pages.__getitem__, keys)
    segments = list(packer.segments(PageSet(), PageSet(pages), limit_bytes=64 * 1024 * 1024))
    assert len(segments) <= 1, "too many pages for one segment"
    length = max(pages, default=0) * page_size if length is None else length
    request = packer.request(
        PageSet(pages),
        client=client,
        length=length,
        floor=(length if base else 0) if floor is None else floor,
        nonce=os.urandom(16) if nonce is None else nonce,
        locations=locations,
    )
    return request, b"" if locations or not segments else segments[0].data


def altered(request: CommitRequest, **fields: Any) -> CommitRequest:
    """With other fields, and the token that belongs to them."""
    return with_token(msgspec.structs.replace(request, **fields))


async def pages_at(remote: Remote, vid: VolumeId, lsn: int = 0) -> dict[int, bytes]:
    """Every page of a snapshot that is not all zeros, read and checked as an edge would; `lsn` 0 is the newest."""
    snapshot = await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=lsn or None))
    wanted = span(1, page_count(snapshot.length, snapshot.page_size))
    pages: dict[int, bytes] = {}
    async with remote.read_pages(vid, lsn, wanted) as read:
        seen = PageSet(read.zeros)
        async for frame in read.frames():
            held = unpack_valid("a frame", frame, snapshot.page_size, snapshot.encryption)
            assert not seen.intersect(PageSet(held)), "a page came twice"
            seen.update(held)
            pages.update(held)
    assert wanted <= seen, f"pages {wanted - seen} are missing"
    return {page: data for page, data in pages.items() if page in wanted and any(data)}

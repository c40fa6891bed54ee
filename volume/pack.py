"""Pack: pages become segments, and the request of the commit that they are for (DESIGN §4, last paragraph; §6).

The pages named first (a B-tree's skeleton: page 1 and the interior pages) fill the first frames, so that a cold
reader gets them together; all others follow in ascending order. Memory: one segment at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final, NamedTuple

from .encryption import VolumeKeys
from .frame import join_encrypted, pack_frame, pages_per_frame
from .ids import ClientId, SegmentId, VolumeId
from .limits import MOST_SEGMENT_BYTES
from .pageset import PageSet, encode_pages
from .records import Location
from .rules import Offset
from .segment import SegmentWriter
from .setsum import Setsum, item_hash, log_sum
from .wire import CommitRequest, with_token

SEGMENT_BYTES: Final = 8 * 1024 * 1024
"""A segment is closed once it holds this many stored bytes."""
PLAIN_BYTES: Final = MOST_SEGMENT_BYTES // 2
"""Or so many bytes of pages, which may take next to none when they are packed."""


class Parcel(NamedTuple):
    """A commit, and the segment that goes along with it, if one does."""

    request: CommitRequest
    segment: bytes


class Packed(NamedTuple):
    data: bytes
    pages: PageSet


def inline_or_streamed(segments: Iterator[Packed], inline_bytes: int) -> tuple[bytes, Iterator[Packed]]:
    """A lone segment of at most `inline_bytes`, to go along with the commit; else all of them, to be sent before it."""
    begun = list(islice(segments, 2))
    if len(begun) == 1 and len(begun[0].data) <= inline_bytes:
        return begun[0].data, segments
    return b"", chain(begun, segments)


class Packer:
    """Packs one commit's pages, and encrypts them where there are `keys`. `content` and `setsum` are complete once
    `segments` is exhausted, and so is what `request` makes of them."""

    def __init__(
        self, vid: VolumeId, lsn: int, page_size: int, read: Callable[[int], bytes], keys: VolumeKeys | None = None
    ) -> None:
        self.vid = vid
        self.lsn = lsn
        self.page_size = page_size
        self.read = read
        self.content = Setsum()
        self.setsum = Setsum()
        self._cipher = keys.page_cipher() if keys is not None else None

    def segments(self, first: PageSet, rest: PageSet, *, limit_bytes: int = SEGMENT_BYTES) -> Iterator[Packed]:
        """The segments, one at a time. `first` and `rest` have no page in common."""
        writer, held = SegmentWriter(SegmentId.new()), PageSet()
        for pages, skeleton in ((first, True), (rest, False)):
            remaining = iter(pages)
            while batch := list(islice(remaining, pages_per_frame(self.page_size))):
                self._add(writer, batch, skeleton)
                held.update(batch)
                if writer.size >= limit_bytes or len(held) * self.page_size >= PLAIN_BYTES:
                    yield Packed(writer.finish(), held)
                    writer, held = SegmentWriter(SegmentId.new()), PageSet()
        if held:
            yield Packed(writer.finish(), held)

    def note(self, pages: PageSet) -> None:
        """These were packed before, by another, and count in what the commit says of all of its pages."""
        remaining = iter(pages)
        while batch := list(islice(remaining, pages_per_frame(self.page_size))):
            self._count(batch, list(map(self.read, batch)))

    def request(
        self,
        pages: PageSet,
        *,
        client: ClientId,
        length: int,
        floor: int,
        nonce: bytes,
        locations: tuple[Location, ...] = (),
        base_time: int = 0,
        writer_epoch: int = 0,
        sources: tuple[Offset, ...] = (),
    ) -> CommitRequest:
        """The commit of these pages. `locations` are what write_pages answered; none where they go along with it.

        `length` and `floor` are in bytes, `base_time` in milliseconds since the Unix epoch: see CommitRequest.
        """
        request = CommitRequest(
            vid=self.vid.raw,
            base=self.lsn - 1,
            length=length,
            floor=floor,
            pages=encode_pages(pages),
            client=client.raw,
            nonce=nonce,
            content=self.content.digest,
            setsum=self.setsum.digest,
            token=b"",
            locations=locations,
            base_time=base_time,
            writer_epoch=writer_epoch,
            sources=sources,
        )
        return with_token(request)

    def _add(self, writer: SegmentWriter, batch: list[int], skeleton: bool) -> None:
        pages = list(map(self.read, batch))
        hashes = self._count(batch, pages)
        if self._cipher is None:
            info, stored = pack_frame(batch, pages)
        else:
            encrypt = self._cipher.encrypt
            encrypted = [encrypt(page, data, skeleton=skeleton) for page, data in zip(batch, pages, strict=True)]
            info, stored = join_encrypted(batch, encrypted)
        writer.add(self.vid, self.page_size, info, stored, hashes)

    def _count(self, batch: list[int], pages: list[bytes]) -> bytes:
        """Their hashes, which are counted."""
        if self._cipher is None:
            hashes = b"".join(map(item_hash, batch, pages))
        else:
            hash_of = self._cipher.keys.item_hash
            hashes = b"".join(hash_of(self.lsn, page, data) for page, data in zip(batch, pages, strict=True))
        self.content += Setsum.of(hashes)
        self.setsum += log_sum(self.vid.raw, self.lsn, batch, hashes)
        return hashes

"""Content: what a commit brings along is what it says (DESIGN §4, §5, §8; S2.21, S2.22, S4.24).

Admission trusts nobody: the token is computed anew; so are the content and the setsum, from the pages' item hashes; and
the page set must be the one that lies in the segment or the fragments. Pages are not unpacked here: the pagestore has
checked inline ones against their item hashes when they came.

Where fragments of one commit hold the same page, the one of the highest order wins, of equals the later one, and the
locations that are recorded are disjoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...volume.entry import Fragment, digest_of
from ...volume.errors import BadInput, Corrupt
from ...volume.ids import ClientId, VolumeId
from ...volume.limits import MOST_BINDINGS_BYTES, MOST_LOCATIONS, MOST_NONCE_BYTES
from ...volume.pageset import PageSet, decode_pages, encode_pages, page_count
from ...volume.records import Location
from ...volume.rules import check_offsets
from ...volume.segment import SegmentIndex
from ...volume.setsum import HASH_SIZE, Setsum, log_sum
from ...volume.wire import CommitRequest, token_of

_LAST_PAGE: Final = 2**32 - 1
_PAGE_SET_BYTES: Final = 64
_BYTES_A_PAGE: Final = 20
"""What a page set takes at most, whoever packed it: a container of its own for each page, and a run."""
_U32: Final = range(1 << 32)
_U64: Final = range(1 << 64)


@dataclass(frozen=True, slots=True)
class Checked:
    """A segment of one volume alone, found whole (pagestore/write_segment.py)."""

    index: SegmentIndex
    data: bytes
    hashes: bytes
    """Its pages' item hashes, in the order of the index."""


@dataclass(frozen=True, slots=True)
class Content:
    """A commit's pages, checked: in a segment of its own, in fragments, or none."""

    inline: Checked | None = None
    locations: tuple[Location, ...] = ()
    fragments: tuple[Fragment, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """A durable fragment of one volume, as far as a commit that names it must know it."""

    key: str
    vid: VolumeId
    size: int
    digest: bytes
    pages: PageSet
    ordered: tuple[int, ...]
    """The pages in the order of their item hashes."""
    hashes: bytes

    @classmethod
    def of(cls, key: str, segment: Checked) -> Written:
        (volume,) = segment.index.volumes
        ordered = tuple(page for frame in volume.frames for page in frame.info.pages)
        size, digest = len(segment.data), digest_of(segment.data)
        return cls(key, volume.vid, size, digest, volume.pages, ordered, segment.hashes)

    def items(self, pages: PageSet) -> tuple[Sequence[int], bytes]:
        """Some of its pages, and their item hashes back to back."""
        if pages == self.pages:
            return self.ordered, self.hashes
        places = [(page, at * HASH_SIZE) for at, page in enumerate(self.ordered) if page in pages]
        return [page for page, _ in places], b"".join(self.hashes[at : at + HASH_SIZE] for _, at in places)


def check_request(request: CommitRequest, page_size: int) -> PageSet:
    """The request's page set. Raises BadInput on a request that doesn't agree with itself."""
    name = VolumeId(request.vid)
    # JSON has numbers of any size. One that no record can hold must be met here, since the writer encodes the records
    # of many clients together; and a length with more pages than there are indexes can't be looked through.
    if request.base not in _U64 or not 0 <= request.floor <= request.length:
        raise BadInput(f"a commit to volume {name} has a base or a floor out of range")
    if page_count(request.length, page_size) > _LAST_PAGE:
        raise BadInput(f"a commit to volume {name} makes it longer than {_LAST_PAGE} pages")
    if request.writer_epoch not in _U64 or any(location.order not in _U32 for location in request.locations):
        raise BadInput(f"a commit to volume {name} has a writer epoch, or a location's order, out of range")
    check_offsets(request.sources)
    if request.token != token_of(request):
        raise BadInput(f"a commit to volume {name} carries a token that is not its own: it was damaged on the way")
    ClientId(request.client)
    if len(request.bindings) > MOST_BINDINGS_BYTES:
        raise BadInput(f"a commit's bindings have at most {MOST_BINDINGS_BYTES} bytes")
    if len(request.nonce) > MOST_NONCE_BYTES:
        raise BadInput(f"a commit's nonce has at most {MOST_NONCE_BYTES} bytes")
    if len(request.locations) > MOST_LOCATIONS:
        raise BadInput(f"a commit names at most {MOST_LOCATIONS:,} locations: send larger segments")
    if len({location.object for location in request.locations}) != len(request.locations):
        raise BadInput(f"a commit to volume {name} names a location twice")
    try:
        pages = decode_pages("the commit", request.pages)
    except Corrupt as error:
        raise BadInput(f"a commit to volume {name} carries no page set: {error}") from error
    if len(request.pages) > _PAGE_SET_BYTES + _BYTES_A_PAGE * len(pages):
        raise BadInput(f"a commit to volume {name} carries bytes behind its page set")
    if pages and pages.max() > page_count(request.length, page_size):
        raise BadInput(f"a commit to volume {name} brings page {pages.max()}, which lies beyond its length")
    return pages


def check_content(
    request: CommitRequest,
    pages: PageSet,
    locations: Sequence[Location],
    parts: Sequence[Written],
    epoch: int,
    inline: Checked | None = None,
) -> Content:
    """`parts` are what the locations name, in their order: fragments, or `inline` alone. Raises BadInput."""
    what = f"a commit to volume {VolumeId(request.vid)}"
    held, content, setsum = PageSet(), Setsum(), Setsum()
    taken: dict[int, tuple[PageSet, Setsum]] = {}
    for at in sorted(range(len(parts)), key=lambda at: (locations[at].order, at), reverse=True):
        own = parts[at].pages - held
        if own:
            ordered, hashes = parts[at].items(own)
            added = log_sum(request.vid, request.base + 1, ordered, hashes)
            taken[at] = own, added
            held |= own
            content += Setsum.of(hashes)
            setsum += added
    if held != pages:
        raise BadInput(f"{what} names other pages than it brings")
    if content.digest != request.content:
        raise BadInput(f"{what} names other content than it brings")
    if setsum.digest != request.setsum:
        raise BadInput(f"{what} names another setsum than that of the pages that it brings")
    if inline is not None:
        return Content(inline, tuple(locations))
    named = [(parts[at], locations[at].order, *taken[at]) for at in sorted(taken)]
    return Content(
        locations=tuple(
            Location(object=part.key, size=part.size, slot=0, order=order, pages=encode_pages(own))
            for part, order, own, _ in named
        ),
        fragments=tuple(
            Fragment(key=part.key, epoch=epoch, length=part.size, digest=part.digest, setsum=added.digest)
            for part, _, _, added in named
        ),
    )

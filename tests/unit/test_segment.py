"""Frames and segments: S2.1, S2.18, S2.22."""

import struct
import subprocess
import sys
from collections.abc import Iterator

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from budwood.volume.envelope import checksum
from budwood.volume.errors import BadInput, Corrupt, Unsupported
from budwood.volume.frame import Encoding, FrameInfo, pack_frame, pages_per_frame, unpack_frame
from budwood.volume.ids import SegmentId, VolumeId
from budwood.volume.pack import Packed, Packer
from budwood.volume.pageset import PageSet, span
from budwood.volume.segment import Footer, SegmentIndex, SegmentWriter, parse_footer
from budwood.volume.setsum import Setsum, item_hash, log_sum

from ..waits import LIMIT_SECONDS

VID = VolumeId.new(at_ms=1, noise=bytes(9))


def page(index: int, size: int = 512) -> bytes:
    return (b"%d," % index * size)[:size]


def read(data: bytes, vid: VolumeId, index: int) -> bytes:
    volume = next(v for v in SegmentIndex.of_segment("s", data).volumes if v.vid == vid)
    ordinal = volume.frame_of(index)
    assert ordinal is not None
    offset, info, _ = volume.frames[ordinal]
    return unpack_frame("s", info, data[offset : offset + info.length], volume.page_size)[info.pages.index(index)]


def packed(first: PageSet, rest: PageSet, limit: int = 1 << 20) -> Iterator[Packed]:
    return Packer(VID, 5, 512, page).segments(first, rest, limit_bytes=limit)


@given(st.sets(st.integers(1, 2**32 - 1), min_size=1, max_size=300), st.sets(st.integers(1, 2**32 - 1), max_size=20))
def test_every_page_is_found_and_no_other(rest: set[int], first: set[int]) -> None:
    segments = list(packed(PageSet(first), PageSet(rest - first), limit=2000))
    assert PageSet.union(*(s.pages for s in segments)) == PageSet(rest | first)
    for data, pages in segments:
        volume = SegmentIndex.of_segment("s", data).volumes[0]
        assert volume.pages == pages
        assert volume.frame_of(next(i for i in range(1, 2**32) if i not in pages)) is None
        for index in list(pages)[:5]:
            assert read(data, VID, index) == page(index)


def test_the_pages_named_first_share_the_first_frames() -> None:
    ((data, _),) = packed(PageSet([1, 70, 900]), span(2, 69) | span(71, 200))
    frames = SegmentIndex.of_segment("s", data).volumes[0].frames
    assert frames[0].info.pages == (1, 70, 900)
    assert frames[1].info.pages == tuple(range(2, 66))


def test_a_packer_sums_content_and_log_items() -> None:
    packer = Packer(VID, 5, 512, page)
    list(packer.segments(PageSet([1]), span(2, 100), limit_bytes=300))
    hashes = b"".join(item_hash(i, page(i)) for i in range(1, 101))
    assert packer.content == Setsum.of(hashes)
    assert packer.setsum == log_sum(VID.raw, 5, range(1, 101), hashes)


def test_segments_of_several_volumes_merge_as_stored() -> None:
    other = VolumeId.new()
    ((mine, _),) = packed(PageSet(), span(1, 100))
    ((theirs, _),) = Packer(other, 1, 4096, lambda i: page(i, 4096)).segments(PageSet(), span(90, 130))
    writer = SegmentWriter(SegmentId.new())
    for data in (mine, theirs):
        writer.merge(SegmentIndex.of_segment("s", data), data)
    merged = writer.finish()
    assert read(merged, VID, 95) == page(95)
    assert read(merged, other, 95) == page(95, 4096)
    index = SegmentIndex.of_segment("s", merged)
    assert [index.volumes[writer.slots[vid]].vid for vid in (VID, other)] == [VID, other]


def test_the_same_page_twice_is_refused() -> None:
    ((data, _),) = packed(PageSet(), span(1, 3))
    writer = SegmentWriter(SegmentId.new())
    writer.merge(SegmentIndex.of_segment("s", data), data)
    with pytest.raises(BadInput, match="page 1 of volume"):
        writer.merge(SegmentIndex.of_segment("s", data), data)


def test_more_pages_than_sixteen_bits_can_count() -> None:
    pages = span(1, 70_000)
    ((data, _),) = Packer(VID, 1, 512, lambda _: bytes(512)).segments(PageSet(), pages)
    assert SegmentIndex.of_segment("s", data).volumes[0].pages == pages
    assert len(data) < 70_000 * 40


def test_frames_hold_64_pages_at_most_and_fewer_large_ones() -> None:
    assert [pages_per_frame(size) for size in (512, 4096, 65536)] == [64, 64, 4]


@pytest.mark.parametrize("content", [bytes(512), b"a" * 512, bytes(range(256)) * 2])
def test_a_frame_comes_back(content: bytes) -> None:
    info, stored = pack_frame([3, 9], [content, content])
    assert unpack_frame("f", info, stored, 512) == [content, content]
    assert info.encoding == (Encoding.ZERO if content == bytes(512) else Encoding.ZSTD)


def test_a_frame_that_claims_a_bomb_is_refused_unread() -> None:
    info, stored = pack_frame(list(range(1, 65)), [b"a" * 65536] * 64)
    small = FrameInfo(info.encoding, info.length, info.checksum, (1,))
    with pytest.raises(Corrupt, match="holds 4194304 bytes where 512 belong"):
        unpack_frame("f", small, stored, 512)


def test_an_unknown_encoding_is_refused() -> None:
    info, stored = pack_frame([1], [b"a" * 512])
    with pytest.raises(Corrupt, match="unknown encoding 2"):
        unpack_frame("f", FrameInfo(Encoding.DICTIONARY, info.length, info.checksum, (1,)), stored, 512)


def test_a_newer_segment_is_refused_in_words() -> None:
    ((data, _),) = packed(PageSet(), span(1, 3))
    newer = bytearray(data)
    newer[-8] = 9
    with pytest.raises(Unsupported, match="upgrade"):
        parse_footer("s", bytes(newer))


SEGMENT = next(packed(PageSet([1]), span(2, 150))).data


@given(st.integers(0, len(SEGMENT) - 1), st.integers(1, 255))
def test_one_damaged_byte_is_corrupt_never_wrong(at: int, flip: int) -> None:
    damaged = bytearray(SEGMENT)
    damaged[at] ^= flip
    try:
        volume = SegmentIndex.of_segment("s", bytes(damaged)).volumes[0]
        for offset, info, _ in volume.frames:
            pages = unpack_frame("s", info, bytes(damaged[offset : offset + info.length]), 512)
            assert pages == [page(index) for index in info.pages]
    except (Corrupt, Unsupported):
        pass


@given(st.binary(max_size=200))
def test_garbage_is_no_segment(data: bytes) -> None:
    with pytest.raises((Corrupt, Unsupported)):
        SegmentIndex.of_segment("s", data + SEGMENT[-8:])


def test_a_frame_of_more_pages_than_any_has_is_refused_before_room_is_made_for_it() -> None:
    """A few bytes could else stand for gigabytes of zeros."""
    info = FrameInfo(Encoding.ZERO, 0, pack_frame([1], [bytes(512)])[0].checksum, tuple(range(1, 66)))
    with pytest.raises(Corrupt, match="65 pages"):
        unpack_frame("s", info, b"", 512)
    writer = SegmentWriter(SegmentId.new())
    writer.add(VID, 512, info, b"", bytes(32) * 65)
    with pytest.raises(Corrupt, match="out of range"):
        SegmentIndex.of_segment("s", writer.finish())


def test_an_index_of_volumes_without_pages_is_refused_before_they_are_made() -> None:
    data = SegmentWriter(SegmentId.new()).finish()
    footer = parse_footer("s", data)
    plain = zstandard.ZstdDecompressor().decompress(data[footer.index_offset :][: footer.index_size])
    empty = struct.pack("<16sIIII", VID.raw, 512, 0, 0, 0)
    bomb = zstandard.ZstdCompressor().compress(plain[:-16] + struct.pack("<IIII", 1000, 0, 0, 0) + 1000 * empty)
    footer = Footer(footer.index_offset, len(bomb), checksum(bomb))
    with pytest.raises(Corrupt, match="impossible size"):
        SegmentIndex.parse("s", footer, bomb)


def test_a_big_endian_machine_is_refused_in_words() -> None:
    """S2.32: what is written little-endian elsewhere would be read wrongly there."""
    code = """
import sys
sys.byteorder = "big"
try:
    import budwood.volume.segment
except Exception as error:
    print(f"{type(error).__name__}: {error}")
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.stdout.startswith("Unsupported: Budwood needs a little-endian machine"), done.stderr

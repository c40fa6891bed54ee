"""Pages on disk that workers share: what comes back is what was put, or nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from budwood.spark_export.source.disk import DiskPages
from budwood.volume.ids import VolumeId
from budwood.volume.pageset import PageSet, span
from budwood.volume.wire import SnapshotInfo

SIZE = 512
NOISE = random.Random(7)
PAGES = {index: NOISE.randbytes(SIZE) for index in range(1, 401)}
MUCH = 1 << 20


def view(lsn: int, vid: VolumeId | None = None) -> SnapshotInfo:
    return SnapshotInfo(vid=(vid or VolumeId(b"\x80" + bytes(15))).raw, lsn=lsn, length=400 * SIZE, page_size=SIZE)


def some(*indexes: int) -> dict[int, bytes]:
    return {index: PAGES[index] for index in indexes}


def test_what_one_worker_puts_another_gets_and_only_that(tmp_path: Path) -> None:
    one, other = DiskPages(tmp_path / "pages", MUCH), DiskPages(tmp_path / "pages", MUCH)
    assert other.get(view(1), span(1, 400)) == {}
    one.put(view(1), some(1, 2, 3, 9, 400))
    assert other.get(view(1), span(1, 400)) == some(1, 2, 3, 9, 400)
    assert other.get(view(1), PageSet((2, 5, 9))) == some(2, 9)
    other.put(view(1), some(5))
    assert one.get(view(1), PageSet((2, 5, 9))) == some(2, 5, 9)
    assert other.get(view(2), span(1, 400)) == {}
    assert other.get(view(1, VolumeId.new()), span(1, 400)) == {}
    one.close()
    other.close()


@pytest.mark.parametrize("suffix", [".pages", ".sums"])
def test_a_flipped_bit_a_torn_end_and_a_page_in_another_s_place_count_as_absent(tmp_path: Path, suffix: str) -> None:
    disk = DiskPages(tmp_path, MUCH)
    disk.put(view(1), some(1, 2, 3, 4))
    (path,) = tmp_path.glob(f"*{suffix}")
    unit = SIZE if suffix == ".pages" else 8
    data = bytearray(path.read_bytes())
    data[unit + 3] ^= 4
    path.write_bytes(data[: 3 * unit + unit // 2])
    assert disk.get(view(1), span(1, 4)) == some(1, 3)
    disk.put(view(1), some(2, 4))
    assert disk.get(view(1), span(1, 4)) == some(1, 2, 3, 4)
    data = bytearray(path.read_bytes())
    data[:unit], data[unit : 2 * unit] = data[unit : 2 * unit], data[:unit]
    path.write_bytes(data)
    assert disk.get(view(1), span(1, 4)) == some(3, 4)
    disk.close()


def test_a_page_and_its_sum_swapped_with_another_s_are_not_believed(tmp_path: Path) -> None:
    disk = DiskPages(tmp_path, MUCH)
    disk.put(view(1), some(1, 2))
    for path, unit in (
        *((path, SIZE) for path in tmp_path.glob("*.pages")),
        *((p, 8) for p in tmp_path.glob("*.sums")),
    ):
        data = path.read_bytes()
        path.write_bytes(data[unit : 2 * unit] + data[:unit])
    assert disk.get(view(1), span(1, 2)) == {}
    disk.close()


def test_it_stays_within_its_limit_and_forgets_the_longest_unused_snapshot_first(tmp_path: Path) -> None:
    limit = 64 * 1024
    one, other = DiskPages(tmp_path, limit), DiskPages(tmp_path, limit)
    for lsn in range(1, 30):
        (one if lsn % 2 else other).put(view(lsn), some(*range(1, 17)))
        taken = sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir())
        assert taken <= limit * 5 // 4, lsn
    assert one.get(view(1), span(1, 400)) == {}
    assert one.get(view(29), span(1, 16)) == some(*range(1, 17))
    one.put(view(29), some(*range(100, 200)))
    assert one.get(view(29), span(100, 400)) == {}
    # What another has removed is not written to for nobody.
    for path in tmp_path.iterdir():
        path.unlink()
    one.put(view(29), some(7))
    assert other.get(view(29), span(1, 400)) == some(7)
    one.close()
    other.close()


def test_where_it_can_t_write_it_keeps_nothing_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    disk = DiskPages(tmp_path / "taken", MUCH)
    disk.put(view(1), some(1))
    assert disk.get(view(1), span(1, 4)) == {}
    disk.close()

"""Pages that belong to no tree: what the free list says, also where it is damaged, and where pointer maps lie."""

from __future__ import annotations

import struct
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from budwood.spark_export.source.storage import owned
from budwood.sqlite.freelist import trunk
from budwood.sqlite.header import Header, parse_header
from budwood.sqlite.pointer_map import lock_page, pointer_map_pages
from budwood.volume.errors import Corrupt
from budwood.volume.pageset import PageSet

from ..images import ImagePages


def test_a_trunk_tells_its_leaves_and_the_next() -> None:
    page = struct.pack(">5I", 9, 3, 4, 5, 6).ljust(512, b"\xff")
    assert trunk(page, 2, 512) == (9, (4, 5, 6))
    with pytest.raises(Corrupt, match="page 2 of its free list can't hold 127 numbers"):
        trunk(struct.pack(">2I", 0, 127).ljust(512, b"\0"), 2, 512)
    assert len(trunk(struct.pack(">2I", 0, 126).ljust(512, b"\0"), 2, 512)[1]) == 126


def image_with_free_pages(tmp_path: Path) -> bytes:
    path = tmp_path / "made.db"
    with closing(apsw.Connection(str(path))) as db:
        db.execute("PRAGMA page_size = 512; CREATE TABLE t(x); INSERT INTO t VALUES (zeroblob(200000)); DELETE FROM t")
    return path.read_bytes()


def test_a_free_list_that_comes_back_to_itself_is_damage(tmp_path: Path) -> None:
    image = bytearray(image_with_free_pages(tmp_path))
    (free,) = [each.pages for each in owned(ImagePages(bytes(image))) if each.part == "free"]
    assert len(free) == int.from_bytes(image[36:40], "big") > 126, "more than one trunk"
    head = int.from_bytes(image[32:36], "big")
    image[(head - 1) * 512 : (head - 1) * 512 + 4] = head.to_bytes(4, "big")
    with pytest.raises(Corrupt, match=r"comes to page \d+ twice"):
        list(owned(ImagePages(bytes(image))))
    image[(head - 1) * 512 : (head - 1) * 512 + 4] = (1 << 20).to_bytes(4, "big")
    with pytest.raises(Corrupt, match="names page 1048576"):
        list(owned(ImagePages(bytes(image))))


def header_of(page_size: int, tmp_path: Path) -> Header:
    path = tmp_path / f"{page_size}.db"
    with closing(apsw.Connection(str(path))) as db:
        db.execute(f"PRAGMA page_size = {page_size}; PRAGMA auto_vacuum = FULL; CREATE TABLE t(x)")
    return parse_header(path.read_bytes()[:100])


def test_a_pointer_map_gives_way_to_the_lock_page(tmp_path: Path) -> None:
    """Of all page sizes it is 1024 alone whose map would lie where the lock does."""
    every, header = 65536 // 5 + 1, header_of(65536, tmp_path)
    assert pointer_map_pages(header, 3 * every) == PageSet([2, 2 + every, 2 + 2 * every])
    assert pointer_map_pages(header, 1) == PageSet()
    lock = lock_page(1024)
    assert lock == 1048577
    found = pointer_map_pages(header_of(1024, tmp_path), lock + 300)
    assert lock not in found
    assert PageSet([lock + 1, lock + 205]) <= found

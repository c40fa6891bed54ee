"""Splits: runs of leaves, equal in bytes, found by interior pages alone; and the pages behind them."""

from __future__ import annotations

from collections.abc import Iterable

import apsw
import pytest
from tests.images import ImagePages

from budwood.sqlite.header import Header
from budwood.tables.general_engine import GeneralEngine
from budwood.tables.page_engine import PageEngine
from budwood.tables.page_source import PageSource, database
from budwood.tables.scan_plan import Engine, make_plan
from budwood.tables.schema import read_relation, read_schema
from budwood.tables.splits import Split, cut, splits
from budwood.tables.trees import walk
from budwood.volume.errors import BadInput, Corrupt


def keyed(rowids: Iterable[int], page_size: int = 512, width: int = 40) -> ImagePages:
    db = apsw.Connection(":memory:")
    db.execute(f"PRAGMA page_size = {page_size}")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT); CREATE TABLE k (a PRIMARY KEY) WITHOUT ROWID")
    with db:
        db.executemany("INSERT INTO t VALUES (?, ?)", ((rowid, "x" * (width + rowid % 7)) for rowid in rowids))
    return ImagePages(db.serialize("main"))


def opened(image: ImagePages) -> tuple[PageSource, Header, int]:
    source, header = database(image)
    return source, header, read_relation(source, read_schema(source, header), "t").root


def clustered() -> list[int]:
    """Bursts of neighbours, far apart: cutting the range of rowids evenly would leave most parts empty."""
    return [start + place for start in (0, 10**6, 10**6 + 5000, 10**15) for place in range(2500)]


@pytest.mark.parametrize("count", [2, 3, 8, 16])
def test_clustered_keys_are_cut_evenly_by_bytes_and_by_rows(count: int) -> None:
    source, header, root = opened(keyed(clustered()))
    made = splits(source, root, header, count=count)
    assert len(made) == count
    sizes = [split.size_bytes for split in made]
    assert max(sizes) / (sum(sizes) / count) <= 1.05
    rows = [sum(split.first <= rowid <= split.last for rowid in clustered()) for split in made]
    assert sum(rows) == len(clustered())
    assert max(rows) / (sum(rows) / count) <= 1.2


def test_splits_are_contiguous_cover_all_rowids_and_every_leaf_once() -> None:
    source, header, root = opened(keyed(clustered()))
    made = splits(source, root, header, count=7)
    assert (made[0].first, made[-1].last) == (-(1 << 63), (1 << 63) - 1)
    assert [split.first for split in made[1:]] == [split.last + 1 for split in made[:-1]]
    assert [leaf for split in made for leaf in split.leaves] == list(walk(source, root, header).leaves)
    assert [split.number for split in made] == list(range(7))


def test_interior_pages_alone_are_read_and_in_one_request_a_level() -> None:
    image = keyed(range(20_000))
    source, header, root = opened(image)
    tree = walk(source, root, header)
    image.asked.clear()
    made = splits(source, root, header, split_bytes=64 * 512)
    assert len(made) == -(-len(tree.leaves) // 64)
    asked = [page for request in image.asked for page in request]
    assert sorted(asked) == sorted([*tree.interior, tree.leaves[0]])
    assert len(image.asked) <= 4 + 1
    assert len(tree.leaves) > 20 * len(asked)


def test_a_range_of_rowids_leaves_other_leaves_out() -> None:
    source, header, root = opened(keyed(range(5000)))
    tree = walk(source, root, header)
    for low, high in [(100, 120), (-50, 7), (4990, 1 << 62), (2500, 2500), (-9, -5), (1 << 40, 1 << 41)]:
        made = cut(tree, 512, count=3, rowids=(low, high))
        met = {rowid for split in made for rowid in range(5000) if split.first <= rowid <= split.last}
        assert met == {rowid for rowid in range(5000) if low <= rowid <= high}
        assert sum(len(split.leaves) for split in made) <= (high - low) / 4 + 3 or high > 5000
    assert cut(tree, 512, rowids=(5, 4)) == []


def test_a_table_of_one_leaf_or_none_is_one_split() -> None:
    for rowids in ([], [5]):
        source, header, root = opened(keyed(rowids))
        (split,) = splits(source, root, header, count=8)
        assert split == Split(0, split.leaves, -(1 << 63), (1 << 63) - 1, 512)
        assert list(split.leaves) == [root]


def test_what_can_not_be_split_is_refused() -> None:
    source, header, root = opened(keyed(range(10)))
    with pytest.raises(BadInput, match="WITHOUT ROWID"):
        splits(source, root + 1, header)
    with pytest.raises(BadInput, match="at least 1"):
        splits(source, root, header, count=0)


def test_each_engine_reads_a_split_by_its_own_pages() -> None:
    image = keyed(clustered())
    source, header = database(image)
    schema = read_schema(source, header)
    relation = read_relation(source, schema, "t")
    tree = walk(source, relation.root, header)
    for split in splits(source, relation.root, header, count=8):
        image.asked.clear()
        by_pages = list(PageEngine(source, header, make_plan(schema, relation)).batches(split.leaves))
        assert set().union(*image.asked) == set(split.leaves)
        image.asked.clear()
        plan = make_plan(schema, relation, engine=Engine.GENERAL)
        by_sqlite = list(GeneralEngine(source, schema, plan).batches((split.first, split.last)))
        assert set().union(*image.asked) - set(tree.interior) - {tree.leaves[0]} <= {
            *split.leaves,
            tree.leaves[min(list(tree.leaves).index(split.leaves[-1]) + 1, len(tree.leaves) - 1)],
        }
        assert [row for b in by_pages for row in b.to_pylist()] == [row for b in by_sqlite for row in b.to_pylist()]


def test_a_tree_that_meets_itself_or_does_not_ascend_is_corrupt() -> None:
    image = keyed(range(3000))
    source, header, root = opened(image)
    tree = walk(source, root, header)
    spoiled = bytearray(image.image)
    page = tree.interior[-1]
    at = (page - 1) * 512
    first, second = (int.from_bytes(spoiled[at + 12 + 2 * cell : at + 14 + 2 * cell], "big") for cell in (0, 1))
    child = spoiled[at + first : at + first + 4]
    for wrong, words in [
        (child, "comes to a page twice"),
        (root.to_bytes(4, "big"), "comes to a page twice"),
        ((1 << 31).to_bytes(4, "big"), "comes to page 2147483648"),
    ]:
        spoiled[at + second : at + second + 4] = wrong
        broken, header = database(ImagePages(bytes(spoiled)))
        with pytest.raises(Corrupt, match=words):
            splits(broken, root, header)
    swapped = bytearray(image.image)
    swapped[at + 12 : at + 14], swapped[at + 14 : at + 16] = swapped[at + 14 : at + 16], swapped[at + 12 : at + 14]
    broken, header = database(ImagePages(bytes(swapped)))
    with pytest.raises(Corrupt, match="don't ascend"):
        splits(broken, root, header)


@pytest.mark.parametrize("volume_page_size", [512, 1024, 4096, 65536])
@pytest.mark.parametrize("page_size", [512, 4096, 8192])
def test_a_database_is_read_from_a_volume_of_any_page_size(volume_page_size: int, page_size: int) -> None:
    image = keyed(range(2000), page_size).image
    source, header = database(ImagePages(image, volume_page_size))
    assert (source.page_size, header.page_size) == (page_size, page_size)
    schema = read_schema(source, header)
    relation = read_relation(source, schema, "t")
    for engine in Engine:
        plan = make_plan(schema, relation, columns=["id"], engine=engine)
        if engine == Engine.PAGES:
            (split,) = splits(source, relation.root, header, count=1)
            batches = list(PageEngine(source, header, plan).batches(split.leaves))
        else:
            batches = list(GeneralEngine(source, schema, plan).batches())
        assert [row["id"] for batch in batches for row in batch.to_pylist()] == list(range(2000))

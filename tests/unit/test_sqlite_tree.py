"""Pages, records, chains and trees, against SQLite's own reading of the same: SELECT for rows, dbstat for pages."""

import random
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from budwood.sqlite.btree import cells, children, is_skeleton, parse_page
from budwood.sqlite.header import Header, parse_header
from budwood.sqlite.overflow import chain, chain_pages, gather
from budwood.sqlite.record import Value, decode_record
from budwood.sqlite.tree import entries, index_rows, table_rows
from budwood.volume.errors import Corrupt

PAGE_SIZES = [512 << shift for shift in range(8)]
SCHEMA = """
    CREATE TABLE plain (a, b, c, d);
    CREATE INDEX plain_ab ON plain (a, b);
    CREATE INDEX plain_d ON plain (d DESC) WHERE d IS NOT NULL;
    CREATE TABLE keyed (k TEXT, n INT, body, PRIMARY KEY (k, n)) WITHOUT ROWID;
    CREATE INDEX keyed_body ON keyed (body);
    CREATE TABLE empty (x);
    CREATE TABLE dropped (x);
"""


class Image:
    """A database's bytes, and SQLite's view of the same."""

    def __init__(self, data: bytes, connection: apsw.Connection) -> None:
        self.data = data
        self.connection = connection
        self.header: Header = parse_header(data)
        self.roots: dict[str, int] = {
            str(values[1]): root
            for _, values in table_rows(self.page, 1, self.header)
            if isinstance(root := values[3], int)
        }

    def page(self, index: int) -> bytes:
        size = self.header.page_size
        assert 1 <= index <= len(self.data) // size
        return self.data[(index - 1) * size : index * size]


def awkward_values(seed: int, count: int) -> Iterator[tuple[Value, ...]]:
    """Every serial type, both ends of each integer size, texts and blobs from nothing to several pages."""
    rng = random.Random(seed)
    numbers = [sign * (1 << bits) - off for bits in (0, 7, 15, 23, 31, 47, 62) for sign in (1, -1) for off in (0, 1)]
    texts = ["", "x", "é" * 70, "日本語" * 40, "\U0001f331" * 33, "long " * 90]
    for i in range(count):
        long = rng.randbytes(rng.choice([0, 3, 40, 300, 700, 5000]))
        yield rng.choice(texts) + str(i), rng.choice([*numbers, None, 2**63 - 1, -(2**63)]), rng.random() * 1e9, long


@contextmanager
def build(path: Path, *pragmas: str, reserve: int = 0, rows: int = 400) -> Generator[Image]:
    connection = apsw.Connection(str(path))
    if reserve:
        connection.reserve_bytes("main", reserve)
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")
    with connection:
        connection.execute(SCHEMA)
        for i, (a, b, c, d) in enumerate(awkward_values(1, rows)):
            connection.execute(
                "INSERT INTO plain (rowid, a, b, c, d) VALUES (?, ?, ?, ?, ?)", (i * i - 500, a, b, c, d or None)
            )
        connection.executemany(
            "INSERT INTO keyed VALUES (?, ?, ?)", [(a, b or 0, d) for a, b, _, d in awkward_values(2, rows)]
        )
        connection.execute(
            "INSERT INTO plain (rowid, a) VALUES (9223372036854775807, 1e300), (-9223372036854775808, x'00')"
        )
        connection.executemany("INSERT INTO dropped VALUES (?)", [(b"\2\5" * 400,) for _ in range(20)])
    connection.execute("DROP TABLE dropped; DELETE FROM plain WHERE rowid % 7 = 3")
    try:
        yield Image(path.read_bytes(), connection)
    finally:
        connection.close()


KINDS = [
    pytest.param((), 0, id="plain"),
    pytest.param(("encoding='UTF-16le'",), 0, id="utf-16-le"),
    pytest.param(("encoding='UTF-16be'", "auto_vacuum=1"), 0, id="utf-16-be-auto-vacuum"),
    pytest.param(("auto_vacuum=2",), 24, id="reserved-bytes"),
]


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize(("pragmas", "reserve"), KINDS)
def test_the_rows_of_every_tree_are_those_of_select(
    tmp_path: Path, page_size: int, pragmas: tuple[str, ...], reserve: int
) -> None:
    with build(tmp_path / "db", f"page_size={page_size}", *pragmas, reserve=reserve) as image:
        select = image.connection.execute
        assert list(table_rows(image.page, image.roots["plain"], image.header)) == [
            (rowid, tuple(rest)) for rowid, *rest in select("SELECT rowid, a, b, c, d FROM plain ORDER BY rowid")
        ]
        assert list(index_rows(image.page, image.roots["keyed"], image.header)) == list(
            select("SELECT k, n, body FROM keyed ORDER BY k, n")
        )
        assert list(index_rows(image.page, image.roots["plain_ab"], image.header)) == list(
            select("SELECT a, b, rowid FROM plain ORDER BY a, b, rowid")
        )
        assert list(index_rows(image.page, image.roots["plain_d"], image.header)) == list(
            select("SELECT d, rowid FROM plain WHERE d IS NOT NULL ORDER BY d DESC, rowid")
        )
        assert list(index_rows(image.page, image.roots["keyed_body"], image.header)) == list(
            select("SELECT body, k, n FROM keyed ORDER BY body, k, n")
        )
        assert list(table_rows(image.page, image.roots["empty"], image.header)) == []
        schema = [values for _, values in table_rows(image.page, 1, image.header)]
        assert schema == list(select("SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema ORDER BY rowid"))


@pytest.mark.parametrize("page_size", [512, 4096])
def test_pages_are_what_dbstat_says(tmp_path: Path, page_size: int) -> None:
    with build(tmp_path / "db", f"page_size={page_size}") as image:
        kinds: dict[int, tuple[str, int]] = {}
        tops: dict[int, list[tuple[str, int]]] = {}
        paths: dict[tuple[str, str], int] = {}
        for name, path, index, kind, count in image.connection.execute(
            "SELECT name, path, pageno, pagetype, ncell FROM dbstat"
        ):
            assert isinstance(index, int)
            kinds[index] = (str(kind), int(str(count)))
            paths[(str(name), str(path))] = index
        for (name, path), index in paths.items():
            parent = path.rstrip("/").rpartition("/")[0] + "/"
            if path != "/" and "+" not in path:
                tops.setdefault(paths[(name, parent)], []).append((path, index))
        assert {kind for kind, _ in kinds.values()} == {"internal", "leaf", "overflow"}
        for index, (kind, count) in kinds.items():
            page = image.page(index)
            if kind == "overflow":
                continue
            assert parse_page(page, index).kind.interior == (kind == "internal")
            assert is_skeleton(page, index) == (kind == "internal" or index == 1)
            assert len(parse_page(page, index).offsets) == count
            assert children(page, index) == [child for _, child in sorted(tops.get(index, []))]


def test_chains_hold_all_overflow_pages_and_each_once(tmp_path: Path) -> None:
    with build(tmp_path / "db", "page_size=512", "auto_vacuum=1") as image:
        usable = image.header.usable_bytes
        met: list[int] = []
        for root in (1, *image.roots.values()):
            if root == 0:
                continue
            for _, cell in entries(image.page, root, usable):
                rest = cell.payload_bytes - len(cell.local)
                pages = list(chain(image.page, cell.overflow, rest, usable))
                assert len(pages) == chain_pages(rest, usable)
                assert sum(len(content) for _, content in pages) == rest
                met += [index for index, _ in pages]
        expected = [row[0] for row in image.connection.execute("SELECT pageno FROM dbstat WHERE pagetype = 'overflow'")]
        assert sorted(met) == sorted(expected)
        assert len(met) > 1000


def test_a_chain_that_ends_early_or_meets_itself_is_corrupt() -> None:
    pages = {2: (3).to_bytes(4, "big") + bytes(508), 3: (2).to_bytes(4, "big") + bytes(508), 4: bytes(512)}
    with pytest.raises(Corrupt, match="comes back to itself"):
        gather(pages.__getitem__, b"", 2, 5000, 512)
    with pytest.raises(Corrupt, match="ends early"):
        gather(pages.__getitem__, b"", 4, 509, 512)
    with pytest.raises(Corrupt, match="ends early"):
        gather(pages.__getitem__, b"", 0, 1, 512)
    with pytest.raises(Corrupt, match="has 100 bytes"):
        gather(lambda _: bytes(100), b"", 9, 600, 512)
    assert gather(pages.__getitem__, b"ab", 2, 2, 512) == b"ab"
    assert gather(pages.__getitem__, b"ab", 2, 510, 512) == b"ab" + bytes(508)


def test_a_tree_that_meets_itself_or_mixes_kinds_is_corrupt(tmp_path: Path) -> None:
    with build(tmp_path / "db", "page_size=512") as image:
        root = image.roots["plain"]
        page = image.page(root)
        first = parse_page(page, root).offsets[0]
        child = children(page, root)[0]
        looped = page[:first] + root.to_bytes(4, "big") + page[first + 4 :]
        with pytest.raises(Corrupt, match="twice"):
            list(table_rows(lambda index: looped if index == root else image.page(index), root, image.header))
        second = parse_page(page, root).offsets[1]
        shared = page[:second] + child.to_bytes(4, "big") + page[second + 4 :]
        with pytest.raises(Corrupt, match="twice"):
            list(table_rows(lambda index: shared if index == root else image.page(index), root, image.header))
        other = image.page(image.roots["keyed"])
        with pytest.raises(Corrupt, match="another kind"):
            list(table_rows(lambda index: other if index == child else image.page(index), root, image.header))
        with pytest.raises(Corrupt, match="belongs to an index"):
            list(table_rows(image.page, image.roots["keyed"], image.header))
        with pytest.raises(Corrupt, match="belongs to a table"):
            list(index_rows(image.page, root, image.header))


def test_a_walk_that_stops_early_reads_only_the_way_down(tmp_path: Path) -> None:
    with build(tmp_path / "db", "page_size=512") as image:
        asked: list[int] = []

        def read(index: int) -> bytes:
            asked.append(index)
            return image.page(index)

        index, cell = next(entries(read, image.roots["plain"], 512))
        assert asked[-1] == index
        assert 2 <= len(asked) <= 5
        assert cell.rowid == -(2**63)


def test_page_1_is_skeleton_and_garbage_is_not() -> None:
    assert is_skeleton(b"", 1)
    for page in (b"", b"\0", b"\x0d" + bytes(511)):
        assert not is_skeleton(page, 2)


def test_a_page_shorter_than_its_usable_size_is_corrupt(tmp_path: Path) -> None:
    with build(tmp_path / "db", "page_size=512") as image:
        page = image.page(image.roots["empty"])
        with pytest.raises(Corrupt, match="at least 1024"):
            list(cells(page, parse_page(page, 5), 1024))


@pytest.mark.parametrize(
    ("pointer", "cell", "words"),
    [
        (9, b"\x03\x01\x02\x08\x08", "outside its content"),
        (512, b"\x03\x01\x02\x08\x08", "outside its content"),
        (400, b"\x88\x80\x80\x80\x00\x01", "payload of 2147483648 bytes"),
        (500, b"\x20\x01", "ends beyond it"),
        (511, b"\x81", "ends beyond its page"),
    ],
)
def test_a_cell_that_does_not_fit_its_page_is_corrupt(pointer: int, cell: bytes, words: str) -> None:
    page = bytearray(512)
    page[0], page[4] = 13, 1
    page[8:10] = pointer.to_bytes(2, "big")
    page[pointer : pointer + len(cell)] = cell
    with pytest.raises(Corrupt, match=words):
        list(cells(bytes(page[:512]), parse_page(bytes(page[:512]), 2), 512))


def test_a_record_is_filled_by_its_header_and_its_values() -> None:
    assert decode_record(b"\x03\x01\x0f\x05x") == (5, "x")
    assert decode_record(b"\x02\x07\x7f\xf8" + bytes(6)) == (None,)
    assert decode_record(b"\x01") == ()
    with pytest.raises(Corrupt, match="don't fill it"):
        decode_record(b"\x03\x01\x0f\x05xy")
    with pytest.raises(Corrupt, match="ends beyond its record"):
        decode_record(b"\x03\x01\x0f\x05")
    with pytest.raises(Corrupt, match="serial type 10"):
        decode_record(b"\x02\x0a")
    with pytest.raises(Corrupt, match="header of 4"):
        decode_record(b"\x04\x01")
    with pytest.raises(Corrupt, match="don't fill it"):
        decode_record(b"\x02\x81\x00" + bytes(57))

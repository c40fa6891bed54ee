"""Decoders: any value that SQLite stores comes back; garbage is Corrupt or a classification, never another error."""

import math
from collections.abc import Callable
from contextlib import suppress

import apsw
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from budwood.sqlite.btree import Kind, cells, children, is_skeleton, parse_page
from budwood.sqlite.header import (
    HEADER_SIZE,
    MAGIC,
    check_database_file,
    hide,
    only_counters_differ,
    parse_header,
    show,
)
from budwood.sqlite.overflow import gather, local_size
from budwood.sqlite.record import Value, decode_record, read_varint
from budwood.sqlite.tree import entries, index_rows, table_rows
from budwood.volume.errors import BadInput, Corrupt, Unsupported

ENCODINGS = ["UTF-8", "UTF-16le", "UTF-16be"]
PAGE_SIZE = 512


def image_of(*statements: str, rows: list[tuple[Value, ...]] | None = None) -> bytes:
    connection = apsw.Connection(":memory:")
    connection.execute(f"PRAGMA page_size={PAGE_SIZE}")
    for statement in statements:
        connection.execute(statement)
    connection.executemany("INSERT INTO t VALUES (?, ?)", [row[:2] for row in rows or []])
    image = connection.serialize("main")
    connection.close()
    return image


def reader_of(image: bytes) -> Callable[[int], bytes]:
    """Pages of the image; beyond its end, zeros, as a volume gives them."""

    def read(index: int) -> bytes:
        return image[(index - 1) * PAGE_SIZE : index * PAGE_SIZE].ljust(PAGE_SIZE, b"\0")

    return read


IMAGE = image_of(
    "CREATE TABLE t (a PRIMARY KEY, b)",
    rows=[(f"{i * 7919 % 1000:05}" * (1 + i % 30), bytes(i * 37 % 2000)) for i in range(150)],
)
TABLE, INDEX = 2, 3
READ = reader_of(IMAGE)
PAGES = len(IMAGE) // PAGE_SIZE


def rows_of(image: bytes) -> int:
    """Walks everything; how many rows there were."""
    header = parse_header(image)
    read = reader_of(image)
    found = 0
    for walk, root in ((table_rows, 1), (table_rows, TABLE), (index_rows, INDEX)):
        found += sum(1 for _ in walk(read, root, header))
    return found


stored = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([sign * 2**bits + off for bits in (7, 15, 23, 31, 47) for sign in (1, -1) for off in (-1, 0)]),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=400),
    st.binary(max_size=1500),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(stored, stored), max_size=12), st.sampled_from(ENCODINGS))
def test_every_value_that_sqlite_stores_comes_back(rows: list[tuple[Value, ...]], encoding: str) -> None:
    image = image_of(f"PRAGMA encoding='{encoding}'", "CREATE TABLE t (a, b)", rows=rows)
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", image)
    expected = connection.execute("SELECT a, b FROM t ORDER BY rowid").fetchall()
    connection.close()
    found = [values for _, values in table_rows(reader_of(image), TABLE, parse_header(image))]
    assert found == expected
    assert [[type(value) for value in row] for row in found] == [[type(value) for value in row] for row in expected]
    assert [row[0] for row in found] == [None if is_nan(row[0]) else row[0] for row in rows]


def is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def test_text_that_is_not_valid_is_kept() -> None:
    image = image_of("CREATE TABLE t (a, b)", "INSERT INTO t VALUES (CAST(x'ff41' AS TEXT), 1)")
    ((_, (text, one)),) = table_rows(reader_of(image), TABLE, parse_header(image))
    assert isinstance(text, str)
    assert text.encode("utf-8", "surrogateescape") == b"\xffA"
    assert one == 1
    assert decode_record(b"\x02\x11\x00\xd8", "utf-16-le") == ("\ud800",)
    with pytest.raises(Corrupt, match="utf-16-le"):
        decode_record(b"\x02\x13\x41\x00\x41", "utf-16-le")


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_a_varint_is_read_to_its_end_and_no_further(number: int, after: bytes) -> None:
    if number >= 1 << 56:
        packed = bytes(number >> 8 + 7 * n & 0x7F | 0x80 for n in range(7, -1, -1)) + bytes([number & 0xFF])
    else:
        sevens = max(1, -(-number.bit_length() // 7))
        packed = bytes(number >> 7 * n & 0x7F | (0x80 if n else 0) for n in range(sevens - 1, -1, -1))
    assert read_varint(b"\xff" + packed + after, 1) == (number, 1 + len(packed))
    with pytest.raises(Corrupt):
        read_varint(packed[:-1], 0)


@given(st.integers(480, 65536), st.integers(0, 2**31), st.booleans())
def test_what_stays_in_a_cell_fits_and_leaves_whole_pages(usable: int, payload: int, table: bool) -> None:
    kept = local_size(payload, usable, table=table)
    most = usable - 35 if table else (usable - 12) * 64 // 255 - 23
    least = (usable - 12) * 32 // 255 - 23
    if payload <= most:
        assert kept == payload
    else:
        assert least <= kept <= most
        assert kept == least or (payload - kept) % (usable - 4) == 0


def test_the_image_is_worth_damaging() -> None:
    assert rows_of(IMAGE) == 302
    assert {parse_page(READ(index), index).kind for index in (1, TABLE, INDEX)} == {
        Kind.LEAF_TABLE,
        Kind.INTERIOR_TABLE,
        Kind.INTERIOR_INDEX,
    }


damage = st.lists(st.tuples(st.integers(0, len(IMAGE) - 1), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6)
interior_bytes = st.integers((TABLE - 1) * PAGE_SIZE, INDEX * PAGE_SIZE - 1)
interior_damage = st.lists(st.tuples(interior_bytes, st.binary(min_size=1, max_size=4)), min_size=1)


@settings(max_examples=150, deadline=None)
@given(st.one_of(damage, interior_damage))
def test_a_damaged_database_gives_rows_or_corrupt(spots: list[tuple[int, bytes]]) -> None:
    damaged = bytearray(IMAGE)
    for at, new in spots:
        damaged[at : at + len(new)] = new[: len(damaged) - at]
    image = bytes(damaged)
    with suppress(Corrupt):
        assert rows_of(image) <= 200 * PAGES
    for index in range(1, PAGES + 1):
        classify(reader_of(image)(index), index)


def page_like(kind: int, count: int, first_cell: int, rest: bytes) -> bytes:
    """A page whose head is sound and whose cells are not."""
    return bytes((kind, 0, 0, 0, count, 0, 0, 0, 0, 0, 0, 9, *first_cell.to_bytes(2, "big"))) + rest


kinds = st.sampled_from([int(kind) for kind in Kind])
garbage = st.one_of(
    st.binary(max_size=600),
    st.builds(page_like, kinds, st.integers(0, 3), st.integers(14, 511), st.binary(min_size=498, max_size=498)),
)


@settings(max_examples=300)
@given(garbage, st.sampled_from([1, 2]))
@example(b"", 1)
@example(b"\5" * 512, 2)
def test_garbage_is_classified_or_corrupt(page: bytes, index: int) -> None:
    classify(page, index)
    for codec in ("utf-8", "utf-16-be"):
        with suppress(Corrupt):
            assert isinstance(decode_record(page, codec), tuple)
    with suppress(Corrupt):
        assert len(list(entries(lambda _: page, index, 512))) <= 300
    with pytest.raises(Corrupt):
        gather(lambda _: page, b"", 2, 5000, 512)


def classify(page: bytes, index: int) -> None:
    """Everything that looks at one page."""
    assert is_skeleton(page, index) in (True, False)
    try:
        parsed = parse_page(page, index)
    except Corrupt:
        with pytest.raises(Corrupt):
            children(page, index)
        return
    # The writer goes by one byte, and a page that parses is what that says.
    assert is_skeleton(page, index) == (index == 1 or parsed.kind.interior)
    with suppress(Corrupt):
        below = children(page, index)
        assert len(below) == (len(parsed.offsets) + 1 if parsed.kind.interior else 0)
        for cell in cells(page, parsed, PAGE_SIZE):
            assert len(cell.local) <= cell.payload_bytes
            assert (cell.overflow != 0) <= (len(cell.local) < cell.payload_bytes)


@settings(max_examples=300)
@given(
    st.one_of(
        st.binary(max_size=700),
        st.binary(max_size=700).map(lambda rest: MAGIC + rest),
        st.tuples(st.integers(16, HEADER_SIZE - 1), st.binary(min_size=1, max_size=6)).map(
            lambda spot: IMAGE[: spot[0]] + spot[1] + IMAGE[spot[0] + len(spot[1]) : PAGE_SIZE]
        ),
    ),
    st.integers(0, 2000),
)
def test_a_header_of_garbage_is_refused_in_words(head: bytes, length: int) -> None:
    with suppress(Corrupt):
        header = parse_header(head)
        assert header.usable_bytes >= 480
        assert header.codec in ("utf-8", "utf-16-le", "utf-16-be")
    refusal = ""
    try:
        assert check_database_file(head, length).page_size <= length
    except (BadInput, Unsupported) as error:
        refusal = str(error)
    assert "\n" not in refusal
    if len(head) >= 512:
        once = hide(head, IMAGE[:PAGE_SIZE])
        assert hide(once, head) == once
        assert len(show(head, 5)) == len(once) == len(head)
        assert only_counters_differ(show(show(head, 5), 6), show(head, 7))

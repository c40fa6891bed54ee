"""The database header, and page 1 as the VFS shows and stores it. The oracle is SQLite itself."""

from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.sqlite.header import (
    HEADER_SIZE,
    MAGIC,
    Header,
    check_database_file,
    hide,
    is_sqlite,
    only_counters_differ,
    parse_header,
    show,
)
from budwood.volume.errors import BadInput, Corrupt, Unsupported

PAGE_SIZES = [512 << shift for shift in range(8)]
ENCODINGS = {"UTF-8": 1, "UTF-16le": 2, "UTF-16be": 3}


def database(*pragmas: str, rows: int = 20) -> bytes:
    """A database's bytes; its table `t` has `rows` rows."""
    connection = apsw.Connection(":memory:")
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TABLE t (a, b)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(i, f"row {i}") for i in range(rows)])
    image = connection.serialize("main")
    connection.close()
    return image


def put(data: bytes, offset: int, new: bytes) -> bytes:
    return data[:offset] + new + data[offset + len(new) :]


def u32(number: int) -> bytes:
    return number.to_bytes(4, "big")


def opened(image: bytes) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", image)
    return connection


IMAGE = put(put(database("page_size=1024"), 24, u32(77)), 92, u32(77))
PAGE1 = IMAGE[:1024]
WAL1 = put(PAGE1, 18, b"\2\2")


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_header_says_what_the_pragmas_say(page_size: int, encoding: str) -> None:
    image = database(
        f"page_size={page_size}",
        f"encoding='{encoding}'",
        "auto_vacuum=2",
        "user_version=-5",
        "application_id=0x42420001",
    )
    header = parse_header(image)
    connection = opened(image)
    connection.execute("SELECT * FROM t").fetchall()  # so that the pragmas speak of this file, not of defaults

    def pragma(name: str) -> object:
        return connection.pragma(name)

    assert header.page_size == pragma("page_size") == page_size
    assert header.usable_bytes == page_size
    assert header.page_count_holds
    assert header.page_count == pragma("page_count") == len(image) // page_size
    assert header.freelist_count == pragma("freelist_count")
    assert header.schema_cookie == pragma("schema_version")
    assert (header.user_version, header.application_id) == (pragma("user_version"), pragma("application_id"))
    assert (header.text_encoding, pragma("encoding")) == (ENCODINGS[encoding], encoding)
    assert header.auto_vacuum
    assert header.incremental_vacuum == 1
    assert not header.wal
    connection.close()


def test_reserved_bytes_are_not_usable(tmp_path: Path) -> None:
    connection = apsw.Connection(str(tmp_path / "db"))
    connection.reserve_bytes("main", 32)
    connection.execute("PRAGMA page_size=512; CREATE TABLE t (a)")
    connection.close()
    header = parse_header((tmp_path / "db").read_bytes())
    assert (header.page_size, header.reserved_bytes, header.usable_bytes) == (512, 32, 480)


def test_a_database_without_tables_has_a_header_that_parses() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute("PRAGMA user_version=3")
    header = parse_header(connection.serialize("main"))
    connection.close()
    assert (header.user_version, header.page_count, header.codec) == (3, 1, "utf-8")


@pytest.mark.parametrize(
    ("offset", "new"),
    [
        (0, b"sqlite format 3\0"),
        (16, b"\2\1"),
        (16, b"\1\0"),
        (16, b"\0\0"),
        (20, b"\xff"),
        (21, b"\x41"),
    ],
)
def test_a_header_that_sqlite_refuses_is_corrupt(offset: int, new: bytes) -> None:
    damaged = put(database("page_size=512"), offset, new)
    with pytest.raises(Corrupt, match=r"^the object is damaged: "):
        parse_header(damaged, "the object")
    connection = opened(damaged)
    with pytest.raises((apsw.NotADBError, apsw.CorruptError, apsw.SQLError)):
        connection.execute("SELECT * FROM t").fetchall()
    connection.close()


def test_a_cut_header_and_an_encoding_that_does_not_exist_are_corrupt() -> None:
    with pytest.raises(Corrupt, match="99 bytes"):
        parse_header(IMAGE[: HEADER_SIZE - 1])
    with pytest.raises(Corrupt, match="text encoding is 4"):
        parse_header(put(IMAGE, 56, u32(4)))


def test_the_magic_alone_makes_a_sqlite_file() -> None:
    assert is_sqlite(MAGIC)
    assert is_sqlite(memoryview(IMAGE))
    assert not is_sqlite(MAGIC[:15])
    assert not is_sqlite(b"")


def test_a_whole_file_passes_the_check() -> None:
    header = check_database_file(IMAGE[:HEADER_SIZE], len(IMAGE))
    assert isinstance(header, Header)
    assert header.page_size == 1024
    wal = put(IMAGE, 18, b"\2\2")
    assert check_database_file(wal, len(wal)).wal
    assert not check_database_file(IMAGE, len(IMAGE), wal_bytes=4096, journal_head=bytes(28)).wal


@pytest.mark.parametrize(
    ("head", "length", "beside", "words"),
    [
        (b"", 0, {}, "empty"),
        (b"PK\3\4" + bytes(200), 204, {}, "not a SQLite file"),
        (MAGIC, 16, {}, "cut short"),
        (put(IMAGE, 16, b"\3\3"), len(IMAGE), {}, "page size is 771"),
        (IMAGE, len(IMAGE) - 1, {}, "no multiple of its page size"),
        (IMAGE, len(IMAGE) - 1024, {}, "cut short"),
        (put(IMAGE, 18, b"\2\2"), len(IMAGE), {"wal_bytes": 32}, "wal_checkpoint"),
        (IMAGE, len(IMAGE), {"journal_head": b"\xd9\xd5"}, "-journal"),
    ],
)
def test_a_file_that_cannot_be_imported_is_refused_in_one_line(
    head: bytes, length: int, beside: dict[str, int], words: str
) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        check_database_file(head, length, **beside)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_format_that_a_newer_sqlite_wrote_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="read version is 3"):
        check_database_file(put(IMAGE, 19, b"\3"), len(IMAGE))


def test_a_count_that_does_not_hold_is_not_compared_with_the_length() -> None:
    stale = put(put(IMAGE, 28, u32(9999)), 92, u32(0))
    assert not check_database_file(stale, len(stale)).page_count_holds


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_wal_database_is_shown_as_one_that_opens_without_wal(tmp_path: Path, page_size: int) -> None:
    stored = put(database(f"page_size={page_size}"), 18, b"\2\2")
    shown = show(stored[:page_size], 0xDEADBEEF) + stored[page_size:]
    (tmp_path / "db").write_bytes(shown)
    connection = apsw.Connection(str(tmp_path / "db"))
    assert connection.pragma("journal_mode") == "delete"
    assert connection.pragma("integrity_check") == "ok"
    assert connection.execute("SELECT count(*) FROM t").get == 20
    connection.close()
    header = parse_header(shown)
    assert header.change_counter == header.version_valid_for == 0xDEADBEEF


def test_what_sqlite_writes_over_a_shown_page_is_stored_with_the_marks_of_before(tmp_path: Path) -> None:
    stored = put(IMAGE, 18, b"\2\2")
    path = tmp_path / "db"
    path.write_bytes(show(stored[:1024], 7) + stored[1024:])
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version=12")
    connection.close()
    written = path.read_bytes()[:1024]
    kept = parse_header(hide(written, stored[:1024]))
    assert (kept.write_version, kept.read_version, kept.user_version) == (2, 2, 12)
    assert kept.change_counter == kept.version_valid_for == 8
    assert hide(written, None) == written
    assert hide(written, PAGE1) == written
    assert hide(written, bytes(1024)) == written


def test_a_writer_who_asks_for_wal_is_stored_as_written() -> None:
    assert hide(WAL1, PAGE1) == WAL1
    assert hide(WAL1, WAL1) == WAL1


def test_a_page_count_left_behind_by_an_old_library_does_not_cut_the_database() -> None:
    stale = put(put(IMAGE, 28, u32(1)), 92, u32(0))
    shown = show(stale[:1024], 5) + stale[1024:]
    connection = opened(shown)
    assert connection.pragma("page_count") == len(IMAGE) // 1024
    assert connection.pragma("integrity_check") == "ok"
    connection.execute("INSERT INTO t VALUES (1, zeroblob(5000))")
    written = connection.serialize("main")
    connection.close()
    assert parse_header(hide(written[:1024], stale[:1024])).page_count == len(written) // 1024
    kept = parse_header(hide(stale[:1024], None))
    assert (kept.change_counter, kept.version_valid_for, kept.page_count) == (77, 77, 0)


@given(st.integers(0, 2**32 - 1), st.sampled_from([PAGE1, WAL1]))
def test_what_was_shown_and_is_written_back_is_no_change(counter: int, stored: bytes) -> None:
    kept = hide(show(stored, counter), stored)
    assert only_counters_differ(kept, stored)
    assert show(kept, 1) == show(stored, 1)


@given(st.integers(0, 1023))
def test_only_the_counters_and_the_library_may_differ(offset: int) -> None:
    other = put(PAGE1, offset, bytes([PAGE1[offset] ^ 1]))
    free = 24 <= offset < 28 or 92 <= offset < 100
    assert only_counters_differ(PAGE1, other) is free
    assert only_counters_differ(PAGE1, PAGE1)
    assert not only_counters_differ(PAGE1, PAGE1[:-1])


def test_a_page_that_is_no_database_is_passed_through() -> None:
    for page in (bytes(512), b"\2" * 512):
        assert show(page, 9) == page
        assert hide(page, WAL1) == page


def test_less_than_a_page_is_refused() -> None:
    with pytest.raises(BadInput, match="511 bytes"):
        show(PAGE1[:511], 1)
    with pytest.raises(BadInput, match="0 bytes"):
        hide(b"", PAGE1)

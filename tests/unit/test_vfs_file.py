"""The file that SQLite reads and writes, driven as SQLite drives it."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable

import apsw
import pytest

from budwood.sqlite.header import HEADER_SIZE
from budwood.testing.memory_pages import MemoryPages, MemorySnapshot, MemoryVolume, MemoryWriter
from budwood.vfs.file import VolumeFile
from budwood.vfs.journal import SPILL_BYTES, JournalFile
from budwood.volume.errors import BadInput, Busy, Conflict, Full
from budwood.volume.protocols import Durability

from ..interrupts import can_interrupt, interrupted

SIZE = 512


def _page1(counter: int, *, pages: int = 1, mark: int = 1, fill: int = 7) -> bytes:
    page = bytearray([fill]) * SIZE
    page[:16] = b"SQLite format 3\0"
    page[16:18] = SIZE.to_bytes(2, "big")
    page[18] = page[19] = mark
    page[24:28] = page[92:96] = counter.to_bytes(4, "big")
    page[28:32] = pages.to_bytes(4, "big")
    return bytes(page)


def _volume(*, counter: int = 5, mark: int = 1) -> MemoryVolume:
    volume = MemoryVolume(page_size=SIZE)
    volume.replace({1: _page1(counter, mark=mark, pages=2), 2: b"b" * SIZE}, 2 * SIZE, page_size=SIZE)
    return volume


def _open(volume: MemoryVolume) -> VolumeFile:
    pages = volume.pages()
    return VolumeFile(pages, pages.close, fixed=False)


def _begin(file: VolumeFile, level: int = apsw.SQLITE_LOCK_RESERVED) -> bytes:
    """What SQLite does first: SHARED, the sixteen bytes, and RESERVED for a writer. Returns the sixteen bytes."""
    file.xLock(apsw.SQLITE_LOCK_SHARED)
    version = file.xRead(16, 24)
    if level > apsw.SQLITE_LOCK_SHARED:
        file.xLock(level)
    return version


def _end(file: VolumeFile, *, commit: bool = True) -> None:
    if commit:
        file.xFileControl(apsw.SQLITE_FCNTL_COMMIT_PHASETWO, 0)
    file.xUnlock(apsw.SQLITE_LOCK_SHARED)
    file.xUnlock(apsw.SQLITE_LOCK_NONE)


def _next(page1: bytes, *, fill: int | None = None) -> bytes:
    """Page 1 as SQLite writes it: its counter one further."""
    page = bytearray(page1)
    page[24:28] = page[92:96] = (int.from_bytes(page[24:28], "big") + 1 & 0xFFFFFFFF).to_bytes(4, "big")
    if fill is not None:
        page[HEADER_SIZE:] = bytes([fill]) * (len(page) - HEADER_SIZE)
    return bytes(page)


def test_the_header_is_readable_before_any_lock_and_holds_nothing_afterwards() -> None:
    volume = _volume()
    file = _open(volume)
    assert file.xRead(HEADER_SIZE, 0)[:16] == b"SQLite format 3\0"
    volume.replace({1: _page1(9)}, SIZE, page_size=SIZE)
    assert file.xFileSize() == SIZE, "the next look sees the next head"


def test_a_read_at_any_offset_is_a_slice_of_the_whole() -> None:
    file = _open(_volume())
    _begin(file, apsw.SQLITE_LOCK_SHARED)
    whole = file.xRead(SIZE, 0) + file.xRead(SIZE, SIZE)
    for offset, amount in [(0, 100), (24, 16), (16, 4), (SIZE - 3, 6), (0, 2 * SIZE), (2 * SIZE - 5, 5)]:
        assert file.xRead(amount, offset) == whole[offset : offset + amount]
    assert file.xRead(SIZE, 2 * SIZE - 4) == whole[-4:], "the end of the file cuts a read short"
    assert file.xRead(16, 4 * SIZE) == b""


def test_an_empty_volume_is_an_empty_file() -> None:
    file = _open(MemoryVolume())
    assert file.xRead(HEADER_SIZE, 0) == b""
    file.xLock(apsw.SQLITE_LOCK_SHARED)
    assert file.xFileSize() == 0
    assert file.xRead(16, 24) == b""


def test_an_unchanged_volume_shows_an_unchanged_counter_and_a_change_shows_another() -> None:
    volume = _volume()
    file = _open(volume)
    first = _begin(file, apsw.SQLITE_LOCK_SHARED)
    _end(file, commit=False)
    assert _begin(file, apsw.SQLITE_LOCK_SHARED) == first
    _end(file, commit=False)
    pages, length = volume.content()
    volume.replace({**pages, 2: b"c" * SIZE}, length, page_size=SIZE)
    assert _begin(file, apsw.SQLITE_LOCK_SHARED)[:4] != first[:4], "two histories with the same stored counter"
    assert file.xRead(SIZE, SIZE) == b"c" * SIZE


def test_its_own_commit_shows_the_number_that_sqlite_wrote() -> None:
    volume = _volume()
    file = _open(volume)
    for expected in range(1, 4):
        _begin(file)
        written = _next(file.xRead(SIZE, 0))
        file.xWrite(written, 0)
        file.xWrite(bytes([expected]) * SIZE, SIZE)
        _end(file)
        assert _begin(file, apsw.SQLITE_LOCK_SHARED) == written[24:40]
        _end(file, commit=False)
    assert volume.head == 4
    assert volume.changed(4) == {2}, "page 1 is not stored for its counters alone"


def test_a_stored_page_1_counts_on_from_the_one_before() -> None:
    volume = _volume(counter=5)
    file = _open(volume)
    for fill in (1, 2):
        _begin(file)
        file.xWrite(_next(file.xRead(SIZE, 0), fill=fill), 0)
        _end(file)
    assert [volume.read(1, lsn)[24:28] for lsn in (1, 2, 3)] == [(n).to_bytes(4, "big") for n in (5, 6, 7)]
    assert volume.read(1, 3)[92:96] == (7).to_bytes(4, "big")


def test_a_failed_commit_shows_no_number_that_sqlite_could_take_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = _volume()
    file = _open(volume)
    _begin(file)
    written = _next(file.xRead(SIZE, 0))
    file.xWrite(written, 0)
    file.xWrite(b"lost" * (SIZE // 4), SIZE)

    def fail(self: MemoryWriter, durability: Durability) -> MemorySnapshot:
        raise Full("no room on the disk")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryWriter, "commit", fail)
        with pytest.raises(Full, match="no room") as caught:
            file.xFileControl(apsw.SQLITE_FCNTL_COMMIT_PHASETWO, 0)
    assert isinstance(caught.value, apsw.FullError)
    _end(file, commit=False)
    assert not volume.locked
    assert volume.head == 1
    # Another writer's commit now takes the identity that the failed one would have had.
    pages, length = volume.content()
    volume.replace({**pages, 2: b"d" * SIZE}, length, page_size=SIZE)
    assert _begin(file, apsw.SQLITE_LOCK_SHARED)[:4] != written[24:28]
    assert file.xRead(SIZE, SIZE) == b"d" * SIZE


def test_a_write_of_counters_alone_makes_no_lsn_and_keeps_the_cache() -> None:
    volume = _volume()
    file = _open(volume)
    _begin(file)
    written = _next(file.xRead(SIZE, 0))
    file.xWrite(written, 0)
    _end(file)
    assert volume.head == 1
    assert _begin(file, apsw.SQLITE_LOCK_SHARED) == written[24:40]
    _end(file, commit=False)
    pages, length = volume.content()
    volume.replace({**pages, 2: b"e" * SIZE}, length, page_size=SIZE)
    assert _begin(file, apsw.SQLITE_LOCK_SHARED)[:4] != written[24:28], "the same number would hide this change"


def test_an_empty_transaction_makes_no_lsn() -> None:
    volume = _volume()
    file = _open(volume)
    _begin(file)
    _end(file)
    assert volume.head == 1
    assert not volume.locked


def test_an_unlock_without_the_commit_drops_what_was_written() -> None:
    volume = _volume()
    file = _open(volume)
    before = _begin(file)
    written = _next(file.xRead(SIZE, 0))
    file.xWrite(written, 0)
    file.xWrite(b"x" * SIZE, SIZE)
    file.xTruncate(SIZE)
    assert file.xFileSize() == SIZE
    _end(file, commit=False)
    assert volume.head == 1
    assert not volume.locked
    after = _begin(file, apsw.SQLITE_LOCK_SHARED)
    assert after[4:] == before[4:]
    assert after[:4] not in (before[:4], written[24:28]), "SQLite may have either in mind"
    assert file.xRead(SIZE, SIZE) == b"b" * SIZE


@pytest.mark.parametrize("held", [apsw.SQLITE_LOCK_SHARED, apsw.SQLITE_LOCK_RESERVED, apsw.SQLITE_LOCK_EXCLUSIVE])
def test_an_unlock_that_was_never_made_is_made_up_for(held: int) -> None:
    """An exception came to it before it began: SQLite takes it for done."""
    volume = _volume()
    file = _open(volume)
    before = _begin(file, held)
    if held > apsw.SQLITE_LOCK_SHARED:
        file.xWrite(b"x" * SIZE, SIZE)
        file.xLock(apsw.SQLITE_LOCK_SHARED)  # And unlock(NONE) it was.
        assert file.xRead(SIZE, SIZE) == b"b" * SIZE
        assert file.xRead(16, 24) != before, "SQLite may have pages of it in its cache"
        file.xLock(held)
        file.xWrite(b"y" * SIZE, SIZE)
        file.xLock(apsw.SQLITE_LOCK_RESERVED)  # And unlock(SHARED) it was.
        file.xWrite(_next(file.xRead(SIZE, 0)), 0)
        _end(file)
        assert volume.content()[0][2] == b"b" * SIZE
    pages, length = volume.content()
    volume.replace({**pages, 2: b"c" * SIZE}, length, page_size=SIZE)
    assert _begin(file, apsw.SQLITE_LOCK_SHARED) != before
    assert file.xRead(SIZE, SIZE) == b"c" * SIZE


@can_interrupt
@pytest.mark.parametrize(("step", "commits"), [*((step, True) for step in range(7)), (4, False)])
def test_whatever_of_a_transaction_is_interrupted_the_next_one_is_whole(step: int, commits: bool) -> None:
    volume = _volume()
    file = _open(volume)

    def write() -> None:
        file.xWrite(_next(file.xRead(SIZE, 0)), 0)
        file.xWrite(bytes([65 + number % 26]) * SIZE, SIZE)

    steps: list[Callable[[], object]] = [
        lambda: file.xLock(apsw.SQLITE_LOCK_SHARED),
        lambda: file.xRead(16, 24),
        lambda: file.xLock(apsw.SQLITE_LOCK_RESERVED),
        write,
        lambda: file.xFileControl(apsw.SQLITE_FCNTL_COMMIT_PHASETWO, 0),
        lambda: file.xUnlock(apsw.SQLITE_LOCK_SHARED),
        lambda: file.xUnlock(apsw.SQLITE_LOCK_NONE),
    ]
    if not commits:
        del steps[4:6]
    number, before = 0, b"b" * SIZE
    where: str | None = ""
    while where is not None:
        number += 1
        of_others = bytes([97 + number % 26]) * SIZE
        for call in steps[:step]:
            call()
        where = interrupted(steps[step], number)
        if step < len(steps) - 2:  # The error of an unlock SQLite doesn't hear of.
            file.xUnlock(apsw.SQLITE_LOCK_NONE)
        assert volume.content()[0][2] in {before, bytes([65 + number % 26]) * SIZE}
        _begin(file, apsw.SQLITE_LOCK_SHARED)
        assert file.xRead(SIZE, SIZE) == volume.content()[0][2]
        _end(file, commit=False)
        before = b"z" * SIZE
        volume.replace({1: _page1(number), 2: of_others}, 2 * SIZE, page_size=SIZE)
        _begin(file)
        assert file.xRead(SIZE, SIZE) == of_others
        file.xWrite(_next(file.xRead(SIZE, 0)), 0)
        file.xWrite(b"z" * SIZE, SIZE)
        _end(file)
        assert volume.content()[0][2] == b"z" * SIZE
    assert number > 1


def test_closing_in_the_middle_of_a_write_drops_it_and_the_lock() -> None:
    volume = _volume()
    file = _open(volume)
    _begin(file)
    file.xWrite(b"x" * SIZE, SIZE)
    file.xClose()
    assert volume.head == 1
    assert not volume.locked


def test_a_writer_reads_what_it_wrote_page_1_included() -> None:
    file = _open(_volume())
    _begin(file)
    written = _next(file.xRead(SIZE, 0), fill=3)
    file.xWrite(written, 0)
    file.xWrite(b"y" * SIZE, 3 * SIZE)
    assert file.xRead(SIZE, 0) == written
    assert file.xRead(16, 24) == written[24:40]
    assert file.xRead(SIZE, 2 * SIZE) == bytes(SIZE)
    assert file.xRead(SIZE, 3 * SIZE) == b"y" * SIZE
    assert file.xFileSize() == 4 * SIZE


def test_a_volume_marked_wal_is_shown_as_a_plain_one_and_stays_marked() -> None:
    volume = _volume(mark=2)
    file = _open(volume)
    _begin(file)
    page1 = file.xRead(SIZE, 0)
    assert page1[18:20] == b"\1\1"
    assert file.xRead(HEADER_SIZE, 0)[18:20] == b"\1\1"
    file.xWrite(_next(page1, fill=9), 0)
    _end(file)
    assert volume.read(1, 2)[18:20] == b"\2\2"
    assert volume.read(1, 2)[HEADER_SIZE:] == bytes([9]) * (SIZE - HEADER_SIZE)


def test_a_second_writer_is_busy_and_a_late_one_conflicts() -> None:
    volume = _volume()
    first, second = _open(volume), _open(volume)
    _begin(first)
    _begin(second, apsw.SQLITE_LOCK_SHARED)
    with pytest.raises(Busy) as busy:
        second.xLock(apsw.SQLITE_LOCK_RESERVED)
    assert isinstance(busy.value, apsw.BusyError)
    assert vars(busy.value)["extendedresult"] == apsw.SQLITE_BUSY
    first.xWrite(b"1" * SIZE, SIZE)
    _end(first)
    with pytest.raises(Conflict) as conflict:
        second.xLock(apsw.SQLITE_LOCK_RESERVED)
    assert isinstance(conflict.value, apsw.BusyError)
    assert vars(conflict.value)["extendedresult"] == apsw.SQLITE_BUSY_SNAPSHOT
    assert conflict.value.head == 2
    assert second.xRead(SIZE, SIZE) == b"b" * SIZE, "its view stands still until it lets go"
    _end(second, commit=False)
    _begin(second)
    assert second.xRead(SIZE, SIZE) == b"1" * SIZE


def test_a_pinned_file_never_moves_and_says_that_it_cannot() -> None:
    volume = _volume()
    pages = volume.pages(lsn=1)
    file = VolumeFile(pages, pages.close, fixed=True)
    assert file.xDeviceCharacteristics() == apsw.SQLITE_IOCAP_IMMUTABLE
    volume.replace({1: _page1(6)}, SIZE, page_size=SIZE)
    assert file.xFileSize() == 2 * SIZE
    assert file.xRead(SIZE, SIZE) == b"b" * SIZE


def test_warm_pages_are_read_once_and_dropped_when_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    volume = MemoryVolume(page_size=SIZE)
    content = {1: _page1(1, pages=40), **{page: bytes([page]) * SIZE for page in range(2, 41)}}
    volume.replace(content, 40 * SIZE, page_size=SIZE)
    asked: list[int] = []
    read = MemorySnapshot.read

    def counted(self: MemorySnapshot, page: int) -> bytes:
        asked.append(page)
        return read(self, page)

    monkeypatch.setattr(MemorySnapshot, "read", counted)
    pages = volume.pages()
    file = VolumeFile(pages, pages.close, fixed=False, warm_bytes=10 * SIZE)

    def look(*wanted: int) -> list[int]:
        """Reads these pages in a transaction and returns those that were looked up for it."""
        _begin(file, apsw.SQLITE_LOCK_SHARED)
        asked.clear()
        for page in wanted:
            assert file.xRead(SIZE, (page - 1) * SIZE) == volume.read(page, volume.head)
        _end(file, commit=False)
        return list(asked)

    assert look(9, 5, 30, 9, 5, 30) == [9, 5, 30]
    assert look(30, 5, 9) == [], "the view stood still"
    assert look(*range(11, 25)) == list(range(11, 25))
    assert look(*range(11, 25)) == list(range(12, 25)), "of a scan only its beginning is held"
    assert look(30, 5, 9) == [], "so it washes nothing out"
    assert look(2, 4, 2, 4) == [2, 4]
    _begin(file)
    file.xWrite(b"w" * SIZE, 3 * SIZE)
    _end(file)
    assert look(2, 4, 2, 4) == [4], "a write drops its page alone"
    assert look(*range(40, 21, -2), 9) == [*range(40, 21, -2), 9], "more than fits begins anew"
    volume.replace(content, 40 * SIZE, page_size=SIZE)
    assert look(2, 4) == [2, 4], "another view"
    _begin(file)
    file.xTruncate(3 * SIZE)
    file.xWrite(b"x" * SIZE, 20 * SIZE)
    assert file.xRead(SIZE, 3 * SIZE) == bytes(SIZE), "cut off, and the file grew back over it"
    _end(file)
    assert look(4, 2, 21) == [4, 2, 21]


def test_a_page_of_another_size_is_refused_in_words_once_the_size_is_settled() -> None:
    volume = _volume()
    file = _open(volume)
    _begin(file)
    with pytest.raises(BadInput, match="512-byte pages"):
        file.xWrite(bytes(1024), 0)
    _end(file, commit=False)
    assert volume.head == 1


@pytest.mark.parametrize("size", [512, 4096, 65536])
def test_the_first_page_settles_the_size_of_an_empty_volume(size: int) -> None:
    volume = MemoryVolume()
    file = _open(volume)
    _begin(file)
    page = _page1(1).ljust(size, b"\0")
    page = page[:16] + (size if size < 65536 else 1).to_bytes(2, "big") + page[18:]
    file.xWrite(page, 0)
    _end(file)
    assert volume.page_size == size
    assert volume.content() == ({1: page}, size)


def test_a_commit_is_durable_unless_synchronous_was_lowered() -> None:
    volume = _volume()
    file = _open(volume)
    pragmas = file.pragmas
    for word, durability in [
        (None, Durability.DURABLE),
        ("OFF", Durability.ORDERED),
        ("2", Durability.DURABLE),
        ("'normal'", Durability.ORDERED),
        ("EXTRA", Durability.DURABLE),
    ]:
        assert pragmas.answer("synchronous", word, view=None, writing=False) is None, "SQLite hears it too"
        _begin(file)
        file.xWrite((word or "").encode().ljust(SIZE), SIZE)
        _end(file)
        assert volume.durabilities[-1] is durability


def test_a_journal_is_one_file_across_its_spill() -> None:
    journal = JournalFile()
    model = bytearray()
    block = bytes(range(256)) * 1024
    for at in range(0, SPILL_BYTES + 4 * len(block), len(block)):
        journal.xWrite(block, at)
        model += block
    for at, data in [(0, b"front"), (SPILL_BYTES - 3, b"across the edge"), (len(model) + 10, b"a gap before")]:
        journal.xWrite(data, at)
        model.extend(bytes(max(0, at + len(data) - len(model))))
        model[at : at + len(data)] = data
    assert journal.xFileSize() == len(model)
    for at in (0, 100, SPILL_BYTES - 8, SPILL_BYTES, len(model) - 20):
        assert journal.xRead(64, at) == model[at : at + 64]
    journal.xTruncate(SPILL_BYTES // 2)
    assert journal.xFileSize() == SPILL_BYTES // 2
    journal.xWrite(b"again", SPILL_BYTES // 2)
    assert journal.xRead(20, SPILL_BYTES // 2 - 5) == model[SPILL_BYTES // 2 - 5 : SPILL_BYTES // 2] + b"again"
    journal.xClose()


def test_where_nothing_temporary_can_be_made_a_journal_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_found() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "gettempdir", none_found)
    journal = JournalFile()
    journal.xWrite(bytes(SPILL_BYTES), 0)
    with pytest.raises(apsw.FullError, match=r"No usable temporary directory.*set TMPDIR"):
        journal.xWrite(b"more", SPILL_BYTES)
    assert journal.xFileSize() >= SPILL_BYTES


def test_a_connection_of_memory_pages_is_closed_with_its_file() -> None:
    pages: MemoryPages = _volume().pages()
    VolumeFile(pages, pages.close, fixed=False).xClose()
    assert pages.closed

"""The WAL reader against SQLite: after every step, what the reader makes of the log is what SQLite reads through it."""

import random
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from budwood.sqlite.wal import (
    FRAME_HEADER_SIZE,
    WAL_HEADER_SIZE,
    WalCommit,
    WalReader,
    parse_frame_header,
    parse_wal_header,
)
from budwood.sqlite.wal_checksum import wal_checksum
from budwood.volume.errors import BadInput, Corrupt, Unsupported

MASK = 0xFFFFFFFF


def sums_by_definition(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    s0, s1 = sums
    for a, b in struct.iter_unpack(f"{order}II", data):
        s0 = (s0 + a + s1) & MASK
        s1 = (s1 + b + s0) & MASK
    return s0, s1


class FileLog:
    """A log as `WalReader` reads it; a file that isn't there is empty."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, offset: int, size: int) -> bytes:
        if not self.path.exists():
            return b""
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(size)


class Follower:
    """The database as the reader's commits make it, page by page."""

    def __init__(self, image: bytes, page_size: int, log: FileLog) -> None:
        self.page_size = page_size
        self.log = log
        self.reader = WalReader(log)
        self.image = image

    def follow(self) -> list[WalCommit]:
        commits = list(self.reader.commits())
        for commit in commits:
            size = commit.page_count * self.page_size
            image = bytearray(self.image[:size].ljust(size, b"\0"))
            for page, place in commit.pages.items():
                image[(page - 1) * self.page_size : page * self.page_size] = self.log(place, self.page_size)
            self.image = bytes(image)
        return commits


class WalMachine(RuleBasedStateMachine):
    """Writers, spills, rollbacks, savepoints, readers that hold checkpoints back, restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.marks = 0
        self.seen = 0

    @initialize(page_size=st.sampled_from([512, 1024, 4096]), seed=st.integers(0, 2**32))
    def begin(self, page_size: int, seed: int) -> None:
        self.path = Path(self.stack.enter_context(TemporaryDirectory())) / "db"
        self.random = random.Random(seed)
        self.writer = apsw.Connection(str(self.path))
        self.stack.callback(self.writer.close)
        self.writer.execute(f"PRAGMA page_size={page_size}; PRAGMA journal_mode=WAL; PRAGMA cache_size=5").fetchall()
        self.writer.wal_autocheckpoint(0)
        self.other = apsw.Connection(str(self.path))
        self.stack.callback(self.other.close)
        image = self.path.read_bytes()
        self.follower = Follower(image, page_size, FileLog(self.path.with_name("db-wal")))
        self.writer.set_wal_hook(self.mark)
        self.writer.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body); CREATE INDEX ti ON t (body)")

    def mark(self, _connection: apsw.Connection, _name: str, frames: int) -> int:
        """SQLite has just committed; its log has so many frames."""
        self.marks += 1
        self.seen += len(self.follower.follow())
        assert self.seen == self.marks
        size = FRAME_HEADER_SIZE + self.follower.page_size
        assert self.follower.reader.end_bytes == WAL_HEADER_SIZE + frames * size
        return apsw.SQLITE_OK

    def write(self, rows: int) -> None:
        for _ in range(rows):
            match self.random.randrange(4):
                case 0:
                    self.writer.execute("DELETE FROM t WHERE id % 7 = ?", (self.random.randrange(7),))
                case 1:
                    body = self.random.randbytes(self.random.randrange(1500))
                    self.writer.execute("UPDATE t SET body = ? WHERE id % 5 = ?", (body, self.random.randrange(5)))
                case _:
                    body = self.random.randbytes(self.random.randrange(3000))
                    self.writer.execute("INSERT INTO t (body) VALUES (?)", (body,))

    @rule(rows=st.integers(1, 30))
    def commit(self, rows: int) -> None:
        with self.writer:
            self.write(rows)

    @rule(rows=st.integers(1, 60), looks=st.booleans())
    def roll_back(self, rows: int, looks: bool) -> None:
        before = self.follower.image
        self.writer.execute("BEGIN")
        self.write(rows)
        if looks:
            # Frames that were spilled stand in the log, and are no commit.
            assert self.follower.follow() == []
        self.writer.execute("ROLLBACK")
        assert self.follower.follow() == []
        assert self.follower.image == before

    @rule(kept=st.integers(1, 20), undone=st.integers(1, 40))
    def commit_after_a_partial_rollback(self, kept: int, undone: int) -> None:
        with self.writer:
            self.write(kept)
            self.writer.execute("SAVEPOINT s")
            self.write(undone)
            self.writer.execute("ROLLBACK TO s; RELEASE s")
            self.write(1)

    @rule()
    def shrink(self) -> None:
        self.writer.execute("DELETE FROM t WHERE id % 3 > 0")
        self.writer.execute("VACUUM")

    @precondition(lambda self: not self.other.in_transaction)
    @rule()
    def hold_a_snapshot(self) -> None:
        self.other.execute("BEGIN; SELECT count(*) FROM t").fetchall()

    @precondition(lambda self: self.other.in_transaction)
    @rule()
    def release_the_snapshot(self) -> None:
        self.other.execute("COMMIT")

    @rule(mode=st.sampled_from(["PASSIVE", "FULL", "RESTART", "TRUNCATE"]))
    def checkpoint(self, mode: str) -> None:
        try:
            self.writer.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        except apsw.BusyError:
            assert self.other.in_transaction
        assert self.follower.follow() == []

    @rule()
    def start_afresh_from_the_file_and_its_log(self) -> None:
        """A reader that begins now comes to the same database, from the main file and what the log holds."""
        late = Follower(self.path.read_bytes(), self.follower.page_size, self.follower.log)
        late.follow()
        assert late.image == self.follower.image

    @invariant()
    def the_follower_holds_what_sqlite_reads(self) -> None:
        if hasattr(self, "writer"):
            assert self.follower.image == self.writer.serialize("main")

    def teardown(self) -> None:
        self.stack.close()


TestWal = WalMachine.TestCase
TestWal.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[bytes, bytes, list[WalCommit]]]:
    """A database's file, its log of 8 commits (the last grown by a spill), and what the reader makes of it."""
    path = tmp_path_factory.mktemp("wal") / "db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA page_size=512; PRAGMA journal_mode=WAL; PRAGMA cache_size=5").fetchall()
    connection.execute("CREATE TABLE t (a, b)")
    for i in range(6):
        connection.execute("INSERT INTO t VALUES (?, zeroblob(900))", (i,))
    with connection:
        for i in range(100):
            connection.execute("INSERT INTO t VALUES (?, randomblob(700))", (i,))
    data = path.with_name("db-wal").read_bytes()
    image = path.read_bytes()
    yield image, data, read_all(data)
    connection.close()


def read_all(data: bytes) -> list[WalCommit]:
    return list(WalReader(lambda offset, size: data[offset : offset + size]).commits())


Log = tuple[bytes, bytes, list[WalCommit]]


def test_every_cut_of_a_log_gives_the_commits_that_end_before_it(log: Log) -> None:
    _, data, commits = log
    assert len(commits) == 8
    assert commits[-1].end_bytes == len(data)
    ends = [commit.end_bytes for commit in commits]
    for cut in sorted({at + d for at in range(0, len(data), 536) for d in (0, 23, 24, 32, 100)} | set(ends)):
        assert read_all(data[:cut]) == commits[: sum(end <= cut for end in ends)]


@settings(max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_ends_the_log_before_its_transaction(log: Log, place: float, bit: int) -> None:
    _, data, commits = log
    at = int(place * len(data))
    damaged = bytearray(data)
    damaged[at] ^= 1 << bit
    found = read_all(bytes(damaged))
    assert found == commits[: len(found)]
    assert len(found) == (0 if at < WAL_HEADER_SIZE else sum(commit.end_bytes <= at for commit in commits))


def test_a_log_whose_checksums_read_words_big_endian_gives_the_same(log: Log, tmp_path: Path) -> None:
    image, data, commits = log
    swapped = other_order(data)
    assert parse_wal_header(swapped).big_endian != parse_wal_header(data).big_endian
    assert read_all(swapped) == commits
    (tmp_path / "db").write_bytes(image)
    (tmp_path / "db-wal").write_bytes(swapped)
    connection = apsw.Connection(str(tmp_path / "db"))
    assert connection.execute("SELECT count(*) FROM t").get == 106
    connection.close()


def other_order(data: bytes) -> bytes:
    """The same log with checksums by the other order of bytes, made with the definition only."""
    magic = struct.unpack_from(">I", data)[0] ^ 1
    order = ">" if magic & 1 else "<"
    head = struct.pack(">I", magic) + data[4:24]
    sums = sums_by_definition(head, (0, 0), order)
    parts = [head, struct.pack(">II", *sums)]
    for at in range(WAL_HEADER_SIZE, len(data), FRAME_HEADER_SIZE + 512):
        page = data[at + FRAME_HEADER_SIZE : at + FRAME_HEADER_SIZE + 512]
        sums = sums_by_definition(data[at : at + 8] + page, sums, order)
        parts += [data[at : at + 16], struct.pack(">II", *sums), page]
    return b"".join(parts)


def test_frames_that_an_older_generation_left_are_no_commits(log: Log) -> None:
    _, data, commits = log
    head = data[:16] + bytes(8)
    sums = sums_by_definition(head, (0, 0), ">" if parse_wal_header(data).big_endian else "<")
    restarted = head + struct.pack(">II", *sums) + data[WAL_HEADER_SIZE:]
    assert parse_wal_header(restarted).salts == bytes(8)
    assert read_all(restarted) == []
    now = [data]
    reader = WalReader(lambda offset, size: now[0][offset : offset + size])
    assert list(reader.commits()) == commits
    now[0] = restarted
    assert list(reader.commits()) == []
    assert reader.end_bytes == WAL_HEADER_SIZE
    now[0] = b""
    assert list(reader.commits()) == []
    assert reader.header is None


def test_a_newer_format_is_unsupported(log: Log) -> None:
    _, data, _ = log
    head = data[:4] + struct.pack(">I", 3007001) + data[8:24]
    sums = sums_by_definition(head, (0, 0), ">" if parse_wal_header(data).big_endian else "<")
    with pytest.raises(Unsupported, match="3007001"):
        read_all(head + struct.pack(">II", *sums))


@given(st.binary(max_size=200))
def test_garbage_is_no_log(garbage: bytes) -> None:
    with pytest.raises(Corrupt):
        parse_wal_header(garbage)
    assert read_all(garbage) == []
    if len(garbage) < FRAME_HEADER_SIZE:
        with pytest.raises(Corrupt):
            parse_frame_header(garbage)
    else:
        assert parse_frame_header(garbage).page == int.from_bytes(garbage[:4], "big")


@given(st.binary(max_size=8).map(lambda seed: seed * 8192), st.data())
def test_the_checksum_is_that_of_the_definition(source: bytes, data: st.DataObject) -> None:
    sizes = st.one_of(st.integers(0, 80).map(lambda n: 8 * n), st.sampled_from([512 << n for n in range(8)]))
    size = min(data.draw(sizes), len(source))
    block = random.Random(source[:8]).randbytes(size)
    sums = (data.draw(st.integers(0, MASK)), data.draw(st.integers(0, MASK)))
    assert wal_checksum(block, sums, big_endian=True) == sums_by_definition(block, sums, ">")
    assert wal_checksum(block, sums, big_endian=False) == sums_by_definition(block, sums, "<")
    extreme = b"\xff" * size
    assert wal_checksum(extreme, sums, big_endian=False) == sums_by_definition(extreme, sums, "<")


def test_a_checksum_of_odd_words_is_refused() -> None:
    with pytest.raises(BadInput, match="not 12"):
        wal_checksum(bytes(12), (0, 0), big_endian=False)

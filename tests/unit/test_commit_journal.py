"""The commit journal: what a small commit is, who sees it, and what is made of it after damage, full disks and flushes
that fail (docs/design/0110-the-commit-journal.md). Power losses: tests/fault/test_power_loss.py.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

import budwood
from budwood.sync import commit_journal, home_image
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.journal_format import BLOCK_BYTES, FIRST_RECORD, unpack_header
from budwood.sync.rebuild import rebuild
from budwood.sync.shared_words import DURABLE, IDENTITY, identity_of, shared_words
from budwood.sync.snapshot import LocalSnapshot
from budwood.sync.tables import BEFORE_JOURNAL, FORMAT_VERSION, Format
from budwood.sync.verify import verify
from budwood.sync.volume import Volume
from budwood.volume import faults
from budwood.volume.errors import Corrupt, Full, Unavailable
from budwood.volume.protocols import Durability

from .. import fork_server
from ..second_reader import Home

PAGE = 4096
RECORD = 2 * BLOCK_BYTES
"""A record of one page."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def edge(home: Path) -> Iterator[Edge]:
    with open_edge(home=home, remote="") as opened:
        yield opened


@pytest.fixture
def volume(edge: Edge) -> Volume:
    made = edge.create("v", page_size=PAGE)
    write(made, {1: b"first"})
    return made


def write(volume: Volume, pages: dict[int, bytes], durability: Durability = Durability.ORDERED) -> None:
    writer = volume.writer()
    for page, text in pages.items():
        writer.write(page, text.ljust(PAGE, b"."))
    after = writer.commit(durability)
    assert after is not None
    after.close()


def read(volume: Volume, *pages: int) -> list[bytes]:
    with closing(volume.snapshot()) as snapshot:
        return [snapshot.read(page).rstrip(b".") for page in pages]


def killed(source: str, home: Path) -> None:
    """What a child does to the home before it is gone without closing it."""
    program = f"{PROGRAM}\n{source}\nos.kill(os.getpid(), 9)"
    child = fork_server.run([sys.executable, "-P", "-c", program, home])
    assert child.returncode == -9, child.stderr


PROGRAM = """
import os, sys
from pathlib import Path
from budwood.sync import commit_journal
from budwood.sync.edge import open as open_edge
from budwood.tests.unit.test_commit_journal import read, write
from budwood.volume.protocols import Durability
edge = open_edge(home=Path(sys.argv[1]), remote="")
"""

COMMITS = """
volume = edge.create("v", page_size=4096)
write(volume, {1: b"first"})
write(volume, {1: b"a", 2: b"a"})
write(volume, {2: b"b"})
write(volume, {2: b"c"})
"""
THIRD, FOURTH = FIRST_RECORD + 5 * BLOCK_BYTES, FIRST_RECORD + 7 * BLOCK_BYTES
"""Where their records lie: a commit of two pages takes three blocks."""
LAST = FOURTH // BLOCK_BYTES + 1
"""The last block of the fourth."""


def test_a_small_commit_is_a_record_and_lmdb_is_left_alone(home: Path, volume: Volume) -> None:
    write(volume, {1: b"second"})
    environment = volume.local.environment
    before, (number, end) = environment.data_path.read_bytes(), environment.position()
    write(volume, {1: b"third"}, Durability.DURABLE)
    assert environment.data_path.read_bytes() == before
    assert environment.position() == (number, end + RECORD)
    assert read(volume, 1) == [b"third"]
    assert volume.status()["unpushed"] == 3
    assert [row["lsn"] for row in volume.log()] == ["0+3", "0+2", "0+1"]


def test_a_view_keeps_what_it_has_whatever_becomes_of_the_journal(
    volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_journal, "FIRST_BYTES", 4 * RECORD)
    monkeypatch.setattr(commit_journal, "MAX_BYTES", 4 * RECORD)
    views: list[tuple[bytes, LocalSnapshot]] = []
    for number in range(40):
        text = b"%d" % number
        write(volume, {1: text, 2 + number % 3: text})
        view = volume.snapshot()
        assert isinstance(view, LocalSnapshot)
        views.append((text, view))
    for text, view in views:
        assert view.read(1).rstrip(b".") == text
        view.close()


def test_a_renewed_view_reads_from_the_journal_and_then_from_lmdb(edge: Edge, volume: Volume) -> None:
    write(volume, {1: b"a", 2: b"a"})
    with closing(volume.snapshot()) as view:
        assert isinstance(view, LocalSnapshot)
        view.release()
        assert view.renew()
        assert view.read(1).rstrip(b".") == b"a"
        view.release()
        edge.environment.settle()
        assert view.renew(), "it was moved, and is the same"
        assert [view.read(page).rstrip(b".") for page in (1, 2)] == [b"a", b"a"]
        write(volume, {2: b"b"})
        assert view.read(2).rstrip(b".") == b"a"
        view.release()
        assert not view.renew()


def test_another_process_sees_a_commit_at_once_and_is_seen(home: Path, volume: Volume) -> None:
    write(volume, {1: b"mine"})
    killed('assert read(edge.volume("v"), 1) == [b"mine"]; write(edge.volume("v"), {1: b"theirs", 2: b"x"})', home)
    assert read(volume, 1, 2) == [b"theirs", b"x"]
    write(volume, {2: b"y"})
    killed('assert read(edge.volume("v"), 1, 2) == [b"theirs", b"y"]', home)


def test_every_kind_of_commit_follows_the_others(edge: Edge, volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small and large ones, ones that shrink, changes of names, forks, and views held meanwhile, against a dict."""
    monkeypatch.setattr(commit_journal, "FIRST_BYTES", 6 * RECORD)
    monkeypatch.setattr(commit_journal, "MAX_BYTES", 12 * RECORD)
    monkeypatch.setattr(commit_journal, "MAX_COMMIT_BYTES", 3 * PAGE)
    way, model = random.Random(5), {1: b"first"}
    length, held = 1, list[tuple[dict[int, bytes], int, LocalSnapshot]]()
    for number in range(400):
        writer = volume.writer()
        if way.random() < 0.1:
            length = way.randrange(1, length + 1)
            writer.truncate(length * PAGE)
            model = {page: text for page, text in model.items() if page <= length}
        for page in way.sample(range(1, 14), way.choice((1, 1, 2, 3, 5))):
            model[page] = b"%d %d" % (number, page)
            writer.write(page, model[page].ljust(PAGE, b"."))
            length = max(length, page)
        after = writer.commit(way.choice(list(Durability)))
        assert isinstance(after, LocalSnapshot)
        if way.random() < 0.1:
            held.append((dict(model), length, after))
        else:
            after.close()
        match way.randrange(12):
            case 0:
                edge.create(f"other {number}", page_size=PAGE)
            case 1:
                fork = edge.fork("v", f"fork {number}")
                check(fork.snapshot(), model, length)
            case 2:
                volume.local.change_record(mode="both")
            case 3:
                _, _, view = held.pop() if held else (None, None, volume.snapshot())
                assert isinstance(view, LocalSnapshot)
                view.close()
            case _:
                pass
        check(volume.snapshot(), model, length)
        assert volume.local.peek().unpushed == number + 2
        for before, its_length, view in held:
            check(view, before, its_length, close=False)
    for _, _, view in held:
        view.close()


def check(view: object, model: dict[int, bytes], length: int, *, close: bool = True) -> None:
    assert isinstance(view, LocalSnapshot)
    assert view.length == length * PAGE
    found = {page: view.read(page).rstrip(b".") for page in range(1, length + 1)}
    assert {page: text for page, text in found.items() if any(text)} == model
    if close:
        view.close()


def test_a_home_that_was_closed_is_all_in_lmdb(home: Path) -> None:
    with open_edge(home=home, remote="") as edge:
        volume = edge.create("v", page_size=PAGE)
        for text in (b"a", b"b"):
            write(volume, {1: text})
    (home / "store" / "shared").unlink()
    with open_edge(home=home, remote="") as edge:
        assert edge.environment.keeper is not None
        with edge.environment.look() as (_, tail):
            assert tail.is_empty
        assert read(edge.volume("v"), 1) == [b"b"]


def journal_of(home: Path) -> bytearray:
    return bytearray((home / "store" / "journal").read_bytes())


def rewritten(home: Path, data: bytes | bytearray) -> None:
    """As a power loss may leave it: nothing is known of what was published before."""
    (home / "store" / "journal").write_bytes(data)
    (home / "store" / "shared").unlink()


def found_in(home: Path) -> list[bytes]:
    with open_edge(home=home, remote="") as edge:
        return read(edge.volume("v"), 1, 2)


@pytest.mark.parametrize("torn", range(0, RECORD - PAGE, 512))
def test_a_torn_tail_is_no_error_and_no_commit(home: Path, torn: int) -> None:
    killed(COMMITS, home)
    data = journal_of(home)
    data[FOURTH + torn : FOURTH + torn + 512] = bytes(512)
    rewritten(home, data)
    assert found_in(home) == [b"a", b"b"]
    with open_edge(home=home, remote="") as edge:
        write(edge.volume("v"), {2: b"d"})
    assert found_in(home) == [b"a", b"d"]


def test_what_stands_behind_a_hole_is_lost_and_never_comes_back(home: Path) -> None:
    killed(COMMITS, home)
    data = journal_of(home)
    data[THIRD : THIRD + BLOCK_BYTES] = bytes(BLOCK_BYTES)
    rewritten(home, data)
    killed('assert read(edge.volume("v"), 2) == [b"a"]', home)
    killed('write(edge.volume("v"), {1: b"after"}); write(edge.volume("v"), {1: b"after"})', home)
    headers = [unpack_header(bytes(journal_of(home)[at : at + BLOCK_BYTES])) for at in (0, BLOCK_BYTES)]
    assert sorted(header.generation for header in headers if header is not None) == [2, 3], "it has begun anew"
    assert found_in(home) == [b"after", b"a"]


def test_a_hole_in_what_was_flushed_is_damage(home: Path) -> None:
    durable = COMMITS.replace('{2: b"b"}', '{2: b"b"}, Durability.DURABLE')
    killed(durable, home)
    data = journal_of(home)
    data[THIRD + 700] ^= 1
    rewritten(home, data)
    with pytest.raises(Corrupt, match=r"store/journal.*durable are gone"):
        found_in(home)


@pytest.mark.parametrize("is_rebooted", [False, True], ids=["this boot", "a later one"])
def test_damage_of_any_block_is_told_or_makes_no_difference(home: Path, tmp_path: Path, is_rebooted: bool) -> None:
    """Of the last ones nobody knows, after a power loss."""
    killed(COMMITS.replace("})", "}, Durability.DURABLE)"), home)
    data = journal_of(home)
    for first, count in [(block, count) for count in (1, 2, 3) for block in range(LAST + 1)]:
        case = tmp_path / f"case-{first}-{count}"
        shutil.copytree(home, case)
        damaged = data.copy()
        damaged[first * BLOCK_BYTES : (first + count) * BLOCK_BYTES] = bytes(count * BLOCK_BYTES)
        rewritten(case, damaged)
        if not is_rebooted:
            shutil.copy(home / "store" / "shared", case / "store")
            words = shared_words(case / "store" / "data.mdb")
            words[IDENTITY] = identity_of(case / "store" / "data.mdb")
        if first + count <= 2 and count < 2:
            assert found_in(case) == [b"a", b"c"], "one of the headers"
            mended = unpack_header(bytes(journal_of(case)[BLOCK_BYTES:FIRST_RECORD]))
            assert mended is not None, "the one in force, which its first record tells"
        elif is_rebooted and first + count >= LAST:
            assert found_in(case) == ([b"a", b"b"] if first >= LAST - 1 else [b"a", b"a"])
        else:
            with pytest.raises(Corrupt, match=r"store/journal.* it is the journal of this home, and "):
                found_in(case)
            assert verify(case, modes=False).findings
            (fate,) = rebuild(case).fates
            assert fate.outcome != "whole", (first, count)
            assert verify(case, modes=False).findings == ()


def test_who_verifies_a_home_that_is_written_to_sees_one_moment_of_it(
    home: Path, edge: Edge, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not LMDB's of one and the journal's of another."""
    looks, copied = list[Path](), home_image._journal_of  # pyright: ignore[reportPrivateUsage]

    def overtaken(data: Path) -> bytes:
        looks.append(data)
        if len(looks) < 3:
            edge.create(f"w{len(looks)}")
            for _ in range(8):
                write(volume, {2: b"later"}, Durability.DURABLE)
        return copied(data)

    for name in ("FIRST_BYTES", "MAX_BYTES"):
        monkeypatch.setattr(commit_journal, name, 3 * RECORD)
    monkeypatch.setattr(home_image, "_journal_of", overtaken)
    assert verify(home).findings == ()
    assert len(looks) == 3


@pytest.mark.parametrize("what", ["gone", "empty", "another home's", "newer"])
def test_a_journal_that_is_not_the_homes_is_damage(home: Path, tmp_path: Path, what: str) -> None:
    killed(COMMITS + 'edge.create("w")\n' + 'write(volume, {2: b"d"})\n', home)
    path, other = home / "store" / "journal", tmp_path / "other"
    match what:
        case "gone":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "newer":
            small = "commit_journal.FIRST_BYTES = commit_journal.MAX_BYTES = 3 * 8192\n"
            shutil.copytree(home, other)
            killed(small + 'volume = edge.volume("v")\nfor n in range(12): write(volume, {2: b"%d" % n})', other)
            shutil.copy(other / "store" / "journal", path)
        case _:
            killed(COMMITS + 'edge.create("w")\n' + 'write(volume, {2: b"d"})\n', other)
            shutil.copy(other / "store" / "journal", path)
    with pytest.raises(Corrupt, match=r"store/journal.* it is the journal of this home, and it "):
        found_in(home)


def test_an_older_journal_has_nothing_that_the_store_has_not(home: Path, tmp_path: Path) -> None:
    """As when a power loss takes a header back that nothing durable was written under."""
    killed(COMMITS, home)
    before = journal_of(home)
    small = "commit_journal.FIRST_BYTES = commit_journal.MAX_BYTES = 3 * 8192\n"
    many = 'volume = edge.volume("v")\nfor n in range(12): write(volume, {2: b"%d" % n})\n'
    killed(small + many + 'edge.create("w")', home)
    rewritten(home, before)
    assert found_in(home)[1] == b"11"


def test_nothing_is_appended_to_a_store_that_may_be_taken_back(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    """What LMDB was given since is flushed first, once, whatever is asked of the commit."""
    environment, order = volume.local.environment, list[str]()
    flush_store, append = environment.flush_store, os.pwritev

    def flushing() -> None:
        order.append("flush")
        flush_store()

    def appending(fd: int, parts: list[bytes], at: int) -> int:
        order.append("append")
        return append(fd, parts, at)

    monkeypatch.setattr(environment, "flush_store", flushing)
    monkeypatch.setattr(os, "pwritev", appending)
    write(volume, {1: b"a"})
    order.clear()
    write(volume, {1: b"b"})
    volume.local.change_record(mode="both")
    write(volume, {1: b"c"})
    write(volume, {1: b"d"})
    assert order == ["append", "flush", "append", "append"]


def test_a_number_of_lmdbs_is_another_transaction_after_a_power_loss(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(COMMITS, home)
    shared = home / "store" / "shared"
    words = memoryview(bytearray(shared.read_bytes())).cast("Q")
    words[DURABLE] = 1 << 40
    shared.write_bytes(words.tobytes())
    with open_edge(home=home, remote="") as edge:
        volume, flushed = edge.volume("v"), list[int]()
        write(volume, {1: b"moves what was left"})
        flush_store = edge.environment.flush_store

        def counted() -> None:
            flushed.append(1)
            flush_store()

        monkeypatch.setattr(edge.environment, "flush_store", counted)
        write(volume, {1: b"begins anew"})
        assert flushed == [1]


def test_what_follows_another_record_than_it_says_is_no_commit(home: Path, volume: Volume) -> None:
    """A process is killed when its commit is flushed and not published; others write over it. A power loss then leaves
    the first on the disk, and what was built on the second.
    """
    write(volume, {1: b"base", 2: b"base"})
    position = volume.local.environment.position()[1]
    killed(
        """
from budwood.volume import faults
faults.arm("journal: record flushed, not published", lambda: os.kill(os.getpid(), 9))
write(edge.volume("v"), {2: b"never told"})
""",
        home,
    )
    at = FIRST_RECORD + position
    first = journal_of(home)[at : at + RECORD]
    write(volume, {2: b"told"})
    write(volume, {1: b"on top"})
    assert read(volume, 1, 2) == [b"on top", b"told"]
    data = journal_of(home)
    assert data[at : at + RECORD] != first
    data[at : at + RECORD] = first
    copy = home.with_name("copy")
    shutil.copytree(home, copy)
    rewritten(copy, data)
    assert found_in(copy) == [b"base", b"never told"]


def test_a_push_sends_what_it_captured_though_the_journal_is_moved_meanwhile(tmp_path: Path, home: Path) -> None:
    with open_edge(home=home, remote=f"file://{tmp_path / 'store'}") as edge, faults_cleared():
        volume = edge.create("v", page_size=PAGE)
        write(volume, {1: b"a"})

        def meanwhile() -> None:
            faults.disarm()
            write(volume, {1: b"b"})
            edge.environment.settle()

        faults.arm("push: end captured, nothing sent", meanwhile)
        assert volume.push() == "1+1"
        with closing(volume.snapshot(lsn=1)) as snapshot:
            assert snapshot.read(1).rstrip(b".") == b"a"
        assert read(volume, 1) == [b"b"]


@contextmanager
def faults_cleared() -> Generator[None]:
    try:
        yield
    finally:
        faults.disarm()


def test_a_first_journal_whose_header_was_lost_is_passed_over(home: Path) -> None:
    """Nothing of it was flushed, and all of it was moved."""
    killed(COMMITS + 'edge.create("w")\n', home)
    data = journal_of(home)
    data[BLOCK_BYTES:] = bytes(len(data) - BLOCK_BYTES)
    rewritten(home, data)
    assert found_in(home) == [b"a", b"c"]
    with open_edge(home=home, remote="") as edge:
        for text in (b"d", b"e"):
            write(edge.volume("v"), {1: text})
    assert found_in(home) == [b"e", b"c"]


def test_a_flush_that_fails_acknowledges_nothing_and_all_goes_through_lmdb(
    home: Path, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(volume, {1: b"a"})
    write(volume, {1: b"b"})
    with monkeypatch.context() as patch:

        def fails(fd: int) -> None:
            raise OSError(errno.EIO, "Input/output error")

        patch.setattr(os, "fdatasync", fails)
        with pytest.raises(Unavailable, match="journal") as caught:
            write(volume, {1: b"c"}, Durability.DURABLE)
        assert not caught.value.determinate
    assert read(volume, 1) == [b"b"]
    before = journal_of(home)
    write(volume, {1: b"d"}, Durability.DURABLE)
    assert journal_of(home) == before, "it went into LMDB, with what the journal held"
    with volume.local.environment.look() as (_, tail):
        assert tail.is_empty
    killed('assert read(edge.volume("v"), 1) == [b"d"]', home)
    write(volume, {1: b"e"})
    assert journal_of(home) != before, "and the journal has begun anew"


@pytest.mark.parametrize("failure", ["OSError(5, 'Input/output error')", "KeyboardInterrupt('journal')"])
def test_what_was_refused_or_interrupted_is_struck_out(home: Path, failure: str) -> None:
    killed(
        COMMITS
        + f"""
def fails(fd):
    raise {failure}
os.fdatasync = fails
try:
    write(volume, {{2: b"refused"}}, Durability.DURABLE)
except BaseException as error:
    assert "journal" in str(error)
else:
    raise AssertionError
""",
        home,
    )
    assert found_in(home) == [b"a", b"c"]


def test_a_full_disk_fails_a_commit_and_no_read(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    write(volume, {1: b"a"})
    with monkeypatch.context() as patch:

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(os, "pwritev", full)
        with pytest.raises(Full, match=r"journal.*nothing was changed"):
            write(volume, {1: b"b"})
        assert read(volume, 1) == [b"a"]
    write(volume, {1: b"c"})
    write(volume, {1: b"d"})
    assert read(volume, 1) == [b"d"]


def test_a_home_of_the_version_before_is_read_and_becomes_this_one(home: Path) -> None:
    with open_edge(home=home, remote="") as edge:
        write(edge.create("v", page_size=PAGE), {1: b"old", 2: b"x"})
        as_format(edge, BEFORE_JOURNAL)
    with open_edge(home=home, remote="") as edge:
        assert edge.environment.format.version == FORMAT_VERSION
        assert msgspec.json.decode((home / "home.json").read_bytes())["format"] == FORMAT_VERSION
        write(edge.volume("v"), {2: b"y"})
    assert found_in(home) == [b"old", b"y"]


def test_while_another_process_has_a_home_of_the_version_before_there_is_no_journal(home: Path) -> None:
    with open_edge(home=home, remote="") as edge:
        volume = edge.create("v", page_size=PAGE)
        write(volume, {1: b"old", 2: b"x"})
        as_format(edge, BEFORE_JOURNAL)
        killed('assert edge.environment.keeper is None\nwrite(edge.volume("v"), {2: b"y"})', home)
        assert read(volume, 1, 2) == [b"old", b"y"]


def as_format(edge: Edge, version: int) -> None:
    """As an older Budwood would have made it; all is in LMDB by then."""
    environment = edge.environment
    record = msgspec.structs.replace(environment.format, version=version)
    environment.update(lambda txn: environment.put(txn, "meta", b"format", record))
    assert isinstance(environment.format, Format)


def test_a_fork_of_the_process_writes_by_the_same_journal(home: Path, volume: Volume) -> None:
    write(volume, {1: b"a"})
    write(volume, {1: b"b"})
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            assert read(volume, 1) == [b"b"]
            write(volume, {1: b"child's"})
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert read(volume, 1) == [b"child's"]
    write(volume, {1: b"parent's"})
    assert read(volume, 1) == [b"parent's"]


def test_sqlite_keeps_its_promise_by_the_pragma(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FULL and EXTRA flush once a commit, NORMAL and OFF never."""
    flushes: list[int] = []
    real = os.fdatasync

    def counted(fd: int) -> None:
        flushes.append(fd)
        real(fd)

    with closing(budwood.connect("v", home=home, remote="")) as db:
        db.execute("CREATE TABLE t(n)")
        db.execute("INSERT INTO t VALUES(0)")
        monkeypatch.setattr(os, "fdatasync", counted)
        for mode, expected in (("full", 3), ("extra", 3), ("normal", 0), ("off", 0)):
            db.pragma("synchronous", mode)
            flushes.clear()
            for _ in range(3):
                db.execute("UPDATE t SET n = n + 1")
            assert len(flushes) == expected, mode


def test_the_second_reader_finds_the_same_in_the_journal(home: Path) -> None:
    killed(COMMITS + 'edge.create("w")\nwrite(volume, {2: b"d"})\nwrite(volume, {3: b"e", 1: b"f"})\n', home)
    found = Home(home)
    volume = found.volume(found.volumes()["v"])
    assert volume.label == "0+6"
    assert [volume.page(page, None).rstrip(b".") for page in (1, 2, 3, 4)] == [b"f", b"d", b"e", bytes(PAGE)]

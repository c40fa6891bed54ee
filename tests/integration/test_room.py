"""The room that a home takes: what is no longer held comes back, and of what the remote has as much is kept as is said
(docs/design/0106-room.md).
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import lmdb
import msgspec
import pytest

import budwood
from budwood.sync import eviction, free_room
from budwood.sync.ballast import BALLAST_BYTES, Ballast
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.free_room import room, runs
from budwood.sync.namespace import Namespace
from budwood.sync.recency import open_recency
from budwood.sync.snapshot import LocalSnapshot
from budwood.sync.tables import Head, SyncLease, VolumeRecord
from budwood.sync.verify import verify
from budwood.sync.volume import Volume
from budwood.vfs import register
from budwood.volume.byte_sizes import bytes_in
from budwood.volume.errors import BadInput, Full, Unavailable
from budwood.volume.pageset import span
from budwood.volume.protocols import Durability

from ..small_disk import small_disk
from .cli import Command

PAGE = 4096
MIB = 1024 * 1024


def fill(db: apsw.Connection, rows: int) -> None:
    with db:
        db.execute("CREATE TABLE t (i INTEGER PRIMARY KEY, n INT, v BLOB)")
        db.execute(
            "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?) "
            "INSERT INTO t SELECT i, 0, randomblob(1000) FROM c",
            (rows,),
        )


def held(edge: Edge, name: str = "v") -> int:
    return int(edge.volume(name).status()["held_bytes"])


def on_disk(home: Path) -> int:
    return sum(each.stat().st_blocks * 512 for each in (home / "store").iterdir())


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture
def pushed(tmp_path: Path, url: str) -> bytes:
    """A volume `v` of 2,000 pages on the remote; what a page of it begins with is its number."""
    with open_edge(home=tmp_path / "maker", remote=url) as edge:
        volume = edge.create("v", page_size=PAGE)
        write(volume, {page: b"%d." % page for page in range(1, 2001)})
        volume.push()
        return volume.id.raw


@pytest.fixture
def edge(tmp_path: Path, url: str, pushed: bytes) -> Iterator[Edge]:
    """A home that has the volume, with none of its pages."""
    assert pushed
    with open_edge(home=tmp_path / "home", remote=url, cache_bytes="4M") as opened:
        yield opened


def write(volume: Volume, pages: dict[int, bytes]) -> None:
    writer = volume.writer()
    for page, text in pages.items():
        # Such as can't be packed: else all of them come with the first.
        writer.write(page, text + os.urandom(PAGE - len(text)))
    after = writer.commit(Durability.ORDERED)
    assert after is not None
    after.close()


def read(volume: Volume, *pages: int) -> list[int]:
    """Their numbers, as they themselves say."""
    with closing(volume.snapshot()) as snapshot:
        return [int(snapshot.read(page).partition(b".")[0]) for page in pages]


def missing(volume: Volume) -> set[int]:
    with closing(volume.snapshot()) as snapshot:
        assert isinstance(snapshot, LocalSnapshot)
        return set(snapshot.missing(span(1, 2000)))


# What is no longer held


def test_after_updates_of_all_rows_a_home_is_as_small_as_what_it_holds(tmp_path: Path) -> None:
    home = tmp_path / "home"
    db = budwood.connect("v", home=home, remote="")
    fill(db, 20_000)
    for _ in range(3):
        with db:
            db.execute("UPDATE t SET n = n + 1")
    db.close()
    assert os.stat(home / "store" / "data.mdb").st_size < 30 * MIB
    with open_edge(home=home, remote="") as edge:
        assert on_disk(home) <= 1.3 * held(edge)
    with closing(budwood.connect("v", home=home, remote="")) as db:
        assert db.execute("SELECT count(*), min(n), max(n) FROM t").fetchall() == [(20_000, 3, 3)]
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_room_comes_back_while_another_process_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    with closing(budwood.connect("v", home=home, remote="")) as db:
        fill(db, 20_000)
        db.execute("DELETE FROM t WHERE i > 1000")
        db.execute("VACUUM")
        user = Command(capsys, home)
        with user.start("compact") as child:
            out, _ = child.communicate()
        assert "with holes" in out
        assert on_disk(home) < 6 * MIB
        assert db.execute("SELECT count(*) FROM t; PRAGMA integrity_check").fetchall() == [(1000,), ("ok",)]


def test_what_a_view_reads_is_not_given_back(tmp_path: Path) -> None:
    with open_edge(home=tmp_path / "home", remote="") as edge:
        volume = edge.create("v", page_size=PAGE)
        write(volume, {page: b"%d." % page for page in range(1, 3001)})
        with closing(volume.snapshot()) as view:
            write(volume, dict.fromkeys(range(1, 3001), b"0."))
            free_room.give_back(edge.environment)
            assert [int(view.read(page).partition(b".")[0]) for page in range(1, 3001)] == list(range(1, 3001))
        assert room(edge.environment).on_disk > 20 * MIB
        free_room.give_back(edge.environment)
        assert room(edge.environment).on_disk < 17 * MIB
        assert read(volume, 1, 3000) == [0, 0]


def test_what_was_given_back_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction before the newest leads to it still."""
    monkeypatch.setattr(free_room, "SPARED_PAGES", 0)
    with open_edge(home=tmp_path / "home", remote="") as edge:
        for name in ("v", "w"):
            write(edge.create(name, page_size=PAGE), dict.fromkeys(range(1, 3001), b"1."))
        edge.rm("v", discard=True)
        free_room.give_back(edge.environment)
        assert verify(tmp_path / "home").findings == ()


def test_a_home_that_another_process_has_open_is_not_replaced(tmp_path: Path) -> None:
    home = tmp_path / "home"
    program = (
        "import sys, budwood\nfrom pathlib import Path\n"
        "edge = budwood.open(home=sys.argv[1], remote='')\nedge.compact()\nedge.close()\nprint('done')"
    )
    with open_edge(home=home, remote="") as edge:
        write(edge.create("v", page_size=PAGE), dict.fromkeys(range(1, 2001), b"1."))
        inode = os.stat(home / "store" / "data.mdb").st_ino
        edge.rm("v", discard=True)
        subprocess.run([sys.executable, "-P", "-c", program, home], check=True, stdout=subprocess.DEVNULL)
        assert os.stat(home / "store" / "data.mdb").st_ino == inode
        assert on_disk(home) < 3 * MIB
    assert edge.home == home


def test_parts_are_found_together() -> None:
    assert list(runs([2, 3, 4, 7, 9, 10])) == [(2, 3), (7, 1), (9, 2)]
    assert list(runs([])) == []


def _always(_record: VolumeRecord, _head: Head) -> bool:
    return True


# What the remote has too


def test_a_home_keeps_as_much_as_it_was_told(edge: Edge) -> None:
    volume = edge.volume("v")
    assert read(volume, *range(1, 2001)) == list(range(1, 2001))
    assert 2 * MIB < held(edge) <= 4 * MIB
    assert read(volume, *range(1, 2001)) == list(range(1, 2001))
    assert held(edge) <= 4 * MIB


def test_the_limit_holds_for_whoever_opens_the_home_next(edge: Edge, tmp_path: Path) -> None:
    program = (
        "import sys, budwood\nedge = budwood.open(home=sys.argv[1], remote=sys.argv[2])\n"
        "view = edge.volume('v').snapshot()\n[view.read(page) for page in range(1, 2001)]\nview.close()\nedge.close()"
    )
    edge.volume("v")
    subprocess.run([sys.executable, "-P", "-c", program, edge.home, edge.remote], check=True)
    assert 2 * MIB < held(edge) <= 4 * MIB
    with open_edge(home=edge.home, remote=edge.remote, cache_bytes=0) as freed:
        freed.volume("v").fetch()
        assert held(freed) > 7 * MIB


def test_what_unpushed_commits_build_on_stays_unless_the_remote_has_promised_to_keep_it(edge: Edge) -> None:
    volume = edge.volume("v")
    write(volume, {1: b"-1."})
    record = volume.local.record()
    head = volume.local.peek()
    lease = SyncLease(
        pin=bytes(16), vid=record.vid, lsn=head.sync_remote, expiry_ms=time.time_ns() // 1_000_000 + 60_000
    )
    comes_back = eviction._comes_back  # pyright: ignore[reportPrivateUsage]
    assert not comes_back(msgspec.structs.replace(record, leases=()), head)
    assert comes_back(msgspec.structs.replace(record, leases=(lease,)), head)
    assert not comes_back(msgspec.structs.replace(record, leases=(msgspec.structs.replace(lease, expiry_ms=1),)), head)
    assert comes_back(msgspec.structs.replace(record, leases=()), head._replace(unpushed=0))


def test_what_was_not_pushed_stays_whatever_the_limit(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = edge.volume("v")
    read(volume, *range(1, 2001))
    monkeypatch.setattr(eviction, "_comes_back", _always)
    write(volume, {page: b"%d." % -page for page in range(1, 1501)})
    edge.environment.cache.set_limit(1)
    assert missing(volume) == set(range(1501, 2001))
    edge.connection().close()
    with open_edge(home=edge.home, remote="file:///nowhere") as offline:
        assert read(offline.volume_here("v"), *range(1, 1501)) == [-page for page in range(1, 1501)]
    assert volume.push() == "2"
    assert held(edge) < MIB, "what was pushed is cache"
    assert read(volume, 1, 1500, 2000) == [-1, -1500, 2000]


def test_a_scan_drives_out_nothing_that_is_read_again(edge: Edge) -> None:
    volume = edge.volume("v")
    hot = random.Random(3).sample(range(1, 2001), 200)
    for _ in range(2):
        read(volume, *hot)
    for _ in range(4):
        read(volume, *range(1, 2001))
    assert len(missing(volume).intersection(hot)) <= 20
    assert len(missing(volume)) > 900


def test_what_is_no_longer_read_makes_way(edge: Edge) -> None:
    volume = edge.volume("v")
    edge.environment.cache.set_limit(2 * MIB)
    first, second = range(1, 1000, 3), range(1001, 2000, 3)
    for pages in (first, second):
        for seed in range(6):
            shuffled = list(pages)
            random.Random(seed).shuffle(shuffled)
            read(volume, *shuffled)
    assert len(missing(volume).intersection(second)) < len(second) // 4


def test_without_the_remote_a_page_that_went_says_so_in_one_line(
    edge: Edge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volume = edge.volume("v")
    read(volume, *range(1, 2001))
    gone = min(missing(volume))
    here = next(page for page in range(1, 2001) if page not in missing(volume))
    dead = "http://127.0.0.1:9"
    with open_edge(home=edge.home, remote=dead) as offline:
        assert read(offline.volume("v"), here) == [here]
        with pytest.raises(Unavailable, match=f"page {gone} of volume 'v' isn't here, and can't reach"):
            read(offline.volume("v"), gone)
    said = Command(capsys, edge.home, dead)("export", "v", str(tmp_path / "out")).line()
    assert "isn't here, and can't reach" in said


def test_more_than_the_home_may_keep_is_not_fetched(edge: Edge, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    edge.volume("v")
    user = Command(capsys, edge.home, url)
    assert "--cache-bytes" in user("fetch", "--all").line(2)
    assert "--cache-bytes" in user("fetch", "v").line(2)
    assert user.ok("--cache-bytes", "16M", "fetch", "--all").endswith("pages of 1 volume\n")
    assert user.ok("fetch", "--all") == "nothing to fetch: all of 1 volume is here\n"
    assert "fetch takes" in user("fetch").line(2)
    assert "no size in bytes" in user("--cache-bytes", "many", "ls").line(2)


def test_the_limit_may_stand_in_a_uri(edge: Edge, url: str) -> None:
    register(home=edge.home, remote=url, name="room")
    flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE
    db = apsw.Connection("file:v?vfs=room&cache_bytes=6M", flags=flags)
    with pytest.raises(apsw.Error):
        db.execute("SELECT * FROM sqlite_schema")
    db.close()
    with edge.environment.view() as txn:
        assert edge.environment.cache.limit_bytes(txn) == 6 * MIB


def test_sizes_are_read_as_people_write_them() -> None:
    assert [bytes_in(text) for text in ("0", "64K", "2g", "1 MiB".replace(" ", ""))] == [0, 65536, 2 << 30, MIB]
    for text in ("", "-1", "1X", "1.5G", "K"):
        with pytest.raises(BadInput):
            bytes_in(text)


def test_marks_grow_with_the_limit_and_are_shared(tmp_path: Path) -> None:
    small, large = open_recency(tmp_path / "data.mdb", 1), open_recency(tmp_path / "data.mdb", 64 * MIB)
    assert (len(small.marks), len(large.marks)) == (4096, 32768)
    small.marks[7] = 2
    assert large.marks[7] == 2
    small.close()
    small.marks[7] = 0
    assert large.marks[7] == 2


# A full disk


def test_on_a_full_disk_commits_stop_and_reads_go_on_and_a_limit_makes_room(
    tmp_path: Path, url: str, pushed: bytes
) -> None:
    assert pushed
    with small_disk(tmp_path / "disk", 6144) as disk, open_edge(home=disk / "home", remote=url) as edge:
        volume = edge.volume("v")
        assert read(volume, *range(1, 2001)) == list(range(1, 2001)), "what doesn't fit is read, and not kept"
        assert missing(volume)
        edge.environment.cache.set_limit(MIB)
        write(volume, {1: b"-1."})
        assert read(volume, 1, 2, 2000) == [-1, 2, 2000]
        assert volume.push() == "2"


class FullOnce:
    """LMDB's environment, whose next transactions that write find no room, as many as are left."""

    def __init__(self, env: lmdb.Environment, left: int) -> None:
        self.left = left
        self._env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def begin(self, *arguments: Any, write: bool = False, **more: Any) -> Any:
        if write and self.left:
            self.left -= 1
            error: Any = lmdb.DiskError("no room")
            error.code = errno.ENOSPC
            raise error
        begin: Any = self._env.begin
        return begin(*arguments, write=write, **more)


@pytest.mark.parametrize("is_laid", [True, False])
@pytest.mark.parametrize("change", ["a removed name", "a removed volume", "a limit", "a new volume"])
def test_what_makes_room_and_nothing_else_may_use_the_ballast(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, change: str, is_laid: bool
) -> None:
    environment = edge.environment
    ballast = environment.path / "ballast"
    for name in ("v", "w"):
        edge.create(name)
    if is_laid:
        Ballast(environment.path).lay(4 * BALLAST_BYTES)
        assert ballast.stat().st_blocks * 512 >= BALLAST_BYTES
    changes: dict[str, Callable[[], object]] = {
        "a removed name": lambda: Namespace(edge).remove("v"),
        "a removed volume": lambda: edge.rm("w", discard=True),
        "a limit": lambda: environment.cache.set_limit(MIB),
        "a new volume": lambda: edge.create("x"),
    }
    monkeypatch.setattr(environment, "_env", FullOnce(environment.handle, 1))
    if is_laid and change != "a new volume":
        changes[change]()
        assert not ballast.exists()
    else:
        with pytest.raises(Full):
            changes[change]()
        assert ballast.exists() == is_laid


def test_a_home_that_was_removed_while_it_was_open_is_closed_without_a_word(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with closing(budwood.connect("v", home=home, remote="")) as db:
        db.execute("CREATE TABLE t(a); INSERT INTO t VALUES (zeroblob(100000))")
        shutil.rmtree(home)
    assert not home.exists()

"""restore, verify and rebuild as a user meets them, and labels wherever a time is taken."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import budwood
from budwood.sync import rebuild as rebuilding
from budwood.sync.rebuild import rebuild
from budwood.sync.verify import verify
from budwood.sync.volume import Volume
from budwood.volume.errors import Busy
from budwood.volume.protocols import Durability

from .. import fork_server
from ..waits import LIMIT_SECONDS, wait_until
from .cli import Command

PAGE = 4096


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


@pytest.fixture
def user(capsys: pytest.CaptureFixture[str], tmp_path: Path, store: str) -> Command:
    return Command(capsys, tmp_path / "home", store)


@pytest.fixture
def shop(user: Command) -> str:
    user.ok("create", "shop")
    user.ok("sql", "shop", "create table t(a)")
    user.ok("push", "shop")
    for number in (1, 2):
        user.ok("sql", "shop", f"insert into t values({number})")
        user.ok("push", "shop")
    return "shop"


def rows(user: Command, name: str, *options: str) -> list[int]:
    return [int(line) for line in user.ok("sql", name, "select a from t order by a", *options).split()]


def put(volume: Volume, pages: dict[int, bytes], length: int) -> None:
    """A commit of these pages, each full of one byte; `length` in pages."""
    writer = volume.writer()
    writer.truncate(length * PAGE)
    for page, byte in pages.items():
        writer.write(page, byte * PAGE)
    writer.commit(Durability.DURABLE)


def pages_of(volume: Volume) -> dict[int, bytes]:
    """As `put` has them, but for zeros."""
    with closing(volume.snapshot()) as view:
        count = view.length // PAGE
        return {page: data[:1] for page in range(1, count + 1) if any(data := view.read(page))}


def spoil(journal: Path, record: int, at: int = 1000) -> None:
    data = bytearray(journal.read_bytes())
    records = [at for at in range(0, len(data), PAGE) if bytes(data[at + 8 : at + 12]) == b"bwjr"]
    data[records[record] + at] ^= 1
    journal.write_bytes(data)


def test_a_restore_is_a_commit_and_what_came_after_stays(user: Command, shop: str) -> None:
    user.ok("pin", shop, "--lsn", "2", "--as", "one")
    said = user.ok("restore", shop, "--at", "@one", "--push")
    assert said == "shop is as it was at LSN 2: 1 page changed, now at LSN 4\n"
    assert rows(user, shop) == rows(user, shop, "--lsn", "4") == [1]
    assert rows(user, shop, "--lsn", "3") == [1, 2]
    assert "nothing to restore" in user.ok("restore", shop, "--lsn", "4")
    user.ok("restore", shop, "--lsn", "3")
    assert rows(user, shop) == [1, 2]


def test_of_what_lay_beyond_the_head_only_pages_with_something_are_committed(tmp_path: Path, store: str) -> None:
    with budwood.open(home=tmp_path / "home", remote=store) as edge:
        volume = edge.create("sparse")
        put(volume, {1: b"a", 50: b"b"}, 100)
        volume.push()
        put(volume, {}, 1)
        volume.push()
        assert volume.restore(lsn=1).pages == 1
        assert pages_of(volume) == {1: b"a", 50: b"b"}


def test_unpushed_commits_are_kept_or_the_restore_is_refused(user: Command, shop: str) -> None:
    user.ok("sql", shop, "insert into t values(3)")
    assert "1 unpushed commit" in user("restore", shop, "--lsn", "1").line(3)
    assert rows(user, shop) == [1, 2, 3]
    assert "what was unpushed is spare now" in user.ok("restore", shop, "--lsn", "1", "--keep-as", "spare")
    assert rows(user, shop) == []
    assert rows(user, "spare") == [1, 2, 3]


def test_what_cant_be_restored_is_said(user: Command, shop: str, tmp_path: Path) -> None:
    assert "LSN" in user("restore", shop).line(2)
    assert "nobody" in user("restore", shop, "--at", "@nobody").line(1)
    user("restore", shop, "--lsn", "99").line(1)
    dead = Command(user.capsys, tmp_path / "home", "http://127.0.0.1:9")
    assert "nothing was restored" in dead("restore", shop, "--lsn", "1").line(1)
    assert rows(user, shop) == [1, 2]


def test_a_label_moves_and_both_lsns_are_held_meanwhile(user: Command, shop: str) -> None:
    user.ok("pin", shop, "--lsn", "2", "--as", "good")
    assert "called 'good' already" in user("pin", shop, "--as", "good").line(1)
    assert "pinned LSN 3 of shop as @good" in user.ok("pin", shop, "--as", "good", "--move")
    assert rows(user, shop, "--at", "@good") == [1, 2]
    held = {pin["lsn"] for pin in json.loads(user.ok("pins", shop, "--json")) if pin["state"] == "live"}
    assert held == {2, 3}
    assert "--as LABEL" in user("pin", shop, "--move").line(2)


def test_a_sound_home_is_verified_and_left_alone(user: Command, shop: str) -> None:
    user.ok("sql", shop, "insert into t values(3)")
    data = user.home / "store" / "data.mdb"
    before = data.read_bytes()
    assert user.ok("verify").endswith("1 unpushed commit: nothing is wrong\n")
    assert json.loads(user.ok("verify", "--json")) == []
    assert data.read_bytes() == before
    assert user.ok("rebuild") == "nothing is wrong with this home: nothing was done\n"
    assert not list(user.home.glob("store.damaged-*"))


def test_a_home_is_verified_beside_whoever_writes_to_it(tmp_path: Path) -> None:
    program = """
import sys, budwood
db = budwood.connect("v", home=sys.argv[1], remote="")
db.execute("create table t(a, b)")
number = 0
while True:
    number += 1
    db.execute("insert into t values(?, randomblob(?))", (number, number * 37 % 9000))
    if number % 7 == 0:
        db.execute("delete from t where a < ?", (number - 50,))
    print(number, flush=True)
"""
    home = tmp_path / "home"
    child = fork_server.Popen([sys.executable, "-P", "-c", program, home], stdout=subprocess.PIPE, text=True)
    try:
        output = child.stdout
        assert output is not None
        wait_until(lambda: int(output.readline()) > 20)
        for _ in range(12):
            assert verify(home).findings == ()
            output.readline()
        with pytest.raises(Busy, match="open elsewhere"):
            rebuild(home)
    finally:
        child.kill()
        child.communicate(timeout=LIMIT_SECONDS)
    assert verify(home).findings == ()


def test_this_processs_own_open_home_is_verified_and_stays_locked(tmp_path: Path) -> None:
    with closing(budwood.connect("v", home=tmp_path / "home", remote="")) as db:
        db.execute("create table t(a)")
        assert verify(tmp_path / "home").findings == ()
        with pytest.raises(Busy):
            rebuild(tmp_path / "home")
        db.execute("insert into t values(1)")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o602])
def test_what_others_may_read_is_named(user: Command, shop: str, mode: int) -> None:
    (user.home / "store" / "data.mdb").chmod(mode)
    said = user("verify")
    assert (said.code, said.err) == (1, "")
    assert "store/data.mdb: others may read or change it: chmod 0600" in said.out
    user.ok("status", shop)
    user.ok("verify")


def test_a_damaged_journal_costs_the_commits_behind_and_they_are_kept_apart(user: Command, shop: str) -> None:
    """The rows before the damage are the volume's; those behind it can't be read, and are named."""
    program = f"""
import os, budwood
db = budwood.connect({shop!r}, home={str(user.home)!r}, remote={user.options[-1]!r})
db.execute("pragma synchronous = full")
for number in range(3, 9):
    db.execute("insert into t values(?)", (number,))
os.kill(os.getpid(), 9)
"""
    fork_server.run([sys.executable, "-P", "-c", program])
    spoil(user.home / "store" / "journal", -2)
    said = user("verify")
    assert said.code == 1
    assert "journal: it is the journal of this home, and commits that were durable are gone from it" in said.out
    said = user("rebuild")
    assert "the damaged store is kept" in said.out
    kept = rows(user, shop)
    assert kept == list(range(1, len(kept) + 1))
    assert 2 <= len(kept) < 8
    # The page of the last commit is whole, and has them all.
    assert rows(user, f"{shop} (rescued)") == list(range(1, 9))
    assert user.ok("verify").endswith("nothing is wrong\n")
    user.ok("push", shop)


@pytest.mark.parametrize(("at", "outcomes"), [(1000, ["found", "whole"]), (9, ["found", "found"])])
def test_whose_commit_was_lost_is_told_by_its_head_or_it_may_have_been_anyones(
    tmp_path: Path, at: int, outcomes: list[str]
) -> None:
    home = tmp_path / "home"
    program = f"""
import os, budwood
from budwood.volume.protocols import Durability
with budwood.open(home={str(home)!r}, remote="") as edge:
    both = [edge.create(name) for name in ("one", "two")]
    for number in (1, 2, 3):
        for volume in both:
            writer = volume.writer()
            writer.write(1, bytes([number]) * {PAGE})
            writer.commit(Durability.DURABLE)
    os.kill(os.getpid(), 9)
"""
    fork_server.run([sys.executable, "-P", "-c", program])
    spoil(home / "store" / "journal", -2, at)
    fates = rebuild(home).fates
    assert [(fate.name, fate.outcome) for fate in fates] == list(zip(("one", "two"), outcomes, strict=True))
    assert [len(fate.kept) for fate in fates] == [2, 3]
    assert "later commits" in fates[0].lost[0]
    with budwood.open(home=home, remote="") as edge:
        assert [pages_of(edge.volume(name)) for name in ("one", "two")] == [{1: b"\2"}, {1: b"\3"}]


def test_a_volume_that_is_taken_back_knows_how_short_it_was(tmp_path: Path, store: str) -> None:
    """Beyond that nothing is the remote's any more, though it grew again."""
    home = tmp_path / "home"
    with budwood.open(home=home, remote=store) as edge:
        volume = edge.create("v")
        put(volume, dict.fromkeys(range(1, 11), b"a"), 10)
        volume.push()
    program = f"""
import os, budwood
from budwood.volume.protocols import Durability
volume = budwood.open(home={str(home)!r}, remote={store!r}).volume("v")
for page, data, length in ((1, b"b", 2), (1, b"c", 10), (1, b"d", 10), (1, b"e", 10), (1, b"f", 10)):
    writer = volume.writer()
    writer.truncate(length * {PAGE})
    writer.write(page, data * {PAGE})
    writer.commit(Durability.DURABLE)
os.kill(os.getpid(), 9)
"""
    fork_server.run([sys.executable, "-P", "-c", program])
    spoil(home / "store" / "journal", -2)
    (fate,) = rebuild(home).fates
    assert (fate.outcome, len(fate.kept)) == ("cut", 3)
    with budwood.open(home=home, remote=store) as edge:
        assert pages_of(edge.volume("v")) == {1: b"d", 2: b"a"}


def test_who_opens_a_home_as_it_is_set_aside_keeps_it(
    tmp_path: Path, user: Command, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
import sys, budwood
edge = budwood.open(home=sys.argv[1], remote="")
edge.ls()
print("open", flush=True)
sys.stdin.read()
"""
    opened, check_alone = list[subprocess.Popen[str]](), rebuilding._check_alone  # pyright: ignore[reportPrivateUsage]

    def looked(home: Path, store: Path) -> None:
        check_alone(home, store)
        if (home / "rebuilt" / "whole").exists():
            command = [sys.executable, "-P", "-c", program, str(home)]
            child = fork_server.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            opened.append(child)
            assert child.stdout is not None
            assert child.stdout.readline() == "open\n"

    monkeypatch.setattr(rebuilding, "_check_alone", looked)
    try:
        with pytest.raises(Busy, match="was opened meanwhile"):
            rebuild(user.home, force=True)
    finally:
        for child in opened:
            child.communicate(timeout=LIMIT_SECONDS)
    assert verify(user.home).findings == ()
    assert rows(user, shop) == [1, 2]


def test_a_lost_page_of_an_unpushed_volume_is_named_and_the_rest_is_rescued(tmp_path: Path, user: Command) -> None:
    with closing(budwood.connect("only", home=user.home, remote="")) as db:
        db.execute("create table t(a integer primary key, b)")
        db.execute("begin")
        db.executemany("insert into t values(?, ?)", ((n, f"row {n} " * 100) for n in range(200)))
        db.execute("commit")
    data = user.home / "store" / "data.mdb"
    at = data.read_bytes().index(b"row 100 row 100")
    with data.open("r+b") as file:
        file.seek(at)
        file.write(b"ROW")
    (found,) = [each for each in json.loads(user("verify", "--json").out) if each["commits"]]
    assert (found["volume"], found["lost"], len(found["pages"])) == ("only", True, 1)
    said = user("rebuild", "--json")
    assert said.code == 1
    (fate,) = json.loads(said.out)
    assert fate["lost_pages"] == found["pages"]
    assert fate["rescued_as"] == "only (rescued)"
    with closing(budwood.connect("only (rescued)", home=user.home, remote="", mode="rw")) as db:
        assert db.execute("select b from t where a = 3").fetchall() == [("row 3 " * 100,)]
    assert user.ok("verify").endswith("nothing is wrong\n")

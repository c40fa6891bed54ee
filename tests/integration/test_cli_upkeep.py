"""`budwood upkeep` and `budwood gc`: a store that no node serves is folded and collected, and every object has a holder
or a reason to go."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from budwood.server.store.root import GC_INTERVAL_SECONDS

from .cli import Command, serving

COMMITS = 12


@dataclass
class Clock:
    ahead_seconds: float = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Of the wall, for commands in this process."""
    clock, now = Clock(), time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + round(clock.ahead_seconds * 1e9))
    return clock


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@dataclass
class Upkeep:
    command: Command
    store: Path

    def __call__(self, verb: str, *arguments: str) -> str:
        """What it printed."""
        return self.command.ok(verb, "--store", self.store.as_uri(), *arguments)


@pytest.fixture
def upkeep(tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> Upkeep:
    return Upkeep(Command(capsys, tmp_path / "nobody"), store)


def write(command: Command, name: str, commits: int = COMMITS) -> None:
    """Rows of 6,000 bytes, of which the first half is forgotten."""
    command.sql(name, "CREATE TABLE IF NOT EXISTS t (a INTEGER PRIMARY KEY, b)")
    for _ in range(commits):
        command.sql(name, "INSERT INTO t(b) VALUES (randomblob(6000))")
        command.ok("push", name)


@pytest.fixture
def edge(tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """With a volume that a pin and a fork hold LSNs of."""
    edge = Command(capsys, tmp_path / "home", store.as_uri())
    edge.ok("create", "inventory")
    write(edge, "inventory")
    edge.ok("pin", "inventory", "--lsn", "3", "--owner", "the audit")
    edge.ok("fork", "inventory", "branch", "--lsn", "5")
    edge.ok("push", "branch")
    edge.ok("retain", "inventory", "--since", str(COMMITS - 2))
    return edge


def objects(store: Path) -> set[str]:
    files = (path for path in store.rglob("*") if path.is_file() and ".tmp" not in path.parts)
    return {path.relative_to(store).as_posix() for path in files}


def rows(command: Command, name: str, *options: str) -> list[str]:
    return command.sql(name, "SELECT a, hex(substr(b, 1, 8)) FROM t", *options)


def test_what_was_forgotten_goes_an_interval_later(
    edge: Command, upkeep: Upkeep, store: Path, clock: Clock, tmp_path: Path
) -> None:
    before = objects(store)
    newest, held = rows(edge, "inventory"), rows(edge, "inventory", "--lsn", "3")
    out = upkeep("upkeep", "--once")
    assert ": 1 volume folded, what was planned may go from 20" in out
    assert "0 objects deleted" in out.splitlines()[-1]
    assert before <= objects(store), "nothing goes at once"
    *going, last = upkeep("gc", "--dry-run").splitlines()
    assert last.startswith(f"{len(going)} objects of ")
    keys = {line.partition("  ")[0] for line in going}
    assert len(keys) == len(going) > COMMITS / 2
    assert all(line.partition("  ")[2] for line in going), "each has its reason"
    assert keys <= objects(store)
    clock.ahead_seconds = GC_INTERVAL_SECONDS + 60
    assert " objects deleted\n" in upkeep("gc")
    assert not keys & objects(store)
    other = Command(edge.capsys, tmp_path / "other", store.as_uri())
    other.ok("clone", "inventory")
    assert rows(other, "inventory") == newest
    assert rows(other, "inventory", "--lsn", "3") == held
    assert upkeep("scrub").endswith(": nothing is wrong\n")


def test_every_object_has_a_holder_or_is_on_its_way_out(edge: Command, upkeep: Upkeep, store: Path) -> None:
    upkeep("upkeep", "--once")
    write(edge, "branch", 2)
    going = {line.partition("  ")[0] for line in upkeep("gc", "--dry-run").splitlines()[:-1]}
    told = {key: upkeep("gc", "--explain", key) for key in sorted(objects(store)) if not key.startswith("probe/")}
    ended = {key for key, words in told.items() if "of a pin that has ended" in words}
    told = {key: words for key, words in told.items() if key not in ended}
    assert {key for key, words in told.items() if "nobody needs it: " in words} == going
    assert all("nobody needs it: plan " in told[key] for key in going)
    assert all("\nheld by " in words for key, words in told.items() if key not in going)
    assert any("at LSN 3 (named the audit)" in words for words in told.values())
    assert any("at LSN 5 (fork " in words for words in told.values())


def test_a_log_is_left_to_its_node_while_that_answers(
    upkeep: Upkeep, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(store, "--no-upkeep") as url:
        edge = Command(capsys, tmp_path / "home", url)
        edge.ok("create", "inventory")
        write(edge, "inventory")
        edge.ok("retain", "inventory", "--since", str(COMMITS))
        assert f"main: its node looks after it, at {url}\n" in upkeep("upkeep", "--once")
    assert "main: 1 volume folded, what was planned may go from " in upkeep("upkeep", "--once")
    before = objects(store)
    upkeep("upkeep", "--once")
    assert objects(store) == before, "there is nothing left to do, and nothing was written"
    with serving(store, "--no-upkeep") as url:
        edge = Command(capsys, tmp_path / "home", url)
        write(edge, "inventory", 1)
        assert len(rows(edge, "inventory")) == COMMITS + 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gc", "--explain", "root", "--dry-run"], "--explain is about one object: leave out --dry-run"),
        (["gc", "main", "--explain", "root"], "--explain is about one object: leave out the logs"),
        (["gc", "--explain", "logs/x"], "there is no object 'logs/x' in this store"),
        (["gc", "nowhere"], "there is no log 'nowhere' in this store"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    arguments: list[str], words: str, edge: Command, store: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = objects(store)
    command = Command(capsys, tmp_path / "nobody")
    said = command(*arguments, "--store", store.as_uri())
    assert said.line(said.code) == words
    assert said.code in (1, 2)
    assert objects(store) == before


@pytest.mark.parametrize("verb", [["upkeep", "--once"], ["gc"], ["gc", "--dry-run"], ["gc", "--explain", "root"]])
def test_no_store_is_made(verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = Command(capsys, tmp_path / "nobody")
    assert "there is no store" in command(*verb, "--store", (tmp_path / "nothing").as_uri()).line()
    assert not (tmp_path / "nothing").exists()


def test_a_store_says_itself_how_long_what_goes_is_waited_for(
    upkeep: Upkeep, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], clock: Clock
) -> None:
    with serving(store, "--gc-interval", "5m") as url:
        edge = Command(capsys, tmp_path / "home", url)
        edge.ok("create", "inventory")
        write(edge, "inventory")
        edge.ok("retain", "inventory", "--since", str(COMMITS))
    upkeep("upkeep", "--once")
    clock.ahead_seconds = 400
    assert " objects deleted\n" in upkeep("gc")
    assert not upkeep("gc", "--dry-run").count("main/entries")

"""`budwood scrub`: what it prints, for people and for programs, its exit status, and how an interrupted one goes on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from budwood.cli import scrub as verb

from .cli import Command


@pytest.fixture
def store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """With two volumes of several commits."""
    store = tmp_path / "store"
    command = Command(capsys, tmp_path / "home", store.as_uri())
    for name in ("one", "two"):
        command.sql_made(name)
        for number in range(5):
            command.sql(name, f"INSERT INTO t VALUES ({number + 10}, 'more')")
            command.ok("push", name)
    return store


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, tmp_path / "nobody")


def damage(store: Path, pattern: str) -> str:
    """One bit of the first object that the pattern finds; its key."""
    path = sorted(store.glob(pattern))[0]
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    return path.relative_to(store).as_posix()


def found_in(printed: str) -> set[str]:
    """The lines about objects."""
    return {line for line in printed.splitlines() if line.startswith(("volumes/", "logs/"))}


def test_a_store_that_is_whole(store: Path, command: Command, tmp_path: Path) -> None:
    before = {path for path in store.rglob("*") if ".tmp" not in path.parts}
    lines = command.ok("scrub", "--store", store.as_uri()).splitlines()
    assert len(lines) == 1
    assert lines[0].endswith(": nothing is wrong")
    assert command.ok("scrub", "--json", "--store", store.as_uri()) == "[]\n"
    assert {path for path in store.rglob("*") if ".tmp" not in path.parts} == before
    assert not (tmp_path / "nobody").exists()


def test_what_is_wrong_is_a_line_each(store: Path, command: Command) -> None:
    keys = {damage(store, "volumes/*/birth"), damage(store, "logs/*/entries/fffffffffffffffd")}
    said = command("scrub", "--store", store.as_uri())
    assert (said.code, said.err) == (1, "")
    *lines, last = said.out.splitlines()
    assert {line.partition(": ")[0] for line in lines} == keys
    assert all("spoils volume" in line for line in lines)
    assert last.endswith(": 2 objects wrong")


def test_for_programs_it_is_an_array(store: Path, command: Command) -> None:
    key = damage(store, "logs/*/entries/fffffffffffffffd")
    said = command("scrub", "--json", "--store", store.as_uri())
    assert (said.code, said.err) == (1, "")
    (row,) = json.loads(said.out)
    assert (row["key"], row["what"]) == (key, "its checksum does not match")
    assert row["stops"] == key.split("/")[1]
    assert row["spoils"]
    assert all(span["first"] > 0 for span in row["spoils"])


def test_volumes_can_be_named(store: Path, command: Command) -> None:
    key = damage(store, "volumes/*/birth")
    said = [command("scrub", "--store", store.as_uri(), name) for name in ("one", "two")]
    assert sorted(each.code for each in said) == [0, 1]
    assert sum(key in each.out for each in said) == 1
    line = command("scrub", "--store", store.as_uri(), "three").line()
    assert line == "there is no 'three' in this store"


def test_an_interrupted_one_says_where_to_go_on(store: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(store, "volumes/*/birth")
    damage(store, "logs/*/entries/fffffffffffffffd")
    whole = {
        line for line in command("scrub", "--store", store.as_uri()).out.splitlines() if line.startswith(("v", "l"))
    }
    assert len(whole) == 2
    passed = verb._Watcher.passed  # pyright: ignore[reportPrivateUsage]
    for after in (1, 2, 3, 4):
        left = [after]

        def interrupting(watcher: Any, *told: Any, left: list[int] = left) -> None:
            passed(watcher, *told)
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGINT)

        with monkeypatch.context() as patched:
            patched.setattr(verb._Watcher, "passed", interrupting)  # pyright: ignore[reportPrivateUsage]
            first = command("scrub", "--store", store.as_uri())
        assert first.code == 130
        words, _, position = first.err.rstrip("\n").rpartition(" ")
        assert words == "budwood: scrub stopped: go on with --from"
        second = command("scrub", "--store", store.as_uri(), "--from", position)
        assert found_in(first.out + second.out) == whole


def test_positions_are_told_after_every_part(store: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "PART_OBJECTS", 4)
    said = command("scrub", "--store", store.as_uri())
    assert said.code == 0
    assert said.err.splitlines()
    assert all(line.startswith("budwood: position log:") for line in said.err.splitlines())


def test_bad_calls_are_one_line(store: Path, command: Command, tmp_path: Path) -> None:
    assert "is no position" in command("scrub", "--store", store.as_uri(), "--from", "here").line(2)
    assert "no such directory" in command("scrub", "--store", (tmp_path / "none").as_uri()).line()
    assert "no Budwood store" in command("scrub", "--store", tmp_path.as_uri()).line()
    assert "names no store" in command("scrub", "--store", "shop").line(2)

"""`budwood soak`: what it tells, how what it found is run again, and its exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from budwood.server.metastore import pin_store
from budwood.volume.pins import Pin

from .cli import Command


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, tmp_path / "nobody")


def test_what_holds_is_one_line(command: Command, tmp_path: Path) -> None:
    alone = command.ok("soak", "--seeds", "3-8", "--steps", "14")
    assert alone.startswith("6 schedules, ")
    assert alone.endswith(" minutes, 0 violations\n")
    shared = command.ok("soak", "--seeds", "3-8", "--steps", "14", "--jobs", "2")
    assert shared.split(", ")[:2] == alone.split(", ")[:2], "the same schedules, whoever runs them"
    assert command.ok("soak", "--seeds", "3").startswith("1 schedule, ")
    assert not (tmp_path / "nobody").exists()


def test_what_does_not_hold_is_told_with_its_seed(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that lists no pins forgets what they hold."""

    async def none(*_: object) -> list[Pin]:
        return []

    monkeypatch.setattr(pin_store.Pins, "all", none)
    said = command("soak", "--seeds", "0-20")
    assert said.code == 1
    assert said.err == ""
    *told, last = said.out.splitlines()
    failed = [line.split(":")[0].removeprefix("seed ") for line in told if line.startswith("seed ")]
    assert failed
    assert last.startswith(f"seeds {', '.join(failed)}: budwood soak --seeds {failed[0]}")
    assert told[-1].endswith(f"{len(failed)} violation{'s' if len(failed) > 1 else ''}")
    again = command("soak", "--seeds", failed[0]).out.splitlines()
    first = told.index(next(line for line in told if line.startswith(f"seed {failed[0]}:")))
    assert again[:-2] == told[first : first + len(again) - 2]


@pytest.mark.parametrize("seeds", ["", "9-2", "-3", "1-", "a", "1,2", "1-2-3"])
def test_what_names_no_seeds_is_refused(command: Command, seeds: str) -> None:
    assert "names no seeds" in command("soak", f"--seeds={seeds}").line(2)

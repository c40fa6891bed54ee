"""Power losses of a home, a share of them: `python -m tests.power` does as many as it is told (tests/power)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..mounts import needs_fuse
from ..power.run import Recorded, judge_commits, record, record_again
from ..power.verdict import Promises

pytestmark = needs_fuse

SEED, STATES = 11, 150


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    ways = [("oak", "full"), ("elm", "normal")]
    return record(tmp_path_factory.mktemp("recorded"), ways, 40, SEED)


def test_what_was_told_durable_is_there_and_a_suffix_is_lost_at_most(recorded: Recorded, tmp_path: Path) -> None:
    assert judge_commits(recorded, STATES, SEED, tmp_path) > STATES / 2


def test_a_second_power_loss_takes_nothing_that_outlived_the_first(recorded: Recorded, tmp_path: Path) -> None:
    again, scratch = tmp_path / "again", tmp_path / "scratch"
    again.mkdir()
    scratch.mkdir()
    later = record_again(again, recorded, [("yew", "full")], 10, SEED)
    assert judge_commits(later, STATES // 3, SEED, scratch) > STATES / 6


def test_a_home_is_as_good_as_new_or_whole_when_the_power_fails_while_it_is_made(tmp_path: Path) -> None:
    recorded, scratch = record(tmp_path, [("oak", "full"), ("elm", "full")], 3, SEED, made=False), tmp_path / "scratch"
    scratch.mkdir()
    assert judge_commits(recorded, STATES, SEED, scratch) > STATES / 2


def test_a_verdict_finds_what_is_wrong() -> None:
    """Two durable commits and one that isn't, each begun when the one before was done."""
    promises = Promises()
    for n, step in ((1, 10), (2, 20), (3, 30)):
        promises.note(step, "oak", {"begin": n, "volume": "oak", "full": n < 3})
        promises.note(step + 5, "oak", {"done": n})
    rows = [("oak", n) for n in (1, 2, 3)]
    promises.check({"oak": set(rows)}, 40)
    promises.check({"oak": set(rows[:2])}, 40)
    promises.check({"oak": set(rows[:1])}, 24)
    with pytest.raises(AssertionError, match="durable commits are lost"):
        promises.check({"oak": set(rows[:1])}, 40)
    with pytest.raises(AssertionError, match="nobody has written yet"):
        promises.check({"oak": set(rows[:2])}, 15)
    promises.note(42, "elm", {"begin": 1, "volume": "elm", "full": False})
    with pytest.raises(AssertionError, match="what was done before they began is not"):
        promises.check({"oak": set(rows[:2]), "elm": {("elm", 1)}}, 50)

"""Schedules of whole deployments (testing/simulation), each ended by a reader that shares no code with the product
(tests/second_reader). `budwood soak` runs as many more as one likes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping

import pytest

from budwood.server.metastore import pin_store
from budwood.testing.simulation.ending import Pages
from budwood.testing.simulation.schedule import Outcome, run_schedule
from budwood.volume.pins import Pin

from ..second_reader.store import Store
from ..waits import LIMIT_SECONDS

SCHEDULES = 1000 if os.environ.get("HYPOTHESIS_PROFILE") == "mutant" else 50
BLOCK = 25

STAYS = ("probe/",)
"""Of what a process leaves that was cut off while it started."""


def audit(objects: Mapping[str, bytes], promised: Mapping[bytes, Mapping[int, Pages]]) -> None:
    """What is promised reads as it must, and nothing is left but what docs/formats.md lets stay."""
    store = Store(objects, with_records=True)
    store.check()
    for vid, lsns in promised.items():
        assert set(lsns) <= store.readable(vid)
        for lsn, pages in lsns.items():
            assert store.volume(vid).pages_at(lsn) == pages
    liveness = store.liveness()
    garbage = {key: why for key, why in liveness.garbage.items() if not _waits(key, why)}
    assert garbage == {}, garbage
    leftovers = {key for key in liveness.leftovers if not key.startswith(STAYS) and not _is_unnamed(key)}
    assert leftovers == set(), leftovers


def _waits(key: str, why: str) -> bool:
    """Whether it goes with a later plan: the number of a transaction that the newest one rejected. Or it never does: an
    entry that was sent before what stood in its slot was collected, and arrived after that; and a node that was to be
    of a rollup which its maker did not come to write."""
    late = why.startswith("below slot") and "/entries/" in key
    return late or why in ("a number that is settled", "a node of older rollups")


def _is_unnamed(key: str) -> bool:
    """Of a push or a fold that was cut off; or a rollup that another was quicker than, until a newer one is named."""
    return key.startswith("logs/") and key.split("/")[2] in ("t", "nodes", "rollups")


def words(outcome: Outcome) -> str:
    return "\n".join([f"seed {outcome.seed}: {outcome.violation}", *outcome.trace[-60:]])


@pytest.mark.parametrize("first", range(0, SCHEDULES, BLOCK))
def test_schedules_hold(first: int) -> None:
    """DESIGN §9: with folds, pins, forks, retention, moves, collections, sleepers and crashes; stand-bys, failover,
    two-phase creates, modes and sources."""
    done = Counter[str]()
    for seed in range(first, first + BLOCK):
        outcome = run_schedule(seed, audit=audit)
        assert outcome.violation is None, words(outcome)
        done += outcome.counts
    wanted = ("commits", "folds", "collections done", "objects deleted", "pins", "sync leases", "forks", "moves")
    wanted_too = ("policies", "upkeep turns", "crashes", "sleeps", "cuts", "bindings", "writer epochs")
    assert all(done[what] for what in (*wanted, *wanted_too)), done


SUM = """
import sys
from budwood.testing.simulation.schedule import run_schedule
print([run_schedule(seed).sum for seed in map(int, sys.argv[1:])])
"""


def test_a_seed_decides_everything() -> None:
    """Whatever ran before it, and however this process hashes strings."""
    sums = [run_schedule(seed).sum for seed in (3, 14, 3)]
    assert sums[0] == sums[2] != sums[1]
    for hashes in ("0", "1", "4"):
        ran = subprocess.run(
            [sys.executable, "-P", "-c", SUM, "14", "3"],
            env=os.environ | {"PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=True,
        )
        assert ran.stdout.strip() == str([sums[1], sums[0]])


def test_what_does_not_hold_is_told_with_its_seed_and_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that lists no pins forgets what they hold."""

    async def none(*_: object) -> list[Pin]:
        return []

    monkeypatch.setattr(pin_store.Pins, "all", none)
    found = next(outcome for outcome in map(run_schedule, range(50)) if outcome.violation)
    assert "is promised" in (found.violation or "")
    assert any("VIOLATED" in line for line in found.trace)
    again = run_schedule(found.seed)
    assert (again.violation, again.sum, again.trace) == (found.violation, found.sum, found.trace)

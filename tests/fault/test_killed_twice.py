"""A home whose process is killed at each point of what it does, and the next one at each point of doing it again and of
what comes after: the third finds all that was told, ends what was begun, and pushes what a new home then reads.

By default each eighth of the first points, and of the second; `KILLS=1` takes each of them.
"""

from __future__ import annotations

import os
import shutil
from itertools import count
from pathlib import Path

import pytest

from .forked_steps import DIED, Rows, Town
from .test_each_refusal import STEPS, Place, make_origin, proven

EACH = int(os.environ.get("KILLS", "8"))


@pytest.mark.parametrize("step", STEPS)
def test_who_is_killed_twice_has_lost_nothing_and_ends_what_was_begun(tmp_path: Path, step: str) -> None:
    town = Town(tmp_path)
    assert town.run(lambda: make_origin(town.folder)) == 0, town.said
    told: Rows = {"shared": {0, 2}, "ours": {0, 1}, "alone": {0}, "large": {0}}
    origin = town.kept()

    def place() -> Place:
        return Place(town.folder / "home", town.folder / "store", told)

    def begin() -> None:
        STEPS[step](place())

    def go_on() -> None:
        there = place()
        STEPS[step](there)
        proven(there, town.folder / "fresh", told)

    assert town.run(begin, traced=True) == 0, town.said
    first = town.reached()
    assert first
    cases = count()
    for point in first[::EACH]:
        town.back(origin)
        assert town.run(begin, cut=point) == DIED, point
        cut = town.kept()
        assert town.run(go_on, traced=True) == 0, f"{point}: {town.said}"
        for again in town.reached():
            if next(cases) % EACH:
                continue
            town.back(cut)
            # What runs beside the step may pass a point less often than it did.
            if town.run(go_on, cut=again) == DIED:
                assert town.run(go_on) == 0, f"{point}, then {again}: {town.said}"
        shutil.rmtree(cut)

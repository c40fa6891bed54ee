"""A home damaged in any place is verified and made anew: what verify finds nothing in is sound, what a rebuild calls
whole is whole, and the new home is sound whatever was wrong with the old one.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path

import apsw
import pytest

import budwood
from budwood.sync.home_builder import Fate
from budwood.sync.rebuild import rebuild
from budwood.sync.verify import verify

from . import damaged_homes
from .damaged_homes import VOLUMES, damage, in_child, rows

SEEDS = 24
"""As many as are run at once by hand: hundreds."""


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("origin") / "case"
    in_child(partial(damaged_homes.make, folder))
    return folder


def test_damage_is_found_and_what_is_called_whole_is_whole(origin: Path, tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(SEEDS):
        case = tmp_path / f"case{seed}"
        shutil.copytree(origin, case)
        words = damage(case / "home" / "store" / "data.mdb", seed)
        found = bool(verify(case / "home").findings)
        # In a child: a damaged page may end a process that opens the home without a rebuild.
        told = in_child(partial(looked_at, case, found))
        assert told.startswith("{"), (seed, words, told)
        for outcome, count in json.loads(told).items():
            outcomes[outcome] += count
        shutil.rmtree(case)
    assert outcomes["whole"] >= 10, outcomes
    assert outcomes["rescued"] >= 1, outcomes


def looked_at(case: Path, found: bool) -> str:
    home = case / "home"
    if not found:
        return json.dumps({"sound": 1}) if (said := damaged_homes.outcome(case)) == "sound" else f"unseen: {said}"
    rebuilt = rebuild(home)
    if rebuilt.aside is None or not (rebuilt.aside / "data.mdb").exists():
        return "the damaged store is not set aside"
    if left := verify(home).findings:
        return f"the new home: {left[0]}"
    fates = {fate.name: fate for fate in rebuilt.fates}
    outcomes: Counter[str] = Counter()
    for name in VOLUMES:
        fate = fates.get(name)
        if fate is None:
            outcomes["unknown"] += 1
            continue
        outcomes[fate.outcome] += 1
        if wrong := judged(case, fate):
            return wrong
    if outcomes["whole"] == len(VOLUMES):
        with budwood.open(home=home, remote="") as edge:
            if len(edge.ls()) != len(VOLUMES) + 40:
                return "a name is gone"
    return json.dumps(outcomes)


def judged(case: Path, fate: Fate) -> str:
    """What is wrong with what a rebuild says of a volume."""
    store = f"file://{case}/store"
    if fate.outcome == "whole":
        with closing(budwood.connect(fate.name, home=case / "home", remote=store, mode="rw")) as db:
            if wrong := rows(db, fate.name, 0 if fate.name == "alpha" else 10):
                return wrong
            db.execute("insert into more values(-1, 'new')")
        with budwood.open(home=case / "home", remote=store) as edge:
            edge.volume(fate.name).push()
        return ""
    if not fate.lost and fate.outcome != "remote":
        return f"{fate} names nothing that is lost"
    if fate.rescued_as:
        with closing(budwood.connect(fate.rescued_as, home=case / "home", remote=store, mode="rw")) as db:
            try:
                db.execute("select count(*) from sqlite_schema").fetchall()
            except apsw.CorruptError:
                # A page of it is gone, and was named.
                return "" if fate.pages else f"{fate} names no page"
    return ""

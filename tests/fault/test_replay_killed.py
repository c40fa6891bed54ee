"""A replay killed in each window: the commits that it was to replay stand, or what it made of them does, and the same
command again comes to the same end."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

import budwood

from .crash_harness import Place, cut, finish

REPLAY = """
import sys
import budwood
from budwood.rows.replay import replay
with budwood.open(home=sys.argv[1], remote=sys.argv[2]) as edge:
    replay(edge.volume("ledger"), keep_as=sys.argv[3] or None)
    print("replayed", flush=True)
"""

POINTS = {
    "rebase: made anew, head not moved": False,
    "rebase: head moved, caller not told": True,
}
"""Each window, and whether the head has moved."""

KEEPING = {
    "stage: all rows written, head not moved": False,
    "birth: pages written, volume not visible": False,
    "fork: volume visible, held pages not copied": True,
}
"""Of one that keeps what was unpushed, too."""

CUTS = (POINTS, KEEPING)


def rows(place: Place, name: str = "ledger", home: str = "two") -> list[str]:
    with closing(budwood.connect(name, home=place.home(home), remote=place.store, mode="rw")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [str(row[0]) for row in db.execute("SELECT entry FROM ledger ORDER BY entry")]


@pytest.mark.parametrize(("point", "moved"), [*POINTS.items(), *KEEPING.items()])
def test_a_replay_that_was_killed_has_lost_nothing(tmp_path: Path, point: str, moved: bool) -> None:
    place = Place(tmp_path)
    place.execute("CREATE TABLE ledger(entry)", home="one")
    place.execute("PRAGMA budwood_push", home="one", remote=place.store)
    place.execute("SELECT * FROM ledger", home="two", remote=place.store)
    place.execute("INSERT INTO ledger VALUES ('theirs')", home="one")
    place.execute("PRAGMA budwood_push", home="one", remote=place.store)
    place.execute("INSERT INTO ledger VALUES ('ours')", home="two")
    assert cut(point, REPLAY, place.home("two"), place.store, "mine" if point in KEEPING else "") == []
    assert rows(place) == (["ours", "theirs"] if moved else ["ours"])
    with place.edge("two") as edge:
        names = sorted(row["name"] for row in edge.ls())
    assert names == (["ledger", "mine"] if moved and point in KEEPING else ["ledger"])
    if "mine" in names:
        assert rows(place, "mine") == ["ours"]
    assert finish(REPLAY, place.home("two"), place.store, "") == ["replayed"]
    assert rows(place) == ["ours", "theirs"]
    place.execute("PRAGMA budwood_push", home="two", remote=place.store)
    assert rows(place, home="three") == ["ours", "theirs"]

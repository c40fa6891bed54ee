"""A process killed in each window of a synchronous commit: the commit is at the remote once or not at all, what is here
is what stood there before or after it, and the next one, after a pull where it is told to, comes to the same end."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest

import budwood

from .crash_harness import Place, cut, look, rows_of

INSERT = """
import sys
import budwood
db = budwood.connect("ledger", home=sys.argv[1], remote=sys.argv[2], synchronous_commit=True)
db.execute(sys.argv[3])
print("committed", flush=True)
"""
ROW_1 = "insert into ledger values('row 1')"

POINTS = {
    "confirm: about to be sent": (False, False),
    "confirm: acknowledged, nothing committed here": (True, False),
    "commit: about to be written": (True, False),
    "commit: written, the writer not told": (True, True),
    "confirm: committed here, its name not looked at": (True, True),
}
"""Each window, and whether the commit stands at the remote, and here."""
FIRST = (
    "push: volume made on the remote, name not bound",
    "confirm: acknowledged, nothing committed here",
    "confirm: committed here, its name not looked at",
)

CUTS = (POINTS,)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.execute("create table ledger(entry); insert into ledger values('base')")
    place.execute("pragma budwood_push", remote=place.store)
    return place


def commit(place: Place, entry: str, *, must_pull: bool) -> None:
    with closing(budwood.connect("ledger", home=place.home(), remote=place.store, synchronous_commit=True)) as db:
        if must_pull:
            before = db.execute("select * from ledger").fetchall()
            with pytest.raises(apsw.BusyError) as refused:
                db.execute("insert into ledger values(?)", (entry,))
            assert vars(refused.value)["extendedresult"] == apsw.SQLITE_BUSY_SNAPSHOT
            assert db.execute("select * from ledger").fetchall() == before
            db.execute("pragma budwood_pull")
        db.execute("insert into ledger values(?)", (entry,))


@pytest.mark.parametrize(("point", "stands"), POINTS.items())
def test_a_commit_that_was_cut_is_there_once_or_not_at_all(place: Place, point: str, stands: tuple[bool, bool]) -> None:
    there, here = stands
    before, unpushed = ["base"], "confirm" in point
    if unpushed:
        place.execute("insert into ledger values('before')")
        before.append("before")
    assert cut(point, INSERT, place.home(), place.store, ROW_1) == []
    assert rows_of(place, remote="") == [*before, *(["row 1"] if here else [])]
    assert rows_of(place, home="observer") == [*before, *(["row 1"] if there else [])]
    commit(place, "again", must_pull=there and not here)
    assert rows_of(place, remote="") == [*before, *(["row 1"] if there else []), "again"]
    found = look(place)
    assert (found.integrity, found.unpushed) == ("ok", 0)
    assert found.local == found.remote == [*before, *(["row 1"] if there else []), "again", "after"]
    assert len(found.history) == 3 + unpushed + there, "each LSN is one commit"


@pytest.mark.parametrize("point", FIRST)
def test_a_first_commit_that_was_cut_goes_on_from_where_it_was(tmp_path: Path, point: str) -> None:
    place = Place(tmp_path)
    assert cut(point, INSERT, place.home(), place.store, "create table ledger(entry)") == []
    there = POINTS.get(point, (False, False))
    with closing(budwood.connect("ledger", home=place.home(), remote=place.store, synchronous_commit=True)) as db:
        if there == (True, False):
            db.execute("pragma budwood_pull")
        db.execute("create table if not exists ledger(entry)")
        db.execute("insert into ledger values('base')")
    assert rows_of(place, home="observer") == rows_of(place, remote="") == ["base"]

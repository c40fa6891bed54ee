"""An edge killed at every fault point that it passes: whatever it does, a fresh process finds all of it or nothing.

After each kill: every acknowledged commit is there, at most the one in flight besides; `PRAGMA integrity_check` is ok;
a new write works at once; a push succeeds, or says that the volume has diverged where that is right; a second home
sees exactly the same rows; and no LSN of the remote repeats the one before it (nothing lost, nothing twice).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pytest

import budwood

from .crash_harness import WORK, Look, Place, cut, finish, look, rows_of

COMMIT = {"commit: about to be written": False, "commit: written, the writer not told": True}
"""Each window, and whether what was in flight stands after a kill in it."""

APPEND = {
    "journal: about to begin anew": False,
    "journal: header written, nothing appended": False,
    "journal: record written, not flushed": True,
    "journal: record flushed, not published": True,
    "journal: published, the writer not told": True,
    "journal: record written, not flushed#3": True,
    "journal: record flushed, not published#3": True,
    "journal: published, the writer not told#3": True,
}
"""A machine that goes on has what was written, flushed or not."""

MOVE = ("journal: moved into LMDB, the caller not told",)

REWRITE = {
    "stage: some rows written, head not moved": False,
    "stage: some rows written, head not moved#2": False,
    "stage: all rows written, head not moved": False,
    "stage: head moved, older versions not removed": True,
    "stage: some older versions removed": True,
}

IMPORT = (
    "stage: some rows written, head not moved",
    "stage: some rows written, head not moved#2",
    "stage: all rows written, head not moved",
    "birth: pages written, volume not visible",
)

PUSH = {
    "push: end captured, nothing sent": False,
    "push: token durable, commit not sent": False,
    "log: entry sealed, not sent": False,
    "store: temp written, not linked": False,
    "store: linked, directory not synced": True,
    "store: directory synced, temp not removed": True,
    "log: entry durable, not acknowledged": True,
    "push: committed, answer not recorded": True,
    "push: success recorded, caller not told": True,
}
"""Each window, and whether the commit stands on the remote."""

FIRST_PUSH = (
    "push: volume made on the remote, name not bound",
    "push: end captured, nothing sent",
    "push: token durable, commit not sent",
    "push: committed, answer not recorded",
    "push: success recorded, caller not told",
    "push: committed, its name not bound",
    "node: birth written, log not anchored",
    "log: anchor durable, log empty",
    "log: anchor durable, log empty#2",
    "log: entry sealed, not sent",
    "log: entry sealed, not sent#2",
    "log: entry durable, not acknowledged",
    "log: entry durable, not acknowledged#2",
    *(f"store: linked, directory not synced#{n}" for n in range(1, 9)),
    "store: temp written, not linked#3",
    "store: directory synced, temp not removed#3",
)
"""Among them every object that a first push writes: the probe's, the root, the birth, two anchors, two entries."""

LARGE_PUSH = (
    "push: some pages sent, token not recorded",
    "push: some pages sent, token not recorded#2",
    "push: what was sent is noted, some pages not sent",
    "push: what was sent is noted, some pages not sent#2",
    "pagestore: fragment checked, not stored",
    "pagestore: fragment checked, not stored#2",
    "pagestore: fragment durable, not answered",
    "pagestore: fragment durable, not answered#2",
    "push: token durable, commit not sent",
    "log: entry durable, not acknowledged",
)

PULL = {
    "pull: changes known, head not moved": False,
    "pull: rows looked up, head not moved": False,
    "pull: head moved, caller not told": True,
}

RESET_KEEPING = {
    "birth: pages written, volume not visible": False,
    "stage: all rows written, head not moved": False,
    "fork: volume visible, held pages not copied": True,
    "reset: head moved, caller not told": True,
}

RESET_DISCARDING = {"reset: head moved, caller not told": True}

FORK = {"birth: pages written, volume not visible": False, "fork: volume visible, held pages not copied": True}

FORK_ON_THE_REMOTE = (
    "node: fork born, parent not told",
    "log: entry sealed, not sent",
    "log: entry durable, not acknowledged",
)

REMOVE = ("remove: name gone, some rows left", "stage: some older versions removed")

REMOVE_THERE = (
    "log: entry sealed, not sent",
    "log: entry durable, not acknowledged",
    "remove: finished, nothing forgotten",
    "rm: removed there, its name stands",
    *REMOVE,
)

COMPACT = ("compact: copy durable, not in its place", "compact: in its place, not told")

GIVE_BACK = ("room: some of it given back",)

CUTS: tuple[Iterable[str], ...] = (
    COMMIT,
    APPEND,
    MOVE,
    REWRITE,
    COMPACT,
    GIVE_BACK,
    IMPORT,
    PUSH,
    FIRST_PUSH,
    LARGE_PUSH,
    PULL,
    RESET_KEEPING,
    RESET_DISCARDING,
    FORK,
    FORK_ON_THE_REMOTE,
    REMOVE,
    REMOVE_THERE,
)


def check(found: Look, rows: list[str], *, remote: list[str] | None = None) -> None:
    """What must hold after every kill; `rows` is what must be there, `remote` what a second home sees at the end."""
    assert found.rows == rows
    assert found.integrity == "ok"
    assert found.local == found.remote == (remote if remote is not None else [*rows, "after"])
    assert found.history[-1] == found.remote, "the newest LSN is the head"
    for earlier, later in zip(found.history, found.history[1:], strict=False):
        assert later[: len(earlier)] == earlier, "an LSN keeps what the one before it had"
        assert len(later) > len(earlier), "no commit landed twice"


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A ledger with one row, at LSN 1 of the remote."""
    place = Place(tmp_path_factory.mktemp("pushed"))
    place.execute("create table ledger(entry); insert into ledger values('base')")
    with place.edge() as edge:
        assert edge.volume("ledger").push() == "1"
    return place


@pytest.fixture
def place(pushed: Place, tmp_path: Path) -> Place:
    return pushed.copy(tmp_path / "copy")


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file of 600 pages of 64 KiB: more than the local store writes in one batch."""
    path = tmp_path_factory.mktemp("wide") / "wide.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript("pragma page_size = 65536; create table ledger(entry); insert into ledger values('base')")
        db.execute("create table wide(number integer primary key, version, filler)")
        db.executemany("insert into wide values(?, 0, zeroblob(60000))", ((n,) for n in range(600)))
        db.commit()
    return path


def append(place: Place, *rows: str, home: str = "home") -> None:
    for row in rows:
        place.execute("insert into ledger values(?)", row, home=home)


def another_pushes(place: Place) -> None:
    """A second client, with a home of its own, commits and pushes one row."""
    with place.edge("other") as edge:
        volume = edge.volume("ledger")
        append(place, "other's", home="other")
        volume.push()


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize(("point", "stands"), COMMIT.items())
def test_acknowledged_commits_are_there_and_at_most_the_one_in_flight(
    place: Place, point: str, stands: bool, nth: int
) -> None:
    acknowledged = cut(f"{point}#{nth}", WORK, "commit", place.home(), place.store, 1, 5)
    assert acknowledged == [f"row {number}" for number in range(1, nth)]
    in_flight = [f"row {nth}"] if stands else []
    check(look(place), ["base", *acknowledged, *in_flight])


@pytest.mark.parametrize(("point", "stands"), APPEND.items())
def test_a_commit_that_was_cut_in_the_journal_is_there_whole_or_not_at_all(
    place: Place, point: str, stands: bool
) -> None:
    nth = int(point.partition("#")[2] or 1)
    acknowledged = cut(point, WORK, "commit", place.home(), place.store, 1, 5)
    assert acknowledged == [f"row {number}" for number in range(1, nth)]
    check(look(place), ["base", *acknowledged, *([f"row {nth}"] if stands else [])])


@pytest.mark.parametrize("point", APPEND)
def test_a_commit_that_was_cut_in_the_journal_holds_up_nobody_else(place: Place, point: str) -> None:
    """Who has the home open meanwhile writes over what was not published."""
    with place.edge() as edge, closing(budwood.connect("ledger", home=place.home(), remote="")) as db:
        acknowledged = cut(point, WORK, "commit", place.home(), place.store, 1, 5)
        seen = [row for (row,) in db.execute("select entry from ledger")]
        assert seen[: len(acknowledged) + 1] == ["base", *acknowledged]
        db.execute("insert into ledger values('meanwhile')")
        assert edge.volume("ledger").status()["unpushed"] == len(seen)
    check(look(place), [*seen, "meanwhile"])


@pytest.mark.parametrize("point", MOVE)
def test_what_is_moved_out_of_the_journal_is_there_once(place: Place, point: str) -> None:
    acknowledged = cut(point, WORK, "commit", place.home(), place.store, 1, 5)
    assert acknowledged == [f"row {number}" for number in range(1, 6)], "it is moved when the home is closed"
    check(look(place), ["base", *acknowledged])


@pytest.mark.parametrize(("point", "stands"), REWRITE.items())
def test_a_commit_too_large_for_one_batch_is_there_whole_or_not_at_all(
    tmp_path: Path, wide: Path, point: str, stands: bool
) -> None:
    place = Place(tmp_path)
    with place.edge() as edge:
        edge.import_(wide, "wide")
    assert cut(point, WORK, "rewrite", place.home(), place.store) == []
    check(look(place, "wide"), ["base"])
    assert versions(place) == {int(stands)}
    assert orphans(place) == set()


def test_a_second_kill_while_the_first_is_tidied_up_leaves_no_trace(tmp_path: Path, wide: Path) -> None:
    place = Place(tmp_path)
    with place.edge() as edge:
        edge.import_(wide, "wide")
    cut("stage: all rows written, head not moved", WORK, "rewrite", place.home(), place.store)
    cut("stage: some older versions removed", WORK, "rewrite", place.home(), place.store)
    check(look(place, "wide"), ["base"])
    assert versions(place) == {0}
    assert finish(WORK, "rewrite", place.home(), place.store) == ["rewritten"]
    assert versions(place) == {1}


@pytest.mark.parametrize("point", COMPACT)
def test_a_compaction_that_was_cut_leaves_the_old_file_or_the_new(place: Place, point: str) -> None:
    place.execute("create table bulk as select randomblob(3000000) as data")
    append(place, "row 1")
    place.execute("drop table bulk")
    place.execute("vacuum")
    assert cut(point, WORK, "compact", place.home(), place.store) == []
    check(look(place), ["base", "row 1"])
    assert not (place.home() / "store" / ".data.mdb").exists(), "what was copied has been removed"
    assert finish(WORK, "compact", place.home(), place.store) == ["compacted"]
    check(look(place, mark="again"), ["base", "row 1", "after"], remote=["base", "row 1", "after", "again"])


@pytest.mark.parametrize("point", GIVE_BACK)
def test_room_that_was_given_back_in_part_was_nobodys(tmp_path: Path, wide: Path, point: str) -> None:
    place = Place(tmp_path)
    with place.edge() as edge:
        edge.import_(wide, "wide")
    assert cut(point, WORK, "rewrite", place.home(), place.store) == []
    check(look(place, "wide"), ["base"])
    assert versions(place) == {1}


@pytest.mark.parametrize("point", IMPORT)
def test_an_import_that_was_cut_made_nothing_and_can_be_done_again(tmp_path: Path, wide: Path, point: str) -> None:
    place = Place(tmp_path)
    assert cut(point, WORK, "import", place.home(), place.store, wide, "wide") == []
    with place.edge() as edge:
        assert edge.ls() == []
    assert orphans(place) == set(), "what was written of it has been removed"
    assert finish(WORK, "import", place.home(), place.store, wide, "wide") == ["imported"]
    check(look(place, "wide"), ["base"])
    assert versions(place, home="beside after") == {0}


@pytest.mark.parametrize(("point", "landed"), PUSH.items())
def test_a_push_that_was_cut_lands_once(place: Place, point: str, landed: bool) -> None:
    append(place, "row 1", "row 2")
    said = cut(point, WORK, "push", place.home(), place.store)
    assert said == []
    with place.edge("observer") as edge:
        assert edge.volume("ledger").status()["lsn"] == ("2" if landed else "1")
    found = look(place)
    check(found, ["base", "row 1", "row 2"])
    # A push whose token was recorded is finished as it was captured; before that, it is simply given up.
    alone = point != "push: end captured, nothing sent"
    assert (["base", "row 1", "row 2"] in found.history) is alone


@pytest.mark.parametrize(("point", "landed"), PUSH.items())
def test_a_push_that_was_cut_is_settled_though_another_pushed_meanwhile(place: Place, point: str, landed: bool) -> None:
    append(place, "row 1")
    cut(point, WORK, "push", place.home(), place.store)
    another_pushes(place)
    found = look(place)
    assert found.pushed == "diverged"
    assert found.kept == ["base", "row 1", "after"], "nothing that was committed here is lost"
    check(found, ["base", "row 1"], remote=["base", *(["row 1"] if landed else []), "other's", "after"])


@pytest.mark.parametrize("point", FIRST_PUSH)
def test_a_first_push_that_was_cut_goes_on_from_where_it_was(tmp_path: Path, point: str) -> None:
    place = Place(tmp_path)
    place.execute("create table ledger(entry); insert into ledger values('base')")
    assert cut(point, WORK, "push", place.home(), place.store) == []
    check(look(place), ["base"])
    with place.edge() as edge:
        assert [row["name"] for row in edge.ls(remote=True)] == ["ledger"]


@pytest.mark.parametrize("point", LARGE_PUSH)
def test_a_push_of_several_segments_that_was_cut_lands_once(place: Place, point: str) -> None:
    place.execute("create table bulk as select randomblob(9000000) as data")
    place.execute("insert into bulk values(randomblob(9000000))")
    assert cut(point, WORK, "push", place.home(), place.store) == []
    append(place, "row 1")
    check_bulk = "select count(*), sum(length(data)), hex(substr(data, -8)) from bulk"
    with closing(budwood.connect("ledger", home=place.home(), remote=place.store)) as db:
        bulk = db.execute(check_bulk).fetchall()
    found = look(place)
    assert found.rows == ["base", "row 1"]
    assert found.integrity == "ok"
    assert found.local == found.remote == ["base", "row 1", "after"]
    assert len(found.history) <= 3
    with closing(budwood.connect("ledger", home=place.home("beside after"), remote=place.store)) as db:
        assert db.execute(check_bulk).fetchall() == bulk
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize(("point", "moved"), PULL.items())
def test_a_pull_that_was_cut_leaves_the_old_view_or_the_new_one(place: Place, point: str, moved: bool) -> None:
    assert rows_of(place) == ["base"], "so that the pages that will change are held here"
    another_pushes(place)
    assert cut(point, WORK, "pull", place.home(), place.store) == []
    if moved:
        check(look(place), ["base", "other's"])
    else:
        # The row that is written on the old view can't be pushed; nothing is lost by saying so.
        found = look(place)
        assert (found.pushed, found.kept) == ("diverged", ["base", "after"])
        check(found, ["base"], remote=["base", "other's", "after"])


@pytest.mark.parametrize(("point", "moved"), RESET_KEEPING.items())
def test_a_reset_that_was_cut_keeps_unpushed_work_here_or_in_its_fork(place: Place, point: str, moved: bool) -> None:
    append(place, "row 1")
    another_pushes(place)
    assert cut(point, WORK, "reset", place.home(), place.store, "fork") == []
    found = look(place)
    assert found.names == (["fork", "ledger"] if moved else ["ledger"])
    check(found, ["base", "other's" if moved else "row 1"], remote=["base", "other's", "after"])
    if not moved:
        assert found.kept == ["base", "row 1", "after"]
    else:
        assert rows_of(place, "fork") == ["base", "row 1"]
        check(
            look(Place(place.folder), "fork", mark="in the fork"),
            ["base", "row 1"],
            remote=["base", "row 1", "in the fork"],
        )


@pytest.mark.parametrize("point", RESET_DISCARDING)
def test_a_discarding_reset_that_was_cut_has_moved(place: Place, point: str) -> None:
    append(place, "row 1")
    another_pushes(place)
    assert cut(point, WORK, "reset", place.home(), place.store, "") == []
    check(look(place), ["base", "other's"])


@pytest.mark.parametrize(("point", "made"), FORK.items())
def test_a_fork_that_was_cut_is_whole_or_not_there(place: Place, point: str, made: bool) -> None:
    append(place, "row 1")
    assert cut(point, WORK, "fork", place.home(), place.store, "fork") == []
    check(look(place), ["base", "row 1"])
    with place.edge() as edge:
        assert [row["name"] for row in edge.ls()] == (["fork", "ledger"] if made else ["ledger"])
    assert orphans(place) == set()
    if not made:
        assert finish(WORK, "fork", place.home(), place.store, "fork") == ["forked"]
    check(look(place, "fork"), ["base", "row 1"] if made else ["base", "row 1", "after"])


@pytest.mark.parametrize("point", FORK_ON_THE_REMOTE)
def test_a_fork_s_first_push_that_was_cut_can_be_done_again(place: Place, point: str) -> None:
    with place.edge() as edge:
        edge.fork("ledger", "fork")
    place.execute("insert into ledger values('row 1')", name="fork")
    assert cut(point, WORK, "push", place.home(), place.store, "fork") == []
    check(look(place, "fork"), ["base", "row 1"])
    check(look(place, mark="after in the origin"), ["base"], remote=["base", "after in the origin"])


@pytest.mark.parametrize("point", FORK_ON_THE_REMOTE)
def test_a_fork_of_a_past_lsn_that_was_cut_can_be_made_again(place: Place, point: str) -> None:
    append(place, "row 1")
    with place.edge() as edge:
        edge.volume("ledger").push()
    assert cut(point, WORK, "fork-past", place.home(), place.store, "fork", 1) == []
    assert finish(WORK, "fork-past", place.home(), place.store, "fork", 1) == ["forked"]
    check(look(place, "fork"), ["base"])
    check(look(place, mark="after in the origin"), ["base", "row 1"], remote=["base", "row 1", "after in the origin"])


@pytest.mark.parametrize("point", REMOVE)
def test_a_removal_that_was_cut_is_finished_by_whoever_comes_next(place: Place, point: str) -> None:
    place.execute("pragma page_size = 512; create table ledger(entry); insert into ledger values('base')", name="many")
    place.execute("create table filler as select randomblob(5000000) as data", name="many")
    with place.edge() as edge:
        edge.volume("many").push()
    assert cut(point, WORK, "remove", place.home(), place.store, "many") == []
    with place.edge() as edge:
        assert [row["name"] for row in edge.ls()] == ["ledger"]
    assert orphans(place) == set()
    check(look(place), ["base"])
    check(look(place, "many", mark="again"), ["base"], remote=["base", "again"])


@pytest.mark.parametrize("point", REMOVE_THERE)
def test_a_removal_for_everybody_that_was_cut_can_be_asked_for_again(place: Place, point: str) -> None:
    place.execute("pragma page_size = 512; create table filler as select randomblob(5000000) as data", name="many")
    with place.edge() as edge:
        edge.volume("many").push()
    assert cut(point, WORK, "remove for everybody", place.home(), place.store, "many") == []
    with place.edge() as edge:
        if "many" in {row["name"] for row in edge.ls()}:
            edge.rm("many", remote=True)
        assert [row["name"] for row in edge.ls()] == ["ledger"]
        assert [row["name"] for row in edge.ls(remote=True)] == ["ledger"]
    assert orphans(place) == set()
    check(look(place), ["base"])


def versions(place: Place, home: str = "home") -> set[int]:
    """Of the rows of `wide`: one, or the transaction was torn."""
    with closing(budwood.connect("wide", home=place.home(home), remote=place.store)) as db:
        return {int(str(row[0])) for row in db.execute("select distinct version from wide")}


def orphans(place: Place) -> set[bytes]:
    """Volumes that have rows in the local store and are not there."""
    with place.edge() as edge, edge.environment.view() as txn:
        tables = edge.environment.tables
        known = {key for key, _ in txn.cursor(tables.heads)}
        found = {key[:16] for table in (tables.tails, tables.bodies, tables.commits) for key, _ in txn.cursor(table)}
        return found - known | {key for key, _ in txn.cursor(tables.stages)}

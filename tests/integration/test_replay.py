"""Replay: what is decided, what is refused in words, and that nothing is lost on the way."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import apsw
import pytest

import budwood
from budwood.rows.difference import diff
from budwood.rows.replay import Conflict, replay
from budwood.sync.edge import open as open_edge
from budwood.sync.invalidation import Invalidated, OnInvalidated
from budwood.sync.volume import Volume
from budwood.volume.calls import ADVANCE, SinceRequest
from budwood.volume.errors import BadInput, BudwoodError, Diverged, Forgotten

from .cli import Command


class Homes:
    """Two of one store, both with the database `bank`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.remote = f"file://{folder}/store"

    def connect(self, home: str, on_invalidated: OnInvalidated | None = None) -> apsw.Connection:
        return budwood.connect("bank", home=self.folder / home, remote=self.remote, on_invalidated=on_invalidated)

    @contextmanager
    def volume(self, home: str = "two") -> Generator[Volume]:
        with open_edge(home=self.folder / home, remote=self.remote) as edge:
            yield edge.volume("bank")


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    return Homes(tmp_path)


@contextmanager
def diverged(homes: Homes, schema: str, theirs: str, ours: str) -> Generator[tuple[apsw.Connection, apsw.Connection]]:
    """Both homes begin with `schema`; what the first did is pushed, and what the second did is not."""
    with closing(homes.connect("one")) as one:
        one.execute(schema)
        one.execute("PRAGMA budwood_push")
        with closing(homes.connect("two")) as two:
            two.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            one.execute(theirs)
            one.execute("PRAGMA budwood_push")
            two.execute(ours)
            yield one, two


ACCOUNTS = """
CREATE TABLE account(id INTEGER PRIMARY KEY, balance INT NOT NULL CHECK(balance >= 0));
INSERT INTO account VALUES (1, 100), (2, 100);
"""


def test_two_withdrawals_that_each_had_the_money_are_not_both_made(homes: Homes) -> None:
    """S2.8: whoever comes second decides on what is there by then."""
    withdraw = "UPDATE account SET balance = balance - 70 WHERE id = 1"
    with diverged(homes, ACCOUNTS, withdraw, withdraw.replace("70", "80")) as (one, two), homes.volume() as volume:
        with pytest.raises(Diverged, match="row 1 of table account was changed here and changed on the remote"):
            replay(volume)
        assert two.execute("SELECT balance FROM account WHERE id = 1").fetchall() == [(20,)], "nothing has changed"
        told = list[Conflict]()

        def again(conflict: Conflict) -> str:
            told.append(conflict)
            return "theirs"

        report = replay(volume, again)
        assert [(each.base, each.ours, each.theirs) for each in told] == [
            ({"id": 1, "balance": 100}, {"id": 1, "balance": 20}, {"id": 1, "balance": 30})
        ]
        assert (report.applied, [each.choice for each in report.decided]) == (0, ["theirs"])
        with pytest.raises(apsw.ConstraintError):
            two.execute(withdraw.replace("70", "80"))
        two.execute("PRAGMA budwood_pull")
        assert two.execute("SELECT * FROM account").fetchall() == one.execute("SELECT * FROM account").fetchall()


def test_a_view_that_was_discarded_says_so(homes: Homes) -> None:
    with diverged(homes, ACCOUNTS, "DELETE FROM account WHERE id = 2", "INSERT INTO account VALUES (3, 5)") as (_, two):
        with homes.volume() as volume, closing(volume.snapshot()) as view:
            view.release()
            assert view.renew()
            view.release()
            replay(volume)
            assert not view.renew()
        assert two.execute("SELECT * FROM account").fetchall() == [(1, 100), (3, 5)]


class TakenBack(Exception):
    pass


@pytest.mark.parametrize("way", ["replay", "reset", "keep"])
def test_who_saw_a_withdrawal_that_was_discarded_is_told(homes: Homes, way: str) -> None:
    """S2.8: the money that was handed out on an unpushed balance. Nobody else is told, and nobody is told twice."""
    told = dict[str, list[Invalidated]](teller=[], audit=[], early=[])
    withdraw = "UPDATE account SET balance = balance - 70 WHERE id = 1"
    with ExitStack() as stack:
        one = stack.enter_context(closing(homes.connect("one")))
        one.execute(ACCOUNTS)
        one.execute("PRAGMA budwood_push")
        teller, audit, early = (
            stack.enter_context(closing(homes.connect("two", on_invalidated=told[name].append))) for name in told
        )
        assert early.execute("SELECT balance FROM account WHERE id = 1").get == 100
        one.execute(withdraw)
        one.execute("PRAGMA budwood_push")
        teller.execute(withdraw)
        assert audit.execute("SELECT balance FROM account WHERE id = 1").get == 30
        with homes.volume() as volume:
            if way == "replay":
                replay(volume, "theirs")
            else:
                volume.reset(discard=way == "reset", keep_as="mine" if way == "keep" else None)
        for connection in (teller, audit, early, teller, audit, early):
            assert connection.execute("SELECT balance FROM account WHERE id = 1").get == 30
        expected = [Invalidated("bank", "1+1", "2")]
        assert told == {"teller": expected, "audit": expected, "early": []}
        with pytest.raises(apsw.ConstraintError):
            teller.execute(withdraw)
        assert teller.execute("SELECT sum(balance) FROM account").get == 130


def test_what_was_pushed_before_the_reset_was_not_discarded_and_a_refusal_stops_the_statement(homes: Homes) -> None:
    def refuse(what: Invalidated) -> None:
        raise TakenBack(what.lsn)

    with closing(homes.connect("one")) as one:
        one.execute(ACCOUNTS)
        one.execute("PRAGMA budwood_push")
        with closing(homes.connect("two", on_invalidated=refuse)) as two, homes.volume() as volume:
            two.execute("UPDATE account SET balance = 1")
            volume.push()
            with closing(homes.connect("two")) as beside:
                beside.execute("UPDATE account SET balance = 2")
            volume.reset(discard=True)
            assert two.execute("SELECT balance FROM account").get == [1, 1]
            two.execute("UPDATE account SET balance = 3")
            one.execute("PRAGMA budwood_pull")
            one.execute("UPDATE account SET balance = 4")
            one.execute("PRAGMA budwood_push")
            volume.reset(discard=True)
            for _ in range(2):
                with pytest.raises(TakenBack, match=r"2\+1"):
                    two.execute("SELECT balance FROM account")


def test_a_dry_run_changes_nothing_and_says_what_would_be(homes: Homes) -> None:
    with (
        diverged(homes, ACCOUNTS, "UPDATE account SET balance = 1", "UPDATE account SET balance = 2") as (_, two),
        homes.volume() as volume,
    ):
        before = volume.status(count=False)
        report = replay(volume, "ours", dry_run=True)
        assert [(change.key, change.old, change.new) for change in report.changes] == [
            ((1,), (1, 100), (1, 2)),
            ((2,), (2, 100), (2, 2)),
        ]
        assert (report.applied, len(report.decided)) == (2, 2)
        assert volume.status(count=False) == before | {"diverged": volume.status(count=False)["diverged"]}
        assert two.execute("SELECT balance FROM account").fetchall() == [(2,), (2,)]


@pytest.mark.parametrize("policy", ["ours", "theirs"])
def test_a_row_that_one_has_removed_and_the_other_changed(homes: Homes, policy: str) -> None:
    ours = "DELETE FROM account WHERE id = 1; UPDATE account SET balance = 7 WHERE id = 2"
    theirs = "UPDATE account SET balance = 8 WHERE id = 1; DELETE FROM account WHERE id = 2"
    with diverged(homes, ACCOUNTS, theirs, ours) as (_, two), homes.volume() as volume:
        report = replay(volume, "ours" if policy == "ours" else "theirs")
        assert sorted((each.conflict.key, each.conflict.reason) for each in report.decided) == [
            ((1,), "changed"),
            ((2,), "changed"),
        ]
        rows = two.execute("SELECT * FROM account").fetchall()
        assert rows == ([(2, 7)] if policy == "ours" else [(1, 8)])


WIDE = ", ".join(f"c{number}" for number in range(1500))
REFUSED = {
    "more columns than SQLite compares": (
        f"CREATE TABLE t(a PRIMARY KEY, {WIDE}); INSERT INTO t(a) VALUES (1)",
        "INSERT INTO t(a) VALUES (2)",
        "UPDATE t SET c1499 = 'x'",
        "can't apply a changeset",
    ),
    "altered here": (
        "CREATE TABLE t(a PRIMARY KEY)",
        "INSERT INTO t VALUES (9)",
        "ALTER TABLE t ADD b",
        "altered here",
    ),
    "altered there": (
        "CREATE TABLE t(a PRIMARY KEY)",
        "ALTER TABLE t ADD b",
        "INSERT INTO t VALUES (9)",
        "altered on the remote",
    ),
    "dropped there": (
        "CREATE TABLE t(a PRIMARY KEY)",
        "DROP TABLE t",
        "INSERT INTO t VALUES (9)",
        "was dropped on",
    ),
    "made by both": (
        "CREATE TABLE t(a PRIMARY KEY)",
        "CREATE INDEX i ON t(a)",
        "CREATE INDEX i ON t(a DESC)",
        "index i was created here and created on the remote",
    ),
    "no key": ("CREATE TABLE t(a TEXT PRIMARY KEY)", "INSERT INTO t VALUES (9)", "INSERT INTO t VALUES (NULL)", "NULL"),
    "unique": (
        "CREATE TABLE t(a PRIMARY KEY, b UNIQUE)",
        "INSERT INTO t VALUES (1, 1)",
        "INSERT INTO t VALUES (2, 1)",
        "breaks a constraint",
    ),
    "unique index": (
        "CREATE TABLE t(a PRIMARY KEY, b); INSERT INTO t VALUES (1, 1)",
        "INSERT INTO t VALUES (2, 1)",
        "CREATE UNIQUE INDEX i ON t(b)",
        "can't be run on the remote's newest",
    ),
    "foreign key": (
        "CREATE TABLE p(a PRIMARY KEY); CREATE TABLE t(a REFERENCES p); INSERT INTO p VALUES (1)",
        "DELETE FROM p",
        "INSERT INTO t VALUES (1)",
        "refer to a row of p that is gone",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_replayed_is_refused_in_a_line_and_nothing_is_lost(homes: Homes, case: str) -> None:
    schema, theirs, ours, words = REFUSED[case]
    with diverged(homes, schema, theirs, ours) as (_, two), homes.volume() as volume:
        before = two.execute("SELECT * FROM t").fetchall(), volume.status(count=False)["lsn"]
        with pytest.raises((Diverged, BadInput), match=words) as refused:
            replay(volume, "ours")
        assert "\n" not in str(refused.value)
        assert (two.execute("SELECT * FROM t").fetchall(), volume.status(count=False)["lsn"]) == before


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
def test_a_text_that_is_none_is_replayed_or_refused_in_words(homes: Homes, encoding: str) -> None:
    """A changeset has none of UTF-16, and what it says of a conflict is text."""
    schema = f"""
    PRAGMA encoding = '{encoding}'; CREATE TABLE t(id INTEGER PRIMARY KEY, v);
    INSERT INTO t VALUES (1, CAST(x'ff' AS TEXT)), (2, 'b'), (3, CAST(x'00d8' AS TEXT))
    """
    ours = "UPDATE t SET v = CAST(x'61fe' AS TEXT) WHERE id = 1; INSERT INTO t VALUES (4, CAST(x'61ff' AS TEXT))"
    with (
        diverged(homes, schema, "UPDATE t SET v = 'theirs' WHERE id = 2", ours) as (one, two),
        homes.volume() as volume,
    ):
        assert replay(volume, "abort").applied == 2
        rows = two.execute("SELECT id, hex(CAST(v AS BLOB)) FROM t WHERE id <> 2 ORDER BY id").fetchall()
        assert rows == [(1, "61FE"), (3, "00D8"), (4, "61FF")]
        assert two.execute("SELECT v FROM t WHERE id = 2").fetchall() == [("theirs",)]
        two.execute("PRAGMA budwood_push")
        one.execute("PRAGMA budwood_pull")
        changed = "UPDATE t SET v = CAST(x'{}' AS TEXT) WHERE id = 3"
        one.execute(changed.format("00d9"))
        one.execute("PRAGMA budwood_push")
        two.execute(changed.format("00da"))
        before = volume.status(count=False)["lsn"]
        with pytest.raises((Diverged, BadInput), match="isn't valid") as refused:
            replay(volume, "ours")
        assert "\n" not in str(refused.value)
        assert volume.status(count=False)["lsn"] == before
        assert two.execute("SELECT hex(CAST(v AS BLOB)) FROM t WHERE id = 3").fetchall() == [("00DA",)]


def test_a_text_that_is_none_comes_anew_where_the_remote_has_removed_its_row(homes: Homes) -> None:
    schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, v); INSERT INTO t VALUES (1, 'a')"
    ours = "UPDATE t SET v = CAST(x'61ff' AS TEXT)"
    with diverged(homes, schema, "DELETE FROM t", ours) as (_, two), homes.volume() as volume:
        assert [each.choice for each in replay(volume, "ours").decided] == ["ours"]
        assert two.execute("SELECT id, typeof(v), hex(v) FROM t").fetchall() == [(1, "text", "61FF")]


def test_rows_that_refer_to_each_other_come_in_any_order_and_an_old_breach_is_nobodys(homes: Homes) -> None:
    schema = """
    CREATE TABLE a(id INTEGER PRIMARY KEY, z REFERENCES z ON DELETE CASCADE); CREATE TABLE z(id TEXT PRIMARY KEY);
    INSERT INTO z VALUES ('old'), ('new'); INSERT INTO a VALUES (1, 'never was'), (2, 'old');
    """
    ours = "INSERT INTO a VALUES (3, 'mine'); INSERT INTO z VALUES ('mine'); DELETE FROM z WHERE id = 'new'"
    with diverged(homes, schema, "INSERT INTO z VALUES ('theirs')", ours) as (_, two), homes.volume() as volume:
        assert replay(volume).applied == 3
        assert two.execute("SELECT id FROM z ORDER BY id").fetchall() == [("mine",), ("old",), ("theirs",)]
        assert two.execute("SELECT count(*) FROM a").fetchall() == [(3,)]


P = "CREATE TABLE p(x); INSERT INTO p VALUES (1)"
UNSOUND = {
    "no such table": ("CREATE TABLE t(a PRIMARY KEY, b REFERENCES nowhere(id))", "INSERT INTO t VALUES (2, 2)"),
    "no key": (f"{P}; CREATE TABLE t(a PRIMARY KEY, b REFERENCES p(x))", "INSERT INTO t VALUES (2, 2)"),
    "no key, by its own": (f"{P}; CREATE TABLE t(a PRIMARY KEY, b REFERENCES p(x))", "DELETE FROM p"),
    "no such column": (f"{P}; CREATE TABLE t(a PRIMARY KEY, b REFERENCES p(y))", "INSERT INTO t VALUES (2, 2)"),
    "no such row": (
        "CREATE TABLE p(x PRIMARY KEY); CREATE TABLE t(a PRIMARY KEY, b REFERENCES p)",
        "INSERT INTO t VALUES (2, 2)",
    ),
    "no such row, deferred": (
        "CREATE TABLE p(x PRIMARY KEY); CREATE TABLE t(a, b REFERENCES p DEFERRABLE INITIALLY DEFERRED)",
        "INSERT INTO t VALUES (2, 2)",
    ),
    "no such row, without a rowid": (
        "CREATE TABLE p(x PRIMARY KEY); CREATE TABLE t(a PRIMARY KEY, b REFERENCES p) WITHOUT ROWID",
        "INSERT INTO t VALUES (2, 2)",
    ),
    "no such row, by rowid": (
        "CREATE TABLE p(x PRIMARY KEY); CREATE TABLE t(a, b REFERENCES p)",
        "INSERT INTO t VALUES (2, 2)",
    ),
}


@pytest.mark.parametrize("case", UNSOUND)
def test_foreign_keys_that_nobody_has_enforced_are_not_enforced_now(homes: Homes, case: str) -> None:
    """SQLite doesn't unless told, so there are databases in which they say nothing."""
    schema, ours = UNSOUND[case]
    with diverged(homes, schema, "INSERT INTO t VALUES (1, 1)", ours) as (_, two), homes.volume() as volume:
        assert replay(volume, "abort").applied == 1
        rows = two.execute("SELECT a FROM t ORDER BY a").fetchall()
        assert rows == ([(1,), (2,)] if "INSERT" in ours else [(1,)])
        assert two.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_row_that_would_come_to_refer_to_nothing_is_told_beside_others_that_do(homes: Homes) -> None:
    schema = "CREATE TABLE p(x PRIMARY KEY); CREATE TABLE t(a PRIMARY KEY, b REFERENCES p); INSERT INTO p VALUES (5)"
    theirs = "DELETE FROM p; INSERT INTO t VALUES (1, 1)"
    ours = "INSERT INTO t VALUES (2, 2), (3, 5), (4, 4)"
    words = "row 3 of table t would refer to a row of p that is gone"
    with diverged(homes, schema, theirs, ours), homes.volume() as volume, pytest.raises(Diverged, match=words):
        replay(volume, "abort")


def test_tables_and_indexes_that_came_here_come_along(homes: Homes) -> None:
    ours = """
    CREATE TABLE note(id INTEGER PRIMARY KEY, words TEXT); INSERT INTO note VALUES (1, 'hello');
    CREATE INDEX balances ON account(balance); CREATE VIEW rich AS SELECT * FROM account WHERE balance > 50;
    """
    with diverged(homes, ACCOUNTS, "INSERT INTO account VALUES (3, 9)", ours) as (_, two), homes.volume() as volume:
        report = replay(volume)
        assert len(report.statements) == 3
        assert two.execute("SELECT words FROM note").fetchall() == [("hello",)]
        assert two.execute("SELECT count(*) FROM account INDEXED BY balances").fetchall() == [(3,)]
        assert two.execute("SELECT count(*) FROM rich").fetchall() == [(2,)]
        assert two.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_statistics_are_no_conflict_and_numbers_go_on_from_the_greater(homes: Homes) -> None:
    schema = (
        "CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT, a); CREATE INDEX i ON t(a); INSERT INTO t(a) VALUES (1)"
    )
    theirs = "INSERT INTO t VALUES (40, 2); DELETE FROM t WHERE id = 40; ANALYZE"
    ours = "INSERT INTO t VALUES (7, 3); ANALYZE"
    with diverged(homes, schema, theirs, ours) as (_, two), homes.volume() as volume:
        assert replay(volume).decided == []
        two.execute("INSERT INTO t(a) VALUES (4)")
        assert two.execute("SELECT * FROM t ORDER BY id").fetchall() == [(1, 1), (7, 3), (41, 4)]


def test_tables_that_sqlite_makes_for_itself_are_left_to_it(homes: Homes) -> None:
    schema = "CREATE TABLE t(a PRIMARY KEY); CREATE INDEX i ON t(a); INSERT INTO t VALUES (1)"
    ours = "ANALYZE; CREATE TABLE n(a INTEGER PRIMARY KEY AUTOINCREMENT); INSERT INTO n VALUES (7)"
    with diverged(homes, schema, "INSERT INTO t VALUES (2)", ours) as (_, two), homes.volume() as volume:
        assert replay(volume, "abort").applied == 1
        two.execute("INSERT INTO n VALUES (NULL)")
        assert two.execute("SELECT a FROM n").fetchall() == [(7,), (8,)]


def test_only_pages_that_changed_are_read(homes: Homes) -> None:
    """Of a table of some 4,000 pages, of which one row changed on either side: the rows' pages, and the way there. That
    its rows refer to others makes no difference."""
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
    schema = f"""
    CREATE TABLE p(id INTEGER PRIMARY KEY, a); CREATE TABLE t(id INTEGER PRIMARY KEY, a, p REFERENCES p);
    INSERT INTO p VALUES (1, 1), (2, 2); {rows} INSERT INTO t SELECT i, hex(zeroblob(400)), 1 FROM n
    """
    theirs, ours = "UPDATE t SET a = 1 WHERE id = 5", "UPDATE t SET a = 2, p = 2 WHERE id = 19000"
    with diverged(homes, schema, theirs, ours), homes.volume() as volume:
        before = volume.status()["held_pages"]
        assert replay(volume).applied == 1
        assert volume.status()["pages"] > 4000
        assert volume.status()["held_pages"] - before < 100


def test_what_is_unpushed_may_be_kept_as_it_was(homes: Homes) -> None:
    with diverged(homes, ACCOUNTS, "UPDATE account SET balance = 1", "UPDATE account SET balance = 2"):
        with homes.volume() as volume:
            replay(volume, "theirs", keep_as="mine")
        with closing(budwood.connect("mine", home=homes.folder / "two", remote=homes.remote)) as mine:
            assert mine.execute("SELECT balance FROM account").fetchall() == [(2,), (2,)]


def test_a_program_that_commits_meanwhile_is_replayed_too(homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    with diverged(homes, ACCOUNTS, "DELETE FROM account WHERE id = 2", "INSERT INTO account VALUES (3, 5)") as (_, two):
        left = ["INSERT INTO account VALUES (4, 6)"]

        def commit_once() -> None:
            if left:
                two.execute(left.pop())

        monkeypatch.setattr("budwood.sync.rebase.MADE", commit_once)
        with homes.volume() as volume:
            assert replay(volume).applied == 2
        assert two.execute("SELECT * FROM account").fetchall() == [(1, 100), (3, 5), (4, 6)]


def test_with_nothing_to_do_it_does_nothing(homes: Homes) -> None:
    with closing(homes.connect("one")) as one:
        one.execute(ACCOUNTS)
        one.execute("PRAGMA budwood_push")
        with homes.volume("one") as volume:
            assert replay(volume).onto == 0
            one.execute("DELETE FROM account WHERE id = 1")
            assert replay(volume).onto == 0
            assert volume.status(count=False)["unpushed"] == 1
            with pytest.raises(BadInput, match="no policy"):
                replay(volume, "mine")  # type: ignore[arg-type]


def test_where_the_remote_is_away_nothing_changes(homes: Homes) -> None:
    with diverged(homes, ACCOUNTS, "DELETE FROM account WHERE id = 2", "INSERT INTO account VALUES (3, 5)") as (_, two):
        (homes.folder / "store").rename(homes.folder / "away")
        with homes.volume() as volume, pytest.raises(BudwoodError):
            replay(volume)
        (homes.folder / "away").rename(homes.folder / "store")
        assert two.execute("SELECT count(*) FROM account").fetchall() == [(3,)]


POLICY = """
def richer(conflict):
    return "ours" if conflict.ours["balance"] > conflict.theirs["balance"] else "theirs"

def broken(conflict):
    return conflict.nothing
"""


def test_without_what_it_was_made_on_there_is_a_way_out(homes: Homes) -> None:
    """The remote has forgotten it."""
    home, remote = homes.folder / "two", homes.remote
    withdraw = "UPDATE account SET balance = balance - 70 WHERE id = 1"
    told = r"forgotten LSN 1 of volume 'bank'.*and what was there isn't here.*--keep-as NEW"
    with diverged(homes, ACCOUNTS, withdraw, withdraw.replace("70", "80")), open_edge(home=home, remote=remote) as edge:
        volume = edge.volume("bank")
        edge.connection().remote.ask(ADVANCE, SinceRequest(volume.id.raw, since=2))
        with pytest.raises(Forgotten, match=told):
            replay(volume, "ours")
        with pytest.raises(Forgotten, match=told):
            diff("bank", home=home, remote=remote)
        assert volume.status()["unpushed"] == 1
        volume.reset(keep_as="kept")
        edge.volume("kept").export(homes.folder / "kept.db")
    with closing(apsw.Connection(str(homes.folder / "kept.db"))) as kept:
        assert kept.execute("SELECT balance FROM account WHERE id = 1").fetchall() == [(20,)]


def test_at_the_command_line(homes: Homes, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    command = Command(capsys, homes.folder / "two", homes.remote)
    (policy := tmp_path / "policy.py").write_text(POLICY)
    theirs = "UPDATE account SET balance = 45 * id"
    ours = "UPDATE account SET balance = 80; INSERT INTO account VALUES (3, 1)"
    with diverged(homes, ACCOUNTS, theirs, ours):
        assert "row 1 of table account was changed here and changed on" in command("replay", "bank").line(3)
        for wrong, words in (("mine", "no policy"), (f"{policy}:no", "no function"), ("no.py:f", "no file")):
            assert words in command("replay", "bank", "--on-conflict", wrong).line(2)
        assert "failed on row (1,)" in command("replay", "bank", "--on-conflict", f"{policy}:broken").line(2)
        decides = ("replay", "bank", "--on-conflict", f"{policy}:richer")
        shown = command.ok(*decides, "--dry-run")
        assert "~ 1  balance: 100 -> 80" in shown
        assert "conflict (changed) at 1 of table account: ours" in shown
        assert "theirs  id=1, balance=45" in shown
        assert shown.splitlines()[-1] == "2 rows would be applied to LSN 2"
        (told,) = json.loads(command.ok(*decides, "--json"))
        assert (told["onto"], told["applied"], told["lsn"]) == (2, 2, "2+1")
        assert [(each["key"], each["choice"]) for each in told["conflicts"]] == [([1], "ours"), ([2], "theirs")]
        assert "nothing to replay" in command.ok("replay", "bank")
        command.ok("push", "bank")
        assert command.ok("sql", "bank", "SELECT * FROM account") == "1\t80\n2\t90\n3\t1\n"

"""Pins and since as users meet them: over a directory and over HTTP, at an edge, in SQL, at the command line."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import budwood
from budwood import lite
from budwood.remote.portal import BlockingRemote, open_remote
from budwood.sync.edge import Edge
from budwood.volume.calls import (
    ADVANCE,
    PIN,
    PINS,
    RENEW,
    SNAPSHOT,
    UNPIN,
    PinRequest,
    RenewRequest,
    SinceRequest,
    SnapshotRequest,
    UnpinRequest,
    VolumeRequest,
)
from budwood.volume.errors import Forgotten, NotFound
from budwood.volume.ids import PinId, VolumeId
from budwood.volume.pins import PinState

from .cli import Command, serving


@pytest.fixture(params=["file", "http"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    store = tmp_path / "store"
    if request.param == "file":
        yield store.as_uri()
        return
    with serving(store) as url:
        yield url


@pytest.fixture
def ann(tmp_path: Path, remote: str) -> Iterator[Edge]:
    """A volume `v`, whose table holds its LSN's number, at LSN 4."""
    with budwood.open(home=tmp_path / "ann", remote=remote) as edge:
        write(edge, "CREATE TABLE t(n); INSERT INTO t VALUES (1)")
        for _ in range(3):
            write(edge, "UPDATE t SET n = n + 1")
        yield edge


def write(edge: Edge, sql: str) -> None:
    with closing(budwood.connect("v", home=edge.home, remote=edge.remote)) as db:
        db.execute(sql)
    edge.volume("v").push()


def rows(edge: Edge, lsn: int | None = None, name: str = "v") -> int:
    with closing(budwood.connect(name, home=edge.home, remote=edge.remote, lsn=lsn)) as db:
        (found,) = db.execute("SELECT n FROM t").fetchall()
        return int(str(found[0]))


def there(edge: Edge) -> tuple[BlockingRemote, VolumeId]:
    return open_remote(edge.remote), edge.volume("v").id


def test_a_pin_keeps_an_lsn_readable_and_what_nothing_keeps_is_forgotten_in_one_clear_line(ann: Edge) -> None:
    remote, vid = there(ann)
    one = PinId.new()
    pin = remote.ask(PIN, PinRequest(vid.raw, lsn=2, seconds=600, owner="a report", pin=one.raw))
    assert (pin.lsn, pin.state, pin.owner, pin.pin_id) == (2, PinState.LIVE, "a report", one)
    newest = remote.ask(PIN, PinRequest(vid.raw, seconds=0, kind="named", pin=PinId.new().raw))
    assert (newest.lsn, newest.expiry) == (4, 0)
    assert remote.ask(ADVANCE, SinceRequest(vid.raw, since=4)).since == 4
    assert remote.ask(ADVANCE, SinceRequest(vid.raw, since=2)).since == 4
    info = remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))
    assert (info.since, info.upper) == (4, 5)
    assert [rows(ann, lsn) for lsn in (2, 4)] == [2, 4]
    with pytest.raises(Forgotten, match=r"^LSN 3 of volume \S+ is forgotten, and no pin holds it: read one of 4 to 4$"):
        remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=3))
    with pytest.raises(Forgotten):
        rows(ann, 3)
    assert remote.ask(RENEW, RenewRequest(vid.raw, pin=pin.pin_id.raw, seconds=1200)).expiry > pin.expiry
    assert {found.pin_id for found in remote.ask(PINS, VolumeRequest(vid.raw)).pins} == {one, newest.pin_id}
    remote.ask(UNPIN, UnpinRequest(vid.raw, pin=one.raw))
    assert [found.pin_id for found in remote.ask(PINS, VolumeRequest(vid.raw)).pins] == [newest.pin_id]
    with pytest.raises(Forgotten):
        remote.ask(PIN, PinRequest(vid.raw, lsn=2, seconds=600, pin=PinId.new().raw))
    with pytest.raises(NotFound, match="was released"):
        remote.ask(RENEW, RenewRequest(vid.raw, pin=one.raw, seconds=600))
    remote.close()


def test_an_edge_that_was_away_while_its_lsn_was_forgotten_says_so_and_a_pull_brings_it_up_to_date(
    ann: Edge, tmp_path: Path
) -> None:
    """What changed since can't be told any more, so any page may have."""
    write(
        ann,
        "CREATE TABLE wide(x); INSERT INTO wide "
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 1000) "
        "SELECT randomblob(3000) FROM r",
    )
    with budwood.open(home=tmp_path / "bob", remote=ann.remote) as bob:
        bob.volume("v").pull()
        assert rows(bob) == 4
    write(ann, "UPDATE t SET n = 6; DELETE FROM wide WHERE rowid > 20")
    remote, vid = there(ann)
    for pin in remote.ask(PINS, VolumeRequest(vid.raw)).pins:
        # Longer than the leases of edges last.
        remote.ask(UNPIN, UnpinRequest(vid.raw, pin=pin.id))
    remote.ask(ADVANCE, SinceRequest(vid.raw, since=6))
    remote.close()
    with budwood.open(home=tmp_path / "bob", remote=ann.remote) as bob:
        with pytest.raises(Forgotten, match=r"forgotten LSN 5 of volume .v. .*`budwood pull v`") as caught:
            bob.volume("v").fetch()
        assert caught.value.oldest == 6
        assert bob.volume("v").pull() == "6"
        assert rows(bob) == 6
        with closing(budwood.connect("v", home=bob.home, remote=bob.remote)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert db.execute("SELECT count(*) FROM wide").fetchall() == [(20,)]


def test_the_log_of_a_volume_begins_where_its_memory_does(ann: Edge) -> None:
    remote, vid = there(ann)
    remote.ask(ADVANCE, SinceRequest(vid.raw, since=3))
    assert [row["lsn"] for row in ann.volume("v").log()] == ["4", "3"]
    assert [row["lsn"] for row in ann.volume("v").log(limit=1)] == ["4"]
    assert [row["lsn"] for row in ann.volume("v").log(limit=3)] == ["4", "3"]
    remote.close()


def test_a_fork_lives_on_whatever_its_parent_forgets(ann: Edge) -> None:
    ann.fork("v", "w", lsn=2).push()
    remote, vid = there(ann)
    remote.ask(ADVANCE, SinceRequest(vid.raw, since=4))
    assert rows(ann, None, "w") == 2
    remote.close()


def test_pins_and_since_at_the_command_line(ann: Edge, capsys: pytest.CaptureFixture[str]) -> None:
    user = Command(capsys, ann.home, ann.remote)
    said = user.ok("pin", "v", "--lsn", "2", "--for", "12h", "--owner", "the audit")
    assert said.startswith("pinned LSN 2 of v until 20")
    one = said.split()[-1]
    assert user.ok("pin", "v").startswith("pinned LSN 4 of v for ever: ")
    listed = json.loads(user.ok("pins", "v", "--json"))
    assert [(row["lsn"], row["kind"], row["owner"], row["state"]) for row in listed] == [
        (2, "lease", "the audit", "live"),
        (4, "named", "", "live"),
    ]
    assert (listed[0]["id"], listed[1]["expiry"]) == (one, None)
    lines = user.ok("pins", "v").splitlines()
    assert lines[0].split() == ["id", "lsn", "kind", "label", "owner", "until", "state"]
    assert lines[2].split() == [listed[1]["id"], "4", "named", "for", "ever", "live"]
    fork = ann.fork("v", "w", lsn=4)
    fork.push()
    last = user.ok("pins", "v").splitlines()[-1]
    assert " ".join(last.split()[1:]) == f"4 fork {fork.id} it is removed live"
    assert user.ok("retain", "v", "--since", "3") == "v is readable from LSN 3 on\n"
    assert user.ok("retain", "v", "--since", "1") == "v is readable from LSN 3 on, as before: it doesn't go back to 1\n"
    assert user.sql("v", "SELECT n FROM t", "--lsn", "2") == ["2"]
    assert "is forgotten" in user("sql", "v", "SELECT n FROM t", "--lsn", "1").line()
    assert "is forgotten" in user("pin", "v", "--lsn", "1").line()
    assert user.ok("unpin", "v", one) == f"released pin {one} of v\n"
    assert "is forgotten" in user("sql", "v", "SELECT n FROM t", "--lsn", "2").line()


def test_policies_at_the_command_line(ann: Edge, capsys: pytest.CaptureFixture[str]) -> None:
    user = Command(capsys, ann.home, ann.remote)
    assert user.ok("retain", "v", "--show").splitlines() == [
        "keeps    every LSN, for ever",
        "said by  nobody",
        "since    1",
        "oldest   1",
        "newest   4",
        "pins     none",
    ]
    everyone = "volumes without a policy of their own keep every LSN"
    assert user.ok("retain", "--default", "--show") == f"{everyone}, for ever\n"
    said = "every LSN for 7d, one an hour for 30d, one a day for 1y"
    terms = ("--all", "7d", "--hourly", "30d", "--daily", "1y")
    assert user.ok("retain", "v", *terms) == f"v keeps {said}\n"
    assert user.ok("retain", "--default", "--all", "90m") == f"{everyone} for 90m\n"
    user.ok("pin", "v", "--lsn", "2")
    user.ok("pin", "v", "--for", "1y")
    user.ok("retain", "v", "--since", "3")
    assert json.loads(user.ok("retain", "v", "--show", "--json")) == [
        {
            "name": "v",
            "policy": {"all": 7 * 86_400_000, "hourly": 30 * 86_400_000, "daily": 365 * 86_400_000},
            "from": "volume",
            "since": 3,
            "oldest": 3,
            "lsn": 4,
            "pins": {"lease": 1, "named": 1},
        }
    ]
    assert user.ok("retain", "v", "--default") == "v keeps what the store's default says: every LSN for 90m\n"
    shown = user.ok("retain", "v", "--show").splitlines()
    assert shown[:2] == ["keeps    every LSN for 90m", "said by  the store's default"]
    assert shown[-1] == "pins     1 lease, 1 named"
    assert user.ok("retain", "v", "--all", "ever") == "v keeps every LSN, for ever\n"
    assert user.ok("retain", "v", "--show").splitlines()[1] == "said by  the volume itself"
    listed = json.loads(user.ok("retain", "--default", "--show", "--json"))
    assert listed == [{"policy": {"all": 5_400_000, "hourly": None, "daily": None}}]


def test_labels_at_the_command_line(ann: Edge, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    user = Command(capsys, ann.home, ann.remote)
    said = user.ok("pin", "v", "--lsn", "2", "--as", "first release", "--owner", "ann")
    assert said.startswith("pinned LSN 2 of v as @first release for ever: ")
    one = said.split()[-1]
    assert "LSN 2 is called 'first release' already" in user("pin", "v", "--as", "first release").line()
    (row,) = json.loads(user.ok("pins", "v", "--json"))
    assert (row["id"], row["label"], row["owner"], row["kind"]) == (one, "first release", "ann", "named")
    assert "first release" in user.ok("pins", "v")
    user.ok("retain", "v", "--since", "4")
    assert user.sql("v", "SELECT n FROM t", "--at", "@first release") == ["2"]
    user.ok("export", "v", str(tmp_path / "as it was.db"), "--at", "@first release")
    with closing(sqlite3.connect(tmp_path / "as it was.db")) as db:
        assert db.execute("SELECT n FROM t").fetchall() == [(2,)]
    assert user.ok("pin", "v", "--at", "@first release", "--as", "the same").startswith("pinned LSN 2 of v")
    assert user.ok("unpin", "v", "@first release") == "released pin @first release of v\n"
    gone = user("sql", "v", "SELECT 1", "--at", "@first release").line()
    assert "is called 'first release': `budwood pins` lists" in gone
    assert "no LSN of v is called" in user("unpin", "v", "@first release").line()
    assert user.ok("pin", "v", "--as", "first release").startswith("pinned LSN 4 of v as @first release")


def test_whoever_asks_for_what_is_forgotten_is_told_the_oldest_that_is_left(ann: Edge) -> None:
    """In SQL at an edge and without one, and by the remote."""
    remote, vid = there(ann)
    remote.ask(ADVANCE, SinceRequest(vid.raw, since=3))
    # An LSN that it knows is no reason for a process to look at the log.
    ann.volume("v").pull()
    told: list[Forgotten] = []
    for ask in (
        lambda: remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=2)),
        lambda: rows(ann, 2),
        lambda: ann.volume("v").snapshot(lsn=2),
        lambda: lite.connect(ann.remote, "v", 2),
    ):
        with pytest.raises(Forgotten, match="read one of 3 to 4") as caught:
            ask()
        told.append(caught.value)
    assert [error.oldest for error in told] == [3] * 4
    remote.close()


def test_a_time_is_a_since_too(ann: Edge, capsys: pytest.CaptureFixture[str]) -> None:
    user = Command(capsys, ann.home, ann.remote)
    times = [row["time"] for row in reversed(ann.volume("v").log())]
    assert user.ok("pin", "v", "--at", times[1]).startswith("pinned LSN 2 of v for ever")
    assert user.ok("retain", "v", "--since", times[2]) == "v is readable from LSN 3 on\n"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (["pin", "v", "--for", "soon"], "'soon' is no time to last: write 20ms, 90s, 15m, 12h, 7d, 4w or 1y"),
        (["pin", "v", "--for", "0s"], "no time to last"),
        (["pin", "v", "--for", "999999999w"], "a pin lasts for"),
        (["pin", "v", "--lsn", "1", "--at", "2026-01-01"], "an LSN or a time, not both"),
        (["unpin", "v", "me"], "'me' is not a PinId"),
        (["retain", "v", "--since", "never"], "'never' is no time"),
        (["retain", "v", "--since", "0"], "LSNs start at 1"),
        (["retain"], "say what stays readable"),
        (["retain", "v"], "say what stays readable"),
        (["retain", "--default"], "say what stays readable"),
        (["retain", "--all", "7d"], "say of which volume"),
        (["retain", "--show"], "say of which volume"),
        (["retain", "v", "--show", "--all", "7d"], "--show changes nothing: leave out --all"),
        (["retain", "v", "--show", "--since", "2"], "--show changes nothing: leave out --since"),
        (["retain", "v", "--all", "7d", "--json"], "add --show"),
        (["retain", "v", "--all", "7d", "--since", "2"], "give one of the two"),
        (["retain", "--default", "--since", "2"], "give one of the two"),
        (["retain", "v", "--default", "--daily", "1y"], "leave out --daily, or the name"),
        (["retain", "v", "--hourly", "7d"], "hourly alone says too little"),
        (["retain", "v", "--all", "7d", "--daily", "7d"], "daily would keep nothing that all doesn't"),
        (["retain", "v", "--all", "101y"], "100 years"),
        (["pin", "v", "--as", "@x"], "can't be a label"),
        (["pin", "v", "--as", ""], "a label has 1 to 255 bytes"),
        (["sql", "v", "SELECT 1", "--at", "@"], "@ stands before a label"),
    ],
)
def test_a_wrong_call_says_how_it_is_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], call: list[str], words: str
) -> None:
    user = Command(capsys, tmp_path / "home", (tmp_path / "store").as_uri())
    user.sql_made("v")
    user.ok("push", "v")
    assert words in user(*call).line(2)

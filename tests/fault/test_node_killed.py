"""A node killed at every fault point that it passes, and started again on the same store at the same address.

Each start is a new epoch. A client whose push got no answer pushes again, by its token. After that every acknowledged
push is there exactly once, LSNs have no gaps, and every client sees the same rows.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from budwood.testing.commits import commit_of
from budwood.volume.calls import (
    HELLO,
    MOVE_LOG,
    OUTCOME,
    PIN,
    PINS,
    SNAPSHOT,
    Done,
    MoveRequest,
    OutcomeRequest,
    PinRequest,
    SnapshotRequest,
    VolumeRequest,
)
from budwood.volume.errors import Forgotten, StoreError
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.wire import CommitRequest

from ..waits import wait_until
from .crash_harness import SERVE, WORK, Place, Serving, cut, finish, look, rows_of
from .test_edge_killed import append, check

FIRST_START = (
    "log: anchor durable, log empty",
    "log: epoch taken, not fenced",
    "log: fence durable, not open",
    *(f"store: linked, directory not synced#{n}" for n in range(2, 7)),
)
"""With every object that a first start writes after the probe's: the root, an anchor, an epoch, a fence."""

RESTART = (
    "log: epoch taken, not fenced",
    "log: fence durable, not open",
    "store: linked, directory not synced#3",
    "store: linked, directory not synced#4",
)

PUSHES = {
    "log: entry sealed, not sent": False,
    "log: entry sealed, not sent#4": False,
    "log: entry durable, not acknowledged": True,
    "log: entry durable, not acknowledged#4": True,
    "store: temp written, not linked#7": False,
    "store: linked, directory not synced#7": True,
    "store: directory synced, temp not removed#7": True,
}
"""Each window while a node takes pushes, and whether the one in flight stands. A start writes four objects."""

SLEPT = ("log: entry durable, boundary not read#2", "log: entry durable, boundary not read#4")
"""While a node takes pushes that sleeps at every turn. A start writes the fence."""

SLEEPS = """
from itertools import count
from budwood.cli.launch import main
from budwood.server.store.retrying import PATIENT
slept = count()
object.__setattr__(PATIENT, "boot", lambda: next(slept) * 1e6)
main()
"""

ROLLED = (
    "rollup: nodes written, rollup not",
    "rollup: nodes written, rollup not#3",
    "rollup: written, not named",
    "rollup: written, not named#3",
)
"""While a node takes pushes that rolls its log up at every other one."""

ROLLS = """
from budwood.cli.launch import main
from budwood.server.metastore import rollups
rollups.FEWEST, rollups.A_NODE = 2, 0
main()
"""

LARGE_PUSH = (
    "pagestore: fragment checked, not stored",
    "pagestore: fragment durable, not answered",
    "log: entry sealed, not sent",
    "log: entry durable, not acknowledged",
)

LARGE_COMMIT = {"node: fragment durable, entry not written": False}

FIRST_PUSH = (
    "log: entry sealed, not sent",
    "log: entry durable, not acknowledged",
    "log: entry sealed, not sent#2",
    "log: entry durable, not acknowledged#2",
)

FORK = ("node: fork born, parent not told", "log: entry durable, not acknowledged")

MOVE = (
    "log: entry sealed, not sent",
    "log: entry durable, not acknowledged",
    "move: read ahead, close not written",
    "move: close written, open not",
    "log: entry sealed, not sent#2",
    "log: entry durable, not acknowledged#2",
    "move: open written, not told",
)

PINNED = {
    "pin: asked, stream not read": "asked",
    "pin: checked, not confirmed": "asked",
    "pin: confirmed, caller not told": "live",
}
"""And how the pin stands afterwards."""

COLLECT = (
    "log: entry sealed, not sent#2",
    "log: entry durable, not acknowledged#2",
    "collect: announced, pins not listed",
)

CUTS: tuple[Iterable[str], ...] = (
    FIRST_START,
    RESTART,
    PUSHES,
    SLEPT,
    ROLLED,
    LARGE_PUSH,
    LARGE_COMMIT,
    FIRST_PUSH,
    FORK,
    MOVE,
    PINNED,
    COLLECT,
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A ledger with one row, at LSN 1 of the log of node `main`, which has stopped."""
    place = Place(tmp_path_factory.mktemp("served"))
    place.execute("create table ledger(entry); insert into ledger values('base')")
    node = Serving(place)
    node.start()
    try:
        with place.edge(remote=node.url) as edge:
            assert edge.volume("ledger").push() == "1"
    finally:
        assert node.stop() == ""
    return place


@pytest.fixture
def place(served: Place, tmp_path: Path) -> Place:
    return served.copy(tmp_path / "copy")


@pytest.fixture
def node(place: Place) -> Generator[Serving]:
    serving = Serving(place)
    yield serving
    serving.stop()


def epoch_at(place: Place, url: str) -> int:
    with place.edge(remote=url) as edge:
        return edge.connection().remote.ask(HELLO, Done()).epoch


def again(node: Serving) -> None:
    """Start it anew; it must be of a newer epoch than every entry in its log."""
    node.start()
    epochs = sorted((node.place.folder / "store" / "logs" / "main" / "epochs").iterdir())
    assert epoch_at(node.place, node.url) == int(epochs[-1].name, 16)


@pytest.mark.parametrize("point", FIRST_START)
def test_a_first_start_that_was_cut_can_be_made_again(tmp_path: Path, point: str) -> None:
    place = Place(tmp_path)
    node = Serving(place)
    try:
        with pytest.raises(AssertionError, match="did not start"):
            node.start(fault=point)
        again(node)
        place.execute("create table ledger(entry); insert into ledger values('base')")
        check(look(place, remote=node.url), ["base"])
    finally:
        node.stop()


@pytest.mark.parametrize("point", RESTART)
def test_a_restart_that_was_cut_can_be_made_again(place: Place, node: Serving, point: str) -> None:
    with pytest.raises(AssertionError, match="did not start"):
        node.start(fault=point)
    again(node)
    check(look(place, remote=node.url), ["base"])


@pytest.mark.parametrize(
    ("point", "stands", "program"),
    [*((*window, SERVE) for window in PUSHES.items()), *((point, True, SLEEPS) for point in SLEPT)],
)
def test_every_acknowledged_push_is_there_once_after_a_restart(
    place: Place, node: Serving, point: str, stands: bool, program: str
) -> None:
    node.start(fault=point, program=program)
    acknowledged, lost, who = push_until_it_dies(place, node)
    node.died()
    again(node)
    if stands:
        with place.edge("observer", node.url) as edge:
            assert edge.volume("ledger").status()["remote_lsn"] == 2 + len(acknowledged)
    with place.edge(who, node.url) as edge:
        assert edge.volume("ledger").push() == str(2 + len(acknowledged))
    for home in ("home", "other"):
        with place.edge(home, node.url) as edge:
            edge.volume("ledger").pull()
        assert rows_of(place, home=home, remote=node.url) == ["base", *acknowledged, lost]
    check(look(place, remote=node.url), ["base", *acknowledged, lost])


def push_until_it_dies(place: Place, node: Serving) -> tuple[list[str], str, str]:
    """Two clients take turns: pull, commit, push. The rows acknowledged, the one that was not, and whose it was."""
    acknowledged: list[str] = []
    for turn in range(20):
        home = ("home", "other")[turn % 2]
        with place.edge(home, node.url) as edge:
            volume = edge.volume("ledger")
            volume.pull()
            append(place, f"row {turn}", home=home)
            try:
                lsn = volume.push()
            except StoreError:
                return acknowledged, f"row {turn}", home
            acknowledged.append(f"row {turn}")
            assert lsn == str(1 + len(acknowledged))
    raise AssertionError("the node outlived twenty pushes")


@pytest.mark.parametrize("point", ROLLED)
def test_a_rollup_that_was_cut_off_loses_nothing_and_the_next_one_stands(
    place: Place, node: Serving, point: str
) -> None:
    """It is written behind everybody's back: the node dies while it answers, or while nobody asks it anything."""
    node.start(fault=point, program=ROLLS)
    rows = ["base"]
    with suppress(StoreError):
        for turn in range(20):
            rows.append(f"row {turn}")
            append(place, rows[-1])
            with place.edge(remote=node.url) as edge:
                edge.volume("ledger").push()
    node.died()
    assert len(rows) < 20
    node.start(program=ROLLS)
    for turn in range(6):
        if turn:
            rows.append(f"row {turn} afterwards")
            append(place, rows[-1])
        with place.edge(remote=node.url) as edge:
            assert edge.volume("ledger").push() == str(len(rows))
    assert wait_until(lambda: list((place.folder / "store/logs/main/rollups").glob("*/*")))
    check(look(place, remote=node.url), rows)


@pytest.mark.parametrize("point", LARGE_PUSH)
def test_fragments_of_a_dead_epoch_are_sent_again(place: Place, node: Serving, point: str) -> None:
    """Rule 10: an entry names only fragments of its own epoch."""
    node.start(fault=point)
    place.execute("create table bulk as select randomblob(3000000) as data")
    with place.edge(remote=node.url) as edge, pytest.raises(StoreError):
        edge.volume("ledger").push()
    node.died()
    again(node)
    append(place, "row 1")
    check_history = look(place, remote=node.url)
    assert (check_history.rows, check_history.integrity) == (["base", "row 1"], "ok")
    assert check_history.remote == check_history.local == ["base", "row 1", "after"]
    assert len(check_history.history) <= 3


@pytest.mark.parametrize(("point", "stands"), LARGE_COMMIT.items())
def test_a_large_commit_sent_whole_lands_once(place: Place, node: Serving, point: str, stands: bool) -> None:
    """No client of ours sends more than 1 MiB with a commit; another may, and the node then stores it first."""
    node.start(fault=point)
    with place.edge(remote=node.url) as edge:
        vid = edge.volume("ledger").id
        request, segment = large_commit(vid)
        with pytest.raises(StoreError):
            edge.connection().remote.commit(request, segment)
    node.died()
    again(node)
    with place.edge(remote=node.url) as edge:
        remote = edge.connection().remote
        assert remote.ask(OUTCOME, OutcomeRequest(vid.raw, client=request.client, token=request.token)).lsn == (
            2 if stands else 0
        )
        assert remote.commit(request, segment).lsn == 2
        assert remote.commit(request, segment).lsn == 2
        assert remote.ask(SNAPSHOT, SnapshotRequest(vid.raw)).lsn == 2


def large_commit(vid: VolumeId) -> tuple[CommitRequest, bytes]:
    """400 random pages on LSN 1, beyond SQLite's own."""
    content = {page: os.urandom(4096) for page in range(100, 500)}
    return commit_of(vid, 1, content, client=ClientId.new(), floor=4096)


@pytest.mark.parametrize("point", FIRST_PUSH)
def test_a_volume_whose_making_was_cut_is_made_once(place: Place, node: Serving, point: str) -> None:
    node.start(fault=point)
    place.execute("create table ledger(entry); insert into ledger values('new')", name="new")
    with place.edge(remote=node.url) as edge, pytest.raises(StoreError):
        edge.volume("new").push()
    node.died()
    again(node)
    check(look(place, "new", remote=node.url), ["new"])
    with place.edge(remote=node.url) as edge:
        assert [row["name"] for row in edge.ls(remote=True)] == ["ledger", "new"]


@pytest.mark.parametrize("point", FORK)
def test_a_fork_that_was_cut_is_made_once(place: Place, node: Serving, point: str) -> None:
    node.start(fault=point)
    with place.edge(remote=node.url) as edge:
        fork = edge.fork("ledger", "fork")
        place.execute("insert into ledger values('row 1')", name="fork")
        with pytest.raises(StoreError):
            fork.push()
    node.died()
    again(node)
    check(look(place, "fork", remote=node.url), ["base", "row 1"])


@pytest.mark.parametrize("point", MOVE)
def test_a_move_that_was_cut_is_finished_by_the_next_push(place: Place, node: Serving, point: str) -> None:
    node.start(fault=point)
    append(place, "row 1")
    with place.edge(remote=node.url) as edge:
        volume = edge.volume("ledger")
        with pytest.raises(StoreError):
            edge.connection().remote.ask(MOVE_LOG, MoveRequest(volume.id.raw, to="private"))
    node.died()
    again(node)
    check(look(place, remote=node.url), ["base", "row 1"])
    with place.edge(remote=node.url) as edge:
        volume = edge.volume("ledger")
        assert edge.connection().remote.ask(MOVE_LOG, MoveRequest(volume.id.raw, to="private")).log == str(volume.id)
        assert edge.connection().remote.ask(MOVE_LOG, MoveRequest(volume.id.raw, to="main")).log == "main"
    check(
        look(place, remote=node.url, mark="moved"),
        ["base", "row 1", "after"],
        remote=["base", "row 1", "after", "moved"],
    )


@pytest.mark.parametrize("point", MOVE)
def test_a_takeover_from_a_dead_node_that_was_cut_is_finished_when_done_again(place: Place, point: str) -> None:
    """An embedded process takes the volume out of the log of a node that is gone (DESIGN §4, `budwood move`)."""
    append(place, "row 1")
    assert cut(point, WORK, "takeover", place.home(), place.store, "ledger") == []
    assert finish(WORK, "takeover", place.home(), place.store, "ledger") == ["moved"]
    check(look(place), ["base", "row 1"])


@pytest.mark.parametrize(("point", "state"), PINNED.items())
def test_a_pin_that_was_cut_is_one_pin_when_it_is_asked_for_again(
    place: Place, node: Serving, point: str, state: str
) -> None:
    node.start(fault=point)
    pin = PinId.new()
    with place.edge(remote=node.url) as edge:
        vid, remote = edge.volume("ledger").id, edge.connection().remote
        with pytest.raises(StoreError) as lost:
            remote.ask(PIN, PinRequest(vid.raw, lsn=1, seconds=60, pin=pin.raw))
        assert not lost.value.determinate
    node.died()
    again(node)
    with place.edge(remote=node.url) as edge:
        remote = edge.connection().remote
        assert [(found.pin_id, found.state.value) for found in remote.ask(PINS, VolumeRequest(vid.raw)).pins] == [
            (pin, state)
        ]
        assert remote.ask(PIN, PinRequest(vid.raw, lsn=1, seconds=60, pin=pin.raw)).state.value == "live"
        assert [(found.pin_id, found.rev) for found in remote.ask(PINS, VolumeRequest(vid.raw)).pins] == [(pin, 1)]


@pytest.mark.parametrize("point", COLLECT)
def test_a_collection_that_was_cut_lets_nobody_pin_what_it_announced_and_is_announced_again(
    place: Place, point: str
) -> None:
    """A pin that was made before it holds, whatever died since (DESIGN §9.4)."""
    with place.edge() as edge:
        vid, remote = edge.volume("ledger").id, edge.connection().remote
        assert remote.ask(MOVE_LOG, MoveRequest(vid.raw, to="private", takeover=True)).log == str(vid)
        for lsn in (2, 3):
            place.execute("insert into ledger values(?)", f"row {lsn}")
            assert edge.volume("ledger").push() == str(lsn)
        remote.ask(PIN, PinRequest(vid.raw, lsn=2, seconds=0, pin=PinId.new().raw))
    assert cut(point, WORK, "collect", place.home(), place.store, "ledger") == []
    with place.edge() as edge:
        remote = edge.connection().remote
        assert remote.ask(SNAPSHOT, SnapshotRequest(vid.raw)).since == 3
        with pytest.raises(Forgotten):
            remote.ask(PIN, PinRequest(vid.raw, lsn=1, seconds=60, pin=PinId.new().raw))
        assert remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=2)).lsn == 2
    assert finish(WORK, "collect", place.home(), place.store, "ledger") == ["[2]"]
    with place.edge() as edge:
        assert edge.volume("ledger").snapshot_at(lsn=2).length > 0
        with pytest.raises(Forgotten):
            edge.volume("ledger").snapshot_at(lsn=1)

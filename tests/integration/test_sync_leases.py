"""Leases on sync points: an edge that reads lazily goes on reading, whatever is forgotten; one that comes back without
a lease is told so, and loses nothing that it had not pushed.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, cast

import anyio
import pytest

from budwood.remote.portal import BlockingRemote
from budwood.sync import lease as sync_lease
from budwood.sync import lease_keeper
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.tables import SyncLease
from budwood.sync.volume import Volume
from budwood.volume import faults
from budwood.volume.calls import ADVANCE, PINS, SNAPSHOT, UNPIN, SinceRequest, UnpinRequest, VolumeRequest
from budwood.volume.errors import Diverged, Forgotten, Unauthorized, Unavailable
from budwood.volume.pins import Pin
from budwood.volume.protocols import Durability

from ..waits import wait_until
from .cli import Command, serving

SIZE = 4096
PAGES = 250
"""More than one fetch brings along, since nothing of it can be compressed."""


WEEK_MS = round(sync_lease.SECONDS * 1000)


def at_ms(monkeypatch: pytest.MonkeyPatch, ahead_ms: int) -> None:
    """The clock of this home, so far ahead of the remote's."""
    shown = time.time_ns() // 1_000_000 + ahead_ms
    monkeypatch.setattr(sync_lease, "now_ms", lambda: shown)
    monkeypatch.setattr(lease_keeper, "now_ms", lambda: shown)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls that leases cost, as they are made."""
    calls: list[str] = []
    ask = sync_lease.ask_soon

    def noted(connection: Any, call: Any, request: Any) -> Any:
        calls.append(call.name)
        return ask(connection, call, request)

    monkeypatch.setattr(sync_lease, "ask_soon", noted)
    return calls


def no_keepers() -> bool:
    return not [thread for thread in threading.enumerate() if thread.name == "budwood-leases"]


class Hanging:
    """A remote that takes calls and answers none."""

    def __init__(self) -> None:
        self.taken = 0
        self.under_way = 0

    async def ask(self, _call: object, _request: object) -> None:
        self.taken += 1
        self.under_way += 1
        try:
            await anyio.sleep_forever()
        finally:
            self.under_way -= 1

    async def aclose(self) -> None:
        pass


def put(volume: Volume, pages: dict[int, int]) -> None:
    """Pages that begin with a byte each."""
    writer = volume.writer()
    for page, value in pages.items():
        writer.write(page, bytes([value]) + Random(page).randbytes(SIZE - 1))
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()


def values(volume: Volume) -> list[int]:
    with closing(volume.snapshot()) as snapshot:
        return [snapshot.read(page)[0] for page in range(1, PAGES + 1)]


@pytest.fixture(params=["file", "http"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "store"
    if request.param == "file":
        folder.mkdir()
        yield f"file://{folder}"
        return
    with serving(folder) as url:
        yield url


@pytest.fixture
def one(tmp_path: Path, store: str) -> Iterator[Edge]:
    """Has made the volume `v`, whose page n holds n, at LSN 1."""
    with open_edge(home=tmp_path / "one", remote=store) as edge:
        put(edge.create("v", page_size=4096), {page: page for page in range(1, PAGES + 1)})
        edge.volume("v").push()
        yield edge


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "two"


def read(edge: Edge, page: int) -> int:
    with closing(edge.volume("v").snapshot()) as snapshot:
        return snapshot.read(page)[0]


def pins(edge: Edge) -> list[Pin]:
    remote = edge.connection().remote
    return [pin for pin in remote.ask(PINS, VolumeRequest(edge.volume("v").id.raw)).pins if pin.kind == "sync"]


def held(edge: Edge) -> list[int]:
    return [pin.lsn for pin in pins(edge)]


def leases(edge: Edge) -> tuple[SyncLease, ...]:
    return edge.volume("v").local.record().leases


def forget(edge: Edge, since: int) -> None:
    edge.connection().remote.ask(ADVANCE, SinceRequest(edge.volume("v").id.raw, since=since))


def change(edge: Edge, value: int, page: int = 2) -> None:
    volume = edge.volume("v")
    put(volume, {page: value})
    volume.push()


def visit(home: Path, store: str, page: int = 1) -> None:
    """A process that reads a page, and ends."""
    with open_edge(home=home, remote=store) as edge:
        assert read(edge, page) == page


def test_an_edge_that_reads_lazily_goes_on_whatever_is_forgotten(one: Edge, home: Path, store: str) -> None:
    visit(home, store)
    assert held(one) == [1]
    change(one, 99)
    forget(one, 2)
    with open_edge(home=home, remote=store) as two:
        assert values(two.volume("v"))[:3] == [1, 2, 3]
        assert read(two, PAGES) == PAGES


def test_an_edge_that_only_writes_asks_for_none(one: Edge) -> None:
    for value in range(3):
        change(one, value)
    one.close()
    with open_edge(home=one.home, remote=one.remote) as again:
        assert pins(again) == []
        assert leases(again) == ()


def test_what_is_here_whole_needs_none(one: Edge, home: Path, store: str) -> None:
    visit(home, store)
    assert held(one) == [1]
    with open_edge(home=home, remote=store) as two:
        two.volume("v").fetch()
        # Only what is due is looked at: the one that stands is released with the next sync point.
        change(one, 99)
        two.volume("v").pull()
        two.volume("v").fetch()
    assert held(one) == []


def test_a_lease_follows_the_sync_point(one: Edge, home: Path, store: str) -> None:
    visit(home, store)
    change(one, 99)
    with open_edge(home=home, remote=store) as two:
        two.volume("v").pull()
    assert held(one) == [2]
    with open_edge(home=home, remote=store) as two:
        change(two, 98, page=5)
    assert held(one) == [3]
    forget(one, 3)
    one.volume("v").pull()
    change(one, 97, page=7)
    forget(one, 4)
    with open_edge(home=home, remote=store) as two:
        assert read(two, PAGES) == PAGES


def test_a_lease_is_taken_once_and_renewed_when_half_of_it_is_gone(
    one: Edge, home: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit(home, store, 1)
    (first,) = pins(one)
    visit(home, store, 100)
    assert pins(one) == [first]
    at_ms(monkeypatch, round(WEEK_MS * 0.6))
    with open_edge(home=home, remote=store) as two:
        two.volume("v").pull()
    (renewed,) = pins(one)
    assert renewed.id == first.id
    assert renewed.expiry > first.expiry


def test_one_that_has_ended_is_taken_anew(one: Edge, home: Path, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    visit(home, store)
    (first,) = pins(one)
    one.connection().remote.ask(UNPIN, UnpinRequest(first.vid, pin=first.id))
    at_ms(monkeypatch, round(WEEK_MS * 0.6))
    visit(home, store, 150)
    (second,) = pins(one)
    assert second.id != first.id
    assert second.lsn == 1


def test_it_is_taken_behind_while_the_edge_stays_open(
    one: Edge, home: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_keeper, "AFTER_SECONDS", 0.0)
    with open_edge(home=home, remote=store) as two:
        assert read(two, 1) == 1
        wait_until(lambda: held(one) == [1])
        wait_until(no_keepers)
        change(one, 99)
        two.volume("v").pull()
        wait_until(lambda: held(one) == [2])


def test_the_new_one_stands_before_the_old_one_goes(one: Edge, home: Path, store: str) -> None:
    visit(home, store)
    change(one, 99)
    seen: list[list[int]] = []
    faults.arm("lease: moved, the old one not released", lambda: seen.append(held(one)))
    with open_edge(home=home, remote=store) as two:
        two.volume("v").pull()
    assert seen == [[1, 2]]
    assert held(one) == [2]


def test_removing_a_volume_releases_its_lease(one: Edge, home: Path, store: str) -> None:
    visit(home, store)
    with open_edge(home=home, remote=store) as two:
        two.rm("v")
    assert held(one) == []


def test_a_move_that_races_with_another_process_leaves_one(one: Edge, home: Path, store: str) -> None:
    """While the first asks, a second pulls and takes the lease on; what the first is given then is released again."""
    with open_edge(home=home, remote=store) as two:
        assert read(two, 1) == 1

        def overtake() -> None:
            faults.disarm()
            change(one, 99)
            volume = two.volume("v")
            volume.pull()
            local = volume.local
            sync_lease.keep_lease(local, two.connection(), volume.misses)

        faults.arm("lease: recorded, not asked for", overtake)
    assert held(one) == [2]
    with open_edge(home=home, remote=store) as two:
        assert [lease.lsn for lease in leases(two)] == [2]


def without_lease(one: Edge, home: Path, store: str) -> None:
    """A second home at LSN 1, whose lease is gone, and LSN 1 with it."""
    visit(home, store)
    for pin in pins(one):
        one.connection().remote.ask(UNPIN, UnpinRequest(pin.vid, pin=pin.id))
    change(one, 99)
    forget(one, 2)


def test_one_that_comes_back_without_a_lease_is_told_and_moves_on_by_a_pull(
    one: Edge, home: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("budwood.server.metastore.pin_store.BELIEVED_SECONDS", 0.0)
    without_lease(one, home, store)
    with open_edge(home=home, remote=store) as two:
        assert read(two, 1) == 1
        with pytest.raises(Forgotten, match=r"forgotten LSN 1 .*the oldest left is 2.*budwood pull v`") as caught:
            read(two, PAGES)
        assert "\n" not in str(caught.value)
        assert caught.value.oldest == 2
        assert two.volume("v").pull() == "2"
        assert values(two.volume("v"))[:3] == [1, 99, 3]
    assert held(one) in ([], [2])


def test_unpushed_work_without_its_base_is_diverged_and_nothing_of_it_is_lost(
    one: Edge, home: Path, store: str
) -> None:
    without_lease(one, home, store)
    with open_edge(home=home, remote=store) as two:
        volume = two.volume("v")
        put(volume, {3: 33})
        with pytest.raises(Forgotten, match=r"1 unpushed commit on it .*reset v --keep-as NEW"):
            read(two, PAGES)
        with pytest.raises(Diverged, match="can't be pushed"):
            volume.pull()
        assert volume.status()["diverged"]
        assert volume.reset(keep_as="mine") == "2"
        assert values(volume)[:3] == [1, 99, 3]
        mine = two.volume("mine")
        with closing(mine.snapshot()) as snapshot:
            assert snapshot.read(3)[0] == 33
            with pytest.raises(Forgotten, match="'mine' is a fork of it that was never pushed: it keeps its commits"):
                snapshot.read(PAGES)
        assert mine.pull() == "1+1"
        with pytest.raises(Forgotten, match="which volume 'mine' was forked at: it can't be pushed; its commits stay"):
            mine.push()
        assert mine.status()["unpushed"] == 1


def test_the_command_shows_them(one: Edge, home: Path, store: str, capsys: pytest.CaptureFixture[str]) -> None:
    visit(home, store)
    (shown,) = json.loads(Command(capsys, one.home, store).ok("pins", "v", "--json"))
    assert (shown["kind"], shown["lsn"], shown["owner"]) == ("sync", 1, sync_lease.OWNER)


def test_a_fork_that_the_remote_has_needs_none_where_it_starts(one: Edge, home: Path, store: str) -> None:
    with open_edge(home=home, remote=store) as two:
        two.volume("v")
        two.fork("v", "mine").push()
        with closing(two.volume("mine").snapshot()) as snapshot:
            assert snapshot.read(1)[0] == 1
    assert held(one) == []
    change(one, 99)
    forget(one, 2)
    with open_edge(home=home, remote=store) as two:
        assert values(two.volume("mine"))[:3] == [1, 2, 3]


def test_a_week_of_syncs_costs_what_is_due_and_nothing_more(
    one: Edge, home: Path, store: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    visit(home, store)
    assert asked == ["pin"]
    for day in range(1, 8):
        at_ms(monkeypatch, round(WEEK_MS / 7 * day))
        with open_edge(home=home, remote=store) as two:
            two.volume("v").pull()
            two.volume("v").push()
            assert read(two, 1) == 1
        assert asked == ["pin"] + ["renew"] * (day > 3)


@pytest.mark.parametrize("ahead_ms", [-8 * WEEK_MS, 8 * WEEK_MS])
def test_a_clock_that_was_set_costs_one_renewal(
    one: Edge, home: Path, store: str, asked: list[str], monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    visit(home, store)
    at_ms(monkeypatch, ahead_ms)
    for page in (100, 150, 250):
        visit(home, store, page)
    assert asked == ["pin", "renew"]
    assert held(one) == [1]


@pytest.mark.parametrize("has_ended", [False, True])
def test_one_whose_maker_died_is_renewed_or_taken_anew(
    one: Edge, home: Path, store: str, asked: list[str], has_ended: bool
) -> None:
    def die() -> None:
        raise Unavailable("killed")

    faults.arm("lease: made, its expiry not recorded", die)
    visit(home, store)
    faults.disarm()
    (first,) = pins(one)
    if has_ended:
        one.connection().remote.ask(UNPIN, UnpinRequest(first.vid, pin=first.id))
    visit(home, store, 150)
    assert asked == ["pin", "renew", *["pin"] * has_ended]
    assert held(one) == [1]
    visit(home, store, PAGES)
    assert len(asked) == 2 + has_ended


def test_two_that_find_it_ended_take_one_anew(
    one: Edge, home: Path, store: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    visit(home, store)
    (first,) = pins(one)
    one.connection().remote.ask(UNPIN, UnpinRequest(first.vid, pin=first.id))
    at_ms(monkeypatch, round(WEEK_MS * 0.6))
    with open_edge(home=home, remote=store) as two:
        volume = two.volume("v")

        def overtake() -> None:
            faults.disarm()
            sync_lease.keep_lease(volume.local, two.connection(), volume.misses)

        faults.arm("lease: recorded, not asked for", overtake)
        sync_lease.keep_lease(volume.local, two.connection(), volume.misses)
        assert len(leases(two)) == 1
    assert held(one) == [1]
    assert asked == ["pin", "renew", "pin", "renew", "pin"]


def test_no_read_push_or_pull_fails_for_want_of_a_lease(
    one: Edge, home: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit(home, store)
    change(one, 99)
    tried: list[str] = []

    def refused(_connection: object, call: Any, _request: object) -> None:
        tried.append(call.name)
        raise Unauthorized("not you")

    monkeypatch.setattr(sync_lease, "ask_soon", refused)
    monkeypatch.setattr(lease_keeper, "AFTER_SECONDS", 0.0)
    with open_edge(home=home, remote=store) as two:
        assert two.volume("v").pull() == "2"
        wait_until(lambda: "pin" in tried)
        assert read(two, PAGES) == PAGES
        change(two, 98, page=5)
    assert no_keepers()
    assert held(one) == [1]


def test_where_no_thread_can_be_had_a_read_goes_on_and_the_lease_is_taken_in_the_end(
    one: Edge, home: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_edge(home=home, remote=store) as two:
        two.connection()
        two.volume("v").pull()
        start = threading.Thread.start

        def refused(thread: threading.Thread) -> None:
            if thread.name == "budwood-leases":
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refused)
        assert read(two, 1) == 1
        assert held(one) == []
    assert held(one) == [1]


def test_closing_an_edge_waits_once_for_a_remote_that_has_fallen_silent(
    one: Edge, home: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = one.create("other", page_size=4096)
    put(other, {page: page for page in range(1, PAGES + 1)})
    other.push()
    silent = Hanging()

    async def opened() -> Any:
        return silent

    with monkeypatch.context() as impatient, open_edge(home=home, remote=store) as two:
        for name in ("v", "other"):
            with closing(two.volume(name).snapshot()) as snapshot:
                assert snapshot.read(1)[0] == 1
        impatient.setattr(sync_lease, "ANSWER_SECONDS", 0.05)
        connection = two.connection()
        answering = connection.remote
        impatient.setattr(connection, "_remote", BlockingRemote(store, opened))
        answering.close()
    assert silent.taken == 1
    wait_until(lambda: not silent.under_way)
    assert no_keepers()
    visit(home, store, PAGES)
    assert held(one) == [1]


def test_removing_a_volume_waits_once_for_a_silent_remote(
    one: Edge, home: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit(home, store)
    monkeypatch.setattr(sync_lease, "ANSWER_SECONDS", 0.05)
    silent = Hanging()

    async def opened() -> Any:
        return silent

    with open_edge(home=home, remote=store) as two:
        monkeypatch.setattr(two.connection(), "_remote", BlockingRemote(store, opened))
        two.rm("v")
        assert two.ls() == []
    assert silent.taken == 1


def test_a_keeper_that_is_closed_in_its_own_thread_ends(
    one: Edge, home: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector closes edges wherever it runs."""
    monkeypatch.setattr(lease_keeper, "AFTER_SECONDS", 0.0)
    with open_edge(home=home, remote=store) as two:
        faults.arm("lease: recorded, not asked for", cast(Any, two)._leases.close)
        assert read(two, 1) == 1
        wait_until(lambda: held(one) == [1])
        wait_until(no_keepers)


def test_a_divergence_is_told_where_what_was_forgotten_cannot_be_asked(
    one: Edge, home: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_lease(one, home, store)
    with open_edge(home=home, remote=store) as two:
        volume = two.volume("v")
        put(volume, {3: 33})
        ask = BlockingRemote.ask

        def silent(remote: BlockingRemote, call: Any, request: Any) -> Any:
            if call is SNAPSHOT:
                raise Unavailable("silent")
            return ask(remote, call, request)

        monkeypatch.setattr(BlockingRemote, "ask", silent)
        with pytest.raises(Diverged, match=r"keep both with `budwood fork v NEW`$"):
            volume.pull()

"""Autosync: who syncs a home, when, and what becomes of trouble (S2.30)."""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import budwood
from budwood.sync import divergence
from budwood.sync.autosync import Autosync
from budwood.sync.autosync_election import Leadership, claim, lead_for_mount, leader, stand
from budwood.sync.autosync_pace import FIRST_PAUSE_SECONDS, LATEST_SECONDS, LONGEST_OFFLINE_SECONDS, QUIET_SECONDS, Pace
from budwood.sync.divergence import fork
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.engine import Engine
from budwood.sync.poll_slots import PollSlots
from budwood.sync.volume import Volume
from budwood.volume import faults
from budwood.volume.errors import BadInput, Busy, Corrupt, Unavailable

from ..waits import LIMIT_SECONDS, wait_until
from .cli import Command, serving

ROOT = Path(__file__).parents[2]
COUNT = "SELECT count(*) FROM t"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def user(capsys: pytest.CaptureFixture[str], home: Path, remote: str) -> Command:
    return Command(capsys, home, remote)


def status(edge: Edge, name: str) -> dict[str, object]:
    return edge.volume_here(name).status(count=False)


def pushed(edge: Edge, name: str) -> Callable[[], bool]:
    return lambda: status(edge, name)["unpushed"] == 0 and status(edge, name)["remote_lsn"] != 0


def all_at(edge: Edge, names: list[str], lsn: int) -> bool:
    return all(edge.volume_here(name).local.peek().sync_remote == lsn for name in names)


def end(child: subprocess.Popen[str]) -> str:
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=LIMIT_SECONDS)
    assert child.returncode == 0, out + err
    return err


def sharing(names: list[str], store: Path, url: str, capsys: pytest.CaptureFixture[str]) -> tuple[Command, Command]:
    """Two who have the same volumes, each as it was pushed first."""
    ann, bob = user(capsys, store / "../ann", url), user(capsys, store / "../bob", url)
    for name in names:
        ann.sql_made(name)
        ann.ok("push", name)
        bob.ok("clone", name)
    return ann, bob


def diverged(store: Path, capsys: pytest.CaptureFixture[str], ann_does: str, bob_does: str) -> tuple[Command, Command]:
    """Two who have changed the same volume, of whom ann has pushed."""
    ann, bob = user(capsys, store / "../ann", store.as_uri()), user(capsys, store / "../bob", store.as_uri())
    ann.sql_made("v")
    ann.ok("push", "v")
    bob.ok("clone", "v")
    ann.sql("v", ann_does)
    ann.ok("push", "v")
    bob.sql("v", bob_does)
    return ann, bob


@contextmanager
def syncing_process(of: Command) -> Generator[subprocess.Popen[str]]:
    """It ends with the test, however that ends."""
    with of.start("autosync") as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline().startswith("syncing")
            yield child
        finally:
            child.send_signal(signal.SIGCONT)
            child.kill()


def test_what_is_committed_in_one_home_appears_in_another(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(store) as url:
        ann, bob = user(capsys, store / "../ann", url), user(capsys, store / "../bob", url)
        ann.sql_made("v")
        ann.ok("push", "v")
        bob.ok("clone", "v")
        with open_edge(home=ann.home, remote=url) as one, open_edge(home=bob.home, remote=url) as two:
            with one.autosync(), two.autosync():
                ann.sql("v", "INSERT INTO t VALUES (4, 'x')")
                wait_until(lambda: bob.sql("v", COUNT) == ["4"])
                bob.sql("v", "INSERT INTO t VALUES (5, 'x')")
                wait_until(lambda: ann.sql("v", COUNT) == ["5"])
            ann.sql("v", "INSERT INTO t VALUES (6, 'x')")
            assert status(one, "v")["unpushed"] == 1, "nobody syncs any more"


def test_what_a_process_that_ends_has_cut_off_itself_is_told_to_nobody(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import sys\n"
        "from budwood.sync.connection import hang_up\n"
        "from budwood.sync.edge import open as open_edge\n"
        "from tests.waits import wait_until\n"
        "with open_edge(home=sys.argv[1], remote=sys.argv[2]) as edge, edge.autosync(say=print) as syncing:\n"
        "    wait_until(lambda: any(task.poll for task in [*syncing._tasks.values()]))\n"
        "    hang_up()\n"
        "    wait_until(lambda: syncing.counts.failures)\n"
    )
    with serving(store) as url:
        ann = user(capsys, store / "../ann", url)
        ann.sql_made("v")
        ann.ok("push", "v")
        command = [sys.executable, "-c", code, str(ann.home), url]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_of_more_volumes_than_may_be_waited_for_all_are_heard_of(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names, most = [f"v{number}" for number in range(12)], 3
    with serving(store) as url:
        ann, bob = sharing(names, store, url, capsys)
        with (
            open_edge(home=bob.home, remote=url) as edge,
            closing(Autosync(edge, slots=PollSlots(most, 50.0))) as syncing,
        ):
            for number in (4, 5):
                for name in names:
                    ann.sql(name, f"INSERT INTO t VALUES ({number}, 'x')")
                    ann.ok("push", name)
                wait_until(partial(all_at, edge, names, number - 2))
                assert [bob.sql(name, COUNT) for name in names] == [[str(number)]] * len(names)
                assert syncing.polls == most
            bob.sql(names[0], "INSERT INTO t VALUES (6, 'x')")
            wait_until(lambda: syncing.hears_of(edge.volume_here(names[0]).id.raw))
            assert syncing.polls == most
            assert not syncing.errors()


def test_of_what_is_quiet_nothing_is_kept_open(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A mount may show a hundred thousand files, each a volume."""
    ann, names = user(capsys, store / "../ann", store.as_uri()), ["v", "w", "x"]
    for name in names:
        ann.sql_made(name)
        ann.ok("push", name)
    with open_edge(home=ann.home, remote=store.as_uri()) as edge, edge.autosync() as syncing:

        def opened() -> int:
            gc.collect()
            engines = [each for each in gc.get_objects() if isinstance(each, Engine)]
            return sum(each.local.environment is edge.environment for each in engines)

        wait_until(lambda: syncing.polls == len(names))
        wait_until(lambda: not opened())
        ann.sql("w", "INSERT INTO t VALUES (4, 'x')")
        wait_until(lambda: all_at(edge, ["w"], 2))
        wait_until(lambda: not opened())


def test_a_volume_that_is_removed_while_its_answer_waits_for_a_worker_ends_nothing(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names, held, may_end = ["a", "b", "c", "d", "v", "w"], list[str](), threading.Event()

    def hold(volume: Volume) -> None:
        held.append(volume.name)
        assert may_end.wait(LIMIT_SECONDS)

    with serving(store) as url:
        ann, bob = sharing(names, store, url, capsys)
        with open_edge(home=bob.home, remote=url) as edge, Autosync(edge, on_pushed=hold) as syncing:
            wait_until(lambda: syncing.polls == len(names))
            for name in names[:4]:
                bob.sql(name, "INSERT INTO t VALUES (4, 'x')")
            wait_until(lambda: len(held) == 4)
            removed = edge.volume_here("v").id.raw
            for name in ("v", "w"):
                ann.sql(name, "INSERT INTO t VALUES (4, 'x')")
                ann.ok("push", name)
            wait_until(lambda: removed in syncing._queued)  # pyright: ignore[reportPrivateUsage]
            edge.rm("v")
            wait_until(lambda: removed not in syncing._tasks)  # pyright: ignore[reportPrivateUsage]
            may_end.set()
            wait_until(lambda: all_at(edge, ["w"], 2))


def test_what_is_asked_for_waits_for_what_is_under_way_and_keeps_more_from_beginning(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(store) as url:
        ann = user(capsys, store / "../ann", url)
        ann.sql_made("v")
        ann.ok("push", "v")
        with open_edge(home=ann.home, remote=url) as edge, edge.autosync() as syncing:
            vid, within, seen = edge.volume_here("v").id.raw, threading.Event(), list[int]()
            may_end = threading.Event()

            def hold() -> None:
                with syncing.apart(vid):
                    within.set()
                    assert may_end.wait(LIMIT_SECONDS)
                    seen.append(1)

            wait_until(lambda: syncing.hears_of(vid))
            first = threading.Thread(target=hold)
            first.start()
            assert within.wait(LIMIT_SECONDS)
            ann.sql("v", "INSERT INTO t VALUES (4, 'x')")
            ann.sql_made("beside")
            wait_until(pushed(edge, "beside"))
            assert status(edge, "v")["unpushed"] == 1, "it was pushed though somebody had it"

            def ask() -> None:
                with syncing.apart(vid):
                    seen.append(2)

            second = threading.Thread(target=ask)
            second.start()
            may_end.set()
            for each in (first, second):
                each.join(LIMIT_SECONDS)
            assert seen == [1, 2]
            wait_until(pushed(edge, "v"))


def test_what_a_person_asks_for_waits_for_nothing_that_only_waits_for_its_turn(tmp_path: Path) -> None:
    names, remote = [f"v{number}" for number in range(12)], (tmp_path / "store").as_uri()
    may_go, begun = threading.Event(), list[int]()

    def hold() -> None:
        begun.append(1)
        assert may_go.wait(LIMIT_SECONDS)

    with open_edge(home=tmp_path / "home", remote=remote) as edge:
        for name in names:
            with closing(budwood.connect(name, home=tmp_path / "home", remote=remote)) as db:
                db.execute("CREATE TABLE t(a)")
        faults.arm("push: end captured, nothing sent", hold)
        with edge.autosync() as syncing:
            wait_until(lambda: len(begun) == 4 and len(syncing._queued) == len(names) - 4)  # pyright: ignore[reportPrivateUsage]
            faults.disarm("push: end captured, nothing sent")
            queued = next(iter(syncing._queued))  # pyright: ignore[reportPrivateUsage]
            volume = edge.volume_of(queued)
            assert volume is not None
            with syncing.apart(queued):
                assert not may_go.is_set()
                may_go.set()
                wait_until(lambda: all(pushed(edge, name)() for name in names if name != volume.name))
                assert status(edge, volume.name)["unpushed"] == 1, "it was pushed though somebody had it"
                assert volume.push() == "1"
            assert syncing.errors() == {}


@pytest.mark.parametrize("mode", ["disabled", "push", "pull"])
def test_a_mode_is_all_that_is_done(store: Path, capsys: pytest.CaptureFixture[str], mode: str) -> None:
    """S2.30. A volume beside it that syncs both ways shows that the time for it has come."""
    with serving(store) as url:
        ann, bob = user(capsys, store / "../ann", url), user(capsys, store / "../bob", url)
        for name in ("v", "beside"):
            ann.sql_made(name)
            ann.ok("push", name)
            bob.ok("clone", name)
        bob.ok("autosync", "--volume", "v", "--mode", mode)
        with open_edge(home=bob.home, remote=url) as edge, edge.autosync():
            if mode != "push":
                for name in ("v", "beside"):
                    ann.sql(name, "INSERT INTO t VALUES (4, 'x')")
                    ann.ok("push", name)
                wait_until(lambda: bob.sql("beside", COUNT) == ["4"])
            if mode == "pull":
                wait_until(lambda: bob.sql("v", COUNT) == ["4"])
            if mode == "disabled":
                assert bob.sql("v", COUNT) == ["3"]
            for name in ("v", "beside"):
                bob.sql(name, "INSERT INTO t VALUES (5, 'x')")
            wait_until(pushed(edge, "beside"))
            if mode == "push":
                wait_until(pushed(edge, "v"))
            else:
                assert status(edge, "v")["unpushed"] == 1


def test_another_takes_over_when_the_leader_is_killed(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ann = user(capsys, store / "../ann", store.as_uri())
    ann.sql_made("v")
    assert "nobody" in ann.ok("autosync", "--who")
    with syncing_process(ann) as first, open_edge(home=ann.home, remote=store.as_uri()) as edge:
        wait_until(pushed(edge, "v"))
        assert f"process {first.pid} " in ann.ok("autosync", "--who")
        with edge.autosync() as second:
            assert not second.is_leader
            first.kill()
            wait_until(lambda: second.is_leader)
            found = leader(edge.home)
            assert found is not None
            assert found.pid == os.getpid()
            ann.sql("v", "INSERT INTO t VALUES (4, 'x')")
            wait_until(pushed(edge, "v"))
        assert leader(edge.home) is None


def test_one_leads_at_a_time(tmp_path: Path) -> None:
    with open_edge(home=tmp_path / "home") as edge:
        with stand(edge.home), pytest.raises(Busy):
            stand(edge.home)
        stand(edge.home).release()


def test_a_mount_comes_first_and_the_next_one_after_it(tmp_path: Path) -> None:
    with open_edge(home=tmp_path / "home") as edge, edge.autosync() as syncing:
        wait_until(lambda: syncing.is_leader)
        claimed = claim(edge.home)

        def leads() -> bool:
            with suppress(Busy):
                leading.append(lead_for_mount(edge.home))
            return bool(leading)

        leading = list[Leadership]()
        wait_until(leads)
        assert not syncing.is_leader
        found = leader(edge.home)
        assert found is not None
        assert found.is_mount
        leading[0].release()
        with pytest.raises(Busy, match="its mount"):
            stand(edge.home)
        claimed.release()
        wait_until(lambda: syncing.is_leader)


@pytest.mark.parametrize("on_diverged", ["tell", "fork", "replay"])
def test_a_connection_has_its_home_synced_while_it_is_open(
    store: Path, capsys: pytest.CaptureFixture[str], on_diverged: str
) -> None:
    ann, bob = user(capsys, store / "../ann", store.as_uri()), user(capsys, store / "../bob", store.as_uri())
    ann.sql_made("v")
    ann.ok("push", "v")
    bob.ok("clone", "v")
    bob.sql("v", "UPDATE t SET b = 'bob' WHERE a = 1")
    ann.sql("v", "UPDATE t SET b = 'ann' WHERE a = 1")
    ann.ok("push", "v")
    policy = budwood.replaying("ours") if on_diverged == "replay" else on_diverged
    asked: dict[str, Any] = {"home": bob.home, "remote": store.as_uri()}
    db = budwood.connect("v", autosync="both", on_diverged=policy, **asked)
    with closing(db), open_edge(home=bob.home, remote=store.as_uri()) as edge:
        if on_diverged == "tell":
            wait_until(lambda: "has diverged and stays" in bob.ok("status", "v"))
            (told,) = json.loads(bob.ok("status", "v", "--json"))
            assert (told["autosync"]["pid"], told["autosync"]["is_over"]) == (os.getpid(), False)
            assert db.execute("SELECT b FROM t WHERE a = 1").get == "bob"
        else:
            wait_until(lambda: status(edge, "v")["remote_lsn"] != 1 and pushed(edge, "v")())
            assert db.execute("SELECT b FROM t WHERE a = 1").get == ("ann" if on_diverged == "fork" else "bob")
            wait_until(lambda: f"process {os.getpid()} syncs this home since" in bob.ok("status"))
        with closing(budwood.connect("v", autosync="push", **asked)) as other:
            assert other.execute("PRAGMA budwood_status").get
            assert status(edge, "v")["mode"] == "push"
        assert leader(edge.home) is not None, "the first one is still there"
        wrongs: tuple[dict[str, Any], ...] = ({"autosync": "odd"}, {"autosync": "both", "on_diverged": "odd"})
        for wrong in wrongs:
            with pytest.raises(BadInput, match="odd"):
                budwood.connect("v", **asked, **wrong)
    with open_edge(home=bob.home) as edge:
        assert leader(edge.home) is None
    with closing(budwood.connect("v", autosync="disabled", **asked)), open_edge(home=bob.home) as edge:
        assert (status(edge, "v")["mode"], leader(edge.home)) == ("disabled", None)


def test_the_last_error_is_told_and_that_it_is_over(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(store) as url:
        ann = user(capsys, store / "../ann", url)
        ann.sql_made("v")
        ann.ok("push", "v")
    with open_edge(home=ann.home, remote=url) as edge, edge.autosync():
        wait_until(lambda: "not synced since: volume 'v'" in ann.ok("status"))
        with serving(store, listen=url.removeprefix("http://")):
            wait_until(lambda: "synced again since: volume 'v'" in ann.ok("autosync", "--who"))


def test_a_node_that_was_away_and_a_process_that_was_held_go_on(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as stack:
        with serving(store) as url:
            ann, bob = user(capsys, store / "../ann", url), user(capsys, store / "../bob", url)
            ann.sql_made("v")
            ann.ok("push", "v")
            bob.ok("clone", "v")
            bob.ok("fetch", "v")
            child = stack.enter_context(syncing_process(bob))
        assert child.stderr is not None
        assert "isn't synced" in child.stderr.readline()
        bob.sql("v", "INSERT INTO t VALUES (4, 'x')")
        with serving(store, listen=url.removeprefix("http://")), open_edge(home=bob.home, remote=url) as edge:
            wait_until(pushed(edge, "v"))
            child.send_signal(signal.SIGSTOP)
            ann.ok("pull", "v")
            ann.sql("v", "INSERT INTO t VALUES (5, 'x')")
            ann.ok("push", "v")
            child.send_signal(signal.SIGCONT)
            wait_until(lambda: bob.sql("v", COUNT) == ["5"])
            assert "Traceback" not in end(child)


def test_one_line_tells_of_a_remote_that_is_away_and_one_that_it_is_back(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names, lines = [f"v{number}" for number in range(6)], list[str]()
    with serving(store) as url:
        ann = user(capsys, store / "../ann", url)
        for name in names:
            ann.sql_made(name)
            ann.ok("push", name)
    with open_edge(home=ann.home, remote=url) as edge, edge.autosync(say=lines.append) as syncing:
        wait_until(lambda: syncing.trouble == len(names))
        assert [line.partition("isn't synced: ")[1] for line in lines] == ["isn't synced: "]
        with serving(store, listen=url.removeprefix("http://")):
            wait_until(lambda: not syncing.trouble)
            told = lines[0].partition(" isn't synced")[0]
            wait_until(lambda: lines[1:] == [f"{told} is synced again"])


@pytest.mark.parametrize("policy", [None, fork])
def test_a_diverged_volume_stops_no_other(
    store: Path, capsys: pytest.CaptureFixture[str], policy: divergence.OnDiverged | None
) -> None:
    ann, bob = user(capsys, store / "../ann", store.as_uri()), user(capsys, store / "../bob", store.as_uri())
    for name in ("v", "w"):
        ann.sql_made(name)
        ann.ok("push", name)
        bob.ok("clone", name)
    for each, number in ((ann, 4), (bob, 5)):
        each.sql("v", f"INSERT INTO t VALUES ({number}, 'x')")
    ann.ok("push", "v")
    said = list[str]()
    with open_edge(home=bob.home, remote=store.as_uri()) as edge, edge.autosync(policy, say=said.append) as syncing:
        wait_until(lambda: any("diverged" in line for line in said))
        bob.sql("w", "INSERT INTO t VALUES (4, 'x')")
        wait_until(pushed(edge, "w"))
        if policy is None:
            assert status(edge, "v")["diverged"]
            assert set(syncing.errors()) == {"v"}
            assert bob.sql("v", "SELECT a FROM t WHERE a > 3") == ["5"], "nothing is dropped unasked"
            assert sum("diverged" in line for line in said) == 1
        else:
            assert bob.sql("v", "SELECT a FROM t WHERE a > 3") == ["4"]
            (kept,) = [volume.name for volume in edge.volumes() if "conflict" in volume.name]
            assert bob.sql(kept, "SELECT a FROM t WHERE a > 3") == ["5"]
            wait_until(pushed(edge, kept))


def test_the_callers_own_way_out_may_fail(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, bob = diverged(store, capsys, "INSERT INTO t VALUES (4, 'x')", "INSERT INTO t VALUES (5, 'x')")
    tried = threading.Event()

    def broken(_edge: divergence.Home, _volume: object) -> str:
        tried.set()
        raise ZeroDivisionError("oh")

    with open_edge(home=bob.home, remote=store.as_uri()) as edge, edge.autosync(broken) as syncing:
        assert tried.wait(LIMIT_SECONDS)
        wait_until(lambda: "ZeroDivisionError: oh" in syncing.errors().get("v", ""))
        assert status(edge, "v")["unpushed"] == 1


def test_what_a_way_out_commits_is_pushed_though_it_was_seen_before_that_ended(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ann, bob = diverged(store, capsys, "UPDATE t SET b = 'new' WHERE a = 1", "UPDATE t SET b = 'new' WHERE a = 2")
    seen = threading.Event()

    class Slots(PollSlots):
        def use(self, vid: bytes, now: float) -> None:
            super().use(vid, now)
            seen.set()

    def slowly(edge: divergence.Home, volume: Volume) -> str:
        seen.clear()
        line = budwood.replaying("ours")(edge, volume)
        assert seen.wait(LIMIT_SECONDS)
        return line

    with open_edge(home=bob.home, remote=store.as_uri()) as edge, Autosync(edge, on_diverged=slowly, slots=Slots()):
        wait_until(lambda: ann("pull", "v").code == 0 and ann.sql("v", "SELECT b FROM t WHERE a = 2") == ["new"])


@pytest.mark.parametrize("row", [1, 2])
def test_what_diverged_is_replayed_unless_both_changed_a_row(
    store: Path, capsys: pytest.CaptureFixture[str], row: int
) -> None:
    ann, bob = diverged(store, capsys, "UPDATE t SET b = 'ann' WHERE a = 1", f"UPDATE t SET b = 'bob' WHERE a = {row}")
    with bob.start("autosync", "--on-diverged", "replay") as child:
        try:
            assert child.stderr is not None
            assert "diverged" in child.stderr.readline()
            if row == 2:
                wait_until(
                    lambda: ann("pull", "v").code == 0 and ann.sql("v", "SELECT b FROM t WHERE a = 2") == ["bob"]
                )
                assert ann.sql("v", "SELECT b FROM t WHERE a = 1") == ["ann"]
            else:
                assert bob.sql("v", "SELECT b FROM t WHERE a = 1") == ["bob"], "nothing is dropped unasked"
            end(child)
        finally:
            child.kill()


def test_pauses_grow_to_a_limit_and_end_at_once() -> None:
    """However often it is asked, and whatever the remote says: the requests of a time have a bound."""
    pace, now, tries = Pace(random.Random(1).random), 0.0, 0
    while now < 3600.0:
        if pace.may_ask(now):
            tries += 1
            assert pace.failed(now, Unavailable("away")) == (tries == 1), "it is news once"
        now += 0.1
    assert 3600 / LONGEST_OFFLINE_SECONDS < tries < 10 + 3600 / (LONGEST_OFFLINE_SECONDS / 2)
    assert not pace.may_ask(now)
    pace.wake()
    assert pace.may_ask(now)
    pace.failed(now, Unavailable("away"))
    assert pace.pause == FIRST_PAUSE_SECONDS
    pace.failed(now, Corrupt("x", "bad"))
    pace.wake()
    assert not pace.may_ask(now), "it is not the network that is in its way"
    pace.worked()
    assert pace.may_ask(now)
    assert not pace.error


def test_commits_are_pushed_when_they_pause_and_at_the_latest_after_a_while() -> None:
    pace = Pace(lambda: 0.0)
    assert not pace.may_push(0.0)
    pace.committed(0.0)
    assert not pace.may_push(QUIET_SECONDS / 2)
    assert pace.may_push(QUIET_SECONDS)
    now = 0.0
    while now < LATEST_SECONDS:
        pace.committed(now)
        assert not pace.may_push(now)
        now += QUIET_SECONDS / 2
    pace.committed(now)
    assert pace.may_push(now)


def test_the_command_says_what_it_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ann = user(capsys, tmp_path / "ann", "")
    assert "takes tell, fork, merge, replay" in ann("autosync", "--on-diverged", "guess").line(2)
    assert "go together" in ann("autosync", "--volume", "v").line(2)
    ann.ok("create", "v")
    assert "disabled" in ann("autosync", "--volume", "v", "--mode", "sometimes").line(2)

"""Taking a node out is killed in each window, and done by the same command again; and whoever was taken out says
so when it comes back, in one line, and ends (S1.22)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from budwood.remote.portal import open_remote
from budwood.testing.commits import commit_of
from budwood.volume.calls import HELLO, Done
from budwood.volume.ids import ClientId, VolumeId

from .. import fork_server
from ..waits import LIMIT_SECONDS, wait_until
from .crash_harness import SERVE, Place, Serving, start
from .test_nodes_apart import born, owned, straight_to

PAGE = 512
ANN = ClientId.new()

POINTS = (
    "decommission: marked, nothing taken",
    "log: epoch taken, not fenced#2",
    "log: fence durable, not open#2",
    "decommission: one log taken",
    "decommission: logs taken, folds not rejected",
)
"""The second number that the heir takes is the one for the log that it inherits."""

SILENT = "owns log one and doesn't answer at"

CUTS = (POINTS,)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def nodes_of(place: Place) -> Generator[Serving]:
    serving = Serving(place)
    yield serving
    serving.stop()


@pytest.fixture
def one(place: Place) -> Generator[Serving]:
    yield from nodes_of(place)


@pytest.fixture
def two(place: Place) -> Generator[Serving]:
    yield from nodes_of(place)


def decommission(place: Place, url: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["--home", str(place.home()), "--remote", url, "decommission", "one", *options]
    return fork_server.run([sys.executable, "-P", "-c", SERVE, *command], timeout=LIMIT_SECONDS)


def gone_on(place: Place, url: str) -> subprocess.CompletedProcess[str]:
    """Once the node that lives has answered in time, which it may not on a busy machine."""

    def tried() -> subprocess.CompletedProcess[str] | None:
        done = decommission(place, url, "--wait", "240s")
        return None if SILENT in done.stderr else done

    done = wait_until(tried)
    assert done is not None
    return done


def put(url: str, vid: VolumeId, base: int) -> int:
    with closing(open_remote(url)) as remote:
        return remote.commit(*commit_of(vid, base, {1: bytes([base]) * PAGE}, client=ANN, page_size=PAGE)).lsn


def volume_of(node: Serving) -> VolumeId:
    with closing(straight_to(node.url)) as remote:
        return born(remote)


def comes_back(place: Place, *options: str) -> str:
    """What it says as it ends."""
    arguments = ("serve", "--store", place.store, "--node", "one", "--listen", "127.0.0.1:0", *options)
    output, errors = (child := start(SERVE, *arguments)).communicate(timeout=LIMIT_SECONDS)
    assert (child.returncode, output) == (1, "")
    return errors


@pytest.mark.parametrize("point", POINTS)
def test_a_decommission_that_was_killed_is_ended_by_the_same_command(
    place: Place, one: Serving, two: Serving, point: str
) -> None:
    one.start("--node", "one")
    vid = volume_of(one)
    assert put(one.url, vid, 0) == 1
    two.start("--node", "two", fault=point)
    cut_off = gone_on(place, two.url)
    assert cut_off.returncode == 1, cut_off
    assert "no answer" in cut_off.stderr
    assert cut_off.stderr.count("\n") == 1
    two.died()
    two.start("--node", "two")
    done = gone_on(place, two.url)
    assert done.returncode == 0, done.stderr
    assert "node one is taken out of the store since" in done.stdout
    assert "no log names one as its owner, or can any more" in done.stdout
    assert put(one.url, vid, 1) == 2, "a client that was given the old node is sent on"
    with closing(straight_to(two.url)) as remote:
        assert [log for log, _ in owned(remote)] == ["one", "two"]
    one.stop()
    for options in ((), ("--takeover",)):
        said = comes_back(place, *options)
        assert said.count("\n") == 1
        assert said.startswith("budwood: node one was taken out of this store for good on ")
    two.stop()
    two.start("--node", "two")
    assert put(two.url, vid, 2) == 3, "its heir has it again when it is started anew"


def test_a_node_that_hangs_is_taken_out_when_forced_and_acknowledges_nothing_afterwards(
    place: Place, one: Serving, two: Serving
) -> None:
    one.start("--node", "one")
    two.start("--node", "two")
    vid = volume_of(one)
    assert put(one.url, vid, 0) == 1
    assert one.child is not None
    one.child.send_signal(signal.SIGSTOP)
    refused = decommission(place, two.url)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert SILENT in refused.stderr
    done = decommission(place, two.url, "--force", "--json")
    assert done.returncode == 0, done.stderr
    assert '"taken": {"one": 2}' in done.stdout.replace("\n", "").replace("  ", "")
    assert put(two.url, vid, 1) == 2
    one.go_on()
    assert put(one.url, vid, 2) == 3, "sent on"
    with closing(straight_to(one.url)) as remote:
        hello = remote.ask(HELLO, Done())
        assert (hello.epoch, hello.logs) == (0, ())

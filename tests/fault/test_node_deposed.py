"""A node that is stopped (SIGSTOP), deposed by another, and goes on: it acknowledges nothing that isn't so.

There is no failure detector to tell it: the entry that it was about to send, or had sent, meets the fence of the node
that took its log over (DESIGN §4, rules 1 and 2).
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from budwood.remote.http import HttpRemote
from budwood.remote.portal import BlockingRemote
from budwood.volume.calls import SNAPSHOT, SnapshotRequest
from budwood.volume.errors import NotOwner
from budwood.volume.protocols import Remote

from .crash_harness import SERVE, Place, Serving, look
from .test_edge_killed import append, check
from .test_node_killed import large_commit, place, served

__all__ = ["place", "served"]

SEALED = "log: entry sealed, not sent"
DURABLE = "log: entry durable, not acknowledged"

PAUSE = """
import os, signal
import budwood.server.log.log_writer
from budwood.volume import faults

def pause():
    faults.disarm({point!r})
    os.kill(os.getpid(), signal.SIGSTOP)

faults.arm({point!r}, pause)
"""


@pytest.fixture
def old(place: Place) -> Generator[Serving]:
    serving = Serving(place)
    yield serving
    serving.stop()


@pytest.fixture
def new(place: Place) -> Generator[Serving]:
    serving = Serving(place)
    yield serving
    serving.stop()


def straight_to(node: Serving) -> BlockingRemote:
    """A client that doesn't follow the log to its owner."""

    async def connect() -> Remote:
        return HttpRemote(node.url)

    return BlockingRemote(node.url, connect)


def test_the_late_write_of_a_deposed_node_is_never_acknowledged(place: Place, old: Serving, new: Serving) -> None:
    with place.edge() as edge:
        vid = edge.volume("ledger").id
    request, segment = large_commit(vid)
    old.start(program=PAUSE.format(point=SEALED) + SERVE)
    remote = straight_to(old)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(remote.commit, request, segment)
        old.stopped()
        new.start("--takeover")
        with place.edge("other", new.url) as edge:
            volume = edge.volume("ledger")
            append(place, "row 1", home="other")
            assert volume.push() == "2"
        old.go_on()
        with pytest.raises(NotOwner) as refused:
            late.result()
    assert refused.value.owner == new.url
    with pytest.raises(NotOwner):
        remote.commit(request, segment)
    assert remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, confirm=True)).lsn == 2, (
        "whoever asks it to confirm is told what stands"
    )
    remote.close()
    check(look(place, home="other", remote=new.url), ["base", "row 1"])


@pytest.mark.parametrize("point", [SEALED, DURABLE])
def test_a_push_that_was_under_way_when_its_node_was_deposed_lands_once(
    place: Place, old: Serving, new: Serving, point: str
) -> None:
    append(place, "row 1")
    old.start(program=PAUSE.format(point=point) + SERVE)
    with place.edge(remote=old.url) as edge, ThreadPoolExecutor(1) as pool:
        push = pool.submit(edge.volume("ledger").push)
        old.stopped()
        new.start("--takeover")
        with place.edge("observer", new.url) as observer:
            assert observer.volume("ledger").status()["lsn"] == ("2" if point == DURABLE else "1")
        old.go_on()
        assert push.result() == "2"
    check(look(place, remote=new.url), ["base", "row 1"])


def test_a_node_refuses_a_log_whose_owner_is_alive_until_it_is_told(place: Place, old: Serving, new: Serving) -> None:
    old.start()
    with pytest.raises(AssertionError, match="living node"):
        new.start()
    check(look(place, remote=old.url), ["base"])
    new.start("--takeover")
    check(look(place, remote=new.url, mark="with the new"), ["base", "after"], remote=["base", "after", "with the new"])
    # A client that only knows the old one is sent on.
    check(
        look(place, remote=old.url, mark="by the old"),
        ["base", "after", "with the new"],
        remote=["base", "after", "with the new", "by the old"],
    )

"""A node whose process is killed, or hangs, is replaced by a stand-by while a client goes on: nothing acknowledged is
lost, and nothing stands twice (S1.21)."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from budwood.remote.portal import BlockingRemote, open_remote
from budwood.testing.commits import commit_of
from budwood.volume.calls import CREATE, PULL_COMMITS, CreateRequest, RangeRequest
from budwood.volume.errors import NotOwner, Unavailable
from budwood.volume.ids import ClientId, VolumeId

from ..waits import wait_until
from .crash_harness import Place, Serving
from .test_nodes_apart import straight_to

PAGE = 512
ANN = ClientId.new()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def owner(place: Place) -> Generator[Serving]:
    serving = Serving(place)
    serving.start("--node", "one")
    yield serving
    serving.stop()


@pytest.fixture
def standby(place: Place, owner: Serving) -> Generator[Serving]:
    serving = Serving(place)
    serving.start("--node", "two", "--standby")
    yield serving
    serving.stop()


def born(url: str) -> VolumeId:
    vid = VolumeId.new()
    with closing(straight_to(url)) as remote:
        remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


def put(remote: BlockingRemote, vid: VolumeId, base: int) -> int:
    """Until it lands, each time the same commit."""
    request = commit_of(vid, base, {1: bytes([base]) * PAGE}, client=ANN, page_size=PAGE)

    def tried() -> int:
        try:
            return remote.commit(*request).lsn
        except Unavailable:
            return 0

    return wait_until(tried)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_client_goes_on_where_its_volumes_node_is_gone(owner: Serving, standby: Serving, how: signal.Signals) -> None:
    vid = born(owner.url)
    remote = open_remote(standby.url)
    assert [put(remote, vid, base) for base in range(3)] == [1, 2, 3]
    assert owner.child is not None
    owner.child.send_signal(how)
    assert [put(remote, vid, base) for base in range(3, 6)] == [4, 5, 6]
    if how is signal.SIGSTOP:
        owner.go_on()
        with closing(straight_to(owner.url)) as old, pytest.raises(NotOwner) as lost:
            old.commit(*commit_of(vid, 6, {1: bytes([6]) * PAGE}, client=ClientId.new(), page_size=PAGE))
        assert lost.value.owner == standby.url
    commits = remote.ask(PULL_COMMITS, RangeRequest(vid.raw)).commits
    assert [info.lsn for info in commits] == [1, 2, 3, 4, 5, 6]
    assert put(remote, vid, 6) == 7
    remote.close()

"""Nodes of one store that can't reach each other: on two machines with the same address, and behind an address that
leads nowhere. Nobody who lives is deposed unasked, and who was deposed and lives is back without a restart.

Two network namespaces stand for two machines: loopback is another one in each. Making them takes the right to.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from budwood.remote.http import HttpRemote
from budwood.remote.portal import BlockingRemote
from budwood.testing.commits import commit_of
from budwood.volume.calls import CREATE, HELLO, MOVE_LOG, SNAPSHOT, CreateRequest, Done, MoveRequest, SnapshotRequest
from budwood.volume.errors import NotOwner
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.protocols import Remote

from ..waits import wait_until
from .crash_harness import SERVE, Place, Serving, finish

PAGE = 512
ANN = ClientId.new()

LIBC = """
import ctypes, fcntl, os, socket, struct, sys
def call(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
"""
# CLONE_NEWNET; then SIOCSIFFLAGS, since a new loopback is down.
APART = (
    LIBC
    + """
call("unshare", 0x40000000)
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))
"""
)
INSIDE = LIBC + 'call("setns", os.open(f"/proc/{sys.argv[1]}/ns/net", os.O_RDONLY), 0x40000000)\n'

WRITE = """
import anyio
from budwood.remote.http import HttpRemote
from budwood.testing.commits import commit_of
from budwood.volume.calls import CREATE, HELLO, CreateRequest, Done
from budwood.volume.ids import ClientId, VolumeId

async def main():
    remote = HttpRemote(sys.argv[2])
    vid = VolumeId.new()
    await remote.ask(CREATE, CreateRequest(vid.raw, page_size=512))
    print((await remote.commit(*commit_of(vid, 0, {1: bytes(512)}, client=ClientId.new(), page_size=512))).lsn)
    hello = await remote.ask(HELLO, Done())
    print(*((own.log, own.epoch) for own in hello.logs))
    await remote.aclose()

anyio.run(main)
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def nodes_of(place: Place, port: int = 0) -> Generator[Serving]:
    serving = Serving(place, port)
    yield serving
    serving.stop()


@pytest.fixture
def old(place: Place) -> Generator[Serving]:
    yield from nodes_of(place)


@pytest.fixture
def new(place: Place) -> Generator[Serving]:
    yield from nodes_of(place)


@pytest.fixture
def apart() -> None:
    """Skips where no network namespace can be made."""
    made = subprocess.run([sys.executable, "-c", APART], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no network namespace can be made here: {made.stderr.strip().splitlines()[-1]}")


def straight_to(url: str) -> BlockingRemote:
    """A client that doesn't follow the log to its owner."""

    async def connect() -> Remote:
        return HttpRemote(url)

    return BlockingRemote(url, connect)


def born(remote: BlockingRemote) -> VolumeId:
    vid = VolumeId.new()
    remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


def put(remote: BlockingRemote, vid: VolumeId, base: int) -> int:
    return remote.commit(*commit_of(vid, base, {1: bytes(PAGE)}, client=ANN, page_size=PAGE)).lsn


def owned(remote: BlockingRemote) -> list[tuple[str, int]]:
    return [(own.log, own.epoch) for own in remote.ask(HELLO, Done()).logs]


@pytest.mark.usefixtures("apart")
def test_two_machines_with_the_same_address_do_not_take_each_other_for_dead(
    place: Place, old: Serving, new: Serving
) -> None:
    old.start(program=APART + SERVE)
    assert old.child is not None
    new.port = old.port
    with pytest.raises(AssertionError, match=r"on another machine.*--node.*--takeover"):
        new.start(program=APART + SERVE)
    assert finish(INSIDE + WRITE, old.child.pid, old.url) == ["1", "('main', 1)"]
    new.start("--node", "other", program=APART + SERVE)
    assert new.child is not None
    assert finish(INSIDE + WRITE, new.child.pid, new.url) == ["1", "('other', 1)"]
    assert finish(INSIDE + WRITE, old.child.pid, old.url) == ["1", "('main', 1)"]


@pytest.mark.usefixtures("apart")
def test_a_node_whose_machine_is_gone_is_replaced_when_told(place: Place, old: Serving, new: Serving) -> None:
    old.start(program=APART + SERVE)
    old.stop()
    new.port = old.port
    new.start("--takeover", program=APART + SERVE)
    assert new.child is not None
    assert finish(INSIDE + WRITE, new.child.pid, new.url) == ["1", "('main', 2)"]


def test_a_node_whose_volume_was_taken_out_goes_on_under_its_epoch(place: Place, old: Serving) -> None:
    """The one who took a volume out of its log could not reach it, though it lives."""
    old.start()
    old.stop()
    listens = old.url
    old.start("--advertise", f"http://127.255.255.254:{old.port}")
    node = straight_to(listens)
    moved, other = born(node), born(node)
    assert put(node, moved, 0) == put(node, other, 0) == 1
    with place.edge("embedded") as edge:
        embedded = edge.connection().remote
        assert embedded.ask(MOVE_LOG, MoveRequest(moved.raw, to="private", takeover=True)).log == str(moved)
        assert put(node, other, 1) == 2, "its first write after that"
        assert put(node, born(node), 0) == 1, "a volume born after that"
        assert owned(node) == [("main", 2)]
        assert embedded.commit(*commit_of(moved, 1, {1: bytes(PAGE)}, client=ANN, page_size=PAGE)).lsn == 2
    assert node.ask(SNAPSHOT, SnapshotRequest(moved.raw)).lsn == 2
    node.close()


def test_a_node_that_another_has_deposed_says_so_and_is_back_when_that_one_is_gone(
    place: Place, old: Serving, new: Serving
) -> None:
    """S0.30: idle, it finds out behind its answers to `hello`."""
    old.start()
    remote = straight_to(old.url)
    vid = born(remote)
    assert owned(remote) == [("main", 1)]
    new.start("--takeover")
    wait_until(lambda: not owned(remote))
    assert remote.ask(HELLO, Done()).epoch == 0
    with pytest.raises(NotOwner) as refused:
        put(remote, vid, 0)
    assert refused.value.owner == new.url
    beside = straight_to(new.url)
    assert put(beside, vid, 0) == 1
    beside.close()
    new.stop()
    lsns: list[int] = []

    def written() -> bool:
        try:
            lsns.append(put(remote, vid, 1))
        except NotOwner:
            return False
        return True

    wait_until(written)
    assert lsns == [2]
    assert owned(remote) == [("main", 3)]
    remote.close()

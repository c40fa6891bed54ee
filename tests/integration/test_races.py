"""Steps that meet at the worst moment: a commit within a pull or a reset, an outcome that only someone else knows."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from budwood.server.node import Node
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.pull import ASKED
from budwood.sync.volume import Volume
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore
from budwood.volume import faults
from budwood.volume.calls import CREATE, OUTCOME, PULL_CHANGES, A, Call, CreateRequest, OutcomeRequest, Q
from budwood.volume.errors import Diverged
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.protocols import Durability

PAGE = 4096


@pytest.fixture
def one(tmp_path: Path) -> Generator[Edge]:
    with open_edge(home=tmp_path / "one", remote=f"file://{tmp_path}/store") as edge:
        edge.create("v", page_size=PAGE)
        put(edge.volume("v"), 1, b"a")
        assert edge.volume("v").push() == "1"
        yield edge


@pytest.fixture
def two(one: Edge, tmp_path: Path) -> Generator[Edge]:
    """Its commit is LSN 2, which the first edge doesn't have yet."""
    with open_edge(home=tmp_path / "two", remote=one.remote) as edge:
        put(edge.volume("v"), 2, b"b")
        assert edge.volume("v").push() == "2"
        yield edge


def put(volume: Volume, page: int, letter: bytes) -> None:
    writer = volume.writer()
    writer.write(page, letter * PAGE)
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()


def first_bytes(volume: Volume, pages: int = 3) -> bytes:
    with closing(volume.snapshot()) as snapshot:
        return b"".join(snapshot.read(page)[:1] for page in range(1, pages + 1))


def at(point: str, volume: Volume) -> None:
    """Commit page 3 when the point is reached."""

    def commit() -> None:
        faults.disarm(point)
        put(volume, 3, b"c")

    faults.arm(point, commit)


@pytest.mark.usefixtures("two")
def test_a_commit_that_comes_before_a_pull_takes_the_lock_is_not_pulled_over(one: Edge) -> None:
    volume = one.volume("v")
    at(ASKED.name, volume)
    with pytest.raises(Diverged):
        volume.pull()
    assert (volume.status()["lsn"], volume.status()["diverged"]) == ("1+1", True)
    assert first_bytes(volume) == b"a\0c"
    volume.reset(keep_as="kept")
    assert first_bytes(volume) == b"ab\0"
    assert first_bytes(one.volume("kept")) == b"a\0c"


@pytest.mark.usefixtures("two")
def test_a_fork_that_a_reset_keeps_has_the_commit_that_came_last(one: Edge) -> None:
    volume = one.volume("v")
    put(volume, 2, b"x")
    remote = one.connection().remote
    ask = remote.ask

    def answer(call: Call[Q, A], request: Q) -> A:
        answered = ask(call, request)
        if call.name == PULL_CHANGES.name:
            put(volume, 3, b"c")
        return answered

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "ask", answer)
        volume.reset(keep_as="kept")
    assert first_bytes(volume) == b"ab\0"
    assert first_bytes(one.volume("kept")) == b"axc"


@pytest.mark.anyio
@pytest.mark.parametrize("log", [None, "main"])
async def test_the_outcome_of_a_commit_is_told_by_a_node_that_did_not_take_it(log: str | None) -> None:
    """Its own memory says that there is no such commit: it asks the log, deposed or not."""
    store, vid, client = MemoryStore(), VolumeId.new(), ClientId.new()
    request, segment = commit_of(vid, 0, {1: b"a" * PAGE}, client=client)
    later = commit_of(vid, 1, {1: b"b" * PAGE}, client=client)
    async with Node.open(store, name=log) as old:
        await old.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        assert (await old.ask(OUTCOME, OutcomeRequest(vid.raw, client=client.raw, token=request.token))).lsn == 0
        async with Node.open(store, name=log) as new:
            committed = await new.commit(request, segment)
            assert (
                (await old.ask(OUTCOME, OutcomeRequest(vid.raw, client=client.raw, token=request.token))).lsn
                == committed.lsn
                == 1
            )
            await new.commit(*later)
            outcome = await old.ask(OUTCOME, OutcomeRequest(vid.raw, client=client.raw, token=request.token))
            assert (outcome.lsn, outcome.head) == (1, 2), "also when it is not the client's last"

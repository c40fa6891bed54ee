"""A log whose queue is full says so in one line, and who was turned away comes again until its call's time is over."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import httpx
import msgspec
import pytest
from tests.served import client, serving

from budwood.remote.exchange import Timing
from budwood.remote.http import HttpRemote
from budwood.server.log.waiting import Batching
from budwood.server.metastore.logs import Logs
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import CREATE, MSGPACK, PARTS, CreateRequest, ErrorBody
from budwood.volume.errors import Overloaded
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.wire import CommitRequest, from_wire, pack_part, to_wire

from ..rolling import comes_true
from ..waits import LIMIT_SECONDS

pytestmark = pytest.mark.anyio

PAGE = 512
LOG = "budwood.server.log.log_writer"


@asynccontextmanager
async def full(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[tuple[str, list[VolumeId], Rule]]:
    """A node with as many entries on their way as may be, none of which the store answers, and one commit more."""
    store = RiggedStore(MemoryStore())
    monkeypatch.setattr(f"{LOG}.QUEUE_BYTES", 1)
    # However long they take on a busy machine, nothing keeps the next entry back.
    monkeypatch.setattr(f"{LOG}.SHARED_TIP_SECONDS", LIMIT_SECONDS)
    monkeypatch.setattr(Logs, "look_behind", _look_nowhere)
    turned_away = anyio.Event()

    async def sleep(seconds: float) -> None:
        if gate.fired == Batching().alpha:
            turned_away.set()
        await anyio.sleep(seconds)

    async with serving(store) as address, client(address) as remote:
        vids = [VolumeId.new() for _ in range(24)]
        for vid in vids:
            await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        gate = store.add(Rule(op="create", key="logs/main/entries/*", times=None, gate=anyio.Event()))
        filling = HttpRemote(address, timing=Timing(read_seconds=LIMIT_SECONDS, sleep=sleep))
        async with anyio.create_task_group() as tasks:
            for at, vid in enumerate(vids[:16]):
                tasks.start_soon(filling.commit, *one_page(vid, b"a"))
                # Each in an entry of its own, as long as there may be one more.
                await comes_true(partial(_has_fired, gate, min(at + 1, Batching().alpha)))
            with anyio.fail_after(LIMIT_SECONDS):
                await turned_away.wait()
            yield address, vids[16:], gate
            assert gate.gate is not None
            gate.gate.set()
        for vid in vids[:16]:
            assert (await pages_at(remote, vid))[1] == b"a" * PAGE
        await filling.aclose()


def _look_nowhere(_: Logs) -> None:
    pass


def _has_fired(rule: Rule, times: int) -> bool:
    return rule.fired == times


def one_page(vid: VolumeId, letter: bytes) -> tuple[CommitRequest, bytes]:
    return commit_of(vid, 0, {1: letter * PAGE}, client=ClientId.new(), page_size=PAGE)


async def until_refused(address: str, vid: VolumeId) -> Overloaded:
    """What a caller hears whose time is over when he would come again."""

    async def sleep(_: float) -> None:
        await anyio.sleep(5.0)

    asker = HttpRemote(address, timing=Timing(read_seconds=5.0, sleep=sleep))
    try:
        with pytest.raises(Overloaded) as caught:
            await asker.commit(*one_page(vid, b"b"))
    finally:
        await asker.aclose()
    return caught.value


async def test_a_full_queue_says_so_in_one_line_until_the_call_s_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """And neither that it may have happened, nor that the store is away."""
    async with full(monkeypatch) as (address, others, _):
        error = await until_refused(address, others[0])
        assert error.determinate
        assert "\n" not in str(error)
        assert str(error).startswith("log main is full: ")
        assert str(error).endswith(" try again in a moment")


async def test_whoever_was_turned_away_comes_again_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """S4.9: a call that changes something, too, since it was not taken in; after pauses that no two callers share."""
    async with full(monkeypatch) as (address, others, gate):
        pauses: dict[int, list[float]] = {}
        paused = anyio.Event()

        def timing(at: int) -> Timing:
            async def sleep(seconds: float) -> None:
                pauses.setdefault(at, []).append(seconds)
                if len(pauses) == 4 and min(map(len, pauses.values())) > 2:
                    paused.set()
                await anyio.sleep(seconds)

            return Timing(read_seconds=LIMIT_SECONDS, sleep=sleep)

        askers = [HttpRemote(address, timing=timing(at)) for at in range(4)]
        async with anyio.create_task_group() as tasks:
            for asker, vid in zip(askers, others, strict=False):
                tasks.start_soon(
                    asker.commit, *commit_of(vid, 0, {1: b"b" * PAGE}, client=ClientId.new(), page_size=PAGE)
                )
            with anyio.fail_after(LIMIT_SECONDS):
                await paused.wait()
            assert gate.gate is not None
            gate.gate.set()
        assert len({tuple(each[:2]) for each in pauses.values()}) == 4
        for asker, vid in zip(askers, others, strict=False):
            assert (await pages_at(asker, vid))[1] == b"b" * PAGE
            await asker.aclose()


async def test_over_http_it_is_a_503_that_says_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with full(monkeypatch) as (address, others, _):
        body = pack_part(*one_page(others[0], b"b"))
        async with httpx.AsyncClient(timeout=LIMIT_SECONDS) as sender:
            answer = await sender.post(
                f"{address}/v1/commit", content=body, headers={"content-type": PARTS, "accept": MSGPACK}
            )
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        told = msgspec.msgpack.decode(answer.content, type=ErrorBody)
        error = from_wire(told.code, told.message, told.details)
        assert isinstance(error, Overloaded)
        assert to_wire(error) == (told.code, told.message, told.details)

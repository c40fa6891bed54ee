"""One deadline for a call, from whoever makes it to the store: a node stops working for a caller who has given up."""

from __future__ import annotations

import anyio
import httpx
import msgspec
import pytest
from tests.served import asked, client, serving

from budwood.remote.deadline import seconds_left, within
from budwood.remote.exchange import Timing
from budwood.remote.http import HttpRemote
from budwood.server.telemetry.store_failures import LASTED_SECONDS
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import CREATE, HELLO, PINS, SNAPSHOT, CreateRequest, Done, SnapshotRequest, VolumeRequest
from budwood.volume.errors import Unavailable
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.protocols import Remote

from ..exposed import families, figure
from ..rolling import comes_true
from ..waits import LIMIT_SECONDS

pytestmark = pytest.mark.anyio

PAGE = 512


class Stuck(MemoryStore):
    """A store that lists no pins any more, once it is told to: `left` is set when somebody stops waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck = False
        self.reached = anyio.Event()
        self.left = anyio.Event()

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> list[str]:
        if self.stuck and "/pins/" in prefix:
            self.reached.set()
            try:
                await anyio.sleep_forever()
            finally:
                self.left.set()
        return await super().list(prefix, start=start, limit=limit)


async def volume(remote: Remote) -> VolumeId:
    vid = VolumeId.new()
    await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    await remote.commit(*commit_of(vid, 0, {1: b"a" * PAGE}, client=ClientId.new(), page_size=PAGE))
    return vid


async def test_a_node_stops_working_for_a_caller_who_waits_no_longer() -> None:
    store = Stuck()
    async with serving(store) as address, client(address) as remote:
        vid = await volume(remote)
        store.stuck = True
        body = msgspec.msgpack.encode(VolumeRequest(vid.raw))
        said = await asked(address, "pins", body, X_Server_Timeout="0.2")
        assert (said.status, said.code) == (503, "Unavailable")
        assert "longer than the 0.2 s that the caller waits" in said.message
        with anyio.fail_after(LIMIT_SECONDS):
            await store.left.wait()


async def test_a_client_tells_how_long_it_waits_and_is_told_in_time() -> None:
    """What it hears is the node's word, and not that there was none."""
    store = Stuck()
    async with serving(store) as address, client(address) as remote:
        vid = await volume(remote)
        store.stuck = True
        hasty = HttpRemote(address, timing=Timing(read_seconds=4.0, retry_seconds=0.0))
        with pytest.raises(Unavailable, match=r"longer than the 3\.\d+ s that the caller waits"):
            await hasty.ask(PINS, VolumeRequest(vid.raw))
        await hasty.aclose()
        with anyio.fail_after(LIMIT_SECONDS):
            await store.left.wait()


async def test_who_waited_in_vain_for_a_store_that_fails_is_told_so_and_the_log_says_how(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = RiggedStore(MemoryStore())
    async with serving(store) as address, client(address) as remote:
        vid = await volume(remote)
        failing = store.add(Rule(op="create", key="logs/*", times=None, before=Unavailable("Input/output error")))
        hasty = HttpRemote(address, timing=Timing(read_seconds=2.5 * LASTED_SECONDS, retry_seconds=0.0))
        with pytest.raises(Unavailable, match="since the node's store fails, of which its log says more: ask again"):
            await hasty.commit(*commit_of(vid, 1, {1: b"b" * PAGE}, client=ClientId.new(), page_size=PAGE))
        await hasty.aclose()
        # The entry is tried again, whoever has given up, and some try is the first that comes late enough.
        await comes_true(lambda: any("the store has failed each create for" in said for said in caplog.messages))
        assert any("Input/output error" in said for said in caplog.messages)
        failing.times = failing.fired
        await volume(remote)
        assert any("the store answers each create again" in said for said in caplog.messages)


async def test_what_others_wait_for_goes_on() -> None:
    """S4.25: a caller's deadline ends no entry that was on its way."""
    store = RiggedStore(MemoryStore())
    async with serving(store) as address, client(address) as remote:
        vid = await volume(remote)
        gate = store.add(Rule(op="create", key="logs/main/entries/*", gate=anyio.Event()))
        hasty = HttpRemote(address, timing=Timing(read_seconds=1.0, retry_seconds=0.0))
        with pytest.raises(Unavailable) as caught:
            await hasty.commit(*commit_of(vid, 1, {1: b"b" * PAGE}, client=ClientId.new(), page_size=PAGE))
        assert not caught.value.determinate
        await hasty.aclose()
        assert gate.gate is not None
        gate.gate.set()
        with anyio.fail_after(LIMIT_SECONDS):
            while (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, confirm=True))).lsn < 2:
                await anyio.lowlevel.checkpoint()
        assert (await pages_at(remote, vid))[1] == b"b" * PAGE


async def test_a_deadline_that_is_no_number_is_refused() -> None:
    async with serving(MemoryStore()) as address:
        for given in ("soon", "-1", "nan", "1e9", ""):
            said = await asked(address, "hello", b"\x80", X_Server_Timeout=given)
            assert (said.status, said.code) == (400, "BadInput"), given
            assert "X-Server-Timeout is a number of seconds" in said.message
        assert (await asked(address, "hello", b"\x80", X_Server_Timeout="2.5")).status == 200


async def test_a_call_that_goes_from_node_to_node_has_one_deadline() -> None:
    assert seconds_left(30) == 30
    with within(5):
        assert 4 < seconds_left(30) <= 5
        with within(60):
            assert seconds_left(30) <= 5, "no part of a call ends after it"
        with within(0):
            assert seconds_left(30) == 0
            remote = HttpRemote("http://127.0.0.1:9")
            with pytest.raises(Unavailable, match="the call's time was over") as caught:
                await remote.ask(HELLO, Done())
            assert caught.value.determinate
    assert seconds_left(30) == 30


async def test_metrics_are_told_to_those_who_have_the_token() -> None:
    async with serving(MemoryStore(), token="secret") as address, client(address, "secret") as remote:
        await volume(remote)
        async with httpx.AsyncClient(verify=False) as web:
            refused = await web.get(f"{address}/metrics")
            told = await web.get(f"{address}/metrics", headers={"authorization": "Bearer secret"})
    assert refused.status_code == 401
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert figure(told.text, "budwood_store_creates_total") > 2
    assert families(told.text)["budwood_store_creates"].type == "counter"

"""What a node tells Prometheus: in its format, all that docs/operations.md names and nothing else, and no more series
for more volumes."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
import pytest

from budwood.remote.http import HttpRemote
from budwood.server.store.hedge import HedgedStore
from budwood.server.store.rates import RatedStore
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import CREATE, SNAPSHOT, CreateRequest, SnapshotRequest
from budwood.volume.errors import Conflict, NotFound
from budwood.volume.ids import ClientId, VolumeId

from ..documented import documented
from ..exposed import families, figure
from ..served import client, serving
from ..waits import until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

PAGE = 512
LABELS = {"call", "status", "kind", "error", "room", "currency", "node", "region", "version", "worker", "le"}
ANN = ClientId.new()


@asynccontextmanager
async def node() -> AsyncGenerator[tuple[str, HttpRemote]]:
    """Over what stands before a bucket."""
    async with serving(HedgedStore(RatedStore(MemoryStore()))) as address, client(address) as remote:
        yield address, remote


async def volume(remote: HttpRemote, commits: int = 1) -> VolumeId:
    vid = VolumeId.new()
    await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    for base in range(commits):
        await remote.commit(*commit_of(vid, base, {1: b"a" * PAGE}, client=ANN, page_size=PAGE))
    return vid


async def told(address: str) -> str:
    async with httpx.AsyncClient(verify=False) as web:
        answer = await web.get(f"{address}/metrics")
    assert answer.status_code == 200
    return answer.text


def series(text: str) -> set[tuple[object, ...]]:
    return {(it.name, *it.labels.items()) for family in families(text).values() for it in family.samples}


async def test_what_is_told_is_what_is_documented() -> None:
    async with node() as (address, remote):
        vid = await volume(remote)
        with pytest.raises(Conflict):
            await remote.commit(*commit_of(vid, 0, {1: b"b" * PAGE}, client=ANN, page_size=PAGE))
        found = families(await told(address))
        wanted = documented("Metrics of a node")
        assert found.keys() | {"budwood_worker_up"} == wanted.keys()
        for name, family in found.items():
            kind, labels, _ = wanted[name]
            assert family.type == kind, name
            assert family.documentation, name
            seen = {label for sample in family.samples for label in sample.labels} - {"le"}
            # One without a series yet has no labels yet.
            assert seen == labels or not family.samples, name
            assert seen <= LABELS, name


async def test_calls_and_entries_are_measured() -> None:
    async with node() as (address, remote):
        vid = await volume(remote, commits=3)
        assert await pages_at(remote, vid) == {1: b"a" * PAGE}
        with pytest.raises(NotFound):
            await remote.ask(SNAPSHOT, SnapshotRequest(VolumeId.new().raw))
        text = await told(address)
        assert figure(text, "budwood_call_seconds_count", call="commit") == 3
        assert figure(text, "budwood_call_seconds_sum", call="commit") > 0
        assert figure(text, "budwood_call_seconds_count", call="read_pages") == 1
        assert figure(text, "budwood_calls_refused_total", call="snapshot", status="404") == 1
        # The birth's, and three commits': at once, or one after the other.
        assert figure(text, "budwood_entry_changes_sum") >= 3
        assert figure(text, "budwood_entry_bytes_sum") > 3 * 100
        assert figure(text, "budwood_entry_seconds_count") == figure(text, "budwood_entry_changes_count")
        assert figure(text, "budwood_calls_under_way") == 1
        assert figure(text, "budwood_logs_owned") == 1
        assert figure(text, "budwood_queue_changes") == 0
        creates = figure(text, "budwood_store_creates_total")
        assert figure(text, "budwood_store_request_seconds_count", kind="create") == creates
        assert figure(text, "budwood_store_cost_total", currency="USD") >= creates * 0.005 / 1000
        assert figure(text, "budwood_cache_hits_total") > 0


async def test_more_volumes_are_no_more_series() -> None:
    async with node() as (address, remote):
        await volume(remote)
        await told(address)
        before = series(await told(address))
        for _ in range(20):
            await volume(remote)
        async with httpx.AsyncClient(verify=False) as web:
            for path in ("/v1/what", "/v1/ever", "/nothing"):
                await web.get(address + path)
        text = await told(address)
        # Of the paths that lead nowhere there is one.
        assert {it for it in series(text) - before if ("call", "other") not in it} == set()
        assert figure(text, "budwood_calls_refused_total", call="other", status="404") == 3


async def test_the_loops_lag_is_seen() -> None:
    async with node() as (address, _):
        time.sleep(0.5)  # noqa: ASYNC251

        async def was_late() -> bool:
            return figure(await told(address), "budwood_loop_lag_seconds_sum") >= 0.2

        await until(was_late)

"""A machine whose clock runs ahead of the store's forgets nothing by it."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from budwood.server.node import Node
from budwood.server.store.counted import CountedStore
from budwood.server.store.directory_store import FileStore
from budwood.server.store.protocol import Store
from budwood.server.store.rates import RatedStore
from budwood.server.store.retrying import PATIENT
from budwood.server.store.sqlite_records import sqlite_records
from budwood.server.store.store_clock import BELIEVED_SECONDS, StoreClock
from budwood.server.store.two_phase_store import TwoPhaseStore
from budwood.server.upkeep.upkeep import HASTY, Extent
from budwood.testing.clock import ManualClock
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import PIN, PINS, RETAIN, PinRequest, RetainRequest, VolumeRequest
from budwood.volume.errors import Unauthorized, Unavailable
from budwood.volume.ids import PinId
from budwood.volume.retention_policy import RetentionPolicy

from ..rolling import comes_true
from .cli import Command
from .s3_server import S3Server
from .test_upkeep import Filled

pytestmark = pytest.mark.anyio

DAY_MS: Final = 86_400_000
LONG_MS: Final = 365 * DAY_MS + 3_600_000
SKEW_SECONDS: Final = 30.0


def own_ms() -> int:
    return time.time_ns() // 1_000_000


class Elsewhere(RiggedStore):
    """A store with a clock of its own."""

    async def made_at(self, key: str) -> datetime:
        """A moment ago, of all that is asked for here."""
        await self.inner.get(key)
        return datetime.now(UTC)


@pytest.fixture
def store() -> Elsewhere:
    return Elsewhere(MemoryStore())


@asynccontextmanager
async def node_ahead(store: Store, ahead_ms: int = 0, *, name: str | None = None) -> AsyncGenerator[Node]:
    async with Node.open(store, name=name, now_ms=lambda: own_ms() + ahead_ms, takeover=True, pace=HASTY) as node:
        yield node


def clock_of(store: Store, ahead_ms: int) -> StoreClock:
    return StoreClock(store, lambda: own_ms() + ahead_ms, PATIENT, skew_seconds=SKEW_SECONDS)


async def test_a_policy_forgets_nothing_by_a_clock_that_runs_ahead(store: Store) -> None:
    async with node_ahead(store) as node:
        volume = await Filled.born(node)
        await volume.write(3)
        await node.ask(RETAIN, RetainRequest(volume.vid.raw, policy=RetentionPolicy(all_ms=DAY_MS)))
    async with node_ahead(store, LONG_MS) as node:
        with pytest.raises(Unavailable, match=r"365 days, .* ahead of that of .*: until it is set"):
            await node.upkeep.tend(str(volume.vid), Extent.ALL)
        volume.node = node
        assert await volume.since() == 1
        await volume.check()


async def test_a_pin_holds_that_is_overdue_by_a_clock_that_runs_ahead(store: Store) -> None:
    async with node_ahead(store) as node:
        volume = await Filled.born(node)
        await volume.write(3)
        await node.ask(PIN, PinRequest(volume.vid.raw, pin=PinId.new().raw, lsn=1, seconds=DAY_MS / 1000))
    async with node_ahead(store, LONG_MS) as node:
        assert len((await node.ask(PINS, VolumeRequest(volume.vid.raw))).pins) == 1


@pytest.mark.parametrize("ahead_ms", [0, -LONG_MS])
async def test_it_goes_on_by_a_clock_that_agrees_or_is_behind(store: Store, ahead_ms: int) -> None:
    async with node_ahead(store, ahead_ms) as node:
        volume = await Filled.born(node)
        await volume.write(3)
        await volume.advance()
        assert (await node.upkeep.tend(str(volume.vid), Extent.ALL)).folded == 1
        assert not await store.list("probe/"), "what was made for it is deleted"


async def test_it_is_asked_of_the_store_that_knows(store: Elsewhere, tmp_path: Path) -> None:
    two_phase = TwoPhaseStore(store, sqlite_records(str(tmp_path / "records"), create=True))
    for before in (CountedStore(RatedStore(store), own_ms), CountedStore(two_phase, own_ms)):
        await clock_of(before, 0).check()
        with pytest.raises(Unavailable, match="365 days, "):
            await clock_of(before, LONG_MS).check()
    await two_phase.aclose()


async def test_where_the_store_does_not_tell_or_nothing_may_be_made_for_it_it_goes_on(
    store: Elsewhere, tmp_path: Path
) -> None:
    await clock_of(MemoryStore(), LONG_MS).check()
    async with aclosing(await FileStore.open(str(tmp_path), create=True)) as directory:
        await clock_of(directory, LONG_MS).check()
    store.rules.append(Rule(op="create", before=Unauthorized("no")))
    await clock_of(store, LONG_MS).check()


async def test_it_is_asked_once_an_hour_and_anew_when_the_clock_was_set(store: Elsewhere) -> None:
    boot, ahead_ms = ManualClock(), 0
    began_ms = own_ms()

    def now_ms() -> int:
        return began_ms + boot.now_ms() + ahead_ms

    clock = StoreClock(store, now_ms, replace(PATIENT, boot=boot.now), skew_seconds=3 * BELIEVED_SECONDS)

    async def asks() -> bool:
        store.forget()
        with suppress(Unavailable):
            await clock.check()
        return bool(store.requests)

    assert await asks()
    assert not await asks()
    boot.advance(BELIEVED_SECONDS + 1)
    assert await asks()
    ahead_ms = DAY_MS
    assert await asks(), "it was set"
    assert await asks(), "as long as it is wrong"
    ahead_ms = 0
    assert await asks(), "and is right again"
    assert not await asks()


@pytest.mark.parametrize(("ahead_ms", "says"), [(LONG_MS, "365 days, "), (-LONG_MS, "365 days, ")])
async def test_a_node_says_at_its_start_that_its_clock_is_wrong(
    store: Store, caplog: pytest.LogCaptureFixture, ahead_ms: int, says: str
) -> None:
    async with node_ahead(store, ahead_ms, name="main"):
        await comes_true(lambda: caplog.records)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert says in record.getMessage()
    assert ("ahead of" if ahead_ms > 0 else "behind") in record.getMessage()


def test_upkeep_tells_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with S3Server(ahead_seconds=-LONG_MS / 1000) as server, server.environment():
        ann = Command(capsys, tmp_path / "ann", "s3://bucket/prefix")
        ann.sql_made("v")
        ann.ok("push", "v")
        told = ann("upkeep", "--once", "--store", "s3://bucket/prefix")
    assert "this machine's clock is 365 days" in told.line()

"""Connections to a node of several workers: a call takes one that leads to the worker that it is for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest

from budwood.remote import connections
from budwood.remote.connections import TRIES, Connection, Connections

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


@pytest.fixture
def connect() -> Callable[[], httpx.AsyncClient]:
    return lambda: httpx.AsyncClient(verify=False)


async def used(pool: Connections, wanted: str, leads_to: Iterator[str]) -> Connection:
    """By one call. A connection keeps to the worker that it leads to."""
    taken = await pool.take(0.0, wanted)
    pool.leads(taken, taken.worker or next(leads_to))
    await pool.give_back(taken, is_sound=True)
    return taken


async def test_what_leads_there_is_taken_before_what_was_used_last(connect: Callable[[], httpx.AsyncClient]) -> None:
    pool = Connections(connect, most=9, kept=9)
    leads = iter("12")
    one, two = await used(pool, "", leads), await pool.take(0.0, "2")
    pool.leads(two, next(leads))
    await pool.give_back(two, is_sound=True)
    for _ in range(3):
        assert await used(pool, "1", leads) is one
        assert await used(pool, "2", leads) is two
        assert await used(pool, "", leads) is two
    await pool.aclose()


async def test_new_ones_are_tried_until_one_leads_there(connect: Callable[[], httpx.AsyncClient]) -> None:
    pool = Connections(connect, most=9, kept=9)
    leads = iter("1113")
    tried = [await used(pool, "3", leads) for _ in range(6)]
    assert [each.worker for each in tried] == ["1", "1", "1", "3", "3", "3"]
    assert len({*tried}) == 4
    await pool.aclose()


async def test_it_is_given_up_where_none_leads_there(
    connect: Callable[[], httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a proxy, say. And tried again later."""
    pool = Connections(connect, most=99, kept=99)
    leads = iter("1" * 999)
    tried = [await used(pool, "2", leads) for _ in range(3 * TRIES)]
    assert len({*tried}) == TRIES
    monkeypatch.setattr("anyio.current_time", lambda: float("1e12"))
    monkeypatch.setattr(connections, "KEPT_SECONDS", float("1e13"))
    assert await used(pool, "2", leads) not in tried
    await pool.aclose()


async def test_one_worker_is_like_none(connect: Callable[[], httpx.AsyncClient]) -> None:
    pool = Connections(connect, most=9, kept=9)
    first = await pool.take(0.0)
    await pool.give_back(first, is_sound=True)
    assert await pool.take(0.0) is first
    await pool.give_back(first, is_sound=True)
    await pool.aclose()

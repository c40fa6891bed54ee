"""What one caller may take of a node, whatever room there is: the rest is told to come again, and our clients do."""

from __future__ import annotations

from typing import Any

import anyio
import httpx
import pytest

from budwood.server.http.asgi import PRINCIPAL, Receive, Scope, Send
from budwood.server.http.caller_limits import CallerLimits, Limited
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import CREATE, HELLO, WAIT, CreateRequest, Done, WaitRequest
from budwood.volume.ids import VolumeId

from ..exposed import figure
from ..served import client, serving
from ..waits import until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


class Asked:
    """One application behind the limits, whose calls end when they are let."""

    def __init__(self, limits: CallerLimits, **options: Any) -> None:
        self.now = 0.0
        self.begun = 0
        self.let = anyio.Event()
        self.let.set()
        self.limited = Limited(self._app, limits, lambda: self.now, pause_seconds=0, **options)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun += 1
        await self.let.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def ask(self, caller: str = "", host: str = "10.0.0.1", path: str = "/v1/hello") -> int:
        told: list[Any] = []

        async def send(message: Any) -> None:
            told.append(message)

        async def receive() -> Any:
            raise AssertionError("nothing of it is read")

        scope: Scope = {"path": path, "headers": [], "client": (host, 1), PRINCIPAL: caller, "query_string": b""}
        await self.limited(scope, receive, send)
        return int(told[0]["status"])


async def test_calls_come_at_a_rate() -> None:
    asked = Asked(CallerLimits(calls_per_second=5))
    assert [await asked.ask() for _ in range(12)] == [200] * 10 + [429] * 2
    assert await asked.ask(host="10.0.0.2") == 200
    assert await asked.ask("ann") == 200
    asked.now = 0.2
    assert [await asked.ask() for _ in range(2)] == [200, 429]
    asked.now = 1000.0
    assert [await asked.ask() for _ in range(12)] == [200] * 10 + [429] * 2
    assert [await asked.ask(path="/healthz") for _ in range(12)] == [200] * 12


async def test_less_than_one_a_second_is_a_rate_too() -> None:
    asked = Asked(CallerLimits(calls_per_second=0.25))
    assert [await asked.ask() for _ in range(2)] == [200, 429]
    asked.now = 4.0
    assert [await asked.ask() for _ in range(2)] == [200, 429]


async def test_so_many_are_under_way() -> None:
    asked = Asked(CallerLimits(calls_at_once=3))
    asked.let = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(asked.ask, "ann")
        await anyio.wait_all_tasks_blocked()
        assert asked.begun == 3
        assert await asked.ask("ann") == 429
        tasks.start_soon(asked.ask, "bob")
        await anyio.wait_all_tasks_blocked()
        assert asked.begun == 4
        asked.let.set()
    assert await asked.ask("ann") == 200


async def test_callers_are_forgotten() -> None:
    asked = Asked(CallerLimits(calls_per_second=1), callers=2)
    for number in range(100):
        assert await asked.ask(f"caller-{number}") == 200
    assert asked.limited.known == 2


async def test_bytes_come_at_a_rate() -> None:
    paused, now = list[float](), 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now
        paused.append(seconds)
        now += seconds

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        for _ in range(50):
            assert len((await receive())["body"]) == 100

    async def receive() -> Any:
        return {"type": "http.request", "body": b"x" * 100, "more_body": True}

    async def send(_message: Any) -> None:
        raise AssertionError("nothing is refused")

    limited = Limited(app, CallerLimits(bytes_per_second=1000), lambda: now, sleep=sleep)
    scope: Scope = {"path": "/v1/commit", "headers": [], "client": ("10.0.0.1", 1), "query_string": b""}
    await limited(scope, receive, send)
    # 5,000 bytes, of which 2,000 may come at once.
    assert now == pytest.approx(3.0)
    assert max(paused) <= 1.0
    await limited({**scope, "client": ("10.0.0.2", 1)}, receive, send)
    assert now == pytest.approx(6.0)


async def test_a_client_comes_again_and_is_answered() -> None:
    limits = CallerLimits(calls_per_second=10)
    async with serving(MemoryStore(), limits=limits) as address, client(address) as remote:
        for _ in range(25):
            assert (await remote.ask(HELLO, Done())).node == "main"
        async with httpx.AsyncClient(base_url=address, verify=False) as web:
            answers = [await web.post("/v1/hello", json={}) for _ in range(25)]
            refused = next(answer for answer in answers if answer.status_code != 200)
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "1"
            told = refused.json()
            assert (told["code"], told["details"]["reason"]) == ("Overloaded", "calls_per_second")
            text = (await web.get("/metrics")).text
            assert figure(text, "budwood_calls_refused_total", call="hello", status="429") > 0


async def test_those_who_wait_are_under_way() -> None:
    limits = CallerLimits(calls_at_once=2)
    async with serving(MemoryStore(), limits=limits) as address, client(address) as remote:
        vid = VolumeId.new()
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=512))
        async with anyio.create_task_group() as tasks, httpx.AsyncClient(base_url=address, verify=False) as web:

            async def polls() -> float:
                return figure((await web.get("/metrics")).text, "budwood_polls")

            for _ in range(2):
                tasks.start_soon(remote.ask, WAIT, WaitRequest(vid.raw, after=1, timeout_seconds=25.0))

            async def both() -> bool:
                return await polls() == 2

            await until(both)
            told = await web.post("/v1/hello", json={})
            assert (told.status_code, told.json()["details"]["reason"]) == (429, "calls_at_once")
            tasks.cancel_scope.cancel()

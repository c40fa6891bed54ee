"""A node as tests serve it: over real HTTP on loopback, in this event loop.

async with serving(MemoryStore()) as address, client(address) as remote:
    await remote.ask(CREATE, CreateRequest(vid.raw, page_size=512))

Attackers speak for themselves: `asked` sends a call whose body no client of ours would make, `Raw` a request byte by
byte.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import anyio
import anyio.abc
import httpx
import msgspec

from budwood.cli.prices import Prices
from budwood.remote.http import HttpRemote
from budwood.server.http.run_node import serve
from budwood.server.node import Node
from budwood.server.store.observed import ObservedStore
from budwood.server.telemetry.node_metrics import NodeMetrics
from budwood.volume.calls import MSGPACK, ErrorBody
from budwood.volume.protocols import Remote


@asynccontextmanager
async def serving(
    store: Any, *, name: str = "main", token: str = "", at: int = 0, **options: Any
) -> AsyncGenerator[str, None]:
    """A node on loopback, at a port of its own unless told; its address. `options` are serve's."""
    ready, stop = anyio.Event(), anyio.Event()
    told: list[str] = []
    metrics = NodeMetrics(Prices())

    @asynccontextmanager
    async def open_node(address: str) -> AsyncGenerator[Node]:
        async with Node.open(ObservedStore(store, metrics), name=name, address=address) as node:
            metrics.watch(node)
            yield node

    def on_ready(address: str, _: Remote) -> None:
        told.append(address)
        ready.set()

    async def run() -> None:
        await serve(
            open_node,
            port=at,
            token=token,
            on_ready=on_ready,
            stop=stop,
            metrics=metrics,
            **options,
        )

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await ready.wait()
        try:
            yield told[0]
        finally:
            stop.set()


@asynccontextmanager
async def client(address: str, token: str = "") -> AsyncGenerator[HttpRemote, None]:
    remote = HttpRemote(address, token=token)
    try:
        yield remote
    finally:
        await remote.aclose()


class Said(NamedTuple):
    status: int
    code: str
    """Of the error; "" where it was done."""
    message: str


async def asked(address: str, call: str, body: bytes, content: str = MSGPACK, **headers: str) -> Said:
    """What the node says to one call with this body."""
    sent = {"content-type": content, "accept": MSGPACK} | {key.replace("_", "-"): it for key, it in headers.items()}
    # Without certificates, which take longer to read than all the rest.
    async with httpx.AsyncClient(timeout=120, verify=False) as web:
        answer = await web.post(f"{address}/v1/{call}", content=body, headers=sent)
    if answer.status_code == 200:
        return Said(200, "", "")
    told = msgspec.msgpack.decode(answer.content, type=ErrorBody)
    return Said(answer.status_code, told.code, told.message)


class Raw:
    """One connection, and what the attacker sends over it."""

    def __init__(self, address: str) -> None:
        place = urlsplit(address)
        assert place.hostname is not None
        assert place.port is not None
        self.host = place.hostname
        self.port = place.port
        self._stream: anyio.abc.SocketStream | None = None

    async def __aenter__(self) -> Self:
        self._stream = await anyio.connect_tcp(self.host, self.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            await anyio.aclose_forcefully(self._stream)

    async def send(self, data: bytes) -> None:
        assert self._stream is not None
        await self._stream.send(data)

    async def head(self, call: str, length: int, content: str = MSGPACK, query: str = "") -> None:
        """The head of a call whose body of `length` bytes is to follow, or not."""
        lines = (
            f"POST /v1/{call}{query} HTTP/1.1",
            f"host: {self.host}:{self.port}",
            f"content-type: {content}",
            f"content-length: {length}",
        )
        await self.send("".join(f"{line}\r\n" for line in (*lines, "")).encode())

    async def receive(self) -> bytes:
        """What comes next; b"" when the node has closed the connection."""
        assert self._stream is not None
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return b""

    async def rest(self) -> bytes:
        """Everything, up to the end of the connection."""
        held = b""
        while some := await self.receive():
            held += some
        return held

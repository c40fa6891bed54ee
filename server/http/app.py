"""The network face of a node: the protocol of DESIGN §6 as a starlette application over any `Remote`.

    POST /v1/{call}     every call of volume/calls.py
    GET  /healthz       who this is and that it is alive; no token needed
    GET  /openapi.json  the document that describes all of this; no token needed

Answers come as JSON or MessagePack, whichever the caller asks for. Whatever goes wrong is answered in one shape,
unknown routes and our own bugs included, and never with a traceback.

Who may call at all is guard.py's. A body says its type, and only those are read that a web page can't send by itself.

What callers can hold together is bounded: bodies in size and time, large ones to `WRITES` at once, streams of many
pages to `SCANS` at once, of few to `READS`; further ones wait their turn. A small commit waits for nobody, so that any
number of them share the log's next entry. Long polls hold nothing but a task, and end when the node stops.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ...volume.calls import CALLS, JSON, Form
from ...volume.errors import BadInput, BudwoodError, NotFound, Unavailable
from ...volume.protocols import Remote
from ...volume.wire import ReadRequest
from .body import answer, content_type, decode_message, is_small, read_body, refusal, wrong_type
from .connection import while_connected
from .guard import Guard
from .handlers import HANDLERS
from .openapi import document
from .pages import PagesAnswer, commit, pages_of, write_pages

__all__ = ["make_app"]

WRITES: Final = 8
"""Each may hold a segment and what checking it takes."""
SMALL_BYTES: Final = 1 << 20
SCANS: Final = 32
"""Each may hold the pagestore's window, 16 MiB."""
READS: Final = 512
FEW_PAGES: Final = 256
LONG_POLLS: Final = {"wait", "wait_names"}
"""They end when their caller goes away, or when the node stops."""


def make_app(
    remote: Remote, *, token: str = "", hosts: Iterable[str] = (), stopping: anyio.Event | None = None
) -> Guard:
    """The application. With a `token`, every call needs `Authorization: Bearer {token}`; without, one of the `hosts`
    for Host, where that isn't an address or loopback's. Once `stopping` is set, long polls end with Unavailable."""
    face = _Face(remote, stopping)
    routes = [
        Route("/healthz", face.healthz, methods=["GET"]),
        Route("/openapi.json", _openapi, methods=["GET"]),
        *(Route(f"/v1/{name}", face.endpoint(name), methods=["POST"]) for name in CALLS),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_route})
    return Guard(app, token=token, hosts=hosts)


class _Face:
    """The endpoints over one Remote."""

    def __init__(self, remote: Remote, stopping: anyio.Event | None) -> None:
        self.remote = remote
        self.stopping = stopping
        self.writes = anyio.CapacityLimiter(WRITES)
        self.scans = anyio.CapacityLimiter(SCANS)
        self.reads = anyio.CapacityLimiter(READS)

    def endpoint(self, name: str) -> _Endpoint:
        return _Endpoint(self, name)

    async def healthz(self, request: Request) -> Response:
        return answer(request, await self.remote.hello())

    async def message(self, name: str, request: Request) -> msgspec.Struct:
        body = await read_body(request)
        message = decode_message(name, content_type(request), body, CALLS[name].request)
        if name not in LONG_POLLS:
            return await HANDLERS[name](self.remote, message)
        head = await while_connected(
            request.receive, lambda: HANDLERS[name](self.remote, message), stopping=self.stopping
        )
        if head is None:
            raise Unavailable("the node is stopping: ask again, or another one")
        return head

    async def with_pages(self, name: str, request: Request) -> msgspec.Struct:
        call = write_pages if name == "write_pages" else commit
        if is_small(request, SMALL_BYTES):
            return await call(self.remote, request)
        async with self.writes:
            return await call(self.remote, request)

    async def pages(self, request: Request, send: Send) -> None:
        message = decode_message("read_pages", content_type(request), await read_body(request), ReadRequest)
        pages = pages_of(message)
        async with self.reads if len(pages) <= FEW_PAGES else self.scans:
            await PagesAnswer(self.remote, request, message, pages)(request.scope, request.receive, send)


class _Endpoint:
    """One call's ASGI application. A class, since starlette hands a function no `send`."""

    def __init__(self, face: _Face, name: str) -> None:
        self.face = face
        self.name = name
        self.form = CALLS[name].form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        wrong = wrong_type(request, self.name, self.form)
        if wrong is not None:
            await refusal(request, wrong, self.name, 415)(scope, receive, send)
            return
        try:
            match self.form:
                case Form.PARTS_OUT:
                    await self.face.pages(request, send)
                    return
                case Form.MESSAGE:
                    response = answer(request, await self.face.message(self.name, request))
                case _:
                    response = answer(request, await self.face.with_pages(self.name, request))
        except Exception as error:
            response = refusal(request, error, self.name)
        await response(scope, receive, send)


async def _openapi(_: Request) -> Response:
    return Response(msgspec.json.encode(document()), media_type=JSON)


async def _no_route(request: Request, error: Exception) -> Response:
    path = request.url.path
    told: BudwoodError = NotFound(f"there is nothing at {path}: /openapi.json lists what there is")
    if isinstance(error, HTTPException) and error.status_code == 405:
        allowed = sorted((error.headers or {}).get("Allow", "POST").split(", "))
        told = BadInput(f"{path} takes {' or '.join(allowed)}, not {request.method}")
    return refusal(request, told, path)

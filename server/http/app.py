"""The network face of a node: the protocol of DESIGN §6 as an ASGI application over any `Remote`.

    POST /v1/{call}     every call of volume/calls.py
    GET  /healthz       who this is and that it is alive; no token needed
    GET  /readyz        whether callers should be sent here (telemetry/readiness.py); no token needed
    GET  /metrics       for Prometheus (telemetry/node_metrics.py)
    GET  /ui/           pages for people (server/console)
    GET  /openapi.json  the document that describes all of this; no token needed

Answers come as JSON or MessagePack, whichever the caller asks for. Whatever goes wrong is answered in one shape,
unknown routes and our own bugs included, and never with a traceback.

Who may call at all is access_control.py's. A body says its type, and only those are read that a web page can't send by
itself.

What callers can hold together is bounded (memory_budget.py): bodies that arrive to `BODIES_BYTES`, small ones to
`SMALL_BODIES_BYTES`, streams of many
pages to `SCANS_BYTES`, of few to `READS_BYTES`, other answers to `ANSWERS_BYTES`. Who neither sends nor reads keeps
nobody waiting. Large bodies that are whole are worked on `WRITES` at once. A small commit waits for nobody, so that any
number of them share the log's next entry. Long polls hold nothing but their connection and its tasks, and end when the
node stops; so many may be under way, and whoever comes beyond that is refused at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

import anyio
import msgspec
from prometheus_client.metrics_core import Metric

from ...volume.access import Right
from ...volume.calls import CALLS, HELLO, JSON, MAX_WAIT_SECONDS, REQUESTS, Call, Done, Form, Poll, Row
from ...volume.errors import BadInput, NotFound, Unauthorized, Unavailable
from ...volume.pageset import pages_asked_for
from ...volume.protocols import Remote
from ...volume.wire import ReadRequest
from ..access.access import Access
from ..pagestore.read import WINDOW_BYTES
from ..telemetry.audit import AUDITED, Audited
from ..telemetry.exposition import TEXT
from ..telemetry.node_figures import Budget, face_figures
from ..telemetry.node_metrics import NodeMetrics
from ..telemetry.readiness import readiness
from .access_control import METRICS, AccessControl
from .asgi import Answer, ASGIApp, Message, Receive, Request, Scope, Send
from .body import answer, decode_message, read_body, read_pages_body, refusal, wrong_type
from .caller_limits import CallerLimits, Limited
from .caller_patience import CallerPatience
from .cancellation import while_connected
from .console_routes import ConsoleRoutes
from .memory_budget import BodyRoom, MemoryBudget, Pace
from .openapi import document
from .page_streams import commit, extra_of, send_pages, write_pages

WRITES: Final = 8
"""Each may hold a segment and what checking it takes."""
SMALL_BYTES: Final = 1 << 20
MIB: Final = 1 << 20
BODIES_BYTES: Final = 256 * MIB
SMALL_BODIES_BYTES: Final = 32 * MIB
"""For those that say that they are small: who sends large ones, and stands still, keeps none of them waiting."""
SCANS_BYTES: Final = 256 * MIB
READS_BYTES: Final = 128 * MIB
ANSWERS_BYTES: Final = 128 * MIB
FEW_BYTES: Final = 4 * MIB
"""A read that can't hold more is no scan."""
PAGE_BYTES: Final = 64 * 1024
"""What a page that is asked for may take, with the neighbours in its frame, as stored."""
PIECE_BYTES: Final = 256 * 1024
MOST_POLLS: Final = 12_288
_OTHER_METHOD: Final = 405


def make_app(
    remote: Remote,
    *,
    token: str = "",
    hosts: Iterable[str] = (),
    pace: Pace | None = None,
    stopping: anyio.Event | None = None,
    most_polls: int = MOST_POLLS,
    workers: Workers | None = None,
    metrics: NodeMetrics | None = None,
    limits: CallerLimits | None = None,
    access: Access | None = None,
) -> AccessControl:
    """The application. With a `token`, every call needs `Authorization: Bearer {token}`; without, one of the `hosts`
    for Host, where that isn't an address or loopback's. Once `stopping` is set, long polls end with Unavailable. Of
    several `workers` each has its part of what callers can hold, and hands on what is another's. `limits` are what one
    caller may take. With `access` callers have keys, and each may do what his says."""
    face = _Face(remote, pace or Pace(), stopping, most_polls, workers, metrics or NodeMetrics(), access)
    reading = frozenset({"GET", "HEAD"})
    pages = ConsoleRoutes(face.remote_for, face.counted.tariff).endpoints()
    routes = {
        "/healthz": Route(reading, face.healthz),
        "/readyz": Route(reading, face.readyz),
        "/openapi.json": Route(reading, _openapi),
        METRICS: Route(reading, face.metrics),
        **{path: Route(*each) for path, each in pages.items()},
        **{f"/v1/{name}": Route(frozenset({"POST"}), _Endpoint(face, row)) for name, row in CALLS.items()},
    }
    app: ASGIApp = App(routes)
    if workers is not None:
        app = workers.forwarding(app, face.body_room, stopping, face.counted)
    if limits is not None and limits.are_set:
        app = Limited(app, limits)
    return AccessControl(app, token=token, hosts=hosts, access=access)


class Workers(Protocol):
    """What one of several that serve as one node has beside its own (workers.py)."""

    @property
    def count(self) -> int: ...
    def forwarding(
        self, app: ASGIApp, body_room: BodyRoom, stopping: anyio.Event | None, metrics: NodeMetrics
    ) -> ASGIApp: ...
    async def metrics(self) -> str:
        """Of all of them."""
        ...


class Route(NamedTuple):
    methods: frozenset[str]
    endpoint: Callable[[Request, Send], Awaitable[None]]


class App:
    """What there is, by its path."""

    def __init__(self, routes: dict[str, Route]) -> None:
        self.routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        route = self.routes.get(request.path)
        if route is not None and request.method in route.methods:
            await route.endpoint(request, send)
        else:
            await _no_route(request, route).send(send)


class _Face:
    """The endpoints over one Remote."""

    def __init__(
        self,
        remote: Remote,
        pace: Pace,
        stopping: anyio.Event | None,
        most_polls: int,
        workers: Workers | None,
        metrics: NodeMetrics,
        access: Access | None,
    ) -> None:
        self.access = access
        parts = 1 if workers is None else workers.count
        self.remote = remote
        self.workers = workers
        self.counted = metrics
        self.stopping = stopping
        self.most_polls = most_polls
        self.polls = 0
        self.writes = anyio.CapacityLimiter(WRITES)
        self.bodies = MemoryBudget(BODIES_BYTES // parts, pace)
        self.small_bodies = MemoryBudget(SMALL_BODIES_BYTES // parts, pace)
        self.scans = MemoryBudget(SCANS_BYTES // parts, pace)
        self.reads = MemoryBudget(READS_BYTES // parts, pace)
        self.answers = MemoryBudget(ANSWERS_BYTES // parts, pace)
        metrics.add(self.figures)

    async def healthz(self, request: Request, send: Send) -> None:
        try:
            told = answer(request, await self.remote.ask(HELLO, Done()))
        except Exception as error:
            told = refusal(request, error, "healthz")
        await told.send(send)

    def remote_for(self, request: Request) -> Remote:
        """The node as whoever calls may use it. Raises Unauthorized where callers have keys, and nobody looked."""
        if self.access is None:
            return self.remote
        caller = request.caller
        if caller is None:
            raise Unauthorized("who calls was not found out", reason="missing")
        return self.access.of(caller)

    def body_room(self, request: Request) -> MemoryBudget:
        length = request.header(b"content-length")
        small = length.isdecimal() and len(length) < 10 and int(length) <= SMALL_BYTES
        return self.small_bodies if small else self.bodies

    def figures(self) -> Iterable[Metric]:
        rooms = {
            "bodies": self.bodies,
            "small_bodies": self.small_bodies,
            "scans": self.scans,
            "reads": self.reads,
            "answers": self.answers,
        }
        held = {name: Budget(room.held_bytes, room.limit_bytes) for name, room in rooms.items()}
        return face_figures(held, self.polls, self.most_polls)

    async def readyz(self, request: Request, send: Send) -> None:
        try:
            found = await readiness(self.remote, self.counted.reach, self.stopping)
            told = answer(request, found, 200 if found.ready else 503)
        except Exception as error:
            told = refusal(request, error, "readyz")
        await told.send(send)

    async def metrics(self, request: Request, send: Send) -> None:
        try:
            if request.caller is not None:
                request.caller.check(Right.OPERATE, METRICS)
            if self.workers is None:
                text = self.counted.text((await self.remote.ask(REQUESTS, Done())).figures)
            else:
                text = await self.workers.metrics()
            told = Answer(text.encode(), TEXT)
        except Exception as error:
            told = refusal(request, error, METRICS)
        await told.send(send)

    async def message(
        self, call: Call[Any, msgspec.Struct], request: Request, patience: CallerPatience
    ) -> msgspec.Struct:
        async with self.body_room(request).hold(patience_seconds=patience.seconds) as reservation:
            body = await read_body(request, reservation)
            message = decode_message(call.name, request.content, body, call.request)
        patience.begin()
        remote = self.remote_for(request)
        if not isinstance(message, Poll):
            if call.name in AUDITED:
                with Audited(call.name, message, request.principal, request.client_host):
                    return await remote.ask(call, message)
            return await remote.ask(call, message)
        seconds = min(message.timeout_seconds, MAX_WAIT_SECONDS)
        poll = msgspec.structs.replace(message, timeout_seconds=seconds)
        if self.polls >= self.most_polls:
            raise Unavailable(f"{self.polls:,} wait at this node already: ask another node of this store, or later")
        self.polls += 1
        try:
            head = await while_connected(request.receive, lambda: remote.ask(call, poll), stopping=self.stopping)
        finally:
            self.polls -= 1
        if head is None:
            raise Unavailable("the node is stopping: ask again, or another one")
        return head

    def over(self, row: Row[Any, Any], patience: CallerPatience) -> Unavailable:
        return patience.over(changes=row.changes, store_fails=self.counted.failures.is_failing())

    async def with_pages(self, form: Form, request: Request, patience: CallerPatience) -> msgspec.Struct:
        call = write_pages if form is Form.SEGMENT_IN else commit
        async with self.body_room(request).hold(patience_seconds=patience.seconds) as reservation:
            body = await read_pages_body(request, reservation)
            patience.begin()
            if len(body) <= SMALL_BYTES:
                return await call(self.remote_for(request), request, body)
            async with self.writes:
                return await call(self.remote_for(request), request, body)

    async def pages(self, request: Request, patience: CallerPatience, send: Send) -> None:
        async with self.body_room(request).hold(patience_seconds=patience.seconds) as reservation:
            body = await read_body(request, reservation)
            message = decode_message("read_pages", request.content, body, ReadRequest)
        patience.begin()
        pages = pages_asked_for(message.pages)
        most = min(len(pages) * PAGE_BYTES + extra_of(message), WINDOW_BYTES)
        async with (self.reads if most <= FEW_BYTES else self.scans).hold(most) as reservation:
            await send_pages(self.remote_for(request), request, message, pages, reservation, send)

    async def send(self, told: Answer, send: Send) -> None:
        """An answer that is whole. A large one goes in pieces: what is handed over at once is held where nobody counts
        it, until it is read."""
        if len(told.body) <= PIECE_BYTES:
            await told.send(send)
            return
        body = memoryview(told.body)
        async with self.answers.hold(len(body)) as reservation:
            await send(told.head())
            for at in range(0, len(body), PIECE_BYTES):
                with reservation.idling(self.answers.pace.idle_seconds, "an answer was read"):
                    piece = bytes(body[at : at + PIECE_BYTES])
                    more = at + PIECE_BYTES < len(body)
                    await send({"type": "http.response.body", "body": piece, "more_body": more})


class _Endpoint:
    """One call."""

    def __init__(self, face: _Face, row: Row[Any, Any]) -> None:
        self.face = face
        self.row = row

    async def __call__(self, request: Request, send: Send) -> None:
        row = self.row
        wrong = wrong_type(request, row.name, row.form)
        if wrong is not None:
            await refusal(request, wrong, row.name, 415).send(send)
        elif row.form is Form.PARTS_OUT:
            await self._pages(request, send)
        else:
            try:
                told = await self._answer(request)
            except Exception as error:
                told = refusal(request, error, row.name)
            await self.face.send(told, send)

    async def _answer(self, request: Request) -> Answer:
        row, face, patience = self.row, self.face, CallerPatience(request)
        with patience.scope():
            if isinstance(row, Call):
                return answer(request, await face.message(row, request, patience))
            return answer(request, await face.with_pages(row.form, request, patience))
        raise face.over(row, patience)

    async def _pages(self, request: Request, send: Send) -> None:
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            patience.end()
            await send(message)

        try:
            patience = CallerPatience(request)
            with patience.scope():
                await self.face.pages(request, patience, noting)
                return
            raise self.face.over(self.row, patience)
        except Exception as error:
            if begun:
                # Half an answer is ended by its connection.
                raise
            await self.face.send(refusal(request, error, self.row.name), send)


async def _openapi(_: Request, send: Send) -> None:
    await Answer(msgspec.json.encode(document()), JSON).send(send)


def _no_route(request: Request, route: Route | None) -> Answer:
    path = request.shown_path
    if route is None:
        return refusal(request, NotFound(f"there is nothing at {path}: /openapi.json lists what there is"), path)
    methods = sorted(route.methods)
    told = refusal(request, BadInput(f"{path} takes {' or '.join(methods)}, not {request.method}"), path)
    allowed = (b"allow", ", ".join(methods).encode())
    return replace(told, status=_OTHER_METHOD, more_headers=(*told.more_headers, allowed))

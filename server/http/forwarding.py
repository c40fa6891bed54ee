"""Forwarding: a call that comes to one worker of a node goes to the worker that it is for (docs/design/0101).

Whoever calls knows one address, and any of the workers takes its connection. The worker reads the call, and where the
volume is another's (metastore/share.py) hands it on, and its answer back. So all that is said and kept of a volume is
in one process, reads included, and no caller has to know how many there are. Callers of ours are told by two headers
(volume/calls.py), and ask over a connection that leads there the next time (remote/connections.py).

- Whom a volume is with is a guess by its id at first. Whoever is asked knows better where it is wrong, and says so.
- A call goes to the next worker only if it was certainly not done by the one before.
- A worker that is being started again is waited for: `ABSENT_SECONDS`, and then whatever any node may do is done here.
  What only the log's owner may do waits until then, or as long as the caller does.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

import anyio
import msgspec

from ...volume.calls import (
    CALLS,
    CREATE,
    DECOMMISSION,
    HEAT,
    HELLO,
    JSON,
    MSGPACK,
    PARTS,
    REQUESTS,
    SHARED_LOGS,
    STORE_COSTS,
    TAKE_LOG,
    TIMEOUT_HEADER,
    VOLUME_AT_HEADER,
    WORKER_HEADER,
    Call,
    Done,
    ErrorBody,
    Form,
    Row,
)
from ...volume.decoded_kinds import decodable
from ...volume.errors import BadInput, BudwoodError, Corrupt, Unavailable
from ...volume.ids import VolumeId
from ...volume.lru_cache import LruCache
from ...volume.owner import base_url
from ...volume.protocols import Remote
from ...volume.request_id import current
from ...volume.wire import split_part
from ..access.principal import Principal
from ..metastore.share import Share
from ..telemetry.exposition import TEXT
from ..telemetry.node_metrics import NodeMetrics
from .access_control import METRICS
from .asgi import CALLER, PRINCIPAL, WHOLE, ASGIApp, Message, Receive, Request, Scope, Send
from .asgi import Answer as Whole
from .body import answer, decode_message, read_body, read_pages_body, refusal, wrong_type
from .caller_patience import CallerPatience
from .cancellation import while_connected
from .memory_budget import BodyRoom
from .siblings import ABSENT_SECONDS, Answer, Broken, Question, Siblings, headers_of

_WORKER: Final = WORKER_HEADER.lower().encode()
_VOLUME_AT: Final = VOLUME_AT_HEADER.lower().encode()
_MOVED: Final = b"x-budwood-at"
"""From a worker: another is to be asked."""

SILENT_SECONDS: Final = 0.1
"""For one that was not there a moment ago."""
MOST_SECONDS: Final = 20.0
"""For what nobody else may do."""
WAITED_SECONDS: Final = 0.1
"""From here on they count as waiting for a caller who says how long he does."""
HOPS: Final = 6
MISDIRECTED: Final = 421
REMEMBERED: Final = 65_536
_PASSED_ON: Final = (b"content-type", b"accept")
_TIMEOUT: Final = TIMEOUT_HEADER.lower().encode()

_WHOLE: Final = (HELLO, REQUESTS, SHARED_LOGS, STORE_COSTS, HEAT, DECOMMISSION)
_ALONE: Final[dict[str, Call[Any, Any]]] = {row.name: row for row in _WHOLE}
"""Answered by whoever is asked, for all of them, of whom each is asked at its door (whole_node.py)."""
_OF_VOLUME: Final = {name for name, row in CALLS.items() if "vid" in row.request.__struct_fields__}
_POLLS: Final = {name for name, row in CALLS.items() if "timeout_seconds" in row.request.__struct_fields__}

LogOf: TypeAlias = Callable[[VolumeId], Awaitable[str]]


class _About(msgspec.Struct):
    """What a call is about."""

    vid: bytes = b""
    log: str = ""


class _Call(NamedTuple):
    row: Row[Any, Any]
    request: Request
    receive: Receive
    reply: _Reply
    body: bytes
    key: bytes
    """The volume's id, or the log's name; b"" of calls about names."""
    begun: float
    end: float
    """When its caller gives up, if he has said so."""
    last: float
    """Until when a worker is waited for."""

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Those that say how it is to be answered, and for how long its caller still waits."""
        found = headers_of(self.request.scope["headers"], _PASSED_ON)
        if self.end < math.inf:
            found.append((_TIMEOUT, f"{max(0.0, self.end - anyio.current_time()):.3f}".encode()))
        return found


class _Reply:
    """What whoever has called is told: who took the call is added."""

    __slots__ = ("_mark", "_send", "begun", "misdirected")

    def __init__(self, send: Send, mark: tuple[bytes, bytes]) -> None:
        self._send = send
        self._mark = mark
        self.begun = False
        self.misdirected: list[Message] | None = None
        """Where an answer is held that it isn't done here, while this is no None."""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if self.misdirected is not None and message["status"] == MISDIRECTED:
                self.misdirected.append(message)
                return
            self.begun = True
            message["headers"] = [*message["headers"], self._mark]
        elif self.misdirected:
            self.misdirected.append(message)
            return
        await self._send(message)


class Forwarding:
    """Of worker `share.number`. `app` answers what is this worker's, `node` for it alone; `log_of` tells the log that a
    volume is in; `address` is the one that all of them are known by."""

    def __init__(
        self,
        app: ASGIApp,
        node: Remote,
        siblings: Siblings,
        share: Share,
        log_of: LogOf,
        *,
        address: str,
        body_room: BodyRoom,
        stopping: anyio.Event | None = None,
        metrics: NodeMetrics,
    ) -> None:
        self.app = app
        self.node = node
        self.siblings = siblings
        self.share = share
        self._log_of = log_of
        self._address = base_url(address)
        self._body_room = body_room
        self._stopping = stopping
        self._metrics = metrics
        self._mark = (_WORKER, str(share.number).encode())
        self._known = LruCache[bytes, int](REMEMBERED)
        self._silent: set[int] = set()
        """Workers that did not come to their door when they were asked last."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What somebody outside asks."""
        request = Request(scope, receive)
        row = CALLS.get(request.path[4:]) if request.path.startswith("/v1/") else None
        if (
            row is None
            or row.name in _ALONE
            or request.method != "POST"
            or wrong_type(request, row.name, row.form) is not None
        ):
            await self.app(scope, receive, send)
            return
        reply = _Reply(send, self._mark)
        try:
            await self._answer(row, request, receive, reply)
        except Exception as error:
            if reply.begun:
                # Half an answer is ended by its connection.
                raise
            await refusal(request, error, row.name).send(reply)

    async def entrance(self, question: Question, scope: Scope, receive: Receive, send: Send) -> None:
        """What another worker asks."""
        current.set(question.request_id)
        scope[PRINCIPAL], scope["client"] = question.principal, (question.client_host, 0)
        if question.caller:
            scope[CALLER] = msgspec.msgpack.decode(question.caller, type=decodable(Principal))
        request = Request(scope, receive)
        if question.path == METRICS:
            await Whole((await self.own_metrics()).encode(), TEXT).send(send)
            return
        row = CALLS[question.path[4:]]
        if row.name in _ALONE:
            await self._answer_for_itself(_ALONE[row.name], request, send)
            return
        at = self.share.number if question.sure else await self._whose(row, question.key)
        if at != self.share.number:
            await Whole(b"", JSON, MISDIRECTED, ((_MOVED, str(at).encode()),)).send(send)
        else:
            await self.app(scope, receive, send)

    async def own_metrics(self) -> str:
        """Of this worker alone."""
        return self._metrics.text((await self.node.ask(REQUESTS, Done())).figures)

    async def _answer_for_itself(self, call: Call[Any, Any], request: Request, send: Send) -> None:
        try:
            async with self._body_room(request).hold() as reservation:
                message = decode_message(call.name, MSGPACK, await read_body(request, reservation), call.request)
            told = answer(request, await self.node.ask(call, message))
        except Exception as error:
            told = refusal(request, error, call.name)
        await told.send(send)

    async def _answer(self, row: Row[Any, Any], request: Request, receive: Receive, reply: _Reply) -> None:
        patience = CallerPatience(request)
        async with self._body_room(request).hold(patience_seconds=patience.seconds) as reservation:
            read = read_pages_body if row.form in {Form.SEGMENT_IN, Form.PART_IN} else read_body
            body = await read(request, reservation)
            key, now = _key_of(row, request, body), anyio.current_time()
            end, last = now + patience.seconds, now + min(patience.seconds, MOST_SECONDS)
            call = _Call(row, request, receive, reply, body, key, now, end, last)
            at = self._guessed(row, key)
            if at == self.share.number:
                at = self._known.get(key) or await self._whose(row, key)
            if at != self.share.number:
                await self._route(call, at)
                return
        # Which reserves what its body takes itself.
        at = await self._here(call)
        if at:
            await self._route(call, at, sure=True)

    def _guessed(self, row: Row[Any, Any], key: bytes) -> int:
        if not key:
            return 1
        if row.name not in _OF_VOLUME:
            return self.share.of_log(key.decode())
        return self._known.get(key) or self.share.of_volume(VolumeId(key))

    async def _whose(self, row: Row[Any, Any], key: bytes) -> int:
        """The worker that it is for, as far as this one knows: what can't be read is told by whoever answers."""
        if row is CREATE or row.name not in _OF_VOLUME or not key:
            return self.share.number
        try:
            return self.share.of_log(await self._log_of(VolumeId(key)))
        except BudwoodError:
            return self.share.number

    async def _route(self, call: _Call, at: int, *, sure: bool = False) -> None:
        """To that worker, and on from there until somebody has answered. `sure`: somebody has said that it is this one.
        Raises Unavailable, Broken."""
        absent = 0
        for _ in range(HOPS):
            if at == self.share.number:
                then: int | None = await self._here(call)
            elif at == absent:
                # This one has tried, and may not.
                then = await self._there(call, at, max(0.0, call.last - anyio.current_time()), sure=True)
                if then is None:
                    raise Unavailable("the worker that writes this volume is being started again: try again")
            else:
                seconds = SILENT_SECONDS if at in self._silent else ABSENT_SECONDS
                then = await self._there(call, at, seconds, sure=sure)
                if then is None:
                    absent, then = at, self.share.number
            if not then:
                return
            if then == at:
                raise Unavailable("no worker of this node owns the volume's log just now: try again")
            at, sure = then, True
        raise Unavailable("the volume's log went from worker to worker while it was looked for: try again")

    async def _here(self, call: _Call) -> int:
        """0 once it is answered; else who is to be asked instead."""
        reply, scope = call.reply, {**call.request.scope, WHOLE: call.body}
        if call.end < math.inf and anyio.current_time() > call.begun + WAITED_SECONDS:
            scope["headers"] = call.headers()
        reply.misdirected = []
        await self.app(scope, call.receive, reply)
        held, reply.misdirected = reply.misdirected, None
        if not held:
            return 0
        at = self._elsewhere(call, held[0]["headers"], b"".join(each.get("body", b"") for each in held[1:]))
        if not at:
            for message in held:
                await reply(message)
        return at

    async def _there(self, call: _Call, at: int, seconds: float, *, sure: bool) -> int | None:
        """The same; None if that worker was not there, and has done nothing. Raises Broken, Unavailable."""
        request = call.request
        query = request.scope["query_string"]
        question = Question(
            request.path,
            query,
            call.headers(),
            len(call.body),
            call.key,
            sure,
            request_id=current.get(),
            principal=request.principal,
            caller=b"" if request.caller is None else msgspec.msgpack.encode(request.caller),
            client_host=request.client_host,
        )
        then: list[int | None] = []

        async def asked() -> None:
            try:
                answered = await self.siblings.ask(at, question, call.body, seconds)
                if answered is None:
                    self._silent.add(at)
                    then.append(None)
                    return
                self._silent.discard(at)
                try:
                    then.append(await self._told(call, at, answered))
                finally:
                    answered.close()
            except Broken as broken:
                if broken.begun:
                    raise
                if call.row.changes:
                    words = "the worker that writes this volume ended in the middle of the call: ask what became of it"
                    raise Unavailable(words, determinate=False) from broken
                then.append(None)

        if call.row.name in _POLLS or call.row.form is Form.PARTS_OUT:
            stopping = self._stopping if call.row.name in _POLLS else None
            await while_connected(call.receive, asked, stopping=stopping)
            if not then and stopping is not None and stopping.is_set():
                raise Unavailable("the node is stopping: ask again, or another one")
        else:
            await asked()
        return then[0] if then else 0

    async def _told(self, call: _Call, at: int, answered: Answer) -> int:
        """What another worker answers, to whoever has called; or who is to be asked instead."""
        head, reply = answered.head, call.reply
        if head.status == MISDIRECTED:
            piece = await answered.rest()
            then = self._elsewhere(call, head.headers, piece)
            if then:
                return then
        else:
            # Read before anything is said, so that what breaks off before it can be asked for again.
            piece = await answered.piece()
        headers = [*head.headers, (_VOLUME_AT, str(at).encode())]
        await reply({"type": "http.response.start", "status": head.status, "headers": headers})
        await reply({"type": "http.response.body", "body": piece, "more_body": not answered.whole})
        while not answered.whole:
            piece = await answered.piece()
            await reply({"type": "http.response.body", "body": piece, "more_body": not answered.whole})
        return 0

    def _elsewhere(self, call: _Call, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> int:
        """Who is to be asked instead, by an answer that it isn't done here; 0 where the caller is to be told that."""
        found = dict(headers)
        at = int(found.get(_MOVED, b"0"))
        if not at:
            refused = _refused(found.get(b"content-type", b""), body)
            owner = str(refused.details.get("owner", ""))
            if owner and base_url(owner) == self._address:
                at = self.share.of_log(str(refused.details.get("log", "")))
        if at and call.key:
            self._known.put(call.key, at)
        return at


def _key_of(row: Row[Any, Any], request: Request, body: bytes) -> bytes:
    """Raises BadInput."""
    if row.form is Form.SEGMENT_IN:
        return VolumeId.parse(request.query("vid")).raw
    if row.name not in _OF_VOLUME and row is not TAKE_LOG:
        return b""
    content = request.content
    if content == PARTS:
        try:
            header, _ = split_part("the part", body)
        except Corrupt as error:
            raise BadInput(f"the body of {row.name} is no part: {error.what}") from error
        about = decode_message(row.name, MSGPACK, header, _About)
    else:
        about = decode_message(row.name, content, body, _About)
    return about.log.encode() if row is TAKE_LOG else VolumeId(about.vid).raw


def _refused(content: bytes, body: bytes) -> ErrorBody:
    decode = msgspec.json.decode if content == JSON.encode() else msgspec.msgpack.decode
    return decode(body, type=decodable(ErrorBody))

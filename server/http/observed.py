"""Observed: each request is measured, whatever becomes of it: before anything of it is looked at, until its answer has
ended. It has an id (volume/request_id.py), which stands in the answer and in whatever is logged meanwhile. While the
node is stopping, each answer tells its connection to close, so that who comes again goes elsewhere.

At the level debug a line is logged for each request; one that failed here, and not by its caller's doing, always has a
line, with the reason.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Final

import anyio

from ...volume import tracing
from ...volume.calls import CALLS
from ...volume.request_id import HEADER, RequestIds, current, is_request_id
from ..telemetry.logs import CALLS as CALLS_LOGGER
from ..telemetry.logs import FIELDS
from ..telemetry.node_metrics import OTHER, NodeMetrics
from .asgi import REASON, ASGIApp, Message, Receive, Scope, Send

_CALLS: Final = {f"/v1/{name}": name for name in CALLS}
_HEADER: Final = HEADER.lower().encode()
_TRACEPARENT: Final = tracing.HEADER.encode()
_RETRIED: Final = 503
_MOST_PATH: Final = 200

_logger: Final = logging.getLogger(CALLS_LOGGER)


class Observed:
    """The same application."""

    def __init__(self, app: ASGIApp, metrics: NodeMetrics, stopping: anyio.Event) -> None:
        self._app = app
        self._metrics = metrics
        self._stopping = stopping
        self._ids = RequestIds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0
        request = _given(scope) or self._ids.new()
        current.set(request)
        mark = (_HEADER, request.encode())

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                added = [mark]
                # HTTP/2 has no such header: the server says it there.
                if self._stopping.is_set() and scope["http_version"].startswith("1"):
                    added.append((b"connection", b"close"))
                message["headers"] = [*message["headers"], *added]
            await send(message)

        self._metrics.call_begun()
        begun = perf_counter()
        try:
            if tracing.is_on():
                await self._traced(scope, receive, noting, request)
            else:
                await self._app(scope, receive, noting)
        except BaseException:
            status = 0
            raise
        finally:
            seconds, call = perf_counter() - begun, _CALLS.get(scope["path"], OTHER)
            self._metrics.call_ended(call, status, seconds)
            failed = _is_failure(status)
            if failed or _logger.isEnabledFor(logging.DEBUG):
                _log(scope, call, status, seconds, logging.WARNING if failed else logging.DEBUG)

    async def _traced(self, scope: Scope, receive: Receive, send: Send, request: str) -> None:
        name = f"answer {_CALLS.get(scope['path'], OTHER)}"
        with tracing.served(name, _header(scope, _TRACEPARENT), request=request):
            await self._app(scope, receive, send)


def _is_failure(status: int) -> bool:
    return status >= 500 and status != _RETRIED


def _given(scope: Scope) -> str:
    """The id that the caller gave; "" where there is none that is well-formed."""
    text = _header(scope, _HEADER)
    return text if is_request_id(text) else ""


def _header(scope: Scope, wanted: bytes) -> str:
    for name, value in scope["headers"]:
        if name == wanted:
            text: str = value.decode("latin-1")
            return text
    return ""


def _log(scope: Scope, call: str, status: int, seconds: float, level: int) -> None:
    client = scope.get("client")
    fields = {
        "call": call,
        "method": scope["method"],
        "path": scope["path"][:_MOST_PATH],
        "status": status,
        "seconds": round(seconds, 6),
        "from": str(client[0]) if client else "-",
    }
    # With no form of logs set the fields aren't shown.
    why = f": {scope[REASON]}" if REASON in scope else ""
    words = f"{call} was answered with {status}{why}" if status else f"{call} was cut off"
    _logger.log(level, words, extra={FIELDS: fields})

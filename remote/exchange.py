"""Exchange: one request and its answer, over HTTP/1.1, and what to make of what comes back.

When to ask again, and when not:
- A call that changes nothing is asked again, until a deadline, where the connection broke or a proxy or node said "not
  now" (429, 502, 503, 504). A stream of pages is asked again only while nothing of it has come.
- One that the node did not take in, since too much waited there (Overloaded), is sent again for as long as the call
  has, whatever it changes: at growing intervals, each of a random length, so that those who were turned away together
  don't come back together.
- Any other call that changes something is never repeated here once it was sent. It fails as determinate only where it
  certainly did not happen: the connection was refused, or the node said so. Its caller repeats it by its token.
- A refused connection fails at once: who is offline wants to know, not to wait. One that was reset before it stood was
  waiting for a node, or a worker, that ended in that moment: others may listen there, so the call is made again.
- A call has one deadline, with all its repetitions (deadline.py). The node is told how much of it is left, a little
  less, so that it stops working for a caller who has given up, and can still say so.
- A node that takes a request and answers nothing for a while is asked, over another connection, whether it is alive.
  One that is only slow says so, and is waited for. One that is stopped, or hangs, is told of after `quiet_seconds` and
  `probe_seconds`, which are fewer where its quickest answer shows a quick line; the next call begins with the question.

Whatever answers may not be a node at all: a proxy's login page, an old server, noise. Nothing that isn't an answer of
the protocol is taken for one, and the error names the URL and what to look at.
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import anyio
import msgspec

from ..volume import tracing
from ..volume.calls import (
    JSON,
    MSGPACK,
    PARTS,
    READ_PAGES,
    TIMEOUT_HEADER,
    VOLUME_AT_HEADER,
    WORKER_HEADER,
    A,
    ErrorBody,
    Q,
    Row,
)
from ..volume.decoded_kinds import decodable
from ..volume.envelope import UNREADABLE
from ..volume.errors import BadInput, Corrupt, Overloaded, StoreError, Unauthorized, Unavailable
from ..volume.lru_cache import LruCache
from ..volume.protocols import PagesRead
from ..volume.request_id import HEADER, RequestIds, is_request_id
from ..volume.wire import PagesHead, PartReader, from_wire
from .connections import KEPT_SECONDS, Connection, Connections, NoneFree
from .deadline import seconds_left, within
from .import_httpx import import_httpx
from .page_answers import PagesRequested, Parts, Read, frames_of

if TYPE_CHECKING:
    import httpx

MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
"""No message is longer: what goes on and on is no answer."""
_PASSING: Final = frozenset({429, 502, 503, 504})
_IN_TIME: Final = frozenset({408, 425})
"""Refused for the moment at which it came."""
_LONGEST_PAUSE_SECONDS: Final = 2.0
_CONNECTIONS: Final = 256
_WAITING_CONNECTIONS: Final = 2048
"""For calls that wait for something to happen; they hold up nothing else."""
_KEPT_WAITING: Final = 8
_VOLUMES: Final = 4096
"""Remembered."""
_PIECE_BYTES: Final = 256 * 1024
_SLOWEST_BYTES_A_SECOND: Final = 32 * 1024
_TOLD: Final = 0.95
"""Of what is left."""
_LEAST_SHARE: Final = 1 / 30
"""Of the time for an answer: who was turned away and has less is told why, as a try might not be answered in time, and
nobody would know what became of it."""
_PROBE_TIMES: Final = 20
"""As long as the quickest answer took."""
_SILENT_SHARE: Final = 0.25
"""Of that, for a node that was silent before."""

R = TypeVar("R")
AnyRow: TypeAlias = Row[Any, Any]


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for what; tests bring their own clock."""

    connect_seconds: float = 3.0
    read_seconds: float = 30.0
    """For an answer to begin, and between two pieces of it."""
    quiet_seconds: float = 1.0
    """Without an answer, once the request has been sent, before a node is asked whether it is alive."""
    probe_seconds: float = 5.0
    """For the answer to that, at most."""
    least_probe_seconds: float = 2.0
    """And at least."""
    retry_seconds: float = 4.0
    """How long a harmless call is asked again."""
    first_pause_seconds: float = 0.05
    now: Callable[[], float] = anyio.current_time
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep


class _NotNow(Exception):
    """A failure that a harmless call may simply repeat; any call, where nothing of it was `sent`."""

    def __init__(self, error: StoreError, *, sent: bool = True) -> None:
        super().__init__(str(error))
        self.error = error
        self.sent = sent


class Exchange:
    """The connections to one node. Belongs to one event loop; connects at the first call. `hint` is added to a refusal
    for want of a token."""

    def __init__(self, url: str, token: str, timing: Timing, hint: str = "", *, verify: bool = True) -> None:
        if not (token.isascii() and token.isprintable()):
            raise BadInput("a token has printable ASCII characters only")
        self.url = url.rstrip("/")
        self.token = token
        self.hint = hint
        self.timing = timing
        self._verify = verify
        self._connections: dict[bool, Connections] = {}
        """By whether they are for calls that wait."""
        self._urls: dict[str, httpx.URL] = {}
        """By their paths: parsing one takes as long as sending it."""
        self._workers = LruCache[bytes, str](_VOLUMES)
        """By volume: which of the node's workers it is with."""
        self._ids = RequestIds()
        self._is_silent = False
        """It did not say that it is alive when it was last asked."""
        self._quickest_seconds = math.inf
        """Of all answers."""

    async def ask(
        self,
        row: Row[Q, A],
        body: bytes,
        *,
        content: str = MSGPACK,
        patience_seconds: float = 0.0,
        method: str = "POST",
        path: str = "",
        volume: bytes = b"",
    ) -> A:
        """One call, asked again where that is harmless. Its `path` is the row's unless told otherwise. It goes to the
        worker of the node that the `volume` is with, if that is known."""
        where = path or f"/v1/{row.name}"

        async def ask() -> A:
            async with self._sent(row, where, content, body, patience_seconds, method, volume) as response:
                data = await self._whole(row, response)
            if response.status_code != 200:
                raise self._refusal(row, response, data)
            if _content_type(response) != MSGPACK:
                raise self._foreign(row, response)
            try:
                return msgspec.msgpack.decode(data, type=decodable(row.answer))
            except UNREADABLE as error:
                raise self._garbage(row, f"not a {row.answer.__name__}: {error}") from error

        with within(self.timing.read_seconds + patience_seconds):
            return await self._asked_again(row, ask)

    async def aclose(self) -> None:
        opened, self._connections = self._connections, {}
        for connections in opened.values():
            await connections.aclose()

    async def _asked_again(self, row: AnyRow, ask: Callable[[], Awaitable[R]]) -> R:
        timing = self.timing
        end = timing.now() + timing.retry_seconds
        least = timing.read_seconds * _LEAST_SHARE
        pause = timing.first_pause_seconds
        while True:
            try:
                return await ask()
            except _NotNow as passing:
                seconds = pause * random.random()
                if isinstance(passing.error, Overloaded):
                    over = seconds + least >= seconds_left(timing.read_seconds)
                else:
                    over = (row.changes and passing.sent) or timing.now() + seconds >= end
                if over:
                    raise passing.error from passing.__cause__
                turned_away = passing.error if isinstance(passing.error, Overloaded) else None
            await timing.sleep(seconds)
            if turned_away is not None and seconds_left(timing.read_seconds) <= least:
                raise turned_away
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    @asynccontextmanager
    async def read_pages(
        self, body: bytes, requested: PagesRequested, volume: bytes = b""
    ) -> AsyncGenerator[PagesRead, None]:
        source = f"the answer of {self.url}"
        async with AsyncExitStack() as stack:
            with within(self.timing.read_seconds):
                head, parts = await self._asked_again(READ_PAGES, lambda: self._open_pages(stack, body, volume))
            frames = await stack.enter_async_context(aclosing(frames_of(source, parts, requested)))
            yield Read(source, head, requested, frames)

    async def _open_pages(self, stack: AsyncExitStack, body: bytes, volume: bytes) -> tuple[PagesHead, Parts]:
        """The head, and what follows it; whatever must be closed goes on the stack."""
        async with AsyncExitStack() as attempt:
            sent = self._sent(READ_PAGES, "/v1/read_pages", MSGPACK, body, volume=volume)
            response = await attempt.enter_async_context(sent)
            if response.status_code != 200:
                raise self._refusal(READ_PAGES, response, await self._whole(READ_PAGES, response))
            if _content_type(response) != PARTS:
                raise self._foreign(READ_PAGES, response)
            parts = await attempt.enter_async_context(aclosing(self._parts(response)))
            first = await anext(parts, None)
            if first is None or not isinstance(first[0], PagesHead):
                raise Corrupt(f"the answer of {self.url}", "it does not begin with a head")
            stack.push_async_callback(attempt.pop_all().aclose)
            return first[0], parts

    async def _parts(self, response: httpx.Response) -> Parts:
        import httpx

        reader = PartReader(f"the answer of {self.url}")
        try:
            async with aclosing(_chunks(response)) as chunks:
                async for chunk in chunks:
                    for part in reader.feed(chunk):
                        yield part
        except httpx.HTTPError as error:
            failure = Unavailable(f"{self.url} broke off in the middle of an answer ({_words(error)}): read again")
            # Before the head nothing was handed on, so the call may be made again.
            raise (failure if reader.begun else _NotNow(failure)) from error
        reader.finish()

    @asynccontextmanager
    async def _sent(
        self,
        row: AnyRow,
        path: str,
        content: str,
        body: bytes,
        patience_seconds: float = 0.0,
        method: str = "POST",
        volume: bytes = b"",
    ) -> AsyncGenerator[httpx.Response, None]:
        """As `_exchanged`, and traced."""
        with tracing.request(f"call {row.name}", url=self.url) as traceparent:
            sent = self._exchanged(row, path, content, body, patience_seconds, method, volume, traceparent)
            async with sent as response:
                yield response

    @asynccontextmanager
    async def _exchanged(
        self,
        row: AnyRow,
        path: str,
        content: str,
        body: bytes,
        patience_seconds: float = 0.0,
        method: str = "POST",
        volume: bytes = b"",
        traceparent: str = "",
    ) -> AsyncGenerator[httpx.Response, None]:
        """The response, its body unread. What goes wrong on the way, reading it included, comes as an error of ours."""
        # Loading it takes as long as a query: only once there is something to send.
        import_httpx()
        import httpx

        timing, changes = self.timing, row.changes
        left = seconds_left(timing.read_seconds + patience_seconds)
        if not left:
            raise Unavailable(f"{self.url} was not asked any more: the call's time was over")
        timeout = httpx.Timeout(timing.read_seconds, connect=timing.connect_seconds)
        timeout.read = left
        connections, request_id = self._opened(waits=patience_seconds > 0), self._ids.new()
        try:
            worker = self._workers.get(volume) or ""
            connection = await connections.take(min(timing.read_seconds, left), worker)
        except NoneFree as error:
            words = f"{connections.most:,} calls of this process to {self.url} are under way, and none has ended"
            raise Unavailable(f"{words}: try again later") from error
        was_given_up, is_sound = True, False
        try:
            headers = {"content-type": content, TIMEOUT_HEADER: f"{left * _TOLD:.3f}", HEADER: request_id}
            if traceparent:
                headers[tracing.HEADER] = traceparent
            if len(body) > _PIECE_BYTES:
                headers["content-length"] = str(len(body))
            client = connection.client
            request = client.build_request(
                method, self._url_of(path), content=_content(body), headers=headers, timeout=timeout
            )
            if patience_seconds:
                response = await client.send(request, stream=True)
            else:
                response = await self._answered(client, request, len(body), changes=changes)
            self._note(response, connections, connection, volume)
            try:
                yield response
                was_given_up = False
            except Exception:
                was_given_up = False
                raise
            finally:
                await response.aclose()
                is_sound = not was_given_up
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError) as error:
            raise BadInput(f"{self.url} can't be asked: {_words(error)}") from error
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            from .connect_failure import was_reset, words_of

            said = words_of(error) or _words(error)
            failure = Unavailable(f"can't reach {self.url} ({said}): is a node listening there?")
            raise (_NotNow(failure, sent=False) if was_reset(error) else failure) from error
        except httpx.HTTPError as error:
            words = f"no answer from {self.url} ({_words(error)}; request {request_id})"
            words = f"{words}: try again, and check that a Budwood node listens there"
            raise _NotNow(Unavailable(words, determinate=not changes)) from error
        finally:
            await connections.give_back(connection, is_sound=is_sound)

    def _note(self, response: httpx.Response, connections: Connections, connection: Connection, volume: bytes) -> None:
        """Who of several workers has answered, if it says so."""
        worker = response.headers.get(WORKER_HEADER)
        if worker is None:
            return
        connections.leads(connection, worker)
        if volume:
            self._workers.put(volume, response.headers.get(VOLUME_AT_HEADER, worker))

    def _url_of(self, path: str) -> httpx.URL:
        import httpx

        url = self._urls.get(path)
        if url is None:
            url = httpx.URL(self.url + path)
            if "?" not in path:
                self._urls[path] = url
        return url

    async def _answered(
        self, client: httpx.AsyncClient, request: httpx.Request, size: int, *, changes: bool
    ) -> httpx.Response:
        """What comes back, unless the node is found to be silent meanwhile."""
        response: httpx.Response | None = None
        failure: Exception | None = None
        silent = False

        async def watch() -> None:
            nonlocal silent
            # A slow line is busy with the body for a while, and a node that was silent is asked at once.
            await anyio.sleep(0 if self._is_silent else self.timing.quiet_seconds + size / _SLOWEST_BYTES_A_SECOND)
            silent = self._is_silent = not await self._is_alive()
            if silent:
                tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            began = anyio.current_time()
            try:
                response = await client.send(request, stream=True)
                self._is_silent = False
                self._quickest_seconds = min(self._quickest_seconds, anyio.current_time() - began)
            except Exception as error:
                failure = error
            tasks.cancel_scope.cancel()
        if response is not None:
            return response
        if failure is not None:
            raise failure
        assert silent
        words = f"{self.url} takes requests and answers nothing, not even whether it is alive: it was stopped, or hangs"
        raise Unavailable(f"{words}; try again when it goes on", determinate=not changes)

    async def _is_alive(self) -> bool:
        """Whatever it answers."""
        import httpx

        timing, connections = self.timing, self._opened(waits=True)
        seconds = min(timing.probe_seconds, max(timing.least_probe_seconds, _PROBE_TIMES * self._quickest_seconds))
        if self._is_silent:
            # It was waited for already, and another may own the log by now.
            seconds *= _SILENT_SHARE
        try:
            connection = await connections.take(seconds)
        except NoneFree:
            return False
        answered = False
        try:
            await connection.client.get(self._url_of("/healthz"), timeout=httpx.Timeout(seconds))
            answered = True
        except httpx.HTTPError:
            pass
        finally:
            await connections.give_back(connection, is_sound=answered)
        return answered

    def _opened(self, *, waits: bool) -> Connections:
        connections = self._connections.get(waits)
        if connections is None:
            most = _WAITING_CONNECTIONS if waits else _CONNECTIONS
            kept = _KEPT_WAITING if waits else most
            connections = self._connections[waits] = Connections(self._connector(), most=most, kept=kept)
        return connections

    def _connector(self) -> Callable[[], httpx.AsyncClient]:
        import httpx

        headers = {"accept": f"{MSGPACK}, {PARTS}", "accept-encoding": "identity", "user-agent": "budwood"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        limits = httpx.Limits(max_connections=1, keepalive_expiry=KEPT_SECONDS)
        # Reading the machine's certificates takes longer than many a call: only where they are needed, and once.
        secure = httpx.create_ssl_context(self._verify and self.url.startswith("https:"))
        return lambda: httpx.AsyncClient(headers=headers, limits=limits, verify=secure, follow_redirects=False)

    async def _whole(self, row: AnyRow, response: httpx.Response) -> bytes:
        held: list[bytes] = []
        size = 0
        async with aclosing(_chunks(response)) as chunks:
            async for chunk in chunks:
                held.append(chunk)
                size += len(chunk)
                if size > MAX_ANSWER_BYTES:
                    raise self._garbage(row, "it does not end")
        return b"".join(held)

    def _refusal(self, row: AnyRow, response: httpx.Response, data: bytes) -> Exception:
        """The error that an answer other than 200 tells."""
        content = _content_type(response)
        try:
            if content == MSGPACK:
                body = msgspec.msgpack.decode(data, type=decodable(ErrorBody))
            elif content == JSON:
                body = msgspec.json.decode(data, type=decodable(ErrorBody))
            else:
                return self._foreign(row, response)
        except UNREADABLE:
            return self._foreign(row, response)
        error = from_wire(body.code, _with_request(body, response), body.details)
        if isinstance(error, Unauthorized) and self.hint:
            return Unauthorized(f"{error}; {self.hint}")
        passing = response.status_code in _PASSING and isinstance(error, Unavailable)
        return _NotNow(error) if passing and isinstance(error, Unavailable) else error

    def _foreign(self, row: AnyRow, response: httpx.Response) -> Exception:
        """It is no node that answered, or something on the way did."""
        status = response.status_code
        what = f"{self.url} answers {status} with {_content_type(response) or 'no content type'}, not as a Budwood node"
        # A refusal by whoever it is was no commit; anything else may have passed one on.
        refused = 300 <= status < 500
        way_out = "check the address, and any proxy on the way"
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            way_out = "a proxy on the way must let bodies of 64 MiB pass"
        error = Unavailable(
            f"{what}: {way_out}",
            determinate=refused or not row.changes,
            hopeless=refused and status not in _PASSING | _IN_TIME,
        )
        return _NotNow(error) if status in _PASSING else error

    def _garbage(self, row: AnyRow, what: str) -> StoreError:
        if row.changes:
            return Unavailable(f"the answer of {self.url} can't be understood ({what})", determinate=False)
        return Corrupt(f"the answer of {self.url}", what)


def _chunks(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    # A generator, though it is declared an iterator: whoever leaves it early must close it.
    return cast("AsyncGenerator[bytes, None]", response.aiter_raw())


def _with_request(told: ErrorBody, response: httpx.Response) -> str:
    """What went wrong there is found in the node's log by this. Where it was only full, nothing went wrong."""
    request = response.headers.get(HEADER, "")
    failed = response.status_code >= 500 and told.code != Overloaded.__name__ and is_request_id(request)
    return f"{told.message} (request {request})" if failed else told.message


def _content_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _content(body: bytes) -> bytes | AsyncIterator[bytes] | None:
    """A large body goes out in pieces: sent whole, it would be copied whole into the socket's buffer."""
    if len(body) <= _PIECE_BYTES:
        return body or None

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), _PIECE_BYTES):
            yield body[at : at + _PIECE_BYTES]

    return pieces()


def _words(error: Exception) -> str:
    """One line, also for errors that say nothing themselves."""
    return " ".join(str(error).split())[:200] or type(error).__name__

"""Siblings: how the workers of one node ask each other (docs/design/0101).

    doors = Doors(4)                       # the supervisor, before it starts any
    siblings = Siblings(doors, number)     # each of them
    answer = await siblings.ask(2, Question("/v1/wait", …), body)

A worker that wants to ask another makes a pair of sockets, and passes one of them through the other's door: a socket
that the supervisor made, and holds. So there is no path, no port and no secret: nobody else gets in, nothing is left
behind, and who is just being started again finds those at its door who came meanwhile. It says that it is there before
it is sent anything. Whoever was never answered so has certainly asked for nothing.

A connection carries one question at a time, as HTTP/1.1 does: then it is the sockets that hold back who sends too fast,
and whoever closes one has gone away.

    question   length, u32 · Question as MessagePack · the body
    answer     length, u32 · Head as MessagePack, then pieces: length, u32, whose top bit says that it is the last
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

import anyio
import msgspec

from ...volume.decoded_kinds import decodable
from ...volume.errors import Unavailable
from .asgi import Message, Receive, Scope, Send

HERE: Final = b"!"
"""What a worker says that has come to the door."""
ABSENT_SECONDS: Final = 3.0
"""A worker that is being started again is there in less."""
KEPT: Final = 64
"""Connections to one sibling that stay open while nobody uses them."""
PIECE_BYTES: Final = 256 * 1024
_LAST: Final = 1 << 31
_FULL_SECONDS: Final = 0.02
"""Between two looks at a door that has too many before it."""

_logger: Final = logging.getLogger(__name__)


class Question(msgspec.Struct, frozen=True, array_like=True):
    """The head of one."""

    path: str
    query: bytes = b""
    headers: list[tuple[bytes, bytes]] = []
    body_bytes: int = 0
    key: bytes = b""
    """The volume or log that it is about, if it is about one."""
    sure: bool = False
    """Whether it is to be answered by whoever is asked, wherever the volume is said to be."""
    request_id: str = ""
    principal: str = ""
    client_host: str = ""
    """Who asks from outside, and from where."""
    caller: bytes = b""
    """What he may do, where callers have keys; as MessagePack."""


class Head(msgspec.Struct, frozen=True, array_like=True):
    """Of an answer."""

    status: int
    headers: list[tuple[bytes, bytes]]


Serves: TypeAlias = Callable[[Question, Scope, Receive, Send], Awaitable[None]]


class Broken(Exception):
    """The sibling was there, and is gone. `begun`: some of its answer was read."""

    def __init__(self, *, begun: bool = False) -> None:
        super().__init__("a worker of this node ended in the middle of a call")
        self.begun = begun


class Doors:
    """One for each worker. Made before the first is started, so that all of them have all."""

    def __init__(self, count: int) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(count)]
        for each in pairs:
            for end in each:
                end.setblocking(False)
        self._inside = [inside for inside, _ in pairs]
        self._outside = [outside for _, outside in pairs]

    def inside(self, number: int) -> socket.socket:
        """Where worker `number` finds who wants to ask it."""
        return self._inside[number - 1]

    def outside(self, number: int) -> socket.socket:
        return self._outside[number - 1]

    def close(self) -> None:
        for end in (*self._inside, *self._outside):
            end.close()


class _Line(NamedTuple):
    """A connection to a sibling."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def stands(self) -> bool:
        return not (self.reader.at_eof() or self.writer.is_closing())


class Answer:
    """One that has begun: its pieces are read once, to the end, or it is closed."""

    def __init__(self, head: Head, line: _Line, give_back: Callable[[], None]) -> None:
        self.head = head
        self._line = line
        self._give_back = give_back
        self._begun = False
        self.whole = False

    async def piece(self) -> bytes:
        """The next; `whole` is true once it was the last. Raises Broken."""
        try:
            length = int.from_bytes(await self._line.reader.readexactly(4), "big")
            data = await self._line.reader.readexactly(length & ~_LAST)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise Broken(begun=self._begun) from error
        self._begun = True
        if length & _LAST:
            self.whole = True
            self._give_back()
        return data

    async def rest(self) -> bytes:
        pieces = list[bytes]()
        while not self.whole:
            pieces.append(await self.piece())
        return b"".join(pieces)

    def close(self) -> None:
        """Harmless once it is whole. The sibling stops working for it."""
        if not self.whole:
            self._line.writer.close()


class Siblings:
    """Of worker `number`. Belongs to one event loop."""

    def __init__(self, doors: Doors, number: int) -> None:
        self._doors = doors
        self._number = number
        self._idle: dict[int, deque[_Line]] = {}

    async def ask(self, number: int, question: Question, body: bytes, patience_seconds: float) -> Answer | None:
        """Its answer, whose head has come; None if it did not come to its door in time, and was asked nothing. Raises
        Broken, Unavailable."""
        line = self._kept(number)
        if line is None:
            with anyio.move_on_after(patience_seconds):
                line = await self._connected(number)
            if line is None:
                return None
        try:
            await _send(line.writer, question, body)
            head = msgspec.msgpack.decode(await _block(line.reader), type=decodable(Head))
        except (asyncio.IncompleteReadError, OSError) as error:
            line.writer.close()
            raise Broken from error
        except BaseException:
            line.writer.close()
            raise
        return Answer(head, line, lambda: self._keep(number, line))

    async def serve(self, app: Serves) -> None:
        """Answer those who come to this worker's door, until cancelled."""
        door, loop = self._doors.inside(self._number), asyncio.get_running_loop()
        async with anyio.create_task_group() as tasks:

            def opened() -> None:
                with suppress(BlockingIOError):
                    _, found, _, _ = socket.recv_fds(door, 1, 1)
                    for number in found:
                        tasks.start_soon(_serve_line, socket.socket(fileno=number), app)

            loop.add_reader(door, opened)
            try:
                await anyio.sleep_forever()
            finally:
                loop.remove_reader(door)

    def close(self) -> None:
        for lines in self._idle.values():
            for line in lines:
                line.writer.close()
        self._idle.clear()

    def _kept(self, number: int) -> _Line | None:
        idle = self._idle.get(number)
        while idle:
            line = idle.pop()
            if line.stands:
                return line
            line.writer.close()
        return None

    def _keep(self, number: int, line: _Line) -> None:
        idle = self._idle.setdefault(number, deque())
        if len(idle) < KEPT:
            idle.append(line)
        else:
            line.writer.close()

    async def _connected(self, number: int) -> _Line:
        """Once it has come to its door."""
        while True:
            line = await self._passed(number)
            try:
                if await line.reader.readexactly(1) == HERE:
                    return line
            except (asyncio.IncompleteReadError, OSError):
                # It was about to come, and ended.
                line.writer.close()
            except BaseException:
                line.writer.close()
                raise
            await anyio.sleep(_FULL_SECONDS)

    async def _passed(self, number: int) -> _Line:
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise Unavailable(f"this node can't ask another of its workers ({error}): try again") from error
        with theirs:
            ours.setblocking(False)
            try:
                # Nobody tells when there is room.
                while not _pass(self._doors.outside(number), theirs):  # noqa: ASYNC110
                    await anyio.sleep(_FULL_SECONDS)
                return _Line(*await asyncio.open_unix_connection(sock=ours, limit=PIECE_BYTES))
            except BaseException:
                ours.close()
                raise


def _pass(door: socket.socket, end: socket.socket) -> bool:
    """Whether there was room before that door."""
    try:
        socket.send_fds(door, [HERE], [end.fileno()])
    except (BlockingIOError, OSError):
        return False
    return True


async def _send(writer: asyncio.StreamWriter, question: Question, body: bytes) -> None:
    head = msgspec.msgpack.encode(question)
    writer.write(len(head).to_bytes(4, "big") + head + body[:PIECE_BYTES])
    for at in range(PIECE_BYTES, len(body), PIECE_BYTES):
        await writer.drain()
        writer.write(body[at : at + PIECE_BYTES])


async def _block(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def _serve_line(end: socket.socket, app: Serves) -> None:
    """One question after the other, until whoever asks goes away."""
    end.setblocking(False)
    try:
        reader, writer = await asyncio.open_unix_connection(sock=end, limit=PIECE_BYTES)
    except OSError:
        end.close()
        return
    try:
        writer.write(HERE)
        while True:
            question = msgspec.msgpack.decode(await _block(reader), type=decodable(Question))
            answering = _Answering(question, reader, writer)
            await app(question, answering.scope, answering.receive, answering.send)
            if not answering.whole:
                break
    except (asyncio.IncompleteReadError, OSError):
        # Whoever asked has gone away.
        pass
    except Exception:
        # Half an answer: whoever asked is told by the connection's end.
        _logger.info("an answer to another worker was cut off", exc_info=True)
    finally:
        writer.close()


class _Answering:
    """One question, as the application sees it."""

    def __init__(self, question: Question, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.scope: Scope = {
            "type": "http",
            "method": "POST",
            "path": question.path,
            "query_string": question.query,
            "headers": [*question.headers, (b"content-length", str(question.body_bytes).encode())],
        }
        self.whole = False
        self._left = question.body_bytes
        self._begun = False
        self._reader = reader
        self._writer = writer
        self._head = b""

    async def receive(self) -> Message:
        """A piece of the body; behind its end, that whoever asked has gone away, once he has."""
        if self._begun and not self._left:
            # He says nothing more until he has his answer.
            with suppress(OSError):
                await self._reader.read(1)
            return {"type": "http.disconnect"}
        self._begun = True
        data = await self._reader.read(min(self._left, PIECE_BYTES)) if self._left else b""
        if self._left and not data:
            return {"type": "http.disconnect"}
        self._left -= len(data)
        return {"type": "http.request", "body": data, "more_body": self._left > 0}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            head = msgspec.msgpack.encode(Head(message["status"], message["headers"]))
            self._head = len(head).to_bytes(4, "big") + head
            return
        data, more = message.get("body", b""), message.get("more_body", False)
        length = len(data) if more else len(data) | _LAST
        # What is left of the question nobody reads: then the connection can't be used again.
        self.whole = not more and not self._left
        self._writer.write(b"".join((self._head, length.to_bytes(4, "big"), data)))
        self._head = b""
        await self._writer.drain()


def headers_of(found: Iterable[tuple[bytes, bytes]], wanted: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Those of these names, of each the first."""
    first = dict(reversed(list(found)))
    return [(name, first[name]) for name in wanted if name in first]

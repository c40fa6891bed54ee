"""Control: the mount's Unix socket, by which other processes of its user ask it things; mount_client.py does.

A request is one line of JSON, {"verb": "push", "arguments": ["shop"]}; so is its answer: {"ok": …}, or
{"error": {"code", "message", "details"}} as volume.wire tells errors. A connection may send several, which are answered
in turn; several connections are served at once.

- Nothing that a caller sends, and no error of a verb, ends the mount. What no table knows is logged with its traceback.
- A verb that has begun goes on when its caller has gone; its answer is dropped.
- Only the mount's own user may connect: the folder is private, and so is the socket before anyone can call.
- The caller of `serve` holds the home's lock (`mount_lock.py`), so a socket that is there was left by a process that
  died.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import trio

from ...sync.lmdb_errors import os_error
from ...volume.decoded_kinds import decodable
from ...volume.errors import BadInput, BudwoodError, StoreError, Unavailable
from ...volume.wire import to_wire
from .mount_client import address

Answer: TypeAlias = Callable[[str, list[str]], Awaitable[Any]]
"""Does a verb with its arguments; what it returns must be fit for JSON."""

LONGEST_REQUEST: Final = 1 << 16
_BACKLOG: Final = 128
_NO_SOCKETS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
_log: Final = logging.getLogger(__name__)


class _Request(msgspec.Struct):
    verb: str
    arguments: list[str] = []


async def serve(path: Path, answer: Answer, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Answer at `path` until cancelled; started once callers are heard. Leaves no socket behind."""
    listener = _listen(path)
    try:
        async with trio.open_nursery() as nursery:
            converse = partial(_converse, answer=answer)
            await nursery.start(trio.serve_listeners, converse, [trio.SocketListener(listener)])
            task_status.started()
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _listen(path: Path) -> trio.socket.SocketType:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with address(path) as bound:
            listener.bind(bound)
            # Until listen() every call is refused, so nobody gets in before this.
            os.chmod(bound, 0o600)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        what = f"the socket {path}, at which a mount is asked, can't be made"
        if error.errno in _NO_SOCKETS:
            raise Unavailable(f"{what} on this file system: take a home on another one, with --home") from error
        raise os_error(error, what) from error
    except BaseException:
        listener.close()
        raise
    return trio.socket.from_stdlib_socket(listener)


async def _converse(stream: trio.SocketStream, answer: Answer) -> None:
    # A caller that has gone is none of the mount's troubles.
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        buffer = bytearray()
        async with stream:
            while chunk := await stream.receive_some():
                buffer += chunk
                while (end := buffer.find(b"\n")) >= 0:
                    request = bytes(buffer[:end])
                    del buffer[: end + 1]
                    await stream.send_all(_line(await _respond_to_line(request, answer)))
                if len(buffer) > LONGEST_REQUEST:
                    await stream.send_all(_line(_failed(BadInput("a request has at most 65536 bytes"))))
                    return


async def _respond_to_line(line: bytes, answer: Answer) -> dict[str, Any]:
    try:
        request = msgspec.json.decode(line, type=decodable(_Request))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return _failed(BadInput(f'a request is {{"verb": "…", "arguments": ["…"]}}: {error}'))
    return await respond(answer, request.verb, request.arguments)


async def respond(answer: Answer, verb: str, arguments: list[str]) -> dict[str, Any]:
    """What the verb came to, fit for JSON, whatever it was."""
    try:
        result = await answer(verb, arguments)
        msgspec.json.encode(result)
    except BudwoodError as error:
        return _failed(error)
    except Exception as error:
        _log.exception("the verb %r failed", verb)
        what = f"{verb!r} failed unexpectedly: {type(error).__name__}: {error} (the mount's log has more)"
        return _failed(StoreError(what, determinate=False))
    return {"ok": result}


def _failed(error: BudwoodError) -> dict[str, Any]:
    code, message, details = to_wire(error)
    return {"error": {"code": code, "message": message, "details": details}}


def _line(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode(response) + b"\n"

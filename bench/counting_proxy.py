"""A node on a store with latency, and a proxy before it that counts what crosses the wire."""

from __future__ import annotations

import logging
import math
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import anyio

from budwood.server.http.run_node import serve
from budwood.server.node import Node
from budwood.server.store.directory_store import FileStore
from budwood.testing.stores import RiggedStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from budwood.volume.protocols import Remote

_REQUEST_LINE = b" HTTP/1.1\r\n"


@contextmanager
def node_on(
    folder: Path, *, latency_seconds: float = 0.0, link_bytes_per_second: float = math.inf
) -> Generator[tuple[str, RiggedStore]]:
    """A real node over HTTP in a thread of its own: its URL, and its store, each of whose requests takes that long, and
    all of whose bytes share that link."""
    ready: SimpleQueue[tuple[str, RiggedStore] | BaseException] = SimpleQueue()
    stop: list[Callable[[], None]] = []

    async def run() -> None:
        store = RiggedStore(await FileStore.open(str(folder)), latency=0.0)

        @asynccontextmanager
        async def open_node(address: str) -> AsyncGenerator[Remote]:
            async with Node.open(store, name="main", address=address) as node:
                yield node

        told = anyio.Event()
        token = anyio.lowlevel.current_token()
        stop.append(lambda: anyio.from_thread.run_sync(told.set, token=token))

        def on_ready(url: str, _: Remote) -> None:
            store.latency = latency_seconds
            store.link_bytes_per_second = link_bytes_per_second
            ready.put((url, store))

        await serve(open_node, port=0, on_ready=on_ready, stop=told)

    def main() -> None:
        try:
            anyio.run(run)
        except BaseException as error:
            ready.put(error)

    thread = threading.Thread(target=main)
    thread.start()
    found = ready.get()
    if isinstance(found, BaseException):
        raise found
    try:
        yield found
    finally:
        stop[0]()
        thread.join()


class Counter(logging.Handler):
    """Counts the HTTP requests that this process sends (httpx logs each), and the bytes that a proxy passes on.

    `passed` counts requests as the proxy sees them, whichever process sent them.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.requests = 0
        self.bytes = 0
        self.passed = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.requests += record.getMessage().startswith("HTTP Request")

    def reset(self) -> None:
        self.requests = self.bytes = self.passed = 0


@contextmanager
def proxy_to(url: str) -> Generator[tuple[str, Counter]]:
    """A plain TCP proxy before the node: its URL, and what crossed it, both ways together."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    counter = Counter()
    lock = threading.Lock()
    logger = logging.getLogger("httpx")
    logger.setLevel(logging.INFO)
    logger.addHandler(counter)
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, target: socket.socket, *, asks: bool) -> None:
        # Either side hangs up: so does the other.
        with suppress(OSError):
            tail = b""
            while chunk := source.recv(1 << 16):
                with lock:
                    counter.bytes += len(chunk)
                    if asks:
                        # Of a line that comes in two pieces the first is looked at again; what was counted is not.
                        counter.passed += (tail + chunk).count(_REQUEST_LINE)
                        tail = (tail + chunk)[-len(_REQUEST_LINE) + 1 :]
                target.sendall(chunk)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            node = socket.create_connection((host, int(port)))
            for ends, asks in (((client, node), True), ((node, client), False)):
                threading.Thread(target=pump, args=ends, kwargs={"asks": asks}, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", counter
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        logger.removeHandler(counter)

"""A remote that answers at once, that says "not now" to everything, that talks nonsense, or that promises what it
doesn't have: autosync asks it ever more rarely, and goes on as soon as it makes sense."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec
import pytest

from budwood.sync import autosync_pace
from budwood.sync.edge import open as open_edge
from budwood.volume.calls import MSGPACK, Head
from budwood.volume.protocols import Durability

from ..integration.cli import serving
from ..waits import wait_until

FIRST_PAUSE = 0.02
MOST_OF_ONE_CALL = 60
"""Requests. One that is told "not now" asks again for four seconds, at growing intervals."""


class Answer(NamedTuple):
    status: int
    body: bytes


NOT_NOW = Answer(503, b"busy")
NOTHING_NEW = Answer(200, msgspec.msgpack.encode(Head(lsn=1)))
PROMISE = Answer(200, msgspec.msgpack.encode(Head(lsn=99)))
NONSENSE = Answer(200, b"\xc1 what?")


@dataclass
class Hostile:
    """What it says to a wait, and to everything else."""

    wait: Answer
    other: Answer
    times: list[float] = field(default_factory=list[float])
    """Of the requests."""

    def serve(self, port: int) -> ThreadingHTTPServer:
        hostile = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                hostile.times.append(time.monotonic())
                self.rfile.read(int(self.headers.get("content-length", 0)))
                answer = hostile.wait if self.path == "/v1/wait" else hostile.other
                self.send_response(answer.status)
                self.send_header("connection", "close")
                self.send_header("content-type", MSGPACK)
                self.send_header("content-length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """To nobody."""

        return ThreadingHTTPServer(("127.0.0.1", port), Handler)


@contextmanager
def standing(hostile: Hostile, port: int) -> Generator[None]:
    with hostile.serve(port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, Path]:
    """With a volume that stands at LSN 1 of a node; the node's address, at which there is none now; its store."""
    folder = tmp_path_factory.mktemp("storms")
    with serving(folder / "store") as url, open_edge(home=folder / "home", remote=url) as edge:
        edge.create("v")
        writer = edge.volume("v").writer(page_size=512)
        writer.write(1, b"1" * 512)
        made = writer.commit(Durability.ORDERED)
        assert made is not None
        made.close()
        assert edge.volume("v").push() == "1"
    return folder / "home", url, folder / "store"


@pytest.mark.parametrize(
    ("wait", "other", "words"),
    [
        (NOTHING_NEW, NOT_NOW, "answers at once"),
        (PROMISE, NONSENSE, "not a Changes"),
        (NONSENSE, NONSENSE, "not a Head"),
        (NOT_NOW, NOT_NOW, "503"),
    ],
)
def test_it_is_asked_ever_more_rarely(
    home: tuple[Path, str, Path], monkeypatch: pytest.MonkeyPatch, wait: Answer, other: Answer, words: str
) -> None:
    monkeypatch.setattr(autosync_pace, "FIRST_PAUSE_SECONDS", FIRST_PAUSE)
    folder, url, _ = home
    hostile, rounds = Hostile(wait, other), 7
    with standing(hostile, urlsplit(url).port or 0), open_edge(home=folder, remote=url) as edge:
        with edge.autosync() as syncing:
            wait_until(lambda: syncing.errors())
            assert words in syncing.errors()["v"]
            if wait is NOT_NOW:
                assert len(hostile.times) <= MOST_OF_ONE_CALL
                return
            each = 2 if wait is PROMISE else 1
            wait_until(lambda: len(hostile.times) >= rounds * each)
        taken = hostile.times[rounds * each - 1] - hostile.times[0]
        assert taken >= FIRST_PAUSE / 2 * (2 ** (rounds - 1) - 1), "each twice as long, half of it by chance"


def test_once_it_makes_sense_it_is_synced_again(home: tuple[Path, str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LONGEST_OFFLINE_SECONDS", "LONGEST_PAUSE_SECONDS"):
        monkeypatch.setattr(autosync_pace, name, 0.5)
    folder, url, store = home
    with open_edge(home=folder, remote=url) as edge, edge.autosync() as syncing:
        with standing(Hostile(NONSENSE, NONSENSE), urlsplit(url).port or 0):
            wait_until(lambda: syncing.errors())
        with serving(store, listen=url.removeprefix("http://")):
            wait_until(lambda: not syncing.errors())

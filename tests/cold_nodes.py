"""A node for readers that hold nothing: its calls are counted, and it can be made to forget some."""

from __future__ import annotations

import queue
import random
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

import budwood
from budwood.remote.http import HttpRemote
from budwood.server.http.app import App
from budwood.server.store.directory_store import FileStore
from budwood.volume.calls import Call

from .served import serving
from .waits import LIMIT_SECONDS

ROWS = 20_000


class Heard:
    """The calls that this process makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: Counter[str] = Counter()
        ask, read_pages = HttpRemote.ask, HttpRemote.read_pages

        async def noted(remote: HttpRemote, call: Call[Any, Any], request: Any) -> Any:
            self.calls[call.name] += 1
            return await ask(remote, call, request)

        def reading(remote: HttpRemote, *arguments: Any, **options: Any) -> Any:
            self.calls["read_pages"] += 1
            return read_pages(remote, *arguments, **options)

        monkeypatch.setattr(HttpRemote, "ask", noted)
        monkeypatch.setattr(HttpRemote, "read_pages", reading)

    def taken(self) -> Counter[str]:
        calls, self.calls = self.calls, Counter[str]()
        # Those of leases are made by a thread of their own, when they are due.
        return Counter({name: count for name, count in calls.items() if name not in {"pin", "renew", "unpin"}})


@contextmanager
def node_in_a_thread(folder: Path) -> Generator[str]:
    ready: queue.Queue[str] = queue.Queue()
    ended = threading.Event()

    async def main() -> None:
        async with serving(await FileStore.open(str(folder))) as address:
            ready.put(address)
            await anyio.to_thread.run_sync(ended.wait)

    thread = threading.Thread(target=anyio.run, args=(main,))
    thread.start()
    try:
        yield ready.get(timeout=LIMIT_SECONDS)
    finally:
        ended.set()
        thread.join(LIMIT_SECONDS)


def fill(home: Path, url: str) -> None:
    """The volume `deep`, whose B-tree has three levels and whose rows hardly pack."""
    noise = random.Random(1)
    with closing(budwood.connect("deep", home=home, remote=url)) as db:
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)")
        with db:
            db.executemany("INSERT INTO t VALUES(?, ?)", ((n, noise.randbytes(400)) for n in range(ROWS)))
        db.execute("PRAGMA budwood_push").fetchall()


def forget(monkeypatch: pytest.MonkeyPatch, call: Call[Any, Any]) -> None:
    """The node answers as one does that has nothing at that path."""
    route = App.__call__

    async def older(app: App, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == f"/v1/{call.name}":
            scope = scope | {"path": "/v1/unheard_of"}
        await route(app, scope, receive, send)

    monkeypatch.setattr(App, "__call__", older)

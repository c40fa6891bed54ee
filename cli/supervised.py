"""Supervised: `serve --workers`: several processes, one node, one address (docs/design/0101).

The address is taken before any worker is started, so that a second server at it fails at once. All that a worker needs
is loaded before it is forked off.
"""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Final

import typer

from ..server.http.listeners import Listeners
from ..server.http.run_node import address_of
from ..server.http.siblings import Doors
from ..server.http.supervisor import Supervisor
from ..server.http.workers import Worker
from ..server.metastore.share import Share
from .exit_status import report

_LATE: Final = ("httpx", "uvloop", "granian.asgi")
"""What would be loaded only once it is needed, by each worker again."""


def serve_workers(
    node: str,
    count: int,
    listen: tuple[str, int],
    work: Callable[[Worker, socket.socket, bool, Callable[[], None]], None],
    ready: Callable[[str], None],
    *,
    tls: bool = False,
    drain_seconds: float = 0.0,
) -> None:
    """Until told to stop. Raises BadInput if the address is taken; typer.Exit with a status other than 0."""
    listeners = Listeners(*listen, count)
    address = address_of(listeners.open(1), listen[0], tls=tls)
    doors = Doors(count)
    for name in _LATE:
        import_module(name)

    def worker(number: int, again: bool, serves: Callable[[], None]) -> int:
        listeners.close_all(but=number)
        try:
            work(Worker(Share(node, number, count), doors), listeners.open(number), again, serves)
        except BaseException as error:
            return report(error)
        return 0

    # What is loaded stays as it is: then its memory is the same in all of them.
    gc.collect()
    gc.freeze()
    supervisor = Supervisor(
        count,
        worker,
        open_for=listeners.open,
        close_for=listeners.close,
        say=_say,
        on_ready=lambda: ready(address),
        drain_seconds=drain_seconds,
    )
    try:
        status = supervisor.run()
    finally:
        listeners.close_all()
        doors.close()
    if status:
        raise typer.Exit(status)


def _say(line: str) -> None:
    print(f"budwood: {line}", file=sys.stderr, flush=True)

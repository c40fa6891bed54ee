"""Proxy: the network between one home and the node, which can be cut, or stall.

    pass    bytes go both ways
    cut     connections are closed, new ones too, as soon as they come
    stall   connections stay open, and nothing goes through

While it `loses` answers, a share of what comes back is swallowed, and its connection closed: whoever asked can't know
what became of it.

A thread a connection and direction: they hold no lock of ours while they wait.
"""

from __future__ import annotations

import enum
import random
import select
import socket
import threading
from contextlib import suppress

_CHUNK = 1 << 16
_LOOK_SECONDS = 0.05


class Network(enum.Enum):
    PASS = "pass"
    CUT = "cut"
    STALL = "stall"


class Proxy:
    def __init__(self, target_port: int) -> None:
        self.state = Network.PASS
        self.loses = 0.0
        """Of what comes back: 0 is none, 1 all of it."""
        self.lost = 0
        self._target = target_port
        self._closed = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._server.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                if not select.select([self._server], [], [], _LOOK_SECONDS)[0]:
                    continue
                near, _ = self._server.accept()
            except (OSError, ValueError):
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        with near:
            if self.state is Network.CUT:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            with far:
                back = threading.Thread(target=self._pump, args=(far, near), kwargs={"is_back": True}, daemon=True)
                back.start()
                self._pump(near, far)
                back.join()

    def _swallows(self) -> bool:
        swallows = random.random() < self.loses
        self.lost += swallows
        return swallows

    def _pump(self, source: socket.socket, target: socket.socket, *, is_back: bool = False) -> None:
        """One direction, until either side closes, or the network is cut."""
        with suppress(OSError, ValueError):
            while not self._closed.is_set() and self.state is not Network.CUT:
                if self.state is Network.STALL:
                    self._closed.wait(_LOOK_SECONDS)
                elif select.select([source], [], [], _LOOK_SECONDS)[0]:
                    data = source.recv(_CHUNK)
                    if not data or (is_back and self._swallows()):
                        break
                    target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

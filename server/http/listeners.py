"""Listeners: one socket for each worker of a node, all at one address, among which the kernel spreads new connections
evenly by their origin (SO_REUSEPORT).

They are the supervisor's, and each worker takes its own along. So what has connected while a worker is started again
waits for it. One that is to stay away for a while has none meanwhile: then nobody is sent to it.

Other programs of the same user could join in at such an address. So it is taken alone first, which fails where anybody
listens, a second node among them.
"""

from __future__ import annotations

import socket

from ...volume.errors import BadInput
from .run_node import BACKLOG, bind


class Listeners:
    """Raises BadInput if the address can't be had."""

    def __init__(self, host: str, port: int, count: int) -> None:
        with bind(host, port) as alone:
            self._family = alone.family
            self._address = alone.getsockname()
        self._sockets: dict[int, socket.socket] = {}
        for number in range(1, count + 1):
            self.open(number)

    def open(self, number: int) -> socket.socket:
        """That worker's."""
        found = self._sockets.get(number)
        if found is None:
            found = self._sockets[number] = self._bound()
        return found

    def close(self, number: int) -> None:
        """Have nobody sent to that worker, until its listener is opened again."""
        found = self._sockets.pop(number, None)
        if found is not None:
            found.close()

    def close_all(self, but: int = 0) -> None:
        """In a worker, all but its own: a socket takes connections as long as any process has it."""
        for number in self._sockets.keys() - {but}:
            self.close(number)

    def _bound(self) -> socket.socket:
        made = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            made.bind(self._address)
            made.listen(BACKLOG)
            made.setblocking(False)
        except OSError as error:
            made.close()
            raise BadInput(f"can't listen at {self._address[0]}:{self._address[1]}: {error}") from error
        return made

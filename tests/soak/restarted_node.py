"""The node, at one address for ever: killed, stopped for seconds, or told to end, and started again."""

from __future__ import annotations

import signal

from .children import COMMAND, Child
from .world import World


class NodeActor:
    def __init__(self, world: World) -> None:
        self._world = world
        self._dice = world.dice("node")
        self._child: Child | None = None
        self.port = 0
        self._start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _start(self) -> None:
        command = [*COMMAND, "serve", "--create", "--store", self._world.store, "--listen", f"127.0.0.1:{self.port}"]
        self._child = self._world.children.start("node", command)
        line = self._world.children.line(self._child)
        if line:
            self.port = int(line.split()[-1].rpartition(":")[2])
        else:
            self._world.report.violation(f"the node doesn't start: {self._world.children.said(self._child)}")

    def run(self) -> None:
        while self._world.rest(self._dice.uniform(4.0, 20.0)):
            assert self._child is not None
            if not self._child.lives:
                self._world.children.end(self._child)
                self._world.report.violation(f"the node ended by itself: {self._world.children.said(self._child)}")
                self._start()
                continue
            fault = self._dice.choice(["killed", "stopped", "ended"])
            if fault == "stopped":
                self._child.send(signal.SIGSTOP)
                self._world.rest(self._dice.uniform(0.5, 8.0))
                self._child.send(signal.SIGCONT)
            else:
                number = signal.SIGKILL if fault == "killed" else signal.SIGTERM
                status = self._world.children.end(self._child, number)
                if fault == "ended" and status != 0:
                    self._world.report.violation(f"the node ended with {status} on SIGTERM")
                self._world.rest(self._dice.uniform(0.0, 3.0))
                self._start()
            self._world.report.fault(f"node {fault}")

    def kill(self) -> None:
        assert self._child is not None
        self._world.children.end(self._child, signal.SIGKILL)
        self._start()

    def settle(self) -> None:
        """Without faults: it serves."""
        if self._child is None or not self._child.lives:
            self._start()

    def stop(self) -> None:
        if self._child is not None and self._child.lives:
            self._world.children.end(self._child, signal.SIGTERM)

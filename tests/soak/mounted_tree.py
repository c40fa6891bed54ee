"""A home and its mount behind a proxy, which can be killed or left, and comes back."""

from __future__ import annotations

import signal

from .children import COMMAND, Child, detach
from .proxy import Network, Proxy
from .world import World


class MountedTree:
    def __init__(self, world: World, name: str, proxy: Proxy, *options: str) -> None:
        self.name = name
        self.proxy = proxy
        self.tree = world.folder / name
        self.tree.mkdir()
        self._world = world
        self._options = options
        world.children.mounted(self.tree)
        self._mount = self._mounted()

    def _mounted(self) -> Child:
        where = ["--home", str(self._world.folder / f"{self.name}-home"), "--remote", self.proxy.url]
        command = [*COMMAND, *where, "mount", str(self.tree), "--foreground", *self._options]
        mount = self._world.children.start(f"{self.name}-mount", command)
        if not self._world.children.line(mount):
            self._world.report.violation(f"{self.name} can't be mounted: {self._world.children.said(mount)}")
        return mount

    def kill(self) -> None:
        self._world.children.end(self._mount, signal.SIGKILL)
        detach(self.tree)
        self._mount = self._mounted()

    def leave(self) -> None:
        self._end()
        self._mount = self._mounted()

    def _end(self) -> None:
        if self._world.children.end(self._mount, signal.SIGTERM) != 0:
            self._world.report.violation(f"{self.name} did not end well")
        detach(self.tree)

    def calm(self) -> None:
        """Its link is whole."""
        self.proxy.loses, self.proxy.state = 0.0, Network.PASS

    def end(self) -> None:
        self._end()
        self.proxy.close()

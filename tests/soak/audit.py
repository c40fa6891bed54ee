"""The audit: every LSN reads the same, over the node and from the store itself, whenever it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .restarted_node import NodeActor
from .world import AWAY, World

NEW_LSNS, OLD_LSNS, LAST_LSNS = 6, 3, 30
"""How many are read of those never read before, of those read before, and at the end."""


class Auditor:
    def __init__(self, world: World, node: NodeActor, volumes: Sequence[str]) -> None:
        self._world = world
        self._node = node
        self._dice = world.dice("audit")
        self._volumes = volumes
        self._digests: dict[tuple[str, int], str] = {}
        self._heads: dict[str, int] = {}

    def run(self) -> None:
        while self._world.rest(self._dice.uniform(0.5, 3.0)):
            self.read(self._dice.choice(self._volumes), self._dice.choice([self._node.url, self._world.store]))

    def finish(self) -> None:
        """The network is whole, and nobody writes any more."""
        for name in self._volumes:
            for remote in (self._node.url, self._world.store):
                self.read(name, remote, LAST_LSNS, may=frozenset())

    def read(self, name: str, remote: str, most: int = NEW_LSNS, may: frozenset[str] = AWAY | {"NotFound"}) -> None:
        where = f"audit of {name} at {remote}"
        found = self._history(remote, name)
        self._world.tell(where, found, may)
        if "error" in found:
            return
        head = found["head"]
        if head < self._heads.get(name, 0):
            self._world.report.violation(f"{where}: the newest LSN is {head}, and was {self._heads[name]}")
        self._heads[name] = head
        known = [lsn for lsn in range(1, head + 1) if (name, lsn) in self._digests]
        new = [lsn for lsn in range(1, head + 1) if (name, lsn) not in self._digests]
        chosen = self._dice.sample(new, min(most, len(new))) + self._dice.sample(known, min(OLD_LSNS, len(known)))
        if most == LAST_LSNS:
            chosen = self._dice.sample(range(1, head + 1), min(most, head))
        if not chosen:
            return
        found = self._history(remote, name, *chosen)
        self._world.tell(where, found, may)
        for lsn, digest in found.get("digests", {}).items():
            self._world.report.check("LSN")
            before = self._digests.setdefault((name, int(lsn)), digest)
            if before != digest:
                self._world.report.violation(f"{where}: LSN {lsn} reads otherwise than before")

    def _history(self, remote: str, name: str, *lsns: int) -> dict[str, Any]:
        return self._world.children.run("audit", "history", remote, name, *lsns)

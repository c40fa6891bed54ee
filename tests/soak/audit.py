"""The audit: every LSN reads the same, over the node and from the store itself, whenever it is read."""

from __future__ import annotations

from collections.abc import Sequence

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
        self._digests: dict[str, str] = {}
        """By NAME@LSN."""
        self._heads: dict[str, int] = {}

    def run(self) -> None:
        while self._world.rest(self._dice.uniform(0.5, 3.0)):
            self.read([self._dice.choice(self._volumes)], self._dice.choice([self._node.url, self._world.store]))

    def finish(self) -> None:
        """The network is whole, and nobody writes any more."""
        for remote in (self._node.url, self._world.store):
            self.read(self._volumes, remote, LAST_LSNS, may=frozenset())

    def read(
        self, names: Sequence[str], remote: str, most: int = NEW_LSNS, may: frozenset[str] = AWAY | {"NotFound"}
    ) -> None:
        where = f"audit of {', '.join(names)} at {remote}"
        found = self._world.children.run("audit", "heads", remote, *names)
        self._world.tell(where, found, may)
        heads: dict[str, int] = found.get("heads", {})
        for name, head in heads.items():
            if head < self._heads.get(name, 0):
                self._world.report.violation(f"{where}: {name}'s newest LSN is {head}, and was {self._heads[name]}")
            self._heads[name] = head
        chosen = [at for name, head in heads.items() for at in self._chosen(name, head, most)]
        if not chosen:
            return
        found = self._world.children.run("audit", "digests", remote, *chosen)
        self._world.tell(where, found, may)
        for at, digest in found.get("digests", {}).items():
            self._world.report.check("LSN")
            if self._digests.setdefault(at, digest) != digest:
                self._world.report.violation(f"{where}: {at} reads otherwise than before")

    def _chosen(self, name: str, head: int, most: int) -> list[str]:
        every = [f"{name}@{lsn}" for lsn in range(1, head + 1)]
        if most == LAST_LSNS:
            return self._dice.sample(every, min(most, head))
        known = [at for at in every if at in self._digests]
        new = [at for at in every if at not in self._digests]
        return self._dice.sample(new, min(most, len(new))) + self._dice.sample(known, min(OLD_LSNS, len(known)))

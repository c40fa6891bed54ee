"""An edge that writes through the VFS: a bank of its own, and one that it shares with the other edge.

A round: both writers run for seconds while pushes and pulls go on beside them, killed some of the time; then the
writers are killed, or told to end, and what they were told of is looked for. What the other edge's commits made
diverge is reset, and kept: each shared entry is in the shared bank or in what a reset kept. At the end of some rounds
the home is damaged: in a copy, which must read as it did or say Corrupt; or itself, once all is pushed, and is then
made anew from the remote.
"""

from __future__ import annotations

import json
import shutil
import signal

from .damage import damage
from .proxy import Proxy
from .world import AWAY, World, Writer

SHARED = "shared"

TOLD = frozenset({"Corrupt", "Unsupported"})
"""What a damaged home may say."""


class EdgeActor:
    def __init__(self, world: World, name: str, proxy: Proxy) -> None:
        self._world = world
        self._children = world.children
        self._dice = world.dice(name)
        self._proxy = proxy
        self.name = name
        self.bank = f"bank-{name}"
        self.home = world.folder / name
        self.kept: list[str] = []
        """Volumes that hold what resets took away."""
        self.shared: list[Writer] = []
        """Who wrote to the shared bank, one after another."""
        self._rounds = 0

    @property
    def url(self) -> str:
        return self._proxy.url

    @property
    def own(self) -> Writer:
        return self._world.writer(f"{self.name} alone", self.bank)

    def run(self) -> None:
        while not self._world.over.is_set():
            self._round()

    def _round(self) -> None:
        self._rounds += 1
        writers = [self.own, self._world.writer(f"{self.name} shared {len(self.kept)}", SHARED)]
        if writers[1] not in self.shared:
            self.shared.append(writers[1])
        # Who can't be looked after, since a page of it is with a node that is away, writes when that is back.
        writers = [writer for writer in writers if writer.is_known or self._look(writer)]
        for writer in writers:
            what = (self.home, self.url, writer.volume, writer.name, writer.acknowledged + 1)
            writer.child = self._children.program(f"{self.name}-writer", "write-vfs", *what)
        for _ in range(self._dice.randrange(1, 4)):
            self._world.rest(self._dice.uniform(0.2, 2.0))
            self._sync()
        for writer in writers:
            self._end(writer)
        for writer in writers:
            self._look(writer)
        self._reset_if_diverged()
        chance = self._dice.random()
        if chance < 0.25:
            self._damage_a_copy()
        elif chance < 0.4:
            self._rebuild()

    def _end(self, writer: Writer) -> None:
        assert writer.child is not None
        if writer.child.lives and self._dice.random() < 0.7:
            self._children.end(writer.child, signal.SIGKILL)
            self._world.report.fault("edge killed")
        else:
            if writer.child.lives:
                writer.child.close_input()
            self._children.end(writer.child)
        self._world.gather(writer)
        for error in writer.errors:
            # With mode=rw the volume may have to be asked for, while nobody answers.
            if error["error"] not in AWAY:
                self._world.report.violation(f"{writer.name}: {error['error']}: {error['said']}")

    def _sync(self) -> None:
        """Now this bank, now that; some of the time killed on its way."""
        name = self._dice.choice([self.bank, SHARED])
        child = self._children.program(f"{self.name}-sync", "sync", self.home, self.url, name)
        if self._dice.random() < 0.3 and not child.ended(self._dice.uniform(0.1, 1.5)):
            self._children.end(child, signal.SIGKILL)
            self._world.report.fault("push killed")
            return
        self._children.end(child)
        for line in child.lines:
            self._world.tell(f"{self.name} syncing {name}", json.loads(line), AWAY | {"Diverged", "Conflict"})

    def _look(self, writer: Writer, may: frozenset[str] = AWAY) -> bool:
        """Whether what it wrote could be read."""
        found = self._children.run(f"{self.name}-look", "look-vfs", self.home, self.url, writer.volume)
        return self._world.judge(f"{self.name}, {writer.volume}", found, writer, may=may)

    def _reset_if_diverged(self) -> None:
        """The writers are at rest. Nothing of what was unpushed may be lost: it is in the volume that is kept."""
        found = self._children.run(f"{self.name}-sync", "sync", self.home, self.url, SHARED)
        if found.get("error") not in ("Diverged", "Conflict"):
            return
        kept = f"kept-{self.name}-{len(self.kept)}"
        found = self._children.run(f"{self.name}-reset", "reset", self.home, self.url, SHARED, kept)
        if "error" in found:
            self._world.tell(f"{self.name} resetting", found, AWAY)
            return
        self.kept.append(kept)
        self._world.report.check("reset")
        self.look_at_shared()

    def look_at_shared(self, may: frozenset[str] = AWAY) -> None:
        """Each writer's entries: the shared bank has the first ones, and what was kept may have more."""
        counts: dict[str, int] = {}
        for name in (SHARED, *self.kept):
            found = self._children.run(f"{self.name}-look", "look-vfs", self.home, self.url, name)
            if not self._world.judge(f"{self.name}, {name}", found, may=may):
                return
            for writer, count in found["counts"].items():
                counts[writer] = max(count, counts.get(writer, 0))
        self._world.judge(f"{self.name}, shared and kept", {"counts": counts}, *self.shared)

    def _damage_a_copy(self) -> None:
        before = self._children.run(f"{self.name}-look", "look-vfs", self.home, self.url, self.bank)
        if "error" in before:
            return
        for _ in range(3):
            copy = self._world.folder / f"{self.name}-damaged"
            shutil.copytree(self.home, copy, ignore=shutil.ignore_patterns("lock.mdb"))
            where = f"{self.name}, a copy with {damage(copy, self._dice)}"
            self._world.report.fault("copy damaged")
            found = self._children.run(f"{self.name}-damaged", "look-vfs", copy, self.url, self.bank)
            if self._world.judge(where, found, may=AWAY | TOLD) and found["digest"] != before["digest"]:
                self._world.report.violation(f"{where}: it reads {found['counts']}, and was {before['counts']}")
            shutil.rmtree(copy)

    def _rebuild(self) -> None:
        """The home itself is damaged, looked at and thrown away, once the remote has everything in it."""
        found = self._children.run(f"{self.name}-sync", "sync", self.home, self.url, self.bank, SHARED)
        if found.get("unpushed") != 0 or self.kept_unpushed():
            return
        where = f"{self.name}, with {damage(self.home, self._dice)}"
        self._world.report.fault("home damaged")
        found = self._children.run(f"{self.name}-damaged", "look-vfs", self.home, self.url, self.bank)
        self._world.judge(where, found, self.own, may=AWAY | TOLD)
        shutil.rmtree(self.home)
        self._look(self.own)

    def settle(self) -> None:
        """Without faults: all is pushed, or reset and kept; and everything is where it was promised."""
        self._reset_if_diverged()
        found = self._children.run(f"{self.name}-sync", "sync", self.home, self.url, self.bank, SHARED, *self.kept)
        self._world.tell(f"{self.name}, the last sync", found, frozenset())
        if found.get("unpushed"):
            self._world.report.violation(f"{self.name} has {found['unpushed']} unpushed commits after its last push")
        self._look(self.own, may=frozenset())
        self.look_at_shared(may=frozenset())

    def kept_unpushed(self) -> bool:
        """Whether a kept volume is in this home alone; pushes them first."""
        if not self.kept:
            return False
        found = self._children.run(f"{self.name}-sync", "sync", self.home, self.url, *self.kept)
        return found.get("unpushed") != 0

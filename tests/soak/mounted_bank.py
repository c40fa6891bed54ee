"""A mount that SQLite itself writes through: a bank of its own, in a journal mode that changes from round to round.

A round: the mount is up, a writer runs for seconds; then the mount is killed, or the writer, or the mount is told to
end; and once the mount is up again, what the writer was told of is looked for in it. The banks of the others, which
arrive by themselves, are read through it as well: whole, and never less than was seen before. Nothing here touches the
mount itself, as that may hang: children do, and they have a limit.
"""

from __future__ import annotations

import signal
from typing import Any

from .children import COMMAND, Child, detach
from .proxy import Proxy
from .world import AWAY, World, Writer

MODES = ("delete", "truncate", "persist", "wal")

BROKEN = frozenset({"OperationalError", "OSError", "FileNotFoundError", "ConnectionAbortedError"})
"""What programs are told by a mount that is gone, or that can't fetch a page."""


class MountActor:
    def __init__(self, world: World, name: str, proxy: Proxy) -> None:
        self._world = world
        self._children = world.children
        self._dice = world.dice(name)
        self._proxy = proxy
        self._mount: Child | None = None
        self._seen: dict[str, dict[str, int]] = {}
        """What was seen last of the others' banks, through this mount."""
        self.name = name
        self.bank = f"bank-{name}"
        self.home = world.folder / f"{name}-home"
        self.directory = world.folder / name
        self.others: list[str] = []

    @property
    def own(self) -> Writer:
        return self._world.writer(f"{self.name} alone", self.bank)

    def start(self) -> bool:
        if self._mount is not None:
            return True
        self.directory.mkdir(exist_ok=True)
        command = [*COMMAND, "--home", str(self.home), "--remote", self._proxy.url]
        self._children.mounted(self.directory)
        self._mount = self._children.start(
            f"{self.name}-mount", [*command, "mount", str(self.directory), "--foreground"]
        )
        if not self._children.line(self._mount):
            self._world.report.violation(f"{self.name} can't be mounted: {self._children.said(self._mount)}")
            self.kill()
            return False
        return True

    def kill(self) -> None:
        mount, self._mount = self._mount, None
        if mount is not None:
            self._children.end(mount, signal.SIGKILL)
        detach(self.directory)

    def end(self) -> None:
        """As a user does; it must end well."""
        mount, self._mount = self._mount, None
        if mount is not None:
            status = self._children.end(mount, signal.SIGTERM)
            if status != 0:
                self._world.report.violation(f"{self.name} ended with {status} on SIGTERM")
        detach(self.directory)

    def run(self) -> None:
        while not self._world.over.is_set():
            self._round()

    def _round(self) -> None:
        if not self.start():
            self._world.rest(1.0)
            return
        writer, mode = self.own, self._dice.choice(MODES)
        path = self.directory / self.bank
        writer.child = self._children.program(
            f"{self.name}-writer", "write-file", path, mode, writer.name, writer.acknowledged + 1
        )
        self._world.rest(self._dice.uniform(0.5, 4.0))
        self._look_at_others()
        fault = self._dice.choice(["mount killed", "mount killed", "writer killed", "mount ended"])
        self._world.report.fault(fault)
        if fault == "mount killed":
            self.kill()
            self._children.end(writer.child)
        elif fault == "writer killed":
            self._children.end(writer.child, signal.SIGKILL)
        else:
            writer.child.close_input()
            self._children.end(writer.child)
        self._world.gather(writer)
        for error in writer.errors:
            if error["error"] not in BROKEN:
                self._world.report.violation(f"{writer.name}, {mode}: {error['error']}: {error['said']}")
        if fault == "mount ended":
            self.end()
        if self.start():
            found = self._look(self.bank)
            self._world.judge(f"{self.name} after {fault} in {mode} mode", found, writer)

    def settle(self) -> None:
        """Without faults: it mounts, shows what was promised, pushes, and ends well."""
        if self.start():
            self._world.judge(f"{self.name} at the end", self._look(self.bank), self.own)
            command = [*COMMAND, "--home", str(self.home), "umount", str(self.directory), "--push"]
            self._children.end(self._children.start(f"{self.name}-umount", command))
            assert self._mount is not None
            mount, self._mount = self._mount, None
            if self._children.end(mount) != 0:
                self._world.report.violation(f"{self.name} did not end well after umount")
        detach(self.directory)

    def _look(self, name: str) -> dict[str, Any]:
        return self._children.run(f"{self.name}-look", "look-file", self.directory / name)

    def _look_at_others(self) -> None:
        name = self._dice.choice(self.others)
        found = self._look(name)
        if "absent" in found:
            return
        # A page may have to be fetched, while the network is away.
        if self._world.judge(f"{self.name} reading {name}", found, may=AWAY | BROKEN):
            for writer, count in self._seen.get(name, {}).items():
                now = found["counts"].get(writer, 0)
                if now < count:
                    self._world.report.violation(
                        f"{self.name} reading {name}: {writer} had {count} entries, and has {now}"
                    )
            self._seen[name] = found["counts"]

"""The soak of a mount whose home lies on a small disk: it fills up, has room again, and the mount dies meanwhile.

    python -m tests.soak.full_disk --minutes 10 [--seed 7]

Round after round programs write, save, query, rename and remove (disk_steps.py) while the disk is full now and then.
Between two rounds the mount ends or is killed, and comes back, on a full disk, too, where it may say that it can't.

What must hold, each a violation otherwise: a step that comes to an error changes nothing else; a database has every row
that its programs were told of; what a mount shows as it ends, or as it is killed once all is flushed, the next one
shows, and another machine's comes to show it, too. The disk takes the right to mount one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from ..mounts import why_not
from ..small_disk import fill, relieve, small_disk
from .children import COMMAND, Child, detach
from .command import play_rounds, run
from .mirrored_tree import differences_at_last
from .restarted_node import NodeActor
from .world import World

DISK_KIB: Final = 32 << 10
MOST_STEPS: Final = 60


class OnSmallDisk:
    def __init__(self, world: World, disk: Path) -> None:
        self._world = world
        self._dice = world.dice("disk")
        self._disk, self._tree, self._other = disk, world.folder / "tree", world.folder / "other"
        self._node = NodeActor(world)
        for tree in (self._tree, self._other):
            tree.mkdir()
            world.children.mounted(tree)
        self._rows: dict[str, list[int]] = {}
        self._mount = self._mounted()
        self._others = world.children.start("other", self._command(world.folder / "home", self._other))
        world.children.line(self._others)

    def _command(self, home: Path, tree: Path) -> list[str]:
        return [*COMMAND, "--home", str(home), "--remote", self._node.url, "mount", str(tree), "--foreground"]

    def _mounted(self) -> Child:
        command = self._command(self._disk / "home", self._tree)
        mount = self._world.children.start("mount", command)
        if self._world.children.line(mount):
            return mount
        self._world.report.error("no room to mount")
        self._world.children.forget(mount)
        relieve(self._disk)
        mount = self._world.children.start("mount", command)
        if not self._world.children.line(mount):
            self._world.report.violation(f"it can't be mounted: {self._world.children.said(mount)}")
        return mount

    def round(self) -> None:
        children, report = self._world.children, self._world.report
        seed, steps = self._dice.randrange(1 << 32), self._dice.randint(1, MOST_STEPS)
        rows = json.dumps(self._rows)
        said = children.run("steps", "disk-steps", seed, steps, self._tree, self._disk, rows)
        did: list[str] = said.get("did", [])
        report.commits(len(did))
        if wrong := said.get("wrong") or said.get("said"):
            report.violation(f"{wrong}, after {did}")
            return
        self._rows = said["rows"]
        before = self._shown()
        how = self._dice.choice(["ended", "killed"])
        children.end(self._mount, signal.SIGTERM if how == "ended" else signal.SIGKILL)
        detach(self._tree)
        report.fault(f"mount {how}")
        if self._dice.random() < 0.3:
            fill(self._disk)
        self._mount = self._mounted()
        after = self._shown()
        if before != after:
            changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
            report.violation(f"the mount was {how}, and {changed} came back otherwise, after {did}")
        elif differences := differences_at_last(self._world, self._tree, self._other):
            report.violation(f"another mount shows {differences}, after {did}")
        report.check("tree")

    def _shown(self) -> Any:
        """All of it committed."""
        relieve(self._disk)
        return self._world.children.run("look", "files-of", self._tree)

    def end(self) -> None:
        for mount, tree in ((self._mount, self._tree), (self._others, self._other)):
            self._world.children.end(mount, signal.SIGTERM)
            detach(tree)
        self._node.stop()


def soak(world: World, seconds: float) -> None:
    with small_disk(world.folder / "disk", DISK_KIB) as disk:
        on_disk = OnSmallDisk(world, disk)
        play_rounds(world, on_disk.round, seconds)
        on_disk.end()


if __name__ == "__main__":
    if why_not():
        sys.exit(f"it needs mounts: {why_not()}")
    if os.geteuid() != 0:
        sys.exit("it needs the right to mount a disk")
    sys.exit(run("tests.soak.full_disk", "A mount on a disk that fills up.", soak, sys.argv[1:]))

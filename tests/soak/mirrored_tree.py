"""The soak of a tree that is changed at one of two mounts, and in a plain directory: all three come to be the same.

    python -m tests.soak.mirrored_tree --minutes 10 [--seed 7]

Round after round programs write, save, rename, query and remove at one mount, as fast as they do, and the same in a
plain directory (mirror_steps.py); or at both, each in a directory of its own. Meanwhile either mount or the node may be
killed, links be cut, or swallow answers; or the mount is left behind the last step. Then the mounts have their time.

What must hold, each a violation otherwise: no step comes to something else in the mount than in the plain directory;
and in the end both mounts show what that holds, byte by byte, with its modes, and nothing beside it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

from ..mounts import why_not
from ..waits import LIMIT_SECONDS
from .children import Child
from .command import play_rounds, run
from .mounted_tree import MountedTree
from .proxy import Network, Proxy
from .restarted_node import NodeActor
from .world import World

MOST_STEPS: Final = 30
FAULTS: Final = ("answers swallowed", "links cut", "node killed", "author killed", "author left", "other killed")
LOSES: Final = 0.1
BOTH: Final = 0.3
"""Of the rounds: each mount has an author, in a directory of its own."""
LOOK_SECONDS: Final = 0.3


def differences_at_last(world: World, wanted: Path, *mounts: Path) -> dict[str, Any]:
    """What mounts show otherwise than `wanted`, as soon as there is nothing, or once time is up."""
    until = time.monotonic() + LIMIT_SECONDS
    while True:
        found = world.children.run("look", "differences", wanted, *mounts)
        if found.get("differences") == {} or world.over.wait(LOOK_SECONDS):
            return {}
        if time.monotonic() > until:
            return found


class MirroredTree:
    def __init__(self, world: World) -> None:
        self.world = world
        self.node = NodeActor(world)
        self.plain = world.folder / "plain"
        self.plain.mkdir()
        self.machines = [MountedTree(world, name, Proxy(self.node.port)) for name in ("ash", "fir")]
        self._dice = world.dice("mirror")

    def round(self) -> None:
        report, dice = self.world.report, self._dice
        author, other = dice.sample(self.machines, 2)
        fault = dice.choice(["", "", *FAULTS])
        both = fault != "other killed" and dice.random() < BOTH
        for machine in self.machines:
            machine.proxy.loses = LOSES if fault == "answers swallowed" else 0.0
            machine.proxy.state = Network.CUT if fault == "links cut" else Network.PASS
        programs = [self._program(author, "left"), self._program(other, "right")] if both else [self._program(author)]
        if fault in {"other killed", "node killed"}:
            self.world.rest(dice.uniform(0.1, 2.0))
            other.kill() if fault == "other killed" else self.node.kill()
        for program in programs:
            self.world.children.end(program)
        if fault == "author killed":
            author.kill()
        if fault == "author left":
            author.leave()
        if fault:
            report.fault(fault)
        for machine in self.machines:
            machine.calm()
        did, wrong = self._said(programs)
        report.commits(len(did))
        if wrong:
            report.violation(f"at {author.name}: {wrong}, after {did}")
        elif differences := differences_at_last(self.world, self.plain, *(each.tree for each in self.machines)):
            report.violation(f"made at {author.name} ({fault or 'no fault'}): {differences}, after {did}")
        report.check("mirror")

    def _program(self, machine: MountedTree, part: str = "") -> Child:
        seed, steps = self._dice.randrange(1 << 32), self._dice.randint(1, MOST_STEPS)
        trees = self.plain / part, machine.tree / part
        return self.world.children.program(f"{machine.name}-steps", "mirror-steps", seed, steps, *trees)

    def _said(self, programs: list[Child]) -> tuple[list[str], str]:
        """What they did, and what came to something else."""
        did: list[str] = []
        wrong: list[str] = []
        for program in programs:
            said: dict[str, Any] = json.loads(program.lines[-1]) if program.lines else {"wrong": "it said nothing"}
            did += [f"{program.name}: {step}" for step in said.get("did", [])]
            wrong += [each for each in (said.get("wrong"), said.get("said")) if each]
        return did, "; ".join(wrong)

    def end(self) -> None:
        for machine in self.machines:
            machine.end()
        self.node.stop()


def soak(world: World, seconds: float) -> None:
    mirrored = MirroredTree(world)
    play_rounds(world, mirrored.round, seconds)
    mirrored.end()


if __name__ == "__main__":
    if why_not():
        sys.exit(f"it needs mounts: {why_not()}")
    sys.exit(run("tests.soak.mirrored_tree", "A tree at two mounts and in a plain directory.", soak, sys.argv[1:]))

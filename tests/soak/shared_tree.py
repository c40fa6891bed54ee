"""The soak of a tree that two mounts share: programs that write and rename at both, and whatever may befall them.

    python -m tests.soak.shared_tree --minutes 10 [--seed 7]

Two mounts of one node, each behind a proxy. Round after round programs make, append to, replace, rename, swap and
remove files, databases and directories (tree_steps.py), one by one at either mount, or at both at once. Meanwhile links
are cut, or hang up now and then instead of passing an answer on, so that whoever asked can't know what became of it;
the node or a mount is killed, or a mount is left. Then the links are whole, and the mounts have their time.

What diverges is forked, or replayed, as the seed has it. Databases can be replayed: then there are no other files.

What must hold, each a violation otherwise: both show the same; every word that was written, and that nobody who saw it
took away, is somewhere; nothing is called by the name of something on its way.
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
from .tree_steps import words
from .world import World

FAULTS: Final = ("answers swallowed", "links cut", "node killed", "mount killed", "mount left")
LOSES: Final = 0.15
ROUND_SECONDS: Final = 6.0
LOOK_SECONDS: Final = 0.5
SAME: Final = 8
"""So many looks in a row show the same at both, before it is taken for the end of a round."""
SHARED: Final = "shared"
"""A directory that is there while a mount is: nobody writes below it."""


class SharedTree:
    def __init__(self, world: World) -> None:
        self.world = world
        self.node = NodeActor(world)
        self._dice = world.dice("tree")
        policy = self._dice.choice(["fork", "replay"])
        self._what = {"fork": "all", "replay": "databases"}[policy]
        self.mounts = [
            MountedTree(world, name, Proxy(self.node.port), f"--on-diverged={policy}") for name in ("ash", "fir")
        ]
        self._trees = [each.tree / SHARED for each in self.mounts]
        self._trees[0].mkdir()
        while not self._trees[1].exists() and not world.over.wait(LOOK_SECONDS):
            pass
        self._owed: set[str] = set()
        """Words that were written, and that nobody took away."""

    def round(self) -> None:
        fault, rest = self._dice.choice(["", *FAULTS]), self._dice.uniform(0.3, 0.7) * ROUND_SECONDS
        for each in self.mounts:
            each.proxy.loses = LOSES if fault == "answers swallowed" else 0.0
        programs = self._programs()
        self.world.rest(rest)
        self._befall(fault)
        self.world.rest(ROUND_SECONDS - rest)
        for program in programs:
            program.close_input()
        for program in programs:
            self.world.children.end(program)
        for each in self.mounts:
            each.calm()
        self._judge([json.loads(program.lines[-1]) for program in programs if program.lines])

    def _programs(self) -> list[Child]:
        seed, ash, fir = self._dice.randrange(1 << 32), *self._trees
        if self._dice.random() < 0.5:
            return [self._program("steps", seed, ash, fir)]
        return [self._program("ash-steps", seed, ash), self._program("fir-steps", seed + 1, fir)]

    def _program(self, name: str, seed: int, *trees: Path) -> Child:
        return self.world.children.program(name, "change-trees", seed, self._what, *trees)

    def _befall(self, fault: str) -> None:
        match fault:
            case "links cut":
                for each in self.mounts:
                    each.proxy.state = Network.CUT
            case "node killed":
                self.node.kill()
            case "mount killed":
                self._dice.choice(self.mounts).kill()
            case "mount left":
                self._dice.choice(self.mounts).leave()
            case _:
                pass
        if fault:
            self.world.report.fault(fault)

    def _judge(self, told: list[dict[str, Any]]) -> None:
        report = self.world.report
        for did in told:
            if "error" in did:
                report.violation(f"a program met {did['error']}: {did['said']}")
                return
            report.commits(len(did["made"]))
            self._owed |= set(did["made"])
        self._owed -= {word for did in told for word in did["gone"]}
        shown = self._settled()
        if shown is None:
            return
        lost = self._owed - {word for text in shown.values() for word in words(text)}
        if lost:
            report.violation(f"words that nobody took away are nowhere: {sorted(lost)}")
        report.check("tree")
        report.check("name", len(shown))
        for name in shown:
            if " (moving " in name:
                report.violation(f"{name!r} is still on its way")
        self._owed -= lost

    def _settled(self) -> dict[str, str] | None:
        """What both show once neither moves any more; None where that never comes, or nobody waits for it."""
        before: list[dict[str, Any]] = []
        same, until = 0, time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < until and not self.world.over.wait(LOOK_SECONDS):
            shown = [self.world.children.run("look", "read-tree", tree) for tree in self._trees]
            same = same + 1 if shown[0] == shown[1] and shown == before else 0
            before = shown
            if same >= SAME and "tree" in shown[0]:
                return dict[str, str](shown[0]["tree"])
        if not self.world.over.is_set():
            self.world.report.violation(f"they don't come to show the same: {_apart(*before)}")
        return None

    def end(self) -> None:
        for each in self.mounts:
            each.end()
        self.node.stop()


def _apart(one: dict[str, Any], other: dict[str, Any]) -> Any:
    """By name what each shows, or what kept one from being read."""
    if not ("tree" in one and "tree" in other):
        return [each for each in (one, other) if "tree" not in each]
    trees = one["tree"], other["tree"]
    names = sorted({name for tree in trees for name in tree})
    return {name: [tree.get(name) for tree in trees] for name in names if trees[0].get(name) != trees[1].get(name)}


def soak(world: World, seconds: float) -> None:
    shared = SharedTree(world)
    play_rounds(world, shared.round, seconds)
    shared.end()


if __name__ == "__main__":
    if why_not():
        sys.exit(f"it needs mounts: {why_not()}")
    sys.exit(run("tests.soak.shared_tree", "A tree that two mounts share, for minutes.", soak, sys.argv[1:]))

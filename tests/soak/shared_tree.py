"""The soak of a tree that two mounts share: links that swallow answers, and programs that rename at both.

    python -m tests.soak.shared_tree --minutes 10 [--seed 7]

Two mounts of one node, each behind a proxy that now and then hangs up instead of passing an answer on, so that whoever
asked can't know what became of it. Round after round programs make, append to, replace, rename, swap and remove files
and directories at either mount (tree_steps.py); then the links are whole, and the mounts have their time.

What must hold, each a violation otherwise: both show the same; every word that was written, and that nobody who saw it
took away, is somewhere; nothing is called by the name of something on its way.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any, Final

from ..mounts import why_not
from ..waits import LIMIT_SECONDS
from .children import COMMAND, Child, detach
from .command import play_rounds, run
from .proxy import Proxy
from .restarted_node import NodeActor
from .tree_steps import words
from .world import World

LOSES: Final = 0.15
ROUND_SECONDS: Final = 6.0
LOOK_SECONDS: Final = 0.5
SAME: Final = 8
"""So many looks in a row show the same at both, before it is taken for the end of a round."""


class SharedTree:
    def __init__(self, world: World) -> None:
        self.world = world
        self.node = NodeActor(world)
        self.proxies = [Proxy(self.node.port) for _ in range(2)]
        self.trees = [world.folder / name for name in ("ash", "fir")]
        self.mounts = [self._mounted(tree, proxy) for tree, proxy in zip(self.trees, self.proxies, strict=True)]
        self._dice = world.dice("tree")
        self._owed: set[str] = set()
        """Words that were written, and that nobody took away."""

    def _mounted(self, tree: Path, proxy: Proxy) -> Child:
        tree.mkdir()
        self.world.children.mounted(tree)
        where = ["--home", f"{tree}-home", "--remote", proxy.url]
        mount = self.world.children.start(
            f"{tree.name}-mount", [*COMMAND, *where, "mount", str(tree), "--foreground", "--on-diverged=fork"]
        )
        if not self.world.children.line(mount):
            self.world.report.violation(f"{tree.name} can't be mounted: {self.world.children.said(mount)}")
        return mount

    def round(self) -> None:
        for proxy in self.proxies:
            proxy.loses = LOSES
        steps = self.world.children.program("steps", "change-trees", self._dice.randrange(1 << 32), *self.trees)
        self.world.rest(ROUND_SECONDS)
        steps.close_input()
        self.world.children.end(steps)
        for proxy in self.proxies:
            proxy.loses = 0.0
        if steps.lines:
            self._judge(json.loads(steps.lines[-1]))

    def _judge(self, did: dict[str, Any]) -> None:
        report = self.world.report
        if "error" in did:
            report.violation(f"a program met {did['error']}: {did['said']}")
            return
        report.commits(len(did["made"]))
        for _ in range(sum(proxy.lost for proxy in self.proxies)):
            report.fault("answer swallowed")
        for proxy in self.proxies:
            proxy.lost = 0
        self._owed = (self._owed | set(did["made"])) - set(did["gone"])
        shown = self._settled()
        if self.world.over.is_set():
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

    def _settled(self) -> dict[str, str]:
        """What both show once neither moves any more."""
        before: list[dict[str, Any]] = []
        same, waited = 0, 0.0
        while waited < LIMIT_SECONDS and not self.world.over.wait(LOOK_SECONDS):
            waited += LOOK_SECONDS
            shown = [self.world.children.run("look", "read-tree", tree) for tree in self.trees]
            same = same + 1 if shown[0] == shown[1] and shown == before else 0
            before = shown
            if same >= SAME and "tree" in shown[0]:
                return dict[str, str](shown[0]["tree"])
        if not self.world.over.is_set():
            self.world.report.violation(f"they don't come to show the same: {before}")
        return {}

    def end(self) -> None:
        for mount, tree in zip(self.mounts, self.trees, strict=True):
            self.world.children.end(mount, signal.SIGTERM)
            detach(tree)
        self.node.stop()
        for proxy in self.proxies:
            proxy.close()


def soak(world: World, seconds: float) -> None:
    shared = SharedTree(world)
    play_rounds(world, shared.round, seconds)
    shared.end()


if __name__ == "__main__":
    if why_not():
        sys.exit(f"it needs mounts: {why_not()}")
    sys.exit(run("tests.soak.shared_tree", "A tree that two mounts share, for minutes.", soak, sys.argv[1:]))

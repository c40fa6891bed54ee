"""The soak of edges that never wait: four edges share a bank, and each moves money at once, whatever the others do.

    python -m tests.soak.edges --minutes 10 [--seed 7]

Each edge commits to its own home and syncs now and then, through a network that is cut or stalls; the node is killed
and stopped; the edges are killed at any moment, and two of them live an hour earlier and an hour later than the rest.
What diverges, the edge solves itself (edge_bank.WAYS), so that every transfer of everyone ends up in one bank.

What must hold, each a violation otherwise: after a kill an edge has all that it was told of, and at most the one more
that was under way; the balances add up at every LSN of the remote, and no LSN lacks a transfer that an earlier one had;
at the end all edges hold the same rows, and nothing that was acknowledged is missing.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any, Final

from .children import ROOT, Child
from .command import play, run
from .edge_bank import BANK, WAYS
from .network import NetworkActor
from .proxy import Proxy
from .restarted_node import NodeActor
from .world import AWAY, World, Writer

EDGES: Final = {"oak": 0.0, "elm": 3600.0, "ash": -3600.0, "fir": 0.0}
"""By how many seconds the clock of each is wrong."""
_AS_MODULE: Final = f"""
import runpy, sys
sys.path.append({str(ROOT)!r})
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


class Edge:
    """One home, and the program that writes there."""

    def __init__(self, world: World, name: str, proxy: Proxy, way: str) -> None:
        self._world = world
        self._dice = world.dice(name)
        self._way = way
        self.name = name
        self.home = world.folder / name
        self.proxy = proxy
        self.writer: Writer = world.writer(name, BANK)

    def run(self) -> None:
        while not self._world.over.is_set():
            self._round()

    def _round(self) -> None:
        seed, shift = self._dice.randrange(1 << 30), EDGES[self.name]
        child = self.writer.child = self.start("work", self.name, self._way, str(seed), str(shift))
        self._world.rest(self._dice.uniform(1.0, 6.0))
        if child.lives and self._dice.random() < 0.7:
            self._world.children.end(child, signal.SIGKILL)
            self._world.report.fault("edge killed")
        else:
            if child.lives:
                child.close_input()
            self._world.children.end(child)
        self._judge_start(child)
        self._world.gather(self.writer)
        for error in self.writer.errors:
            if error["error"] not in AWAY:
                self._world.report.violation(f"{self.name}: {error['error']}: {error['said']}")

    def _judge_start(self, child: Child) -> None:
        """What it found when it began, against what it was told of before."""
        for line in child.lines:
            if line.startswith("["):
                number = json.loads(line)[1]
                self._world.judge(f"{self.name} began", {"counts": {self.name: number}}, self.writer)

    def start(self, verb: str, *arguments: str) -> Child:
        command = [sys.executable, "-P", "-c", _AS_MODULE, "tests.soak.edge_bank", verb, str(self.home), self.proxy.url]
        return self._world.children.start(self.name, [*command, *arguments])

    def ask(self, verb: str, *arguments: str) -> dict[str, Any]:
        return self.answer(self.start(verb, *arguments))

    def answer(self, child: Child) -> dict[str, Any]:
        self._world.children.end(child)
        said = json.loads(child.lines[-1]) if child.lines else {"error": "nothing", "said": "it said nothing"}
        return dict(said)

    def settled(self, child: Child) -> None:
        self._world.judge(f"{self.name} settled", self.answer(child), self.writer)


def soak(world: World, seconds: float) -> None:
    way = next(reversed(WAYS))
    node = NodeActor(world)
    edges = [Edge(world, name, Proxy(node.port), way) for name in EDGES]
    network = NetworkActor(world, [edge.proxy for edge in edges])
    world.tell("making the bank", edges[0].ask("make"), frozenset())
    play(world, [node.run, network.run, *(edge.run for edge in edges)], seconds)
    network.stop()
    node.settle()
    judge(world, edges)
    node.stop()
    for edge in edges:
        edge.proxy.close()


def judge(world: World, edges: list[Edge]) -> None:
    """Twice: who settles first doesn't have yet what the others push after it."""
    for _ in range(2):
        settling = [(edge, edge.start("settle", edge.name, next(reversed(WAYS)))) for edge in edges]
        for edge, child in settling:
            edge.settled(child)
    writers = [edge.writer for edge in edges]
    digests: dict[str, str] = {}
    for edge in edges:
        found = edge.ask("look")
        if world.judge(f"{edge.name} at the end", found, *writers):
            digests[edge.name] = found["digest"]
    if len(set(digests.values())) != 1:
        world.report.violation(f"the edges hold different rows: {digests}")
    found = edges[0].ask("history", "1")
    while "error" not in found and found["last"] < found["head"]:
        # From the last one on, so that nothing is missing between two parts either.
        found = edges[0].ask("history", str(found["last"]))
    if world.judge("the remote", found, *writers):
        world.report.check(f"LSN {found['head']}")


if __name__ == "__main__":
    sys.exit(run("tests.soak.edges", "Four edges and one bank; see tests/soak/edges.py.", soak, sys.argv[1:]))

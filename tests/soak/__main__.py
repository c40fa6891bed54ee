"""`python -m tests.soak`: see __init__.py."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ..mounts import why_not
from .audit import Auditor
from .command import play, run
from .edge_actor import SHARED, EdgeActor
from .mounted_bank import MountActor
from .network import NetworkActor
from .proxy import Proxy
from .restarted_node import NodeActor
from .world import World


def soak(world: World, seconds: float) -> None:
    node = NodeActor(world)
    proxies = [Proxy(node.port) for _ in range(4)]
    edges = [EdgeActor(world, name, proxy) for name, proxy in zip(("oak", "elm"), proxies[:2], strict=True)]
    mounts = [MountActor(world, name, proxy) for name, proxy in zip(("ash", "fir"), proxies[2:], strict=True)]
    if why_not():
        print(f"no mounts: {why_not()}", flush=True)
        mounts = []
    banks = [edge.bank for edge in edges] + [mount.bank for mount in mounts]
    for edge, also in zip(edges, ([SHARED], []), strict=True):
        found = world.children.run(f"{edge.name}-make", "make", edge.home, edge.url, edge.bank, *also)
        world.tell(f"making {edge.bank}", found, frozenset())
    for mount in mounts:
        mount.others = [bank for bank in (*banks, SHARED) if bank != mount.bank]
    network, auditor = NetworkActor(world, proxies), Auditor(world, node, [*banks, SHARED])
    actors: list[Callable[[], None]] = [node.run, network.run, auditor.run]
    actors += [edge.run for edge in edges] + [mount.run for mount in mounts]
    play(world, actors, seconds)
    network.stop()
    settle(world, node, edges, mounts, auditor)
    for proxy in proxies:
        proxy.close()


def settle(world: World, node: NodeActor, edges: list[EdgeActor], mounts: list[MountActor], auditor: Auditor) -> None:
    """The faults are over: everything is pushed, everywhere the same, and nothing that was promised is missing."""
    node.settle()
    for mount in mounts:
        mount.settle()
    for edge in edges:
        edge.settle()
    auditor.finish()
    node.stop()


if __name__ == "__main__":
    sys.exit(run("tests.soak", "Faults for minutes; see tests/soak.", soak, sys.argv[1:]))

"""`python -m tests.soak`: see __init__.py."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from ..mounts import why_not
from .audit import Auditor
from .edges import SHARED, EdgeActor
from .mounted_bank import MountActor
from .network import NetworkActor
from .proxy import Proxy
from .report import Report
from .restarted_node import NodeActor
from .world import World

PROGRESS_SECONDS = 10.0


def main(arguments: list[str]) -> int:
    options = argparse.ArgumentParser(prog="python -m tests.soak", description="Faults for minutes; see tests/soak.")
    options.add_argument("--minutes", type=float, default=1.0)
    options.add_argument("--seed", type=int, default=None, help="drawn, and told, if not given")
    chosen = options.parse_args(arguments)
    seed = random.SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="budwood-soak-")))
    print(f"seed {seed}, {chosen.minutes:g} minutes, in {folder}", flush=True)
    report = Report()
    world = World(folder, seed, report)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: world.over.set())
    try:
        soak(world, chosen.minutes * 60)
    finally:
        world.over.set()
        world.children.close()
    print(report.summary(), flush=True)
    print(f"seed {seed}: {'FAILED, see ' + str(folder) if report.violations else 'all held'}", flush=True)
    if not report.violations:
        shutil.rmtree(folder)
    return 1 if report.violations else 0


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
    threads = [threading.Thread(target=guarded, args=(world, actor)) for actor in actors]
    for thread in threads:
        thread.start()
    passed = 0.0
    while passed < seconds and world.rest(min(PROGRESS_SECONDS, seconds - passed)):
        passed += PROGRESS_SECONDS
        print(world.report.line(), flush=True)
    world.over.set()
    for thread in threads:
        thread.join()
    network.stop()
    settle(world, node, edges, mounts, auditor)
    for proxy in proxies:
        proxy.close()


def guarded(world: World, actor: Callable[[], None]) -> None:
    """An actor that breaks is a violation, and ends the soak; the others come to their end."""
    try:
        actor()
    except Exception as error:
        world.report.violation(f"an actor broke: {error!r}")
        world.over.set()
        raise


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
    sys.exit(main(sys.argv[1:]))

"""The mixture of test_mixed.py through a node that dies again and again.

The node is killed between the steps, and in their midst at whatever point of its code the dice name; whoever watches
over it starts it again at its address. Who is told that it can't be reached does the same once more, and nothing is
done twice. Meanwhile the node rolls its logs up every other entry, folds what was forgotten and deletes what nobody
needs two seconds after; volumes move from one log to another.

MIXED_SEEDS=1000 tries as many.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import apsw
import pytest

from budwood.sync.volume import Volume
from budwood.volume import faults
from budwood.volume.calls import MOVE_LOG, A, Call, MoveRequest, Q
from budwood.volume.errors import Unavailable

from ..fault.crash_harness import start
from ..waits import wait_until
from .test_mixed import STEPS, Here, Mixed, There, mixing

T = TypeVar("T")

SEEDS = int(os.environ.get("MIXED_SEEDS", "3"))
CHAIN = 100

PROGRAM = """
from budwood.cli.launch import main
from budwood.server.metastore import rollups
from budwood.server.node import Node
from budwood.server.upkeep.upkeep import Pace
rollups.FEWEST, rollups.A_NODE = 2, 0
Node.open.__wrapped__.__kwdefaults__["pace"] = Pace(every_seconds=0.3, rest=1.0)
main()
"""
for _declares in ("budwood.server.node", "budwood.server.store.directory_tree"):
    import_module(_declares)
WHERE = ["collect", "fold", "gc", "log", "move", "node", "pagestore", "pin", "retain", "rollup", "store"]
POINTS = sorted(point for point in faults.registered() if point.partition(":")[0] in WHERE)
"""That a node may be killed at: those that its modules declare, whatever else was imported."""


class Watched:
    """A node that is started again, at its address, whenever it was killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listen = "127.0.0.1:0"
        self._lock = threading.Lock()
        self._ended = False
        self.starts = 1
        self._fault = ""
        """The point at which the next one is killed."""
        self.unexpected: list[str] = []
        self._child = self._start()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    @property
    def url(self) -> str:
        return f"http://{self._listen}"

    def _start(self, fault: str = "") -> subprocess.Popen[str]:
        store = ["--store", f"file://{self._folder}/store", "--create", "--gc-interval", "2s"]
        child = start(PROGRAM, "serve", *store, "--listen", self._listen, fault=fault)
        assert child.stdout is not None
        line = child.stdout.readline()
        if line:
            self._listen = line.split()[-1].removeprefix("http://")
        return child

    def _watch(self) -> None:
        while True:
            _, said = self._child.communicate()
            with self._lock:
                if self._ended:
                    return
                if said or self._child.returncode not in {0, -signal.SIGKILL, -signal.SIGTERM}:
                    self.unexpected.append(f"{self._child.returncode}: {said}")
                fault, self._fault = self._fault, ""
                self._child = self._start(fault)
                self.starts += 1

    def end(self, number: signal.Signals, fault: str = "") -> None:
        with self._lock:
            self._fault = fault
            self._child.send_signal(number)

    def restart(self) -> None:
        """With no fault; returns when the new one answers."""
        with self._lock:
            before, self._fault = self.starts, ""
            self._child.send_signal(signal.SIGTERM)
        wait_until(lambda: self.starts > before)

    def close(self) -> None:
        with self._lock:
            self._ended = True
            self._child.terminate()
        self._watcher.join()


def patient(call: Callable[[], T]) -> T:
    """As a user is: what failed since the node couldn't be reached is done once more."""
    found: list[T] = []

    def tried() -> bool:
        try:
            found.append(call())
        except Unavailable:
            return False
        return True

    wait_until(tried)
    return found[0]


class Patient:
    """Of an edge, or what it gives: each call is made until the node could be reached."""

    def __init__(self, of: Any) -> None:
        self.without_patience = of

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.without_patience, name)
        if not callable(value):
            return value

        def called(*arguments: Any, **named: Any) -> Any:
            made = patient(lambda: value(*arguments, **named))
            return Patient(made) if isinstance(made, Volume) else made

        return called


class MixedServed(Mixed):
    steps: ClassVar = STEPS + 4 * ["cut"] + 2 * ["kill"] + ["restart"] + 2 * ["move"]

    def __init__(self, folder: Path, dice: random.Random) -> None:
        (folder / "store").mkdir()
        self.node = Watched(folder)
        try:
            super().__init__(folder, dice)
        except BaseException:
            self.node.close()
            raise

    def _remote(self) -> str:
        return self.node.url

    def _open(self, number: int) -> Any:
        return Patient(super()._open(number))

    def _look(self, number: int, name: str, copy: Here) -> None:
        patient(lambda: super(MixedServed, self)._look(number, name, copy))

    def _look_back(self, name: str, there: There, lsn: int) -> None:
        patient(lambda: super(MixedServed, self)._look_back(name, there, lsn))

    def _look_at(self, name: str, there: There, at: str, lsn: int) -> None:
        patient(lambda: super(MixedServed, self)._look_at(name, there, at, lsn))

    def _write(self, number: int, name: str) -> None:
        patient(lambda: super(MixedServed, self)._write(number, name))

    def _connection(self, number: int, name: str) -> apsw.Connection:
        return patient(lambda: super(MixedServed, self)._connection(number, name))

    def _ask(self, call: Call[Q, A], request: Q) -> A:
        return patient(lambda: self.edges[0].connection().remote.ask(call, request))

    def write_there(self) -> None:
        """Whose outcome nobody would know, if the node died."""
        self.node.restart()
        super().write_there()

    def write_confirmed(self) -> None:
        """As by the lite client."""
        self.node.restart()
        super().write_confirmed()

    def _lands_unheard(self, number: int, name: str) -> bool:
        """By an edge that isn't patient."""
        self.node.restart()
        patient_edge = self.edges[number]
        self.edges[number] = cast("Any", patient_edge).without_patience
        try:
            return super()._lands_unheard(number, name)
        finally:
            self.edges[number] = patient_edge

    def compare(self) -> None:
        patient(super().compare)

    def close(self) -> None:
        super().close()
        self.node.close()

    def cut(self) -> None:
        """The node goes on until it comes to a point, which it may never."""
        point = f"{self.dice.choice(POINTS)}#{self.dice.randint(1, 4)}"
        self.said.append(f"the node will die at {point}")
        self.node.end(signal.SIGTERM, point)

    def kill(self) -> None:
        self.said.append("the node is killed")
        self.node.end(signal.SIGKILL)

    def restart(self) -> None:
        self.said.append("the node is restarted")
        self.node.restart()

    def move(self) -> None:
        _, _, copy, volume = self._pick("move")
        if copy.there.known and not copy.there.removed:
            to = self.dice.choice(["private", "main"])
            self.said[-1] += f" to {to}"
            self._ask(MOVE_LOG, MoveRequest(volume.id.raw, to=to))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_a_node_that_dies_is_asked_for_again_is_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    with mixing(MixedServed, tmp_path, monkeypatch, seed) as mixed:
        mixed.run(CHAIN)
        assert mixed.node.unexpected == []

"""The soak of nodes that die: two nodes, a stand-by, and clients that move money between accounts, for minutes.

    python -m tests.soak.failover --minutes 10 [--seed 7]

Each node is a machine of its own (machines.py), and so is the stand-by; the bucket and the clients are at the hub. Each
node, apart from the other, is killed, stopped, cut off from clients and bucket alike, or restarted with another number
of entries in flight, and gets its log back afterwards, as an operator would do it. Volumes move from log to log
meanwhile.

What must hold, each a violation otherwise: every transfer that was acknowledged stands at the LSN that was told, no LSN
was told twice, one that was refused stands nowhere, no transfer stands twice, the accounts add up at every LSN; and no
client waits longer than `STALL_SECONDS` for each fault that comes meanwhile.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from .children import COMMAND, Child
from .command import run
from .machines import HUB, Machines, why_not
from .world import World

STALL_SECONDS: Final = 5.0
PROGRESS_SECONDS: Final = 10.0
CLIENTS: Final = 8
BANKS: Final = 4
NODES: Final = ("one", "two")
STANDBY: Final = "three"
BUCKET_PORT: Final = 9000
STORE: Final = "s3://bucket/soak"
ROOT: Final = str(Path(__file__).parents[2])
BUCKET_ENVIRONMENT: Final = {
    "AWS_ENDPOINT": f"http://{HUB}:{BUCKET_PORT}",
    "AWS_ALLOW_HTTP": "true",
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_REGION": "us-east-1",
}


class Fault(NamedTuple):
    what: str
    began: float
    ended: float


class Deployment:
    def __init__(self, world: World) -> None:
        self.world = world
        self.machines = Machines(world.children)
        self.bucket = self._started("bucket", self._module("tests.soak.bucket", HUB, str(BUCKET_PORT)))
        self.address = {name: self.machines.add(name) for name in (*NODES, STANDBY)}
        self.nodes: dict[str, Child] = {}
        self.faults: list[Fault] = []
        self.over = threading.Event()
        """Faults are, and all else goes on."""

    def url(self, name: str) -> str:
        return f"http://{self.address[name]}:7447"

    def serve(self, name: str, *options: str) -> None:
        listen = ("--listen", f"{self.address[name]}:7447", "--node", name, "--insecure")
        command = [*COMMAND, "serve", "--create", "--store", STORE, *listen, *options]
        self.nodes[name] = self._started(name, self.machines.on(name, command))

    def program(self, name: str, verb: str, *arguments: str, url: str = "") -> Child:
        command = self._module("tests.soak.page_bank", verb, url or self.url(STANDBY), *arguments)
        return self.world.children.start(name, command, **BUCKET_ENVIRONMENT)

    def answer(self, name: str, verb: str, *arguments: str, url: str = "") -> Any:
        """What a verb of the bank says last."""
        child = self.program(name, verb, *arguments, url=url)
        status = self.world.children.end(child)
        return json.loads(child.lines[-1]) if status == 0 and child.lines else None

    def operate(self, *words: str) -> bool:
        """A command of an operator's; whether it did what it was told."""
        environment = BUCKET_ENVIRONMENT | {"BUDWOOD_HOME": str(self.world.folder / "operator")}
        child = self.world.children.start("operator", self.machines.on("", [*COMMAND, *words]), **environment)
        if not child.ended(60.0):
            self.world.children.hangs(child, "doesn't end")
        status = child.process.returncode
        self.world.children.forget(child)
        if status:
            self.world.report.error(f"budwood {words[0]}")
        return status == 0

    def _module(self, module: str, *arguments: str) -> list[str]:
        return self.machines.on("", [sys.executable, "-P", "-c", _AS_MODULE, ROOT, module, *arguments])

    def _started(self, name: str, command: list[str]) -> Child:
        child = self.world.children.start(name, command, **BUCKET_ENVIRONMENT)
        if not self.world.children.line(child):
            self.world.report.violation(f"{name} doesn't start: {self.world.children.said(child)}")
        return child


_AS_MODULE: Final = """
import runpy, sys
sys.path.append(sys.argv[1])
module = sys.argv[2]
del sys.argv[1:3]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


class NodeActor:
    """What happens to one node."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self._deployment = deployment
        self._world = deployment.world
        self._name = name
        self._dice = deployment.world.dice(name)

    def run(self) -> None:
        faults: dict[str, Callable[[], None]] = {
            "killed": self._kill,
            "stopped": self._stop,
            "cut off": self._cut,
            "restarted": self._restart,
        }
        while not self._deployment.over.wait(self._dice.uniform(6.0, 14.0)):
            what = self._dice.choice(list(faults))
            began = time.monotonic()
            faults[what]()
            self._deployment.faults.append(Fault(f"{self._name} was {what}", began, time.monotonic()))
            self._world.report.fault(what)

    def settle(self) -> None:
        self._back()

    def _kill(self) -> None:
        self._world.children.end(self._deployment.nodes[self._name], signal.SIGKILL)
        self._rest(0.0, 8.0)
        self._start()

    def _restart(self) -> None:
        status = self._world.children.end(self._deployment.nodes[self._name], signal.SIGTERM)
        if status:
            self._world.report.violation(f"node {self._name} ended with {status} on SIGTERM")
        self._start()

    def _stop(self) -> None:
        node = self._deployment.nodes[self._name]
        node.send(signal.SIGSTOP)
        self._rest(0.5, 12.0)
        node.send(signal.SIGCONT)
        self._rest(0.0, 4.0)
        self._back()

    def _cut(self) -> None:
        self._deployment.machines.cut(self._name)
        self._rest(0.5, 12.0)
        self._deployment.machines.heal(self._name)
        self._rest(0.0, 4.0)
        self._back()

    def _start(self) -> None:
        in_flight = str(self._dice.choice([1, 2, 8, 16]))
        self._deployment.serve(self._name, "--takeover", "--in-flight", in_flight)

    def _back(self) -> None:
        self._deployment.operate("takeover", self._name, "--remote", self._deployment.url(self._name))

    def _rest(self, least: float, most: float) -> None:
        self._deployment.over.wait(self._dice.uniform(least, most))


class Mover:
    """Moves banks from log to log."""

    def __init__(self, deployment: Deployment, banks: list[str]) -> None:
        self._deployment = deployment
        self._banks = banks
        self._dice = deployment.world.dice("mover")

    def run(self) -> None:
        while not self._deployment.over.wait(self._dice.uniform(3.0, 12.0)):
            bank, log = self._dice.choice(self._banks), self._dice.choice(NODES)
            answer = self._deployment.answer("mover", "move", bank, log)
            if answer == "moved":
                self._deployment.world.report.fault("moved")
            elif isinstance(answer, dict):
                self._deployment.world.report.error(f"move: {answer['error']}")


def soak(world: World, seconds: float) -> None:
    deployment = Deployment(world)
    deployment.serve(NODES[0])
    deployment.serve(NODES[1])
    deployment.serve(STANDBY, "--standby")
    made = deployment.answer("make", "make", *(NODES[number % 2] for number in range(BANKS)))
    if not isinstance(made, list) or world.report.violations:
        world.report.violation(f"the banks can't be made: {made}")
        return
    banks = cast("list[str]", made)
    clients = [
        (
            banks[number % BANKS],
            deployment.program(f"client-{number}", "transfer", banks[number % BANKS], str(number), str(number)),
        )
        for number in range(1, CLIENTS + 1)
    ]
    actors = [NodeActor(deployment, name) for name in NODES]
    runs = [*(actor.run for actor in actors), Mover(deployment, banks).run]
    threads = [threading.Thread(target=run) for run in runs]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0 and world.rest(min(PROGRESS_SECONDS, left)):
        answers, faults = sum(len(client.lines) for _, client in clients), world.report.faults.total()
        print(f"{time.monotonic() - began:.0f} s  {answers:,} answers  {faults:,} faults", flush=True)
    deployment.over.set()
    for thread in threads:
        thread.join()
    for actor in actors:
        actor.settle()
    for _, client in clients:
        client.close_input()
        world.children.end(client)
    judge(deployment, clients)
    for name in (*NODES, STANDBY):
        world.children.end(deployment.nodes[name], signal.SIGTERM)


def judge(deployment: Deployment, clients: list[tuple[str, Child]]) -> None:
    """Hold all that the clients were told against what the store has, read by nobody who was there."""
    report = deployment.world.report
    acknowledged: dict[str, dict[int, tuple[int, int]]] = {}
    refused: dict[str, set[tuple[int, int]]] = {}
    for number, (bank, client) in enumerate(clients, start=1):
        times: list[float] = []
        errors: list[tuple[float, str]] = []
        for answer in map(json.loads, client.lines):
            if "error" in answer:
                report.error(str(answer["error"]))
                errors.append((answer["at"], answer["said"]))
                continue
            at, transfer, lsn = cast("tuple[float, int, int]", answer)
            times.append(at)
            if lsn:
                stood = acknowledged.setdefault(bank, {}).setdefault(lsn, (number, transfer))
                if stood != (number, transfer):
                    report.violation(f"LSN {lsn} of {bank} was told to {stood} and to {(number, transfer)}")
            elif transfer:
                refused.setdefault(bank, set()).add((number, transfer))
        _judge_stalls(deployment, f"client {number}", times, errors)
    report.commits(sum(map(len, acknowledged.values())))
    for bank in sorted(acknowledged):
        made = deployment.answer(f"audit {bank}", "audit", bank, url=STORE)
        if not isinstance(made, list):
            report.violation(f"bank {bank} can't be read: {made}")
            continue
        transfers = cast("list[tuple[int, int]]", made)
        stands = {lsn: (writer, number) for lsn, (writer, number) in enumerate(transfers, start=2)}
        report.check("LSN", len(stands))
        for lsn, each in acknowledged[bank].items():
            if stands.get(lsn) != each:
                report.violation(f"{each} was told LSN {lsn} of {bank}, where {stands.get(lsn)} stands")
        if len(set(stands.values())) != len(stands):
            report.violation(f"a transfer stands twice in {bank}")
        for each in refused.get(bank, set()) & set(stands.values()):
            report.violation(f"{each} was refused, and stands in {bank}")


def _judge_stalls(deployment: Deployment, who: str, times: list[float], errors: list[tuple[float, str]]) -> None:
    report = deployment.world.report
    gaps = sorted(((until - since, since, until) for since, until in pairwise(times)), reverse=True)
    for seconds, since, until in gaps:
        faults = [fault for fault in deployment.faults if fault.began < until and fault.ended > since - STALL_SECONDS]
        began = [fault for fault in faults if since - STALL_SECONDS < fault.began]
        if seconds > STALL_SECONDS * max(1, len(began)):
            what = ", ".join(
                f"{fault.what} {fault.began - since:+.1f} to {fault.ended - since:+.1f} s" for fault in faults
            )
            told = "; ".join(f"{at - since:+.1f} {said}" for at, said in errors if since < at < until)
            report.violation(f"{who} waited {seconds:.1f} s; {what}; it was told: {told}")
    if gaps:
        print(f"{who}: longest waits {', '.join(f'{seconds:.1f}' for seconds, *_ in gaps[:6])} s", flush=True)


if __name__ == "__main__":
    if reason := why_not():
        sys.exit(f"no machines can be made here: {reason}")
    sys.exit(run("tests.soak.failover", "Nodes that die, for minutes.", soak, sys.argv[1:]))

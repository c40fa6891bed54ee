"""Harness: real processes that are killed at a fault point, and fresh ones that look at what is left.

A child dies of SIGKILL where `BUDWOOD_FAULT` says (volume/faults.py); nothing else here sends that signal, so a child
that died of it was cut at that very point. What it had acknowledged by then stands in its output, a line each. `look`
is a process of its own, so that nothing which the dead one held in memory helps.

The three ways to run the same program: `finish` (no fault: the workload is sound, and what it says is true), `cut`
(it must die at the point), `start` (it goes on while the test does something else).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import budwood
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge

from .. import fork_server
from ..waits import LIMIT_SECONDS, wait_until

WORK = Path(__file__).with_name("work.py")
LOOK = Path(__file__).with_name("look.py")


@dataclass(frozen=True, slots=True)
class Place:
    """Homes and a store of one test."""

    folder: Path

    @property
    def store(self) -> str:
        return f"file://{self.folder / 'store'}"

    def home(self, name: str = "home") -> Path:
        return self.folder / name

    def copy(self, folder: Path) -> Place:
        shutil.copytree(self.folder, folder)
        return Place(folder)

    def execute(self, sql: str, *bindings: Any, name: str = "ledger", home: str = "home", remote: str = "") -> None:
        """One transaction of a connection of its own, offline unless a remote is given."""
        with closing(budwood.connect(name, home=self.home(home), remote=remote)) as db:
            db.execute(sql, bindings)

    @contextmanager
    def edge(self, home: str = "home", remote: str | None = None) -> Generator[Edge]:
        with open_edge(home=self.home(home), remote=self.store if remote is None else remote) as edge:
            yield edge


def start(program: Path | str, *arguments: object, fault: str = "") -> subprocess.Popen[str]:
    """A child that runs `program` (a file, or Python's source)."""
    source = [str(program)] if isinstance(program, Path) else ["-c", program]
    return fork_server.Popen(
        [sys.executable, "-P", *source, *map(str, arguments)],
        env={**os.environ, "BUDWOOD_FAULT": fault},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(program: Path | str, *arguments: object) -> list[str]:
    """The lines that it acknowledged. It must end well."""
    output, errors, status = _ended(start(program, *arguments))
    assert status == 0, f"{arguments} ended with {status}: {errors}"
    return output


def cut(fault: str, program: Path | str, *arguments: object) -> list[str]:
    """The lines that it had acknowledged when it was killed at `fault` ("point", or "point#n")."""
    output, errors, status = _ended(start(program, *arguments, fault=fault))
    assert status == -signal.SIGKILL, f"{arguments} was never cut at {fault!r} (status {status}): {errors}"
    return output


def _ended(child: subprocess.Popen[str]) -> tuple[list[str], str, int]:
    try:
        output, errors = child.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        output, errors = child.communicate()
        raise AssertionError(f"{child.args!r} did not end: {output} {errors}") from None
    return output.split("\n")[:-1], errors, child.returncode


class Look(NamedTuple):
    """What a fresh process found, and what it could do (look.py)."""

    names: list[str]
    """The volumes of the home."""
    integrity: str
    rows: list[str]
    """Before it wrote anything."""
    unpushed: int
    pushed: str
    """The LSN that its push came to, or "diverged"."""
    kept: list[str]
    """The rows that `reset --keep-as` kept, if it had to be reset."""
    local: list[str]
    """The rows here when all was done."""
    remote: list[str]
    """The rows that a second home sees then."""
    history: list[list[str]]
    """The rows at each remote LSN, from 1 on."""


def look(place: Place, name: str = "ledger", *, home: str = "home", remote: str = "", mark: str = "after") -> Look:
    """Look at the volume in a fresh process, write one row to it (`mark`), push, and look at it from a new home."""
    output = finish(LOOK, place.home(home), remote or place.store, name, place.home(f"beside {mark}"), mark)
    return Look(**json.loads(output[-1]))


def rows_of(place: Place, name: str = "ledger", *, home: str = "home", remote: str | None = None) -> list[str]:
    """In this process, with a connection of its own."""
    with closing(
        budwood.connect(name, home=place.home(home), remote=place.store if remote is None else remote, mode="rw")
    ) as db:
        return [str(row[0]) for row in db.execute("select entry from ledger order by rowid")]


SERVE = "from budwood.cli.launch import main; main()"


class Serving:
    """A node in a process of its own, at the same address each time it starts."""

    def __init__(self, place: Place, port: int = 0) -> None:
        self.place = place
        self.port = port
        self.child: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *options: str, fault: str = "", program: Path | str = SERVE) -> None:
        """Returns when it answers."""
        assert self.child is None
        listen = f"127.0.0.1:{self.port}"
        child = self.child = start(
            program, "serve", "--create", "--store", self.place.store, "--listen", listen, *options, fault=fault
        )
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line, f"the node did not start: {self.stop()}"
        self.port = int(line.split()[-1].rpartition(":")[2])

    def stopped(self) -> None:
        """Wait until it has stopped itself (SIGSTOP)."""
        assert self.child is not None
        pid, states = self.child.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
        found = wait_until(lambda: os.waitid(os.P_PID, pid, states))
        assert found is not None
        assert found.si_code == os.CLD_STOPPED, f"the node ended: {self.stop()}"

    def go_on(self) -> None:
        assert self.child is not None
        self.child.send_signal(signal.SIGCONT)

    def died(self) -> str:
        """Wait until the fault has killed it; what it had said on standard error."""
        assert self.child is not None
        errors, status = self._end()
        assert status == -signal.SIGKILL, f"the node was never cut (status {status}): {errors}"
        return errors

    def stop(self) -> str:
        """End it, cleanly if it can be; what it had said on standard error."""
        if self.child is None:
            return ""
        self.child.send_signal(signal.SIGCONT)
        self.child.terminate()
        return self._end()[0]

    def _end(self) -> tuple[str, int]:
        child, self.child = self.child, None
        assert child is not None
        _, errors, status = _ended(child)
        return errors, status

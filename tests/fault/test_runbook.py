"""Each block of docs/runbook.md does what the page says, word for word, with real nodes to which happens what it is
about (S1.21)."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from ..waits import LIMIT_SECONDS
from .crash_harness import SERVE

PAGE = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text()
BLOCKS = re.findall(r"^## ([^\n]+)$|^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def sections() -> list[tuple[str, list[str]]]:
    found = list[tuple[str, list[str]]]()
    for title, block in BLOCKS:
        if title:
            found.append((title, []))
        else:
            found[-1][1].append(block)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Machine:
    """A folder in which the page is worked through."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"
        command = folder / "bin" / "budwood"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -P -c {SERVE!r} "$@"\n')
        command.chmod(0o755)
        self.two = f"127.0.0.1:{free_port()}"
        self.environment = {
            "PATH": f"{command.parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "BUDWOOD_HOME": str(folder / "home"),
            "STORE": self.store.as_uri(),
            "ONE": f"127.0.0.1:{free_port()}",
            "TWO": self.two,
        }

    def run(self, text: str) -> str:
        """What it said; it must succeed. Nodes that it starts go on."""
        with (self.folder / "said").open("w+") as said:
            done = subprocess.run(
                ["bash", "-euc", text],
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_SECONDS,
                check=False,
            )
            said.seek(0)
            words = said.read()
        assert done.returncode == 0, f"{text}{words}"
        return words

    def signal(self, node: str, number: signal.Signals) -> None:
        """One of the nodes that the page has started here."""
        os.kill(self._pid(node), number)

    def _pid(self, node: str) -> int:
        return int((self.folder / f"{node}.pid").read_text())

    def end(self) -> None:
        for node in ("one", "two"):
            try:
                self.signal(node, signal.SIGKILL)
            except (OSError, ValueError):
                continue


@pytest.fixture
def machine(tmp_path: Path) -> Generator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.end()


SHOP = """
budwood create shop
budwood sql shop "CREATE TABLE orders(id INTEGER PRIMARY KEY)"
budwood push shop --remote "http://$ONE"
"""
ROWS = 'budwood sql shop "INSERT INTO orders(id) VALUES (NULL)" && budwood push shop --remote "http://$TWO"'


@pytest.mark.slow
@pytest.mark.longest
def test_each_block_of_the_runbook_does_what_it_says(machine: Machine) -> None:
    """After each an edge pushes, whichever node it was given."""
    away = machine.folder / "away"
    titles = [title for title, _ in sections()]
    assert titles == [
        "Two nodes, each on stand-by for the other",
        "Planned restart",
        "Rolling restart, with another `--in-flight`",
        "Moving a volume to another node",
        "A node died",
        "A node hangs",
        "One volume is urgent, and its node can't be reached",
        "The store is away",
        "Taking a node out for good",
    ]
    pushed, said = 0, ""
    for title, blocks in sections():
        assert blocks, title
        if title == "A node died":
            machine.signal("one", signal.SIGKILL)
        if title == "A node hangs":
            machine.signal("one", signal.SIGSTOP)
        if title.startswith("One volume is urgent"):
            machine.signal("two", signal.SIGSTOP)
        if title == "The store is away":
            machine.store.rename(away)
        for number, block in enumerate(blocks):
            if title == "The store is away" and number:
                away.rename(machine.store)
            said = machine.run(block)
        if title.startswith("One volume is urgent"):
            machine.signal("two", signal.SIGCONT)
        if not pushed:
            machine.run(SHOP)
        machine.run(ROWS)
        pushed += 1
    assert "no log names one as its owner, or can any more" in said
    count = machine.run('budwood sql shop "SELECT count(*) FROM orders"')
    assert count.split()[-1] == str(pushed + 1), "one of them while the store was away"

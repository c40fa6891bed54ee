"""The command as a test runs it: in this process, or as a process of its own through the console entry."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from budwood.cli.main import run

from .. import fork_server
from ..waits import LIMIT_SECONDS

ENTRY = [sys.executable, "-P", "-c", "from budwood.cli.launch import main; main()"]
THREE = "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT); INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, NULL)"


@dataclass(frozen=True, slots=True)
class Said:
    code: int
    out: str
    err: str

    def line(self, code: int = 1) -> str:
        """The one line that a refusal prints, without "budwood: "; fails unless that is all that was said."""
        assert self.code == code, f"exit status {self.code} and not {code}: {self.out}{self.err}"
        assert "Traceback" not in self.err
        assert "BUDWOOD_DEBUG" not in self.err
        assert self.err.count("\n") == 1, f"not one line: {self.err!r}"
        assert self.err.startswith("budwood: ")
        return self.err.removeprefix("budwood: ").rstrip("\n")


class Command:
    """One user: a home, and perhaps a remote."""

    def __init__(self, capsys: pytest.CaptureFixture[str], home: Path, remote: str = "") -> None:
        self.capsys = capsys
        self.home = home
        self.options = ["--home", str(home), *(["--remote", remote] if remote else [])]

    def __call__(self, *arguments: str) -> Said:
        """In this process."""
        self.capsys.readouterr()
        code = run([*self.options, *arguments])
        said = self.capsys.readouterr()
        return Said(code, said.out, said.err)

    def ok(self, *arguments: str) -> str:
        """What it printed, once it succeeded without a word of complaint."""
        said = self(*arguments)
        assert (said.code, said.err) == (0, ""), said
        return said.out

    def sql(self, name: str, text: str, *arguments: str) -> list[str]:
        """The lines of rows."""
        return self.ok("sql", *arguments, "--", name, text).splitlines()

    def sql_made(self, name: str) -> None:
        """A new volume `name` with a table of three rows, unpushed."""
        self.ok("create", name)
        self.sql(name, THREE)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """As a process; the caller waits for it. Commands alone: what a shell would run."""
        streams: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        return fork_server.Popen([*ENTRY, *self.options, *arguments], text=True, **streams)

    def process(self, *arguments: str, stdin: str = "", **options: Any) -> Said:
        with self.start(*arguments, stdin=subprocess.PIPE, **options) as child:
            out, err = child.communicate(stdin, timeout=LIMIT_SECONDS)
        return Said(child.returncode, out, err)


@contextmanager
def serving(store: Path | str, *arguments: str, listen: str = "127.0.0.1:0") -> Generator[str]:
    """A node in a process of its own; its URL. It must end cleanly when it is told to."""
    url = store if isinstance(store, str) else store.as_uri()
    child = fork_server.Popen(
        [*ENTRY, "serve", "--create", "--store", url, "--listen", listen, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with child:
        try:
            assert child.stdout is not None
            ready = child.stdout.readline()
            assert ready, child.communicate()[1]
            yield ready.split()[-1]
        finally:
            child.send_signal(signal.SIGTERM)
            out, err = child.communicate(timeout=LIMIT_SECONDS)
        assert (child.returncode, out, err) == (0, "", ""), f"{child.returncode}: {out}{err}"


@contextmanager
def started_node(
    store: Path | str, listen: str, *options: str, stderr: Any = None
) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A process that serves, and its address; killed at the end, if it is there still."""
    url = store if isinstance(store, str) else store.as_uri()
    arguments = ["serve", "--store", url, "--create", "--listen", listen, *options]
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": stderr}
    with fork_server.Popen([*ENTRY, *arguments], text=True, **streams) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()[-1]
        finally:
            process.kill()

"""Children: the soak's processes. Each has a limit on everything that is waited for, and a cause for its end.

A child that ends by a signal which wasn't sent from here is a violation; so is a traceback, and so is a wait that
reaches its limit. Of what hangs the stacks are written down, Python's of every child (each dumps them on SIGUSR1) and
the kernel's, and then it is killed, so that the soak goes on.

A helper process, which is told of every child and every mount, ends all of them when this process is gone.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from ..waits import LIMIT_SECONDS
from .report import Report

ROOT: Final = Path(__file__).parents[2]

_DUMPS: Final = "import faulthandler, signal; faulthandler.register(signal.SIGUSR1, chain=False); "
COMMAND: Final = [sys.executable, "-P", "-c", _DUMPS + "from budwood.cli.launch import main; main()"]
PROGRAM: Final = [
    sys.executable,
    "-P",
    "-c",
    _DUMPS + f"import sys; sys.path.append({str(ROOT)!r}); from tests.soak.program import main; main(sys.argv[1:])",
]

REAPER: Final = """
import os, subprocess, sys
pids, mounts = set(), set()
for line in sys.stdin:
    verb, what = line.rstrip("\\n").split(" ", 1)
    {"born": pids.add, "ended": pids.discard, "mounted": mounts.add}[verb](what)
for pid in pids:
    try:
        os.kill(int(pid), 9)
    except ProcessLookupError:
        pass
for directory in mounts:
    subprocess.run(["fusermount3", "-u", "-z", directory], stderr=subprocess.DEVNULL)
"""


class Child:
    """One process; what it says on standard output is read by a thread, so that it never waits for us."""

    def __init__(self, name: str, command: list[str], process: subprocess.Popen[str], log: Path) -> None:
        self.name = name
        self.command = " ".join(command)
        self.process = process
        self.log = log
        self.sent: set[int] = set()
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def send(self, number: signal.Signals) -> None:
        self.sent.add(number)
        self.process.send_signal(number)

    def close_input(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def ended(self, seconds: float) -> bool:
        """Whether it ends within that time, with all that it said read."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
            self._reader.join(seconds)
            return not self._reader.is_alive()
        return False


class Children:
    def __init__(self, folder: Path, report: Report) -> None:
        self.report = report
        self._logs = folder / "logs"
        self._logs.mkdir()
        self._living: set[Child] = set()
        self._mounts: set[Path] = set()
        self._lock = threading.Lock()
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", REAPER], stdin=subprocess.PIPE, text=True, start_new_session=True
        )

    def start(self, name: str, command: list[str], **environment: str) -> Child:
        log = self._logs / f"{name}.log"
        with log.open("a") as errors:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        child = Child(name, command, process, log)
        with self._lock:
            self._living.add(child)
        self._tell(f"born {process.pid}")
        return child

    def mounted(self, directory: Path) -> None:
        self._tell(f"mounted {directory}")
        with self._lock:
            self._mounts.add(directory)

    def line(self, child: Child) -> str:
        """The first line that it says; nothing if it ended without one, or hangs."""
        end = time.monotonic() + LIMIT_SECONDS
        while not child.lines:
            if not child.lives and child.ended(LIMIT_SECONDS) and not child.lines:
                return ""
            if time.monotonic() > end:
                self.hangs(child, "says nothing")
                return ""
            time.sleep(0.01)
        return child.lines[0]

    def end(self, child: Child, number: signal.Signals | None = None) -> int:
        """Wait until it has ended, once the signal, if any, was sent; judge how."""
        if number is not None:
            child.send(number)
        if not child.ended(LIMIT_SECONDS):
            self.hangs(child, "does not end")
        self.forget(child)
        status = child.process.returncode
        if status < 0 and -status not in child.sent:
            self.report.violation(f"{child.name} died of {signal.Signals(-status).name}: {self.said(child)}")
        elif status > 0:
            self.report.violation(f"{child.name} ended with {status}: {self.said(child)}")
        return status

    def run(self, name: str, verb: str, *arguments: object) -> dict[str, Any]:
        """A verb of program.py, from its start to its end; what it found."""
        child = self.program(name, verb, *arguments)
        status = self.end(child)
        return json.loads(child.lines[-1]) if status == 0 and child.lines else {"error": "Nothing", "said": ""}

    def program(self, name: str, verb: str, *arguments: object) -> Child:
        return self.start(name, [*PROGRAM, verb, *map(str, arguments)])

    def hangs(self, child: Child, what: str) -> None:
        """A violation, with the stacks of everything; then it is killed, and waited for no more than the limit."""
        with self._lock:
            living = list(self._living)
        for each in living:
            with suppress(ProcessLookupError):
                each.send(signal.SIGUSR1)
        time.sleep(2.0)
        stacks = self._logs / f"hang-{len(self.report.violations)}.txt"
        with stacks.open("w") as file:
            print(f"{child.name} {what}\n", file=file)
            for each in living:
                _write_stacks(each, file)
        self.report.violation(f"{child.name} {what} within {LIMIT_SECONDS:.0f} s: the stacks are in {stacks}")
        child.send(signal.SIGKILL)
        for directory in self._mounts:
            if str(directory) in child.command:
                detach(directory)
        if not child.ended(LIMIT_SECONDS):
            self.report.violation(f"{child.name} can't be killed")

    def said(self, child: Child) -> str:
        return child.log.read_text(errors="replace")[-1500:].strip()

    def close(self) -> None:
        """End everything that lives still."""
        with self._lock:
            living, mounts = list(self._living), list(self._mounts)
        for child in living:
            with suppress(ProcessLookupError):
                child.send(signal.SIGCONT)
                child.send(signal.SIGKILL)
        for directory in mounts:
            detach(directory)
        for child in living:
            child.ended(LIMIT_SECONDS)
            self.forget(child)
        assert self._reaper.stdin is not None
        self._reaper.stdin.close()
        self._reaper.wait()

    def forget(self, child: Child) -> None:
        for stream in (child.process.stdin, child.process.stdout):
            with suppress(OSError, ValueError):
                if stream is not None:
                    stream.close()
        with self._lock:
            if child in self._living:
                self._living.remove(child)
                self._say_to_reaper(f"ended {child.process.pid}")

    def _tell(self, line: str) -> None:
        with self._lock:
            self._say_to_reaper(line)

    def _say_to_reaper(self, line: str) -> None:
        assert self._reaper.stdin is not None
        print(line, file=self._reaper.stdin, flush=True)


def detach(directory: Path) -> None:
    """Take a mount away whatever it is in; never waits for who serves it."""
    with open("/proc/self/mountinfo") as table:
        if any(line.split()[4] == str(directory) for line in table):
            subprocess.run(["fusermount3", "-u", "-z", str(directory)], stderr=subprocess.DEVNULL, check=False)


def _write_stacks(child: Child, file: IO[str]) -> None:
    print(f"== {child.name}, pid {child.process.pid}: {child.command}", file=file)
    for task in sorted(Path(f"/proc/{child.process.pid}/task").glob("*")):
        with suppress(OSError):
            state = re.search(r"State:\s*(\S+)", (task / "status").read_text())
            print(f"{task.name} {state.group(1) if state else '?'} {(task / 'wchan').read_text()}", file=file)
        with suppress(OSError):
            print((task / "stack").read_text(), file=file)
    print(child.log.read_text(errors="replace")[-20_000:] if child.log.exists() else "", file=file)

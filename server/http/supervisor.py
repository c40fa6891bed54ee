"""Supervisor: starts the workers of a node, starts again those that die, and ends with all of them (docs/design/0101).

What must hold: while this process lives there is one process for each worker, or a time at which it is started again;
and when it is gone, however it went, there is none.

It forks them off itself, once everything is loaded: so one that dies is there again in the time that taking its log
takes, and what they have loaded is in memory once. For that it never does anything else: no thread, no event loop, no
store.

    starting    the first one alone: what is wrong with the call, or the store, fails once; and then the others
    serving     one that ends without being told is started again: at once, or after a pause that doubles from
                `PAUSE_SECONDS` to `MOST_PAUSE_SECONDS` while it ends within `STEADY_SECONDS`
    stopping    on SIGTERM or SIGINT all are told to, and to hurry if it is said again; those that are still there after
                `STOP_SECONDS` and the time of the drain are killed

A worker dies with this process by the kernel's doing (PR_SET_PDEATHSIG), also if that is killed. Ctrl-C reaches all of
a terminal's processes, and systemd's SIGTERM all of a service's, beside what is sent from here. So workers don't hear
the one, take the other for the same however often it comes, and are told to hurry by a signal of their own (`HURRY`).
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

STEADY_SECONDS: Final = 10.0
PAUSE_SECONDS: Final = 0.5
MOST_PAUSE_SECONDS: Final = 30.0
STOP_SECONDS: Final = 30.0
HURRY: Final = signal.SIGUSR1
_READY: Final = b"r"
_SET_PDEATHSIG: Final = 1


@dataclass(slots=True)
class _Process:
    """One worker, in the process that is its own just now."""

    number: int
    pid: int = 0
    """0: it is to be started."""
    started_at: float = 0.0
    due_at: float = 0.0
    """When it is to be started."""
    pause_seconds: float = 0.0
    ready: bool = False
    """Whether it has ever served."""


class Supervisor:
    """`work` is a worker's whole life, in a process of its own: it is given its number, whether there was one before
    it, and what to call once it serves, and returns its exit status. What callers come to that worker by is made by
    `open_for`, and given up by `close_for` while it is to stay away. `say` tells the operator a line."""

    def __init__(
        self,
        count: int,
        work: Callable[[int, bool, Callable[[], None]], int],
        *,
        open_for: Callable[[int], object],
        close_for: Callable[[int], object],
        say: Callable[[str], None],
        on_ready: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
        drain_seconds: float = 0.0,
    ) -> None:
        self._work = work
        self._open = open_for
        self._close = close_for
        self._say = say
        self._on_ready = on_ready
        self._now = now
        self._stop_seconds = STOP_SECONDS + drain_seconds
        self._processes = [_Process(number) for number in range(1, count + 1)]
        self._selector = selectors.DefaultSelector()
        self._status: int | None = None
        """What all of it ends with, once it is to end."""
        self._killed_at = float("inf")
        self._serving = False

    def run(self) -> int:
        """The exit status, when none is left."""
        with self._signals() as told:
            self._start(self._processes[0])
            while self._status is None or any(each.pid for each in self._processes):
                self._wait(told)
                self._reap()
                self._start_due()
                self._end_late()
        return self._status

    def _start_due(self) -> None:
        if self._status is not None:
            return
        if self._processes[0].ready:
            for each in self._processes:
                if not each.pid and self._now() >= each.due_at:
                    self._start(each)
        if not self._serving and all(each.ready for each in self._processes):
            self._serving = True
            self._on_ready()

    def _wait(self, told: int) -> None:
        """Until something happens, or is due."""
        now = self._now()
        due = [each.due_at for each in self._processes if not each.pid and self._processes[0].ready]
        next_at = min([self._killed_at] if self._status is not None else due, default=float("inf"))
        timeout = None if next_at == float("inf") else max(0.0, next_at - now)
        for key, _ in self._selector.select(timeout):
            if key.fd == told:
                for number in os.read(told, 64):
                    if number != signal.SIGCHLD:
                        self._stop(0)
                continue
            process: _Process = key.data
            process.ready |= os.read(key.fd, 1) == _READY
            self._selector.unregister(key.fd)
            os.close(key.fd)

    def _start(self, process: _Process) -> None:
        self._open(process.number)
        ready, write = os.pipe()
        parent = os.getpid()
        process.started_at = self._now()
        process.pid = os.fork()
        if process.pid:
            os.close(write)
            self._selector.register(ready, selectors.EVENT_READ, process)
            return
        status = 1
        try:
            os.close(ready)
            die_with(parent)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            status = self._work(process.number, process.ready, lambda: _tell(write))
        finally:
            # Nothing that was the supervisor's is taken apart here.
            os._exit(status)

    def _reap(self) -> None:
        for process in self._processes:
            if not process.pid:
                continue
            pid, code = os.waitpid(process.pid, os.WNOHANG)
            if pid:
                process.pid = 0
                self._ended(process, os.waitstatus_to_exitcode(code))

    def _ended(self, process: _Process, code: int) -> None:
        if self._status is not None:
            self._status = self._status or _status_of(code)
            return
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        if not self._serving:
            if code <= 0:
                self._say(f"worker {process.number} {how} before it served")
            self._stop(_status_of(code) or 1)
            return
        now = self._now()
        if now - process.started_at >= STEADY_SECONDS:
            process.pause_seconds = 0.0
        process.due_at = now + process.pause_seconds
        if process.pause_seconds:
            self._close(process.number)
        again = f"is started again in {process.pause_seconds:g} s" if process.pause_seconds else "is started again"
        process.pause_seconds = min(max(PAUSE_SECONDS, 2 * process.pause_seconds), MOST_PAUSE_SECONDS)
        self._say(f"worker {process.number} {how}, and {again}")

    def _stop(self, status: int) -> None:
        if self._status is not None:
            self._send(HURRY)
            return
        self._status = status
        self._killed_at = self._now() + self._stop_seconds
        self._send(signal.SIGTERM)
        for process in self._processes:
            self._close(process.number)

    def _end_late(self) -> None:
        if self._status is not None and self._now() >= self._killed_at:
            self._killed_at = float("inf")
            late = [str(each.number) for each in self._processes if each.pid]
            if late:
                self._say(f"worker {', '.join(late)} did not stop within {self._stop_seconds:g} s, and is killed")
                self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        for process in self._processes:
            if process.pid:
                # It is not waited for yet, so this is its number still.
                os.kill(process.pid, number)

    @contextmanager
    def _signals(self) -> Generator[int]:
        """Where the numbers of signals can be read. A SIGINT that was ignored stays so."""
        told, write = os.pipe()
        os.set_blocking(write, False)
        numbers = [signal.SIGTERM, signal.SIGCHLD]
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            numbers.append(signal.SIGINT)
        before = {number: signal.signal(number, _noted) for number in numbers}
        old = signal.set_wakeup_fd(write)
        self._selector.register(told, selectors.EVENT_READ)
        try:
            yield told
        finally:
            signal.set_wakeup_fd(old)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(told)
            os.close(write)


def die_with(parent: int) -> None:
    """Have the kernel kill this process once that one, which forked it, is gone."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os._exit(1)


def _noted(_number: int, _frame: object) -> None:
    """That it came is told by the wake-up pipe."""


def _tell(write: int) -> None:
    os.write(write, _READY)
    os.close(write)


def _status_of(code: int) -> int:
    """What a shell would say of a process that was ended by a signal."""
    return 128 - code if code < 0 else code

"""How another process stands is told from outside of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator

import pytest

from budwood.fuse.host.process_state import ProcessState, child_of, process_state

from ..waits import wait_until


@pytest.fixture
def process() -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-I", "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_a_process_that_runs_is_stopped_or_has_ended_is_known_as_such(process: subprocess.Popen[bytes]) -> None:
    assert process_state(process.pid) is ProcessState.RUNS
    assert child_of(process.pid, os.getpid())
    assert not child_of(os.getpid(), process.pid)
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: process_state(process.pid) is ProcessState.STOPPED)
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: process_state(process.pid) is ProcessState.RUNS)
    process.kill()
    # Nobody has waited for it yet: its number is still there.
    wait_until(lambda: process_state(process.pid) is ProcessState.DEAD)
    process.wait()
    assert process_state(process.pid) is ProcessState.DEAD
    assert not child_of(process.pid, os.getpid())


def test_a_process_that_nothing_can_be_said_of_is_taken_to_run() -> None:
    """Of another namespace."""
    assert process_state(0) is ProcessState.RUNS

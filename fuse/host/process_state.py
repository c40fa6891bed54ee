"""Process state: how another process of this machine stands, as the kernel tells without asking the process."""

from __future__ import annotations

import enum
import os
from pathlib import Path
from typing import Final

_EXITING: Final = 0x4
"""PF_EXITING, among a process's flags."""


class ProcessState(enum.Enum):
    RUNS = "runs"
    STOPPED = "stopped"
    """By a signal or a debugger: it goes on when it is told to."""
    DEAD = "dead"
    """Or dying: it will answer nobody, whatever it still holds."""


def process_state(pid: int) -> ProcessState:
    fields = _stat(pid)
    if not fields:
        return ProcessState.RUNS if _may_be_hidden(pid) else ProcessState.DEAD
    if fields[0] in "ZXx" or int(fields[6]) & _EXITING:
        return ProcessState.DEAD
    return ProcessState.STOPPED if fields[0] in "Tt" else ProcessState.RUNS


def child_of(pid: int, parent: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and int(fields[1]) == parent


def _stat(pid: int) -> list[str]:
    """From the state on; empty where nothing is to be seen."""
    try:
        # The name before it may hold anything, brackets and blanks too.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _may_be_hidden(pid: int) -> bool:
    """Another user's, on a machine that shows each user his own alone; or one of another namespace."""
    if pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

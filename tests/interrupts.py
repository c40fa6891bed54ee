"""An exception at any instruction of a call, as Ctrl-C or a task's time limit brings it, and the program goes on.

Python looks for signals where a function begins, a loop turns, and a call has returned; so these are the points. They
are counted in this thread, in every frame of Python below the call, whoever wrote it; not in finalizers, whose
exceptions Python prints and drops. Nor in what the garbage collector calls, which rests meanwhile.
"""

from __future__ import annotations

import dis
import gc
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final

import pytest

can_interrupt: Final = pytest.mark.skipif(
    sys.version_info[:2] == (3, 13), reason="Python 3.13 doesn't tell of all instructions of what is traced first"
)

_RESUME: Final = dis.opmap["RESUME"]
_BEFORE: Final = frozenset(
    dis.opmap[name] for name in ("RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "CALL_KW") if name in dis.opmap
)


class Interruption(KeyboardInterrupt):
    """Raised by `interrupted`, and by nothing else."""


class _Tracer:
    def __init__(self, at: int) -> None:
        self.passed = 0
        self.where = ""
        self._at = at

    def frame(self, frame: FrameType, event: str, arg: Any) -> Callable[[FrameType, str, Any], Any] | None:
        if frame.f_code.co_filename == __file__ or _is_finalizer(frame):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        code, before = frame.f_code.co_code, _RESUME

        def step(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal before
            if event != "opcode":
                return step
            last, before = before, code[frame.f_lasti]
            if last in _BEFORE:
                self.passed += 1
                if self.passed == self._at:
                    self.where = f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
                    raise Interruption
            return step

        return step


def _is_finalizer(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name in ("__del__", "_remove", "remove"):
            return True
        frame = frame.f_back
    return False


def interrupted(call: Callable[[], object], at: int) -> str | None:
    """Where the call was interrupted, at its `at`th point counted from 1; None if it ended before. What else it raises
    is raised."""
    tracer = _Tracer(at)
    with suppress(Interruption):
        _traced(tracer, call)
    return tracer.where or None


def points(call: Callable[[], object]) -> int:
    """How many there are in this call."""
    tracer = _Tracer(-1)
    _traced(tracer, call)
    return tracer.passed


def _traced(tracer: _Tracer, call: Callable[[], object]) -> None:
    before, is_collecting = sys.gettrace(), gc.isenabled()
    gc.disable()
    # From 3.12 on, Python tells of instructions only once a frame that it knows has asked for them.
    here = inspect.currentframe()
    assert here is not None
    here.f_trace_opcodes = True
    sys.settrace(tracer.frame)
    try:
        call()
    finally:
        sys.settrace(before)
        if is_collecting:
            gc.enable()

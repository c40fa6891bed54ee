"""Calls: how much work something is, told as the number of functions, Python's and C's, that are called for it; or as
that of the bytecodes that are run, which sees a loop that calls nothing, and is slower.

    assert calls(lambda: names.make_file("d/last", FILE)) < 2 * calls(lambda: names.make_file("d/first", FILE))

Unlike seconds that is the same on every machine and under any load, so that a test can tell what grows with the number
of names from what doesn't. It sees this thread, and no work within one call; seconds are the benches' (bench/).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls(action: Callable[[], object]) -> int:
    count = 0

    def see(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before, collects = sys.getprofile(), gc.isenabled()
    # What the collector finds was left by others.
    gc.disable()
    sys.setprofile(see)
    try:
        action()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return count


def bytecodes(action: Callable[[], object]) -> int:
    count = 0

    def see(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += event == "opcode"
        return see

    before = sys.gettrace()
    sys.settrace(see)
    try:
        action()
    finally:
        sys.settrace(before)
    return count

"""Fault points: named places where a test may cut.

A point is declared once, beside the code it stands in, and named "where: what is about to be true":

    BEFORE_SEND = faults.point("push: pending recorded, nothing sent")
    ...
    BEFORE_SEND()

Unarmed, a call is one dictionary look-up. A test arms a point in its own process with `arm(name, action)`, or in a
child through the environment: BUDWOOD_FAULT="name" kills the process (SIGKILL) when the point is reached,
BUDWOOD_FAULT="name#3" at the third time. Arming a name that was never declared fails at once, so that a renamed point
can't silence its test; `registered()` is what the tests check their cuts against.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

_POINTS: Final[dict[str, Point]] = {}
_ARMED: Final[dict[str, Callable[[], None]]] = {}


class Cut(BaseException):
    """What an armed point may raise to stand for a crash. Nothing in the product catches it."""


class Point:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> None:
        action = _ARMED.get(self.name)
        if action is not None:
            action()


def point(name: str) -> Point:
    """Declare a fault point. Each name is declared in one place only."""
    assert name not in _POINTS, f"fault point {name!r} is declared twice"
    declared = _POINTS[name] = Point(name)
    _arm_from_environment(name)
    return declared


def registered() -> frozenset[str]:
    """Every point declared by the modules imported so far."""
    return frozenset(_POINTS)


def arm(name: str, action: Callable[[], None]) -> None:
    """Call `action` whenever the point is reached."""
    if name not in _POINTS:
        raise KeyError(f"no fault point is named {name!r}")
    _ARMED[name] = action


def disarm(name: str | None = None) -> None:
    """Disarm one point, or all."""
    if name is None:
        _ARMED.clear()
    else:
        _ARMED.pop(name, None)


def arm_from_environment() -> None:
    """Arm what BUDWOOD_FAULT names, where that was set only once the points were declared."""
    for name in _POINTS:
        _arm_from_environment(name)


def _arm_from_environment(name: str) -> None:
    wanted, _, nth = os.environ.get("BUDWOOD_FAULT", "").partition("#")
    if wanted != name:
        return
    remaining = int(nth or 1)

    def kill() -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    _ARMED[name] = kill

"""Deadline: one for a call, however many nodes it is sent to and however often it is asked again.

    with within(30):                 # whoever begins a call
        ...
        seconds_left(30)             # what is left of it, wherever; 30 outside of any

One that lies inside another never ends later.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import anyio

_END: Final[ContextVar[float | None]] = ContextVar("the end of this call", default=None)


@contextmanager
def within(seconds: float) -> Generator[None]:
    token = _END.set(anyio.current_time() + seconds_left(seconds))
    try:
        yield
    finally:
        _END.reset(token)


def seconds_left(most: float) -> float:
    end = _END.get()
    return most if end is None else max(0.0, min(most, end - anyio.current_time()))

"""Decoded kinds: structs that msgspec may decode in any thread.

msgspec looks at a struct's annotations when the first of that kind is decoded, by Python code that lets other threads
run. One that decodes the same kind just then takes what was half found for whole, and the process dies (seen with
msgspec 0.22, once in some fifty starts of a program with two threads). So each kind is looked at before it is decoded,
with all that it holds, by one thread at a time.
"""

from __future__ import annotations

import os
import threading
from typing import TypeVar

import msgspec

K = TypeVar("K")

_looked_at = set[object]()
_looking = threading.RLock()


def decodable(kind: K) -> K:
    """The kind itself, a struct or a union of some, once any thread may decode it."""
    if kind not in _looked_at:
        with _looking:
            msgspec.msgpack.Decoder(kind)
            _looked_at.add(kind)
    return kind


def _forget() -> None:
    """In a child after fork: whoever held the lock is not there."""
    global _looking
    _looking = threading.RLock()


os.register_at_fork(after_in_child=_forget)

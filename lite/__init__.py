"""SQLite over a remote, with nothing kept on disk.

    db = budwood.lite.connect("https://node", "inventory")                      # an apsw.Connection
    for commit in budwood.lite.listen("https://node", "inventory", after=7): …   # as they are made

Nothing is imported before its name is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import connect
    from .listening import listen

__all__ = ["connect", "listen"]

_HOMES = {"connect": ".client", "listen": ".listening"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value  # the next look-up does not come here
    return value

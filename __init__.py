"""Budwood: volumes of pages in an object store, opened at the edge as SQLite databases.

The whole face of the package:

    db = budwood.connect("inventory", home=..., remote=...)     # an apsw.Connection
    edge = budwood.open(home=..., remote=...)                   # volumes, names, sync

and the error tree, drawn in `budwood.volume.errors`. Nothing is imported before its name is asked for (PEP 562), so
that `import budwood.lite` loads neither a local store, nor an object store, nor a web framework.
"""

# ruff: noqa: F405 - the errors are listed once, where they are drawn

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sync.edge import open  # noqa: A004 - budwood.open, as gzip.open
    from .vfs.connect import connect
    from .volume.errors import *  # noqa: F403

__all__ = [
    "AlreadyExists",
    "BadInput",
    "BudwoodError",
    "Busy",
    "Conflict",
    "Corrupt",
    "Diverged",
    "Fenced",
    "Forgotten",
    "Full",
    "NotFound",
    "NotOwner",
    "OutcomeUnknown",
    "PagesNotHere",
    "ReadOnly",
    "StoreError",
    "Unauthorized",
    "Unavailable",
    "Unsupported",
    "UsageError",
    "WrongStore",
    "connect",
    "open",
]

# Where a name lives, unless it is an error.
_HOMES = {"connect": ".vfs.connect", "open": ".sync.edge"}


if not TYPE_CHECKING:  # a checker that saw this would believe in any name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES.get(name, ".volume.errors"), __name__), name)
        globals()[name] = value  # the next look-up does not come here
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""SQLite over a remote, with nothing kept on disk.

    db = budwood.lite.connect("https://node", "inventory")          # an apsw.Connection

Nothing is imported before its name is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .client import connect

__all__ = ["connect"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .client import connect

    globals()[name] = connect  # the next look-up does not come here
    return connect

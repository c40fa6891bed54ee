"""SQLite databases over volumes.

    budwood.vfs.register(home=..., remote=...)    # then apsw.Connection("file:NAME?vfs=budwood", flags=...)
    budwood.vfs.register_stdlib()                 # then sqlite3.connect("file:NAME?vfs=budwood", uri=True,
                                                  #      factory=budwood.vfs.StandardConnection)
    budwood.vfs.last_error()                      # what SQLite was told last in this thread

`budwood.connect` needs neither. Nothing is imported before its name is asked for: the lite client uses this
package's VFS and must not load the edge.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .codes import last_error
    from .connect import register
    from .standard import StandardConnection
    from .stdlib import register_stdlib

__all__ = ["StandardConnection", "last_error", "register", "register_stdlib"]

_HOMES = {
    "StandardConnection": ".standard",
    "last_error": ".codes",
    "register": ".connect",
    "register_stdlib": ".stdlib",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value  # the next look-up does not come here
    return value

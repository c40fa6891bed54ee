"""Budwood: volumes of pages in an object store, opened at the edge as SQLite databases.

The whole face of the package:

    db = budwood.connect("inventory", home=..., remote=...)     # an apsw.Connection
    edge = budwood.open(home=..., remote=...)                   # volumes, names, sync
    for commit in budwood.listen(remote, "inventory"): ...      # as they are made, wherever
    budwood.diff("inventory@7", "inventory", home=...).rows()   # what changed between two moments
    budwood.connect(..., autosync="both", on_diverged=budwood.replaying("ours"))
    budwood.dbapi.connect("inventory", home=..., remote=...)    # the same by PEP 249, through Python's sqlite3
    async with budwood.aio.connect("inventory", ...) as db: ... # the same in an event loop, asyncio's or trio's
    async with budwood.log.open_log(url, "events") as log: ...  # the log by itself, with no volumes

and the error tree, drawn in `budwood.volume.errors`. Nothing but the errors is imported before its name is asked for
(PEP 562), so that `import budwood.lite` loads neither a local store, nor an object store, nor a web framework. Those
that are modules can be imported as such, too: `import budwood.dbapi`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .volume import errors as _errors
from .volume.errors import *  # noqa: F403

if TYPE_CHECKING:
    from .lite.listening import listen
    from .rows.difference import diff
    from .rows.replaying import replaying
    from .server.plain import log
    from .sync.edge import open  # noqa: A004 - budwood.open, as gzip.open
    from .vfs import aio, dbapi
    from .vfs.connect import connect

__all__: list[str] = ["aio", "connect", "dbapi", "diff", "listen", "log", "open", "replaying"]
__all__ += _errors.__all__

_HOMES = {
    "aio": ".vfs.aio",
    "connect": ".vfs.connect",
    "dbapi": ".vfs.dbapi",
    "diff": ".rows.difference",
    "listen": ".lite.listening",
    "log": ".server.plain.log",
    "open": ".sync.edge",
    "replaying": ".rows.replaying",
}
_MODULES = {"aio", "dbapi", "log"}
"""Names that are modules, and no part of one."""


if not TYPE_CHECKING:  # a checker that saw this would believe in any name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(_HOMES[name], __name__)
        value = module if name in _MODULES else getattr(module, name)
        globals()[name] = value  # the next look-up does not come here
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

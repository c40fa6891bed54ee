"""SQLAlchemy: `create_engine("budwood:///inventory?remote=https://db.example")`.

SQLAlchemy's own dialect for SQLite, over dbapi.py; `sqlite+budwood:///…` is the same. What stands behind the `?` are
`dbapi.connect`'s arguments: `home`, `remote`, `token`, `lsn`, `at`, `mode`, `timeout`. A token is better given by
BUDWOOD_TOKEN or `connect_args`, since URLs are printed.

A pool keeps a connection for each thread that uses one, as for any file.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError

_TEXTS: Final = ("home", "remote", "token", "at", "mode")
_NUMBERS: Final[dict[str, Any]] = {"lsn": int, "timeout": float}


class BudwoodDialect(SQLiteDialect_pysqlite):
    """Its name is `sqlite`, so that all that is written for SQLite's dialect goes for it."""

    driver = "budwood"
    supports_statement_cache = True

    @classmethod
    def import_dbapi(cls) -> Any:
        from . import dbapi

        return dbapi

    def create_connect_args(self, url: URL) -> Any:
        if url.host or url.port or url.username or url.password:
            raise ArgumentError("write budwood:///NAME?remote=URL: the node's address is an argument, not the host")
        if not url.database:
            raise ArgumentError("which volume? budwood:///NAME?remote=URL")
        given: dict[str, Any] = {}
        for key, value in url.query.items():
            if not isinstance(value, str) or key not in (*_TEXTS, *_NUMBERS):
                known = ", ".join((*_TEXTS, *_NUMBERS))
                raise ArgumentError(f"{key!r} is no argument of a volume, or stands there twice: {known}")
            try:
                given[key] = _NUMBERS.get(key, str)(value)
            except ValueError:
                raise ArgumentError(f"{key}={value!r} is no number") from None
        given.setdefault("check_same_thread", False)
        return [url.database], given

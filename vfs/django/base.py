"""Base: Django's connection to a volume. Django looks for a backend in the module of this name."""

from __future__ import annotations

import os
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db.backends.sqlite3 import base as sqlite
from django.db.backends.sqlite3.features import DatabaseFeatures as SQLiteFeatures

from .. import dbapi
from ..standard import StandardCursor
from .client import DatabaseClient
from .creation import DatabaseCreation


class Cursor(sqlite.SQLiteCursorWrapper, StandardCursor):  # type: ignore[misc] # their stubs' arguments differ
    """Django's, with `%s` for parameters, over one that tells Budwood's errors as sqlite3's."""


class DatabaseFeatures(SQLiteFeatures):
    # Django's own are in memory, where a second connection has another database.
    test_db_allows_multiple_connections = True


class DatabaseWrapper(sqlite.DatabaseWrapper):
    """One connection; not for two threads at once. Its errors are Django's; Budwood's is their cause's cause."""

    Database = dbapi
    client_class: Any = DatabaseClient
    creation_class = DatabaseCreation
    features_class = DatabaseFeatures

    def get_connection_params(self) -> dict[str, Any]:
        """sqlite3.connect's arguments. Raises ImproperlyConfigured where the settings name no volume, or a host."""
        for key in ("HOST", "PORT", "USER", "PASSWORD"):
            if self.settings_dict.get(key):
                raise ImproperlyConfigured(
                    f"settings.DATABASES[{self.alias!r}] has a {key}, and a volume has none: "
                    "say where its node or store is in OPTIONS['remote'], and its token in OPTIONS['token']"
                )
        given: dict[str, Any] = super().get_connection_params()
        del given["uri"]
        database: str | os.PathLike[str] = given.pop("database")
        return dbapi.sqlite3_arguments(os.fspath(database), **given)

    def create_cursor(self, name: str | None = None) -> Any:
        return self.connection.cursor(factory=Cursor)

    def is_usable(self) -> bool:
        try:
            self.connection.execute("SELECT 1")
        except dbapi.Error:
            return False
        return True

    def push(self) -> dict[str, Any]:
        """Send what was committed here to the remote. Raises django.db.OperationalError: diverged, offline, or within a
        transaction."""
        return self._ask("push")

    def pull(self) -> dict[str, Any]:
        """Move to the remote's newest commit."""
        return self._ask("pull")

    def status(self) -> dict[str, Any]:
        """How the volume stands here."""
        return self._ask("status")

    def _ask(self, verb: str) -> dict[str, Any]:
        self.ensure_connection()
        with self.wrap_database_errors:
            told: dict[str, Any] = getattr(self.connection, verb)()
        return told

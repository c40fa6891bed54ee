"""Creation: the databases of a test run.

A run's volumes lie in a home beside the one that the settings mean, named after it, and know no remote: nothing that a
test commits can be pushed, and nothing of the real home is touched. The home stays, for `--keepdb`; without that a
run's volumes are removed from it at the end.

A clone for a parallel run is a fork of the volume: it copies nothing.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from django.db.backends.sqlite3 import creation as sqlite

from ...sync.edge import Edge
from ...sync.edge import open as open_edge
from ...volume.user_paths import default_home, expanded


class DatabaseCreation(sqlite.DatabaseCreation):
    @staticmethod
    def is_in_memory_db(database_name: Any) -> bool:
        """No volume is."""
        return False

    def _get_test_db_name(self) -> str:
        settings = self.connection.settings_dict
        return str(settings["TEST"]["NAME"] or f"test_{settings['NAME']}")

    def _create_test_db(self, verbosity: int, autoclobber: bool, keepdb: bool = False) -> str:
        name = self._get_test_db_name()
        self._move_out()
        with closing(self._edge()) as edge:
            if keepdb or not _is_there(edge, name):
                return name
            if verbosity >= 1:
                self.log(f"Destroying old test database for alias {self.connection.alias!r} ({name!r})...")
            if not autoclobber and input(f"Type 'yes' to delete the test database {name!r}: ") != "yes":
                self.log("Tests cancelled.")
                sys.exit(1)
            edge.rm(name, discard=True)
        return name

    def _destroy_test_db(self, test_database_name: str, verbosity: int) -> None:
        with closing(self._edge()) as edge:
            if _is_there(edge, test_database_name):
                edge.rm(test_database_name, discard=True)

    def _clone_test_db(self, suffix: str, verbosity: int, keepdb: bool = False) -> None:
        name = self.get_test_db_clone_settings(suffix)["NAME"]
        with closing(self._edge()) as edge:
            if _is_there(edge, name):
                if keepdb:
                    return
                edge.rm(name, discard=True)
            edge.fork(self.connection.settings_dict["NAME"], name)

    def test_db_signature(self) -> Any:
        """Two aliases of one home and one test volume are one database."""
        options = self.connection.settings_dict["OPTIONS"]
        return (str(_home(options)), self._get_test_db_name())

    def setup_worker_connection(self, _worker_id: int) -> None:
        # In place: Django's threads connect by these settings.
        self.connection.settings_dict.update(self.get_test_db_clone_settings(str(_worker_id)))
        self.connection.close()

    def _move_out(self) -> None:
        """Into the tests' home, where this run is not there yet."""
        options = self.connection.settings_dict["OPTIONS"]
        home = _home(options)
        if home.suffix != _SUFFIX:
            options = {key: value for key, value in options.items() if key not in ("token", "lsn", "at", "mode")}
            self.connection.settings_dict["OPTIONS"] = {**options, "home": f"{home}{_SUFFIX}", "remote": ""}

    def _edge(self) -> Edge:
        options = self.connection.settings_dict["OPTIONS"]
        return open_edge(home=options["home"], remote="")


_SUFFIX = ".tests"


def _home(options: dict[str, Any]) -> Path:
    return expanded(options.get("home") or default_home())


def _is_there(edge: Edge, name: str) -> bool:
    return name in {row["name"] for row in edge.ls()}

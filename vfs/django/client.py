"""Client: `manage.py dbshell`, which is apsw's shell on the volume (../shell.py); `-- "SELECT 1"` runs that alone.

Where the volume is goes by the environment: a command's line can be read by others.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.db.backends.base.client import BaseDatabaseClient

_VARIABLES: Final = {"home": "BUDWOOD_HOME", "remote": "BUDWOOD_REMOTE", "token": "BUDWOOD_TOKEN"}


class DatabaseClient(BaseDatabaseClient):
    executable_name: str | None = sys.executable

    @classmethod
    def settings_to_cmd_args_env(
        cls, settings_dict: dict[str, Any], parameters: Iterable[str]
    ) -> tuple[list[str], dict[str, str] | None]:
        if not settings_dict["NAME"]:
            raise ImproperlyConfigured("settings.DATABASES names no volume: say which in NAME")
        options = settings_dict["OPTIONS"]
        environment = {_VARIABLES[key]: str(options[key]) for key in _VARIABLES if options.get(key) is not None}
        module = __name__.rpartition(".django")[0] + ".shell"
        return [sys.executable, "-P", "-m", module, str(settings_dict["NAME"]), *parameters], environment or None

"""Import httpx without its command.

httpx imports that too, wherever click, rich and pygments are installed, as they are with `budwood[server]`: nearly as
long again as all the rest takes, in every process that asks a node for anything. What is left in its place says that it
can't run, as in any environment without them; the script `httpx` is a process of its own.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import cast

_COMMAND = "httpx._main"


def import_httpx() -> None:
    """For whoever comes first: `import httpx` is quick from then on."""
    if "httpx" in sys.modules:
        return
    # To Python: there is no such module.
    sys.modules[_COMMAND] = cast("ModuleType", None)
    try:
        import_module("httpx")
    finally:
        sys.modules.pop(_COMMAND, None)

"""The console script: starts the command, or says what to install.

`pip install budwood` brings the library alone; the command's own libraries come with the extra `cli`. Without them, and
only then, the script ends with one line and exit status 1. Any other missing module is a fault of the installation
and keeps its traceback.
"""

from __future__ import annotations

import sys

# What the extra `cli` brings, as top-level module names.
_EXTRA = frozenset({"rich", "typer"})


def main() -> None:
    """Run `budwood` (`cli/main.py`); the process exits with its status."""
    try:
        from .main import main as command
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.exit(f"budwood: the command needs the package {error.name!r}: pip install 'budwood[cli]'")
    command()

"""The console script: starts the command, or says what to install.

`pip install budwood` brings the library alone; the command's own libraries come with the extra `cli`. Where one of them
is missing the script ends with one line and exit status 1, before anything was begun. Any other missing module is a
fault of the installation and keeps its traceback.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

# What the extra `cli` brings, as top-level module names.
_EXTRA = ("rich", "typer")


def main() -> None:
    """Run `budwood` (`cli/main.py`); the process exits with its status."""
    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        sys.exit(f"budwood: the command needs {' and '.join(missing)}: pip install 'budwood[cli]'")
    from .main import main as command

    command()

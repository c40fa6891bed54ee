"""The console scripts: start the command, or say what to install.

`pip install budwood` brings the library alone; the command's own libraries come with the extra `cli`. Where one of them
is missing the script ends with one line and exit status 1, before anything was begun. Any other missing module is a
fault of the installation and keeps its traceback.

Standard streams that were closed (`<&-`, or a supervisor that gives none) are opened on the null device first. Else the
first file to be opened, a store's perhaps, would take the number, and what is printed would go into it. A standard
output that can't take every letter, as one in ASCII, has the others as Python writes them: `\\xfc`.
"""

from __future__ import annotations

import codecs
import os
import sys
from importlib.util import find_spec
from typing import Any

# What the extra `cli` brings, as top-level module names.
_EXTRA = ("rich", "typer")


def main() -> None:
    """Run `budwood` (`cli/main.py`); the process exits with its status."""
    _prepare()
    from .main import main as command

    command()


def mount_helper() -> None:
    """Run `mount.fuse.budwood`, as mount(8) does (`cli/mountopts.py`)."""
    _prepare()
    from .main import mount_helper as command

    command()


def _prepare() -> None:
    _open_streams()
    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        sys.exit(f"budwood: the command needs {' and '.join(missing)}: pip install 'budwood[cli]'")


def _open_streams() -> None:
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            # In rising order, the lowest number that is free is the one that was closed.
            fd = os.open(os.devnull, os.O_RDWR)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    output: Any = sys.stdout
    if codecs.lookup(output.encoding).name != "utf-8":
        output.reconfigure(errors="backslashreplace")

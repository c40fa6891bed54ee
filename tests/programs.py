"""Programs that a machine may lack, and a PATH to find them on, or not to find them on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SQLITE3 = """
import sqlite3, sys
from contextlib import closing
path, statements = sys.argv[1:]
with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as db:
    for row in db.execute(statements):
        print(*("" if each is None else each for each in row), sep="|")
"""
"""As much of SQLite's own command as `sqlite3 FILE STATEMENT` is."""


def path_with_sqlite3(folder: Path) -> str:
    """A PATH on which there is a `sqlite3`, in `folder`: one of Python's own library."""
    folder.mkdir()
    (folder / "sqlite3.py").write_text(SQLITE3)
    program = folder / "sqlite3"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I {folder}/sqlite3.py "$@"\n')
    program.chmod(0o755)
    return os.pathsep.join([str(folder), *os.get_exec_path()])


def path_without(folder: Path, *names: str) -> str:
    """A PATH, in `folder`, on which there is everything but the programs whose names begin so."""
    folder.mkdir()
    for each in reversed(os.get_exec_path()):
        for program in Path(each).glob("*"):
            if not program.name.startswith(names):
                (folder / program.name).unlink(missing_ok=True)
                (folder / program.name).symlink_to(program)
    return str(folder)

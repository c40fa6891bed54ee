"""A transaction whose frames are all in a -wal, and of which the wal-index doesn't tell: what a program leaves that is
killed between the two, or whose flush failed. SQLite goes on without it while anybody has the database open.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path


def write_untold(path: Path, statement: str, folder: Path) -> None:
    """Into the -wal of the database at `path`, which is open and at rest; it is made on a copy in `folder`."""
    copy, beside, copied_wal = folder / "copy.db", Path(f"{path}-wal"), folder / "copy.db-wal"
    shutil.copyfile(path, copy)
    shutil.copyfile(beside, copied_wal)
    end = written(path)
    os.truncate(copied_wal, end)
    with closing(sqlite3.connect(copy, isolation_level=None)) as db:
        db.execute("pragma wal_autocheckpoint = 0")
        db.execute(statement)
        frames = copied_wal.read_bytes()[end:]
    assert frames, "the copy goes on with the same log"
    with beside.open("r+b", buffering=0) as log:
        log.seek(end)
        log.write(frames)
    for each in folder.glob("copy.db*"):
        each.unlink()


def written(path: Path) -> int:
    """How far the -wal is written, in bytes, as the wal-index tells (sqlite.org/walformat, mxFrame)."""
    index = Path(f"{path}-shm").read_bytes()
    frames = int.from_bytes(index[16:20], "little")
    page_size = int.from_bytes(index[14:16], "little")
    assert frames, "there is a commit before"
    return 32 + frames * (24 + page_size)

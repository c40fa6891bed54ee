"""Migration: a home of an older format becomes one of this Budwood's, when it is opened by a process that has it to
itself and may write it.

    1 → 2    the journal (commit_journal.py). Nothing of the tables changes: the number keeps an older Budwood out,
             which would not see the journal's commits

A step is one durable transaction, the format's record in it: a home is of one format or the next, never between. The
marker beside the store follows, and is of no use but to tell a store that is gone from one that was never made; a crash
before it leaves an older number there, which the next one to open the home mends.

Crash windows (each a fault point, cut by tests/fault/test_care_killed.py):
  home: about to become another format · home: of another format, its marker not
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import lmdb
import msgspec

from ..volume import faults
from .home_permissions import open_private
from .tables import BEFORE_JOURNAL, FORMAT_VERSION, Format, Table, Txn, seal_row

FORMAT_KEY: Final = b"format"

ABOUT = faults.point("home: about to become another format")
RAISED = faults.point("home: of another format, its marker not")


def _nothing(_txn: Txn) -> None:
    """The tables stay as they are."""


STEPS: Final[dict[int, Callable[[Txn], None]]] = {BEFORE_JOURNAL: _nothing}
"""What turns the tables of a format into those of the next."""


def migrate(env: lmdb.Environment, meta: Table, before: Format) -> Format:
    """The home's first record afterwards; whoever opens the home writes the marker. Raises LMDB's errors, with the home
    as it was.
    """
    record = before
    while record.version < FORMAT_VERSION:
        ABOUT()
        step, record = STEPS[record.version], msgspec.structs.replace(record, version=record.version + 1)
        with env.begin(write=True) as txn:
            step(txn)
            txn.put(FORMAT_KEY, seal_row(FORMAT_KEY, record), db=meta)
        env.sync(True)
    RAISED()
    return record


def is_marked(marker: Path, record: Format) -> bool:
    """Whether the marker is there, and is this record's."""
    try:
        return marker.read_bytes() == _marked(record)
    except OSError:
        return False


def write_marker(marker: Path, record: Format) -> None:
    """What can't be written now is by whoever opens the home next."""
    temporary = marker.with_name(f".home.{os.getpid()}")
    with suppress(OSError):
        try:
            with open(open_private(temporary, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                file.write(_marked(record))
            temporary.rename(marker)
        except OSError:
            temporary.unlink(missing_ok=True)


def _marked(record: Format) -> bytes:
    said = {"budwood": "home", "format": record.version, "home": record.home.hex()}
    return (json.dumps(said) + "\n").encode()

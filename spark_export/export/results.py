"""Results: what an export did, table by table, and the error that is raised where some of it could not be done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ...volume.errors import BudwoodError


class Action(StrEnum):
    WRITTEN = "written"
    """Whole, from the first row to the last."""
    MERGED = "merged"
    """What had changed since the LSN that stood there."""
    UNCHANGED = "unchanged"
    """The target held this LSN, or an earlier one with the same rows."""
    SKIPPED = "skipped"
    """Nothing to export: no database, no table."""
    FAILED = "failed"
    """The target is as it was."""


@dataclass(frozen=True, slots=True)
class Result:
    volume: str
    """Its name."""
    table: str
    """"" where it never came to tables."""
    action: Action
    lsn: int
    """0 where it never came to one."""
    rows: int
    """Of the table."""
    size_bytes: int
    """Of the data files that were written."""
    seconds: float
    """From the start of the export until this table stood."""
    url: str
    """The table's folder."""
    reason: str = ""
    """Why it was done so; for what failed, the error's words."""
    verified: bool = False
    """Read back, and compared with the volume read once more."""
    error: BudwoodError | None = None


class Incomplete(BudwoodError):
    """Some tables were exported and some were not; `.results` tells of all. Running it again does what is left."""

    def __init__(self, results: Sequence[Result]) -> None:
        failed = [result for result in results if result.error]
        first = failed[0]
        where = f"{first.volume}, table {first.table}" if first.table else first.volume
        super().__init__(f"{len(failed)} of {len(results)} were not exported; the first, {where}: {first.error}")
        self.results = list(results)

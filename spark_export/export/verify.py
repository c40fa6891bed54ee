"""Verify: whether a target holds what its volume has at that LSN.

The volume is read once more, by a job of its own, and the target by its format's own reader, so that nothing is
compared with what an export believes of itself. Counts and checksums (checksum.py) tell: neither cares in which order
rows come, or how a reader holds their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from ...volume.errors import Corrupt
from ..source.scan import ScanTask, run_scan
from .checksum import Sum, total
from .files import reading
from .job import check_interrupted
from .table_selection import SourceTable
from .target import Target

_INSTEAD: Final = "export it again with --replace"


def checksum_rows(task: ScanTask) -> Sum:
    """What a part of the volume's rows comes to. Runs on executors."""
    return total(run_scan(task))


def compare(target: Target, table: SourceTable, expected: Sum) -> None:
    """Raises Corrupt, which says both sides, where they differ. `source` is what was read for this."""
    with reading(target.url, _INSTEAD):
        found = total(_while_wanted(target.read()))
    if found != expected:
        raise Corrupt(
            target.url,
            f"it reads as {found}, and {table.ref.name}, table {table.name} has {expected} at LSN {table.view.lsn}:"
            f" {_INSTEAD}",
        )


def _while_wanted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        check_interrupted()
        yield batch

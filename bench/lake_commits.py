"""A table of a lake that has been exported very often: what a commit costs then, against one to a table that has not.
Without Spark: the target alone, with one small file that takes the place of another each time. BUDWOOD_BENCH_COMMITS
says how often.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from budwood.spark_export.export.checksum import sum_of
from budwood.spark_export.export.delta import DeltaTarget
from budwood.spark_export.export.iceberg import IcebergTarget
from budwood.spark_export.export.parquet import ParquetTarget
from budwood.spark_export.export.target import State, Target, schema_digest
from budwood.spark_export.export.write import write_file

from .harness import Figure, compare, report, scratch

COMMITS: Final = int(os.environ.get("BUDWOOD_BENCH_COMMITS", "200"))
TIMES: Final = 5
BOUND: Final = 3.0
RETAINED_SECONDS: Final = 5.0
_FIELDS: list[pa.Field[Any]] = [pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())]
SCHEMA: Final = pa.schema(_FIELDS)
TARGETS: Final = {"parquet": ParquetTarget, "delta": DeltaTarget, "iceberg": IcebergTarget}


class Exported:
    """A table, and how it is exported once more."""

    def __init__(self, target: Target, retain_seconds: float | None = None) -> None:
        self._target = target
        self._retain_seconds = retain_seconds
        self._lsns = itertools.count(1)

    def commit(self) -> None:
        target, lsn = self._target, next(self._lsns)
        target.sweep()
        target.state()
        batch = pa.RecordBatch.from_pylist([{"id": each, "text": f"{lsn}"} for each in range(100)], schema=SCHEMA)
        file = write_file([batch], target.written(SCHEMA), target.folder(f"{lsn}"), "zstd", "id")
        assert file is not None
        found = sum_of(batch)
        columns = schema_digest(SCHEMA)
        state = State("vid", "shop", "orders", lsn, lsn, found.rows, found.checksum, columns, ("id",))
        target.replace([file], SCHEMA, state)
        target.sweep()
        if self._retain_seconds is not None:
            target.retain(self._retain_seconds)

    def commits(self) -> None:
        for _ in range(TIMES):
            self.commit()


def measured(lake: Path, name: str, retain_seconds: float | None) -> list[Figure]:
    def table(which: str) -> tuple[Path, Exported]:
        folder = lake / which / name
        return folder, Exported(TARGETS[name](folder.as_uri()), retain_seconds)

    (old_folder, old), (_, new) = table("old"), table("new")
    for _ in range(COMMITS):
        old.commit()
    what = name if retain_seconds is None else f"{name}, retained for {retain_seconds:g} s"
    taken = sum(path.stat().st_size for path in old_folder.rglob("*") if path.is_file())
    return [
        compare(f"{what}: a commit", old.commits, new.commits, BOUND),
        Figure(f"{what}: what lies there", taken / 1e6, " MB"),
    ]


def main() -> None:
    figures: list[Figure] = []
    with scratch() as folder:
        for number, (name, retain_seconds) in enumerate(
            (("parquet", None), ("delta", None), ("delta", 3600.0), ("iceberg", None), ("iceberg", RETAINED_SECONDS))
        ):
            figures += measured(folder / f"{number}", name, retain_seconds)
    report(f"lake: a table exported {COMMITS:,} times, against one that was not", figures)


if __name__ == "__main__":
    main()

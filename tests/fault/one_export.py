"""One table's export, up to its end or to where it is cut: a target driven as a run drives it, without Spark.

A table has three versions: "first" at LSN 1, and at LSN 2 either "replaced", every row another, or "merged", of which a
few rows changed. `bring` leads a target to one, as a run does: what stands there already is left alone.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.lakes import Export, Rows

from budwood.spark_export.export.parquet import ParquetTarget
from budwood.spark_export.export.target import COMMITTED, WRITTEN, DataFile, State, Target
from budwood.spark_export.export.write import write_file

CHILD: Final = f"""
import sys
sys.path.append({str(Path(__file__).parents[2])!r})
from tests.fault.one_export import main
main()
"""
"""The program of a process that brings: format, URL, version."""

ROWS_A_FILE: Final = 10


def _rows(keys: range, price: float) -> Rows:
    return {key: {"id": key, "name": f"n{key}", "price": price} for key in keys}


FIRST: Final = _rows(range(30), 0.5)
REPLACED: Final = _rows(range(5, 40), 2.5)
CHANGED: Final[Rows] = {13: {"id": 13, "name": "changed", "price": None}, 14: {"id": 14, "name": "", "price": -1.0}}
MERGED: Final[Rows] = {key: CHANGED.get(key, row) for key, row in FIRST.items() if key != 12}

VERSIONS: Final[Mapping[str, tuple[int, Rows]]] = {
    "first": (1, FIRST),
    "replaced": (2, REPLACED),
    "merged": (2, MERGED),
}


def open_target(format_: str, url: str) -> Target:
    match format_:
        case "parquet":
            return ParquetTarget(url)
        case "delta":
            from budwood.spark_export.export.delta import DeltaTarget

            return DeltaTarget(url)
        case _:
            from budwood.spark_export.export.iceberg import IcebergTarget

            return IcebergTarget(url)


def bring(format_: str, url: str, version: str) -> None:
    target = open_target(format_, url)
    target.sweep()
    if version == "retained":
        # What stands there, and nothing of what was replaced.
        target.retain(0)
        return
    lsn, rows = VERSIONS[version]
    export = Export(target, rows_a_file=ROWS_A_FILE, runs=iter([uuid.uuid4().int]))
    after = export.state(lsn, rows)
    if target.state() == after:
        return
    if version != "merged":
        files = _written(export, rows)
        WRITTEN()
        target.replace(files, export.schema, after)
    else:
        _merge_files(target, export, after)
    COMMITTED()
    target.sweep()


def _merge_files(target: Target, export: Export, after: State) -> None:
    """Of three files the second holds all that changed."""
    first, second, third = sorted(target.files(), key=lambda file: file.rowids or (0, 0))
    assert second.rowids is not None
    low, high = second.rowids
    assert all(low <= key <= high for key in CHANGED)
    files = _written(export, {key: row for key, row in MERGED.items() if low <= key <= high})
    WRITTEN()
    target.replace([first, *files, third], export.schema, after)


def _written(export: Export, rows: Rows) -> list[DataFile]:
    """Files with the rowids that lie in them, as executors write them."""
    schema, folder = export.target.written(export.schema), export.target.folder(uuid.uuid4().hex)
    keys = list(rows)
    files: list[DataFile] = []
    for start in range(0, len(keys), ROWS_A_FILE):
        part = keys[start : start + ROWS_A_FILE]
        file = write_file([export.batch([rows[key] for key in part])], schema, folder, "zstd", "id")
        assert file is not None
        files.append(file)
    return files


def main() -> None:
    bring(*sys.argv[1:])
    print(sys.argv[3])

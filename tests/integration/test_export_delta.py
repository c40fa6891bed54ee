"""What is Delta's own of an export: its log, its statistics, and what others may do to the table."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import CommitProperties
from tests.lakes import ODD, ODD_ROWS, SIMPLE, Export, Rows, made, rows_of

from budwood.spark_export.export.delta import DeltaTarget
from budwood.spark_export.export.target import State, StateLost
from budwood.volume.errors import BadInput, BudwoodError, Conflict


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "shop" / "orders"


def exporter(folder: Path, schema: pa.Schema = SIMPLE, rows_a_file: int = 10) -> Export:
    return Export(DeltaTarget(folder.as_uri()), schema, rows_a_file=rows_a_file)


def batch(rows: Rows) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(row) for row in rows.values()], schema=SIMPLE)


def test_the_history_says_what_was_exported(folder: Path) -> None:
    export = exporter(folder)
    export.replace(7, made(range(5)))
    newest = DeltaTable(folder).history(1)[0]
    assert State.from_json(newest["budwood"], "history") == export.state(7, made(range(5)))
    assert DeltaTable(folder).transaction_version("budwood") == 7


def test_statistics_are_exact_or_absent(folder: Path) -> None:
    exporter(folder, ODD, rows_a_file=100).replace(1, ODD_ROWS)
    log = (folder / "_delta_log" / f"{0:020}.json").read_text().splitlines()
    stats = next(json.loads(json.loads(line)["add"]["stats"]) for line in log if '"add"' in line)
    assert stats["numRecords"] == 5
    assert stats["nullCount"] == {name: sum(row[name] is None for row in ODD_ROWS.values()) for name in ODD.names}
    low, high = stats["minValues"], stats["maxValues"]
    assert (low["id"], high["id"]) == (-(2**63), 2**63 - 1)
    assert (low["day"], high["day"]) == ("0001-01-01", "9999-12-31")
    # Infinity is no number of JSON's, one text is long, and what Delta writes of the others isn't their value.
    assert low.keys() == high.keys() == {"id", "odd name;.x=%{}", "day"}


def test_readers_that_skip_files_by_statistics_find_every_row(folder: Path) -> None:
    exporter(folder, ODD, rows_a_file=1).replace(1, ODD_ROWS)
    for key in ODD_ROWS:
        found = pa.RecordBatchReader.from_stream(DeltaTable(folder).scan(columns=["id"], predicate=f"id = {key}"))
        assert found.read_all().to_pylist() == [{"id": key}]


def test_a_table_that_no_export_made_is_refused(folder: Path) -> None:
    write_deltalake(folder, batch(made(range(3))))
    export = exporter(folder)
    for refused in (export.target.state, lambda: export.replace(1, made(range(2)))):
        with pytest.raises(BadInput, match=r"no export of budwood made: export to another folder"):
            refused()
    assert DeltaTable(folder).version() == 0


def test_rows_that_somebody_else_wrote_are_not_thrown_away(folder: Path) -> None:
    export = exporter(folder)
    export.replace(1, made(range(3)))
    write_deltalake(folder, batch(made(range(90, 92))), mode="append")
    with pytest.raises(BadInput, match=r"somebody else changed the table .*WRITE, version 1"):
        export.replace(2, made(range(4)))
    assert DeltaTable(folder).to_pyarrow_table().num_rows == 5


def test_what_changes_no_row_may_be_done_by_anyone(folder: Path) -> None:
    export, rows = exporter(folder), made(range(100))
    export.replace(1, rows)
    DeltaTable(folder).optimize.compact()
    DeltaTable(folder).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    DeltaTable(folder).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert export.target.state() == export.state(1, rows)
    export.merge(2, rows, made(range(50, 120)))
    assert rows_of(export.target.read()) == export.expected(made(range(50, 120)))
    export.replace(3, made(range(3)))
    assert rows_of(export.target.read()) == export.expected(made(range(3)))
    assert DeltaTable(folder).metadata().configuration == {"delta.logRetentionDuration": "interval 9 days"}


def test_a_commit_on_top_of_another_version_than_was_seen_is_refused_also_where_rows_are_the_same(folder: Path) -> None:
    export, rows = exporter(folder), made(range(30))
    export.replace(1, rows)
    files = export.begin(list(made(range(5)).values()))
    DeltaTable(folder).optimize.compact()
    with pytest.raises(Conflict, match="run the export again"):
        export.target.replace(files, SIMPLE, export.state(2, made(range(5))))
    export.replace(2, made(range(5)))
    assert rows_of(export.target.read()) == export.expected(made(range(5)))


@pytest.mark.parametrize("days", [6, 8])
def test_what_was_exported_is_said_again_once_that_is_old(folder: Path, days: int) -> None:
    export, rows = exporter(folder), made(range(3))
    export.replace(1, rows)
    _age(folder, 0, days)
    for _ in range(2):
        export.target.refresh()
        assert DeltaTable(folder).version() == (1 if days > 7 else 0)
        assert export.target.state() == export.state(1, rows)
    assert rows_of(export.target.read()) == export.expected(rows)


def test_a_log_that_others_have_cleaned_still_says_what_was_exported(folder: Path) -> None:
    export, rows = exporter(folder), made(range(30))
    export.replace(1, rows)
    _age(folder, 0, 40)
    DeltaTable(folder).optimize.compact()
    _age(folder, 1, 39)
    export.target.refresh()
    DeltaTable(folder).create_checkpoint()
    DeltaTable(folder).cleanup_metadata()
    assert [path.name for path in sorted((folder / "_delta_log").glob("0*.json"))] == [f"{2:020}.json"]
    assert export.target.state() == export.state(1, rows)
    assert rows_of(export.target.read()) == export.expected(rows)
    _age(folder, 2, 2)
    export.target.refresh()
    assert DeltaTable(folder).version() == 2, "nobody came since"


def _age(folder: Path, version: int, days: int) -> None:
    """A version of the log becomes so old."""
    path = folder / "_delta_log" / f"{version:020}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["timestamp"] -= days * 86_400_000
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    then = time.time() - days * 86_400
    os.utime(path, (then, then))


def test_a_log_that_was_cleaned_of_the_export_is_said(folder: Path) -> None:
    export = exporter(folder)
    export.replace(1, made(range(3)))
    DeltaTable(folder).alter.set_table_properties({"delta.logRetentionDuration": "interval 9 days"})
    DeltaTable(folder).create_checkpoint()
    (folder / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(StateLost, match="was cleaned of the commit"):
        export.target.state()


def test_deletion_vectors_keep_a_merge_away_and_not_an_export(folder: Path) -> None:
    from deltalake import TableFeatures

    export, rows = exporter(folder), made(range(30))
    export.replace(1, rows)
    DeltaTable(folder).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    assert {file.rowids for file in export.target.files()} == {None}
    export.replace(2, made(range(20)))
    assert rows_of(export.target.read()) == export.expected(made(range(20)))


def test_a_partitioned_table_is_refused(folder: Path) -> None:
    export = exporter(folder)
    export.replace(1, made(range(3)))
    state = export.state(2, made(range(3)))
    write_deltalake(
        folder,
        batch(made(range(3))),
        mode="overwrite",
        schema_mode="overwrite",
        partition_by="name",
        commit_properties=CommitProperties({"budwood": state.to_json()}),
    )
    with pytest.raises(BadInput, match="is partitioned"):
        export.replace(3, made(range(4)))


def test_columns_that_differ_in_case_alone_are_refused(folder: Path) -> None:
    fields: list[pa.Field[Any]] = [
        pa.field("id", pa.int64()),
        pa.field("Ä", pa.int64()),
        pa.field("ä", pa.int64()),
    ]
    with pytest.raises(BadInput, match="'Ä' and 'ä' have one name"):
        exporter(folder, pa.schema(fields)).replace(1, {1: {"id": 1, "Ä": 2, "ä": 3}})


def test_files_that_are_not_what_was_said_are_not_committed(folder: Path) -> None:
    export, rows = exporter(folder), made(range(3))
    other = pa.schema([pa.field("id", pa.int64())])
    with pytest.raises(BadInput, match="doesn't hold the columns"):
        export.target.replace(export.begin(list(rows.values()), other), SIMPLE, export.state(1, rows))
    assert export.target.state() is None


def test_a_log_that_is_damaged_is_said(folder: Path) -> None:
    export = exporter(folder)
    export.replace(1, made(range(3)))
    (folder / "_delta_log" / f"{0:020}.json").write_bytes(b"{nonsense")
    with pytest.raises(BudwoodError, match="can't be read"):
        export.target.state()


def test_what_was_replaced_long_ago_goes(folder: Path) -> None:
    export, rows = exporter(folder), made(range(30))
    export.replace(1, rows)
    export.replace(2, made(range(20)))
    export.target.retain(7200)
    properties = DeltaTable(folder).metadata().configuration
    assert properties["delta.deletedFileRetentionDuration"] == "interval 2 hours"
    assert len(list(folder.rglob("*.parquet"))) == 5
    versions = DeltaTable(folder).version()
    export.target.retain(7200)
    assert DeltaTable(folder).version() == versions
    long_ago = time.time() - 3 * 3600
    for path in folder.rglob("*.parquet"):
        os.utime(path, (long_ago, long_ago))
    export.target.retain(0)
    assert len(list(folder.rglob("*.parquet"))) == 2
    for commit in sorted((folder / "_delta_log").glob("*.json"))[:-1]:
        # As a log is cleaned that has a checkpoint behind them.
        DeltaTable(folder).create_checkpoint()
        commit.unlink()
    assert export.target.state() == export.state(2, made(range(20)))
    export.merge(3, made(range(20)), made(range(21)))
    assert rows_of(export.target.read()) == export.expected(made(range(21)))

"""What is Iceberg's own of an export: its catalog, its snapshots and ids, and what others may do to the table."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import BooleanExpression, EqualTo
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from tests.lakes import ODD, ODD_ROWS, SIMPLE, Export, made, rows_of

from budwood.spark_export.export import iceberg_manifests, incremental
from budwood.spark_export.export.files import join
from budwood.spark_export.export.iceberg import CATALOG_FILE, IcebergTarget
from budwood.spark_export.export.iceberg_catalog import CATALOG
from budwood.spark_export.export.table_selection import folder_name
from budwood.spark_export.export.target import State
from budwood.volume.errors import BadInput, Corrupt, UsageError
from budwood.volume.faults import Cut


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path


def exporter(lake: Path, schema: pa.Schema = SIMPLE, rows_a_file: int = 10, catalog: str = "") -> Export:
    target = IcebergTarget((lake / "shop" / "orders").as_uri(), catalog=catalog)
    return Export(target, schema, rows_a_file=rows_a_file)


@contextmanager
def opened(uri: str) -> Generator[SqlCatalog]:
    catalog = SqlCatalog(CATALOG, uri=uri)
    try:
        yield catalog
    finally:
        catalog.close()


@contextmanager
def table_of(lake: Path) -> Generator[Table]:
    """As anyone opens it who has read where the catalog is."""
    with opened(f"sqlite:///{lake / CATALOG_FILE}") as catalog:
        yield catalog.load_table(("shop", "orders"))


def equal(column: str, value: object) -> BooleanExpression:
    """As the library documents it; its annotations are of the model beneath."""
    return cast("Any", EqualTo)(column, value)  # type: ignore[no-any-return]


def test_every_commit_is_one_snapshot_that_says_what_was_exported(lake: Path) -> None:
    export, rows = exporter(lake), made(range(25))
    export.replace(1, rows)
    export.replace(2, made(range(30)))
    export.merge(3, made(range(30)), made(range(40)))
    export.merge(4, made(range(40)), made(range(5, 40)))
    export.target.advance(export.state(5, made(range(5, 40))))
    with table_of(lake) as table:
        said = [snapshot.summary for snapshot in table.metadata.snapshots]
        states = [State.from_json(str(each.additional_properties["budwood"]), "") for each in said if each]
        assert [state.lsn for state in states] == [1, 2, 3, 4, 5]
        assert [str(each.operation.value) for each in said if each] == [
            "append",
            "overwrite",
            "overwrite",
            "overwrite",
            "append",
        ]
        assert State.from_json(table.properties["budwood"], "") == states[-1]


def test_readers_that_skip_files_by_statistics_find_every_row(lake: Path) -> None:
    exporter(lake, ODD, rows_a_file=1).replace(1, ODD_ROWS)
    with table_of(lake) as table:
        for key, row in ODD_ROWS.items():
            found = table.scan(equal("id", key), selected_fields=("id",)).to_arrow().to_pylist()
            assert found == [{"id": key}]
            if row["money"] is not None:
                money = row["money"].quantize(Decimal("0.01"), context=Context(38))
                found = table.scan(equal("money", money), selected_fields=("id",)).to_arrow().to_pylist()
                assert found == [{"id": key}]


def test_a_column_keeps_its_id_until_its_type_changes(lake: Path) -> None:
    exporter(lake).replace(1, made(range(3)))
    fields: list[pa.Field[Any]] = [
        pa.field("price", pa.string()),
        pa.field("id", pa.int64(), nullable=False),
    ]
    exporter(lake, pa.schema(fields)).replace(2, {1: {"price": "x", "id": 1}})
    with table_of(lake) as table:
        assert {field.name: field.field_id for field in table.schema().fields} == {"price": 4, "id": 1}
    back = exporter(lake)
    back.replace(3, made(range(3)))
    with table_of(lake) as table:
        assert {field.name: field.field_id for field in table.schema().fields} == {"id": 1, "name": 5, "price": 6}
    assert rows_of(back.target.read()) == back.expected(made(range(3)))


def test_a_table_that_no_export_made_is_refused(lake: Path) -> None:
    with opened(f"sqlite:///{lake / CATALOG_FILE}") as catalog:
        catalog.create_namespace("shop")
        foreign = catalog.create_table(("shop", "orders"), SIMPLE, location=str(lake / "elsewhere"))
        export = exporter(lake)
        with pytest.raises(BadInput, match=r"shop\.orders is a table that no export of budwood made"):
            export.target.state()
        foreign.append(pa.Table.from_batches([export.batch(list(made(range(3)).values()))]))
    with pytest.raises(BadInput, match=r"no export of budwood made snapshot"):
        export.replace(1, made(range(2)))


def test_rows_that_somebody_else_wrote_are_not_thrown_away(lake: Path) -> None:
    export = exporter(lake)
    export.replace(1, made(range(3)))
    with table_of(lake) as table:
        table.append(pa.Table.from_batches([export.batch(list(made(range(90, 92)).values()))]))
    with pytest.raises(BadInput, match="no export of budwood made snapshot"):
        export.replace(2, made(range(4)))
    with table_of(lake) as table:
        assert table.scan().to_arrow().num_rows == 5


def test_columns_that_somebody_else_changed_keep_a_merge_away_and_an_export_mends_them(lake: Path) -> None:
    export, rows = exporter(lake), made(range(3))
    export.rows_a_file = 1
    export.replace(1, rows)
    with table_of(lake) as table, table.update_schema() as update:
        update.rename_column("price", "cost")
    with pytest.raises(BadInput, match="changed the columns"):
        export.merge(2, rows, made(range(4)))
    export.replace(2, made(range(4)))
    assert rows_of(export.target.read()) == export.expected(made(range(4)))


def test_a_partitioned_table_is_refused(lake: Path) -> None:
    export = exporter(lake)
    export.replace(1, made(range(3)))
    with table_of(lake) as table, table.update_spec() as update:
        update.add_field("id", IdentityTransform(), "id_part")
    with pytest.raises(BadInput, match="is partitioned"):
        export.replace(2, made(range(4)))


def test_what_is_there_is_known_when_its_snapshots_are_expired(lake: Path) -> None:
    export, rows = exporter(lake), made(range(30))
    export.replace(1, rows)
    export.merge(2, rows, made(range(31)))
    killed = exporter(lake)
    killed.runs = iter([70])
    files = killed.begin(list(made(range(7)).values()))
    killed.target.replace(files, SIMPLE, killed.state(3, made(range(7))))
    with table_of(lake) as table:
        old = [snapshot.snapshot_id for snapshot in table.metadata.snapshots][:-1]
        table.maintenance.expire_snapshots().by_ids(old).commit()
    rerun = exporter(lake)
    rerun.target.sweep()
    assert rerun.target.state() == killed.state(3, made(range(7)))
    assert rows_of(rerun.target.read()) == rerun.expected(made(range(7)))


@pytest.mark.parametrize("first", [True, False])
def test_a_run_killed_within_its_commit_leaves_nothing_once_another_is_done(
    lake: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    export = exporter(lake)
    if not first:
        export.replace(1, made(range(3)))
    killed = exporter(lake)
    killed.runs = iter([70])

    def cut(*_: object, **__: object) -> None:
        raise Cut

    monkeypatch.setattr(SqlCatalog, "_write_metadata", cut)
    with pytest.raises(Cut):
        killed.replace(2, made(range(9)))
    monkeypatch.undo()
    assert export.target.state() == (None if first else export.state(1, made(range(3))))
    export.replace(2, made(range(9)))
    assert rows_of(export.target.read()) == export.expected(made(range(9)))
    with table_of(lake) as table:
        lists = [snapshot.manifest_list for snapshot in table.metadata.snapshots]
        manifests = [each.manifest_path for s in table.metadata.snapshots for each in s.manifests(table.io)]
    there = {str(path) for path in (lake / "shop" / "orders" / "metadata").glob("*.avro")}
    assert there == {*lists, *manifests}


@pytest.mark.parametrize("url", ["foo://user:sEcret@host/x", "postgresql+nothing://user:p@sEcret@127.0.0.1:1/db"])
def test_a_catalog_s_password_is_never_said(lake: Path, url: str) -> None:
    with pytest.raises(UsageError, match=r"user:\*\*\*@") as caught:
        IcebergTarget(join(lake.as_uri(), "shop", "orders"), catalog=url).state()
    assert "sEcret" not in str(caught.value)


def test_many_tables_of_one_new_catalog_are_made_side_by_side(lake: Path) -> None:
    rows = made(range(3))

    def export(number: int) -> list[str]:
        one = Export(IcebergTarget((lake / f"volume {number % 2}" / f"table {number}").as_uri()))
        one.replace(1, rows)
        one.merge(2, rows, made(range(2)))
        return rows_of(one.target.read())

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(export, range(16))) == [exporter(lake).expected(made(range(2)))] * 16


def test_a_catalog_may_be_anywhere(lake: Path) -> None:
    uri = f"sqlite:///{lake / 'other.db'}"
    export = exporter(lake, catalog=uri)
    export.replace(1, made(range(3)))
    assert not (lake / CATALOG_FILE).exists()
    with opened(uri) as catalog:
        assert catalog.load_table(("shop", "orders")).scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("volume", ["shop.eu", "a..b", "x.", "..", "é/ü ~"])
def test_a_volume_may_have_any_name(lake: Path, volume: str) -> None:
    export = Export(IcebergTarget(join(lake.as_uri(), folder_name(volume), folder_name(volume))))
    export.replace(1, made(range(3)))
    assert rows_of(export.target.read()) == export.expected(made(range(3)))


def test_names_of_the_catalog_s_own_may_be_given(lake: Path) -> None:
    url = (lake / "shop" / "orders").as_uri()
    export = Export(IcebergTarget(url, namespace="sales", table="all"))
    export.replace(1, made(range(3)))
    with opened(f"sqlite:///{lake / CATALOG_FILE}") as catalog:
        assert catalog.load_table(("sales", "all")).scan().to_arrow().num_rows == 3


def test_a_table_whose_folder_was_deleted_is_said_and_can_be_dropped(lake: Path) -> None:
    export = exporter(lake)
    export.replace(1, made(range(3)))
    shutil.rmtree(lake / "shop")
    with pytest.raises(BadInput, match=r"has a table shop\.orders, whose files are gone: drop it there"):
        export.target.state()
    with opened(f"sqlite:///{lake / CATALOG_FILE}") as catalog:
        catalog.drop_table(("shop", "orders"))
    export.replace(1, made(range(4)))
    assert rows_of(export.target.read()) == export.expected(made(range(4)))


def test_a_catalog_that_is_damaged_is_said(lake: Path) -> None:
    (lake / CATALOG_FILE).write_bytes(b"no database" * 100)
    with pytest.raises(UsageError, match=r"can't be opened: .*not a database"):
        exporter(lake).target.state()


def test_a_lake_that_was_deleted_is_begun_anew(lake: Path) -> None:
    exporter(lake).replace(1, made(range(3)))
    shutil.rmtree(lake / "shop")
    (lake / CATALOG_FILE).unlink()
    export = exporter(lake)
    export.replace(1, made(range(4)))
    assert rows_of(export.target.read()) == export.expected(made(range(4)))


def test_a_catalog_that_is_not_known_is_said() -> None:
    with pytest.raises(UsageError, match=r"need a catalog: name one, by --catalog"):
        IcebergTarget("s3://bucket/lake/shop/orders").state()
    with pytest.raises(UsageError, match="can't be opened"):
        IcebergTarget("s3://bucket/lake/shop/orders", catalog="nobody-knows-it").state()
    with pytest.raises(UsageError, match="can't be opened"):
        IcebergTarget("s3://bucket/lake/shop/orders", catalog="nonsense://x").state()
    with pytest.raises(BadInput, match="names no table"):
        IcebergTarget("file:///orders")


def merged(lake: Path, lsn: int) -> Export:
    """Five rows more at each LSN up to this one."""
    export, rows = exporter(lake, rows_a_file=1000), made(range(5))
    export.replace(1, rows)
    for each in range(2, lsn + 1):
        before, rows = rows, made(range(5 * each))
        export.merge(each, before, rows)
    return export


def test_a_snapshot_keeps_the_manifests_that_hold_files_and_no_others(lake: Path) -> None:
    """Each commit reads them all."""
    export = merged(lake, 11)
    with table_of(lake) as table:
        manifests = table.metadata.snapshots[-1].manifests(table.io)
        assert [(each.added_files_count, each.deleted_files_count) for each in manifests] == [(1, 0), (0, 1)]
        assert [len(snapshot.manifests(table.io)) for snapshot in table.metadata.snapshots][1:] == [2] * 10
    assert rows_of(export.target.read()) == export.expected(made(range(55)))


def test_many_manifests_become_one(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg_manifests, "_LEAST_MERGED", 4)
    monkeypatch.setattr(incremental, "SMALL_BYTES", 1)
    export = merged(lake, 13)
    with table_of(lake) as table:
        assert max(len(snapshot.manifests(table.io)) for snapshot in table.metadata.snapshots) <= 4
        assert len(list(table.scan().plan_files())) == 13
    assert rows_of(export.target.read()) == export.expected(made(range(65)))


def test_what_was_replaced_long_ago_goes_but_for_what_has_a_name(lake: Path) -> None:
    export, rows = exporter(lake), made(range(30))
    export.replace(1, rows)
    export.merge(2, rows, made(range(31)))
    with table_of(lake) as table:
        table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "audited").commit()
    export.replace(3, made(range(9)))
    export.replace(4, made(range(7)))
    folder = lake / "shop" / "orders"
    before = set(folder.rglob("*"))
    export.target.retain(3600)
    assert set(folder.rglob("*")) == before
    export.target.retain(0)
    with table_of(lake) as table:
        states = [each.summary.additional_properties["budwood"] for each in table.metadata.snapshots if each.summary]
        assert [State.from_json(str(state), "").lsn for state in states] == [1, 4]
        tagged = table.scan(snapshot_id=table.metadata.snapshots[0].snapshot_id).to_arrow_batch_reader()
        assert rows_of(tagged) == export.expected(rows)
    assert len(list(folder.rglob("*.parquet"))) == 4
    spoilt = folder / "_budwood" / "expired.json"
    spoilt.write_bytes(b"[")
    with pytest.raises(Corrupt, match="remove it"):
        export.target.sweep()
    spoilt.unlink()
    export.merge(5, made(range(7)), made(range(8)))
    assert rows_of(export.target.read()) == export.expected(made(range(8)))

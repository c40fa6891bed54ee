"""Delta and Iceberg alike: a table in a lake is exactly one copy of the volume's, whatever was killed, repeated or done
at once. No Spark: files are written here as executors write them, and read by each format's own reader."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.lakes import ODD, ODD_ROWS, SIMPLE, Export, made, rows_of

from budwood.spark_export.export.checksum import total
from budwood.spark_export.export.delta import DeltaTarget
from budwood.spark_export.export.files import join, locate, names_in, put
from budwood.spark_export.export.iceberg import IcebergTarget
from budwood.spark_export.export.runs import DATA
from budwood.spark_export.export.target import METADATA_FOLDER, Target
from budwood.volume.errors import BadInput, Conflict, UsageError

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

Open = Callable[[], Target]
"""A target as a process that has just begun has it."""


@pytest.fixture(params=["delta", "iceberg"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    url = join(tmp_path.as_uri(), "sh%p #1?", "or ders")
    return lambda: DeltaTarget(url) if request.param == "delta" else IcebergTarget(url)


def commits(target: Target) -> int:
    """How many the format itself knows of."""
    if isinstance(target, DeltaTarget):
        return len([name for name in names_in(join(target.url, "_delta_log")) if name.endswith(".json")])
    assert isinstance(target, IcebergTarget)
    with target._opened() as (_, table):  # pyright: ignore[reportPrivateUsage]
        return 0 if table is None else len(table.metadata.snapshots)


def folders(target: Target) -> dict[str, list[str]]:
    """What lies in the folders of runs."""
    data = join(target.url, DATA)
    return {name: sorted(names_in(join(data, name))) for name in sorted(names_in(data))}


def files_of(target: Target) -> dict[str, tuple[int, int]]:
    """By their paths, the rowids that lie in them."""
    return {file.path: file.rowids for file in target.files() if file.rowids}


def marks(target: Target) -> list[str]:
    return sorted(names_in(join(target.url, METADATA_FOLDER, "runs")))


def test_a_table_is_what_was_exported_and_says_so(opened: Open) -> None:
    export, rows = Export(opened(), rows_a_file=100), made(range(950))
    assert export.target.state() is None
    export.replace(3, rows)
    assert opened().state() == export.state(3, rows)
    assert rows_of(opened().read()) == export.expected(rows)
    assert opened().read().schema == SIMPLE


def test_values_at_the_edges_of_their_types_come_back_as_they_are(opened: Open) -> None:
    export = Export(opened(), ODD, rows_a_file=2)
    export.replace(1, ODD_ROWS)
    assert rows_of(opened().read()) == export.expected(ODD_ROWS)
    changed = {key: dict(row) for key, row in ODD_ROWS.items() if key != 2**63 - 1}
    changed[-(2**63)]["raw"] = b""
    export.merge(2, ODD_ROWS, changed)
    assert rows_of(opened().read()) == export.expected(changed)
    assert opened().read().schema == ODD


def test_an_empty_table_has_its_columns_and_takes_rows(opened: Open) -> None:
    export = Export(opened())
    export.replace(1, {})
    assert opened().read().read_all().num_rows == 0
    assert opened().read().schema == SIMPLE
    export.merge(2, {}, made(range(3)))
    assert rows_of(opened().read()) == export.expected(made(range(3)))
    export.merge(3, made(range(3)), {})
    assert opened().read().read_all().num_rows == 0


def test_the_same_export_again_commits_nothing(opened: Open) -> None:
    export, rows = Export(opened()), made(range(10))
    export.replace(3, rows)
    export.merge(4, rows, made(range(12)))
    before = commits(opened())
    again = Export(opened(), runs=iter(range(50, 60)))
    again.merge(4, rows, made(range(12)))
    again.target.advance(again.state(4, made(range(12))))
    again.target.replace(again.begin(list(made(range(12)).values())), SIMPLE, again.state(4, made(range(12))))
    assert commits(opened()) == before
    assert rows_of(opened().read()) == export.expected(made(range(12)))


def test_what_is_there_already_is_written_again_where_that_is_asked_for(opened: Open) -> None:
    export, rows = Export(opened()), made(range(10))
    export.replace(3, rows)
    before = folders(opened())
    again = Export(opened(), runs=iter(range(50, 60)))
    again.target.replace(again.begin(list(rows.values())), SIMPLE, again.state(3, rows), force=True)
    assert folders(opened()) != before
    assert rows_of(opened().read()) == export.expected(rows)
    assert opened().state() == export.state(3, rows)


def test_a_merge_writes_what_changed_anew_also_where_the_file_is_damaged(opened: Open) -> None:
    """It is read from the volume, and not from the lake."""
    export, rows = Export(opened()), made(range(10))
    export.replace(1, rows)
    (file,) = Path(locate(opened().url)[1]).rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    export.merge(2, rows, made(range(1, 10)))
    assert rows_of(opened().read()) == export.expected(made(range(1, 10)))


def test_where_no_row_changed_only_the_state_moves_on(opened: Open) -> None:
    export, rows = Export(opened()), made(range(10))
    export.replace(3, rows)
    export.target.advance(export.state(9, rows))
    assert opened().state() == export.state(9, rows)
    assert rows_of(opened().read()) == export.expected(rows)


@pytest.mark.parametrize("seed", range(3))
def test_merges_come_to_what_a_fresh_export_would_be(opened: Open, seed: int) -> None:
    chance = random.Random(seed)
    export = Export(opened(), rows_a_file=64)
    rows: dict[int, dict[str, Any]] = made(range(0, 1000, 2))
    export.replace(1, rows)
    for lsn in range(2, 6):
        new = {key: row for key, row in rows.items() if chance.random() > 0.05}
        for key in chance.sample(sorted(new), 20):
            new[key] = {"id": key, "name": chance.choice([None, "", "ä"]), "price": chance.random()}
        new.update(made(range(1000 * lsn, 1000 * lsn + chance.randrange(30))))
        export.merge(lsn, rows, new)
        rows = new
        assert opened().state() == export.state(lsn, rows)
        found = total(opened().read())
        assert (found.rows, found.checksum) == (export.state(lsn, rows).rows, export.state(lsn, rows).checksum)
        assert rows_of(opened().read()) == export.expected(rows)


def test_a_merge_writes_only_the_files_anew_that_hold_what_changed(opened: Open) -> None:
    export, rows = Export(opened(), rows_a_file=100), made(range(1000))
    export.replace(1, rows)
    new = {**rows, **made(range(250, 260), price=9.0)}
    del new[777]
    before = files_of(opened())
    export.merge(2, rows, new)
    after = files_of(opened())
    assert len(before) == 10
    assert sorted(before[path] for path in before.keys() - after.keys()) == [(200, 299), (700, 799)]
    export.merge(3, new, {**new, **made(range(5000, 5010))})
    last = files_of(opened())
    assert sorted(last[path] for path in last.keys() - after.keys()) == [(900, 999), (5000, 5009)]
    assert after.keys() - last.keys() == {path for path, rowids in after.items() if rowids == (900, 999)}


def test_files_that_no_rowid_tells_apart_say_so(opened: Open) -> None:
    fields: list[pa.Field[Any]] = [
        pa.field("place", pa.string(), nullable=False),
        pa.field("part", pa.int64(), nullable=False),
    ]
    for lsn, key in enumerate([("place", "part"), ("place",), ()], start=1):
        export = Export(opened(), pa.schema(fields), key=key, runs=iter([lsn]))
        export.replace(lsn, {at: {"place": f"p{at}", "part": at} for at in range(5)})
        assert [file.rowids for file in opened().files()] == [None]


def test_a_run_killed_before_its_commit_leaves_the_table_and_the_next_leaves_one_copy(opened: Open) -> None:
    rows, new = made(range(100)), made(range(50, 150), price=2.0)
    Export(opened(), rows_a_file=10).replace(1, rows)
    killed = Export(opened(), rows_a_file=10, runs=iter([70]))
    killed.begin(list(new.values()))
    assert rows_of(opened().read()) == killed.expected(rows)
    rerun = Export(opened(), rows_a_file=10, runs=iter([71]))
    rerun.replace(2, new)
    assert rows_of(opened().read()) == rerun.expected(new)
    assert [name[21:] for name in folders(opened())] == ["run1", "run71"]
    assert marks(opened()) == []


def test_the_first_export_killed_before_its_commit_leaves_no_table(opened: Open) -> None:
    killed = Export(opened(), runs=iter([70]))
    killed.begin(list(made(range(5)).values()))
    assert opened().state() is None
    Export(opened()).replace(1, made(range(10)))
    assert rows_of(opened().read()) == killed.expected(made(range(10)))
    assert [name[21:] for name in folders(opened())] == ["run1"]


def test_a_run_killed_after_its_commit_is_done_and_what_it_left_goes(opened: Open) -> None:
    rows, new = made(range(100)), made(range(95))
    Export(opened(), rows_a_file=10).replace(1, rows)
    killed = Export(opened(), runs=iter([70]))
    files = killed.begin_merge(rows, new)
    put(join(files[-1].path.rpartition("/")[0], "part-left.parquet"), b"an attempt that failed")
    killed.target.replace(files, SIMPLE, killed.state(2, new))
    assert "part-left.parquet" in folders(opened())["00000000000000000002-run70"]
    rerun = opened()
    rerun.sweep()
    assert rerun.state() == killed.state(2, new)
    assert rows_of(rerun.read()) == killed.expected(new)
    assert "part-left.parquet" not in folders(rerun)["00000000000000000002-run70"]
    assert marks(rerun) == []


def test_older_versions_still_read_after_a_sweep(opened: Open) -> None:
    export, rows = Export(opened(), rows_a_file=10), made(range(100))
    export.replace(1, rows)
    export.replace(2, made(range(5)))
    export.merge(3, made(range(5)), made(range(4)))
    assert rows_of(version(opened(), 1)) == export.expected(rows)
    assert rows_of(version(opened(), 2)) == export.expected(made(range(5)))


def test_of_two_exporters_at_once_the_later_is_refused_and_harms_nothing(opened: Open) -> None:
    rows = made(range(20))
    first, second = Export(opened(), runs=iter([1, 3])), Export(opened(), runs=iter([2]))
    files, others = first.begin(list(rows.values())), second.begin(list(made(range(9)).values()))
    second.target.replace(others, SIMPLE, second.state(5, made(range(9))))
    second.target.sweep()
    with pytest.raises(Conflict, match="run the export again"):
        first.target.replace(files, SIMPLE, first.state(4, rows))
    assert rows_of(opened().read()) == second.expected(made(range(9)))
    assert opened().state() == second.state(5, made(range(9)))
    first.replace(6, rows)
    assert rows_of(opened().read()) == first.expected(rows)


def test_a_commit_that_another_overtakes_at_the_last_moment_is_refused(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    Export(opened()).replace(1, made(range(20)))
    late, quick = Export(opened(), runs=iter([2])), Export(opened(), runs=iter([3]))
    before_commit(late.target, monkeypatch, lambda: quick.replace(5, made(range(9))))
    with pytest.raises(Conflict, match="run the export again"):
        late.replace(4, made(range(30)))
    assert opened().state() == quick.state(5, made(range(9)))
    assert rows_of(opened().read()) == quick.expected(made(range(9)))


def test_new_rows_are_not_put_on_top_of_somebody_else_s(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself either library would: to it, two who only add don't disturb each other."""
    Export(opened()).replace(1, made(range(20)))
    late, quick = Export(opened(), runs=iter([2])), Export(opened(), runs=iter([3]))
    before_commit(late.target, monkeypatch, lambda: quick.merge(2, made(range(20)), made(range(22))))
    with pytest.raises(Conflict, match="run the export again"):
        late.merge(3, made(range(20)), made(range(23)))
    assert opened().state() == quick.state(2, made(range(22)))
    assert rows_of(opened().read()) == quick.expected(made(range(22)))


def test_of_two_first_exports_at_once_the_later_is_refused(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    late, quick = Export(opened(), runs=iter([2])), Export(opened(), runs=iter([3]))
    files = late.begin(list(made(range(30)).values()))
    before_commit(late.target, monkeypatch, lambda: quick.replace(5, made(range(9))), first=True)
    with pytest.raises(Conflict, match="run the export again"):
        late.target.replace(files, SIMPLE, late.state(4, made(range(30))))
    assert rows_of(opened().read()) == quick.expected(made(range(9)))


def test_of_two_merges_at_once_the_later_is_refused(opened: Open) -> None:
    rows = made(range(20))
    Export(opened()).replace(1, rows)
    first, second = Export(opened(), runs=iter([2])), Export(opened(), runs=iter([3]))
    ours, theirs = first.begin_merge(rows, made(range(25))), second.begin_merge(rows, made(range(19)))
    second.target.replace(theirs, SIMPLE, second.state(2, made(range(19))))
    with pytest.raises(Conflict):
        first.target.replace(ours, SIMPLE, first.state(3, made(range(25))))
    assert rows_of(opened().read()) == second.expected(made(range(19)))


def test_a_sweep_leaves_a_run_alone_that_may_yet_commit(opened: Open) -> None:
    rows = made(range(20))
    Export(opened()).replace(1, rows)
    running = Export(opened(), runs=iter([70]))
    files = running.begin(list(made(range(9)).values()))
    opened().sweep()
    running.target.replace(files, SIMPLE, running.state(2, made(range(9))))
    assert rows_of(opened().read()) == running.expected(made(range(9)))


def test_a_commit_whose_answer_was_lost_is_found_and_not_made_twice(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = made(range(20))
    export = Export(opened())
    export.replace(1, rows)
    lose_answers(export.target, monkeypatch)
    export.replace(2, made(range(9)))
    monkeypatch.undo()
    assert commits(opened()) == 2
    assert opened().state() == export.state(2, made(range(9)))
    assert rows_of(opened().read()) == export.expected(made(range(9)))


def test_columns_may_change_from_one_export_to_the_next(opened: Open) -> None:
    Export(opened()).replace(1, made(range(3)))
    fields: list[pa.Field[Any]] = [
        pa.field("price", pa.string()),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("new", pa.bool_()),
    ]
    other = Export(opened(), pa.schema(fields), runs=iter([8, 9]))
    rows: dict[int, dict[str, Any]] = {key: {"id": key, "price": f"{key} €", "new": None} for key in range(4)}
    other.replace(2, rows)
    assert opened().read().schema == other.schema
    assert rows_of(opened().read()) == other.expected(rows)
    new = {**rows, 2: {"id": 2, "price": None, "new": True}}
    other.merge(3, rows, new)
    assert rows_of(opened().read()) == other.expected(new)
    # What was text is text, and what was a number a number, also in what was exported before.
    assert rows_of(version(opened(), 1)) == Export(opened()).expected(made(range(3)))


def test_a_folder_with_something_else_in_it_is_refused(opened: Open, tmp_path: Path) -> None:
    folder = tmp_path / "sh%p #1?" / "or ders"
    folder.mkdir(parents=True)
    (folder / "holiday.jpg").write_bytes(b"")
    with pytest.raises(BadInput, match=r"'holiday\.jpg'.*another folder"):
        opened().state()


def test_a_table_of_the_other_format_is_refused(opened: Open) -> None:
    target = opened()
    other = IcebergTarget(target.url) if isinstance(target, DeltaTarget) else DeltaTarget(target.url)
    Export(other).replace(1, made(range(3)))
    with pytest.raises(BadInput, match="export"):
        opened().state()
    assert rows_of(other.read()) == Export(other).expected(made(range(3)))


def test_a_library_that_is_missing_is_said_with_the_way_to_get_it(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("deltalake", "pyiceberg.catalog.sql"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(UsageError, match=r"pip install 'budwood\[lake\]'"):
        opened().state()


def test_a_run_s_name_is_one_of_a_folder(opened: Open) -> None:
    with pytest.raises(BadInput, match="can't name a run"):
        opened().folder("../x")


def version(target: Target, number: int) -> pa.RecordBatchReader:
    """The table after its n-th commit, by the format's own reader."""
    from budwood.spark_export.export.arrow import plain

    if isinstance(target, DeltaTarget):
        from deltalake import DeltaTable

        then = DeltaTable(target._place, version=number - 1)  # pyright: ignore[reportPrivateUsage]
        return plain(pa.RecordBatchReader.from_stream(then.scan()))
    assert isinstance(target, IcebergTarget)
    with target._opened() as (_, table):  # pyright: ignore[reportPrivateUsage]
        assert table is not None
        found = [snapshot for snapshot in table.metadata.snapshots if snapshot.sequence_number == number]
        return plain(table.scan(snapshot_id=found[0].snapshot_id).to_arrow_batch_reader())


def committer(target: Target, first: bool = False) -> tuple[Any, str, Exception]:
    """The call by which the format's library commits, and what it raises when an answer is lost."""
    if isinstance(target, DeltaTarget):
        from deltalake import DeltaTable, transaction
        from deltalake.exceptions import DeltaError

        if first:
            return transaction, "create_table_with_add_actions", DeltaError("timed out")
        return DeltaTable, "create_write_transaction", DeltaError("timed out")
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitStateUnknownException

    return SqlCatalog, "commit_table", CommitStateUnknownException("timed out")


def lose_answers(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits are made, and then it is said that they failed."""
    kind, name, error = committer(target)
    commit = getattr(kind, name)

    def lost(*positional: Any, **named: Any) -> None:
        commit(*positional, **named)
        raise error

    monkeypatch.setattr(kind, name, lost)


def before_commit(
    target: Target, monkeypatch: pytest.MonkeyPatch, other: Callable[[], None], first: bool = False
) -> None:
    """At the next commit, and only then, something else is done just before."""
    kind, name, _ = committer(target, first)
    commit = getattr(kind, name)

    def late(*positional: Any, **named: Any) -> Any:
        monkeypatch.setattr(kind, name, commit)
        other()
        return commit(*positional, **named)

    monkeypatch.setattr(kind, name, late)

"""Parquet as a target: which rows a folder reads as, what it refuses to touch, and what may be done twice."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from budwood.spark_export.export.checksum import Sum, total
from budwood.spark_export.export.files import join, locate, names_in, put
from budwood.spark_export.export.lock import locks
from budwood.spark_export.export.parquet import ParquetTarget
from budwood.spark_export.export.target import DataFile, State, schema_digest
from budwood.spark_export.export.write import write_file
from budwood.volume.errors import BadInput, Busy, Corrupt, Unsupported

from ..waits import LIMIT_SECONDS

KINDS: dict[str, pa.DataType] = {"id": pa.int64(), "name": pa.string()}
SCHEMA = pa.schema(KINDS)


def batch(keys: range, name: str = "n") -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": key, "name": f"{name}{key}"} for key in keys], SCHEMA)


def state(lsn: int, files: list[DataFile]) -> State:
    checksum = sum(file.checksum or 0 for file in files) % 2**64
    rows = sum(file.rows for file in files)
    return State("vid", "shop", "orders", lsn, 1000 * lsn, rows, checksum, schema_digest(SCHEMA), ("id",))


def files(target: ParquetTarget, *parts: range, name: str = "n", run: str = "a") -> list[DataFile]:
    made = [write_file([batch(part, name)], SCHEMA, target.folder(run), "zstd", "id") for part in parts]
    assert all(made)
    return [file for file in made if file]


def export(target: ParquetTarget, lsn: int, *parts: range, name: str = "n") -> None:
    written = files(target, *parts, name=name)
    target.replace(written, SCHEMA, state(lsn, written))
    target.sweep()


def ids(target: ParquetTarget) -> list[int]:
    return sorted(row["id"] for row in target.read().read_all().to_pylist())


@pytest.fixture
def target(tmp_path: Path) -> ParquetTarget:
    # A name that a URL spells otherwise.
    return ParquetTarget(join(tmp_path.as_uri(), "sh%p ü", "or ders"))


def folder(target: ParquetTarget) -> Path:
    return Path(locate(target.url)[1])


def visible(target: ParquetTarget) -> set[str]:
    return {path.name for path in folder(target).iterdir() if not path.name.startswith("_")}


def test_a_folder_reads_as_the_last_commit_and_nothing_else(target: ParquetTarget) -> None:
    assert target.state() is None
    export(target, 1, range(10), range(10, 20))
    assert ids(target) == list(range(20))
    export(target, 2, range(5, 15), name="m")
    found = target.state()
    assert found is not None
    assert (found.lsn, found.rows) == (2, 10)
    assert total(target.read()) == Sum(found.rows, found.checksum) == total([batch(range(5, 15), "m")])
    assert len(visible(target)) == 1


def test_what_is_staged_is_seen_by_no_reader_and_swept(target: ParquetTarget) -> None:
    export(target, 1, range(10))
    files(target, range(100, 200), run="killed")
    assert ids(target) == list(range(10))
    assert pads.dataset(folder(target)).count_rows() == 10
    target.sweep()
    assert {path.name for path in (folder(target) / "_budwood").iterdir()} == {"state.json"}


def test_files_that_are_given_again_stay_where_they_are(target: ParquetTarget) -> None:
    export(target, 1, range(10), range(10, 20), range(20, 30))
    first, _, third = target.files()
    before = {name: (folder(target) / name).stat().st_ino for name in (first.path, third.path)}
    written = files(target, range(10, 15), name="changed")
    target.replace([first, *written, third], SCHEMA, state(2, [first, *written, third]))
    assert ids(target) == [*range(15), *range(20, 30)]
    assert before.items() <= {name: (folder(target) / name).stat().st_ino for name in visible(target)}.items()
    assert [file.rowids for file in target.files()] == [(0, 9), (10, 14), (20, 29)]


def test_the_same_state_twice_changes_nothing(target: ParquetTarget) -> None:
    export(target, 1, range(10))
    before, state_before = visible(target), target.state()
    assert state_before is not None
    target.replace(files(target, range(10)), SCHEMA, state_before)
    target.sweep()
    assert (visible(target), target.state()) == (before, state_before)


def test_a_table_without_rows_has_its_columns(target: ParquetTarget) -> None:
    target.replace([], SCHEMA, state(1, []))
    assert target.read().read_all().schema.names == SCHEMA.names
    assert ids(target) == []
    target.replace([], SCHEMA, state(2, []))
    target.sweep()
    assert len(visible(target)) == 1
    export(target, 3, range(4))
    assert ids(target) == list(range(4))


def test_an_advance_moves_the_lsn_and_leaves_the_rows(target: ParquetTarget) -> None:
    export(target, 1, range(10))
    found = target.state()
    assert found is not None
    target.advance(dataclasses.replace(found, lsn=9))
    assert target.state() == dataclasses.replace(found, lsn=9)
    assert ids(target) == list(range(10))


def test_a_folder_with_files_of_others_is_refused(target: ParquetTarget) -> None:
    folder(target).mkdir(parents=True)
    with pq.ParquetWriter(folder(target) / "mine.parquet", SCHEMA) as writer:
        writer.write_batch(batch(range(1)))
    with pytest.raises(BadInput, match=r"'mine\.parquet'"):
        target.state()
    (folder(target) / "mine.parquet").rename(folder(target).parent / "mine.parquet")
    assert target.state() is None
    export(target, 1, range(3))
    (folder(target) / "notes.txt").write_text("mine")
    with pytest.raises(BadInput, match="no export wrote"):
        target.state()


def test_a_folder_that_lost_a_file_is_written_again(target: ParquetTarget) -> None:
    export(target, 1, range(10), range(10, 20))
    (folder(target) / target.files()[0].path).unlink()
    assert target.state() is None
    export(target, 1, range(20))
    assert ids(target) == list(range(20))


@pytest.mark.parametrize("name", ["state.json", "intent.json"])
@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"after": [], "files": [], "state": "{}"}'])
def test_what_stands_in_a_journal_s_place_is_damage_or_no_export_s(target: ParquetTarget, name: str, text: str) -> None:
    export(target, 1, range(10))
    put(join(target.url, "_budwood", name), text.encode())
    ask: Callable[[], object] = target.state if name == "state.json" else target.sweep
    with pytest.raises((BadInput, Corrupt), match="export"):
        ask()


def test_what_is_there_already_is_written_again_where_that_is_asked_for(target: ParquetTarget) -> None:
    export(target, 1, range(10))
    before = visible(target)
    written = files(target, range(10))
    target.replace(written, SCHEMA, state(1, written), force=True)
    assert not before & visible(target)
    assert ids(target) == list(range(10))


def test_a_delta_table_without_rows_is_not_written_into(target: ParquetTarget) -> None:
    put(join(target.url, "_delta_log", "00000000000000000000.json"), b"{}")
    with pytest.raises(BadInput, match="_delta_log"):
        target.state()


def test_an_intent_whose_files_are_gone_is_damage(target: ParquetTarget) -> None:
    export(target, 1, range(10))
    found = json.loads((folder(target) / "_budwood" / "state.json").read_text())
    intent = {"after": found, "take": [str(folder(target) / "_budwood" / "run-x" / "gone.parquet")], "give": []}
    put(join(target.url, "_budwood", "intent.json"), json.dumps(intent).encode())
    with pytest.raises(Corrupt, match=r"gone\.parquet"):
        target.sweep()


def test_a_state_of_a_newer_version_is_refused(target: ParquetTarget) -> None:
    export(target, 1, range(10))
    path = folder(target) / "_budwood" / "state.json"
    path.write_text(path.read_text().replace('\\"version\\": 1', '\\"version\\": 2'))
    with pytest.raises(Unsupported, match="newer budwood"):
        target.state()
    path.write_text("{")
    with pytest.raises(Corrupt, match=r"state\.json"):
        target.state()


def test_a_state_is_the_same_after_it_was_written_down() -> None:
    one = State("vid", "a/b", "t", 7, 1, 3, 2**64 - 1, "digest", ("a", "b"))
    assert State.from_json(one.to_json(), "here") == one
    with pytest.raises(BadInput, match="here"):
        State.from_json("[]", "here")


def test_rows_lie_in_groups_with_statistics(target: ParquetTarget) -> None:
    (file,) = files(target, range(100))
    metadata = pq.ParquetFile(locate(file.path)[1]).metadata
    column = metadata.row_group(0).column(0)
    assert column.statistics is not None
    assert (column.statistics.min, column.statistics.max, column.compression) == (0, 99, "ZSTD")
    assert metadata.num_rows == file.rows
    assert write_file([], SCHEMA, target.folder("a"), "snappy") is None


def test_one_export_at_a_time_writes_a_table(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    with locks(url) as mine, locks(url) as other:
        mine.take(join(url, "one"))
        with pytest.raises(Busy, match="another export writes"):
            other.take(join(url, "one"))
        (tmp_path / "link").symlink_to(tmp_path)
        with pytest.raises(Busy, match="another export writes"):
            other.take(join((tmp_path / "link").as_uri(), "one"))
        other.take(join(url, "two"))
        code = f"""
from budwood.spark_export.export.lock import locks
with locks({url!r}) as held:
    held.take({join(url, "three")!r})
    held.take({join(url, "two")!r})
"""
        done = subprocess.run(
            [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
        assert "Busy" in done.stderr
        assert "two: wait" in done.stderr
    with locks(url) as later:
        later.take(join(url, "one"))


def test_a_file_system_that_is_no_disk_will_do() -> None:
    """Arrow's own in memory stands for object stores: nothing here asks the operating system."""
    target = ParquetTarget("mock:///bucket/lake/sh%25p/or%20ders")
    with locks("mock:///bucket/lake") as held:
        held.take(target.url)
        assert target.state() is None
        export(target, 1, range(10), range(10, 20))
        export(target, 2, range(5, 15), range(15, 30), name="m")
        files(target, range(100), run="killed")
        target.sweep()
        assert ids(target) == list(range(5, 30))
        first, second = target.files()
        target.replace([second], SCHEMA, state(3, [second]))
        target.sweep()
        assert ids(target) == list(range(15, 30))
        assert set(names_in(target.url)) == {"_budwood", second.path}
        assert set(names_in(join(target.url, "_budwood"))) == {"state.json"}
        assert first.path != second.path

"""What an export is cut into: names of folders, keys of tables, ranges of rowids, tasks of a job."""

from __future__ import annotations

import os
import random
import signal
import threading
from contextlib import closing

import apsw
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.images import ImagePages

from budwood.spark_export.export.checksum import Sum
from budwood.spark_export.export.files import join, locate
from budwood.spark_export.export.incremental import TargetFiles, check_merged, touched
from budwood.spark_export.export.job import check_interrupted, pack, run_in_threads
from budwood.spark_export.export.table_selection import folder_name, key_of
from budwood.spark_export.export.target import DataFile
from budwood.spark_export.export.write_mode import ACTIONS, NEXT, WriteMode
from budwood.tables.page_source import database
from budwood.tables.schema import read_relation, read_schema
from budwood.tables.splits import GREATEST_ROWID, LEAST_ROWID
from budwood.volume.errors import BadInput, Corrupt

from ..waits import LIMIT_SECONDS


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=2, max_size=2, unique=True))
@example(["n" * 300, "n" * 301])
@example(["ü " * 80, "ü " * 81])
@example(["", "~"])
def test_no_two_names_have_one_folder(names: list[str]) -> None:
    folders = [folder_name(name) for name in names]
    assert folders[0] != folders[1]
    for folder in folders:
        assert "/" not in folder
        assert "=" not in folder
        assert not folder.startswith(("_", "."))
        assert 0 < len(folder.encode()) <= 240


def test_plain_names_stay_as_they_are() -> None:
    assert folder_name("Shop-2.orders_ä") == "Shop-2.orders_ä"
    assert (folder_name("edge/1"), folder_name("_x"), folder_name(".")) == ("edge~2F1", "~5Fx", "~2E")


@given(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1))
def test_a_url_leads_to_the_name_it_was_made_of(name: str) -> None:
    assert locate(join("file:///lake", name, "t"))[1] == f"/lake/{name}/t"


def test_a_url_keeps_what_says_how_to_reach_it() -> None:
    url = "s3://bucket/some/prefix/?endpoint_override=http%3A%2F%2F127.0.0.1%3A9"
    assert join(url, "a b") == "s3://bucket/some/prefix/a%20b?endpoint_override=http%3A%2F%2F127.0.0.1%3A9"
    assert locate("s3a://bucket/x?region=here") == locate("s3://bucket/x?region=here")
    for wrong in ("lake", "ftp://here/x", ""):
        with pytest.raises(BadInput, match="file:///dir"):
            locate(wrong)


KEYS: list[tuple[str, tuple[str, ...], str | None]] = [
    ("CREATE TABLE t (a INTEGER PRIMARY KEY, b)", ("a",), None),
    ("CREATE TABLE t (b, A INTEGER, PRIMARY KEY (A))", ("A",), None),
    ("CREATE TABLE t (a INTEGER PRIMARY KEY DESC, b)", ("_rowid",), "_rowid"),
    ("CREATE TABLE t (a TEXT PRIMARY KEY, b)", ("_rowid",), "_rowid"),
    ("CREATE TABLE t (a, _ROWID, _rowid_2)", ("_rowid_3",), "_rowid_3"),
    ("CREATE TABLE t (b, c, a, PRIMARY KEY (a, b)) WITHOUT ROWID", ("a", "b"), None),
    ("CREATE TABLE u (a INTEGER PRIMARY KEY); CREATE VIEW t AS SELECT a FROM u", (), None),
]


@pytest.mark.parametrize(("sql", "key", "rowid"), KEYS)
def test_a_table_is_known_by_its_key_or_gets_one(sql: str, key: tuple[str, ...], rowid: str | None) -> None:
    with closing(apsw.Connection(":memory:")) as db:
        db.execute(sql)
        source, header = database(ImagePages(db.serialize("main")))
    assert key_of(read_relation(source, read_schema(source, header), "t")) == (key, rowid)


def standing(*rowids: tuple[int, int] | None) -> TargetFiles:
    """Of files that are called by their places."""
    return TargetFiles(DataFile(str(place), 10, 100, rowids=each) for place, each in enumerate(rowids))


def test_the_ranges_of_touched_files_cover_just_these_and_join() -> None:
    found = standing((10, 19), (LEAST_ROWID, 9), (30, GREATEST_ROWID), (20, 29))
    assert found.firsts == (LEAST_ROWID, 10, 20, 30)
    assert found.ranges(frozenset({1})) == [(10, 19)]
    assert found.ranges(frozenset({0, 1, 3})) == [(LEAST_ROWID, 19), (30, GREATEST_ROWID)]
    assert found.ranges(frozenset(range(4))) == [(LEAST_ROWID, GREATEST_ROWID)]
    assert [file.path for file in found.kept(frozenset({0, 2}))] == ["0", "2"]
    # A first file that was given up leaves its rowids to the next.
    assert standing((10, 19), (20, 29)).ranges(frozenset({0})) == [(LEAST_ROWID, 19)]
    assert found.ranges(frozenset()) == []
    assert standing().ranges(touched((), np.array([5]))) == [(LEAST_ROWID, GREATEST_ROWID)]


def test_files_whose_rowids_overlap_are_taken_for_one() -> None:
    found = standing((0, 9), (5, 30), (31, 40), (20, 22), (25, 28))
    assert found.firsts == (0, 31)
    assert found.ranges(frozenset({0})) == [(LEAST_ROWID, 30)]
    assert [file.path for file in found.kept(frozenset({1}))] == ["0", "1", "3", "4"]
    assert touched(found.firsts, np.array([-1, 30, 21])) == {0}
    assert touched(found.firsts, np.array([31])) == {1}


def test_a_file_that_does_not_tell_its_rowids_is_known() -> None:
    assert standing((0, 9)).has_rowids
    assert not standing((0, 9), None).has_rowids


def test_a_target_that_would_not_hold_what_changed_is_damage() -> None:
    files = [DataFile("a", 2, 10, 5), DataFile("b", 3, 10, 6)]
    check_merged("lake", Sum(5, 11), files)
    for wrong in (Sum(4, 11), Sum(5, 12)):
        with pytest.raises(Corrupt, match="export it whole, without --incremental"):
            check_merged("lake", wrong, files)
    # Where a format keeps no file's checksum, rows are counted.
    untold = [*files, DataFile("c", 1, 10)]
    check_merged("lake", Sum(6, 99), untold)
    with pytest.raises(Corrupt, match="has 6 rows"):
        check_merged("lake", Sum(7, 11), untold)


def test_every_stage_leads_to_an_end_and_tells_what_was_done() -> None:
    assert NEXT.keys() == ACTIONS.keys() == set(WriteMode)
    seen, going = set[WriteMode](), [WriteMode.UNDECIDED]
    while going:
        stage = going.pop()
        assert stage not in NEXT[stage]
        seen.add(stage)
        going += NEXT[stage]
    assert seen == set(WriteMode)


def test_what_takes_long_ends_when_its_caller_is_interrupted() -> None:
    begun, never, seen = threading.Event(), threading.Event(), list[int]()

    def work(_: int) -> None:
        for number in range(round(1000 * LIMIT_SECONDS)):
            check_interrupted()
            seen.append(number)
            begun.set()
            never.wait(0.001)

    def interrupt() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run_in_threads([1, 2], work)
    ended = len(seen)
    check_interrupted()  # Here nobody was interrupted.
    assert seen[ended:] == []


@given(st.lists(st.integers(0, 1000), max_size=60), st.integers(1, 12))
def test_pieces_are_packed_once_each_and_evenly(sizes: list[int], tasks: int) -> None:
    packed = pack(sizes, tasks)
    assert sorted(number for some in packed for number in some) == list(range(len(sizes)))
    assert len(packed) == min(tasks, len(sizes))
    loads = [sum(sizes[number] for number in some) for some in packed]
    if loads:
        assert max(loads) <= sum(sizes) / len(loads) + max(sizes) + len(sizes)


def test_many_small_pieces_and_a_few_large_ones_end_together() -> None:
    dice = random.Random(5)
    sizes = [dice.randrange(1000) for _ in range(5000)] + [100_000] * 3
    loads = [sum(sizes[number] for number in some) for some in pack(sizes, 8)]
    assert max(loads) <= 1.05 * sum(sizes) / 8

"""Listings: aligned for a pipe, ruled for a terminal, JSON for a program; and SQL results in each form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing

import apsw
import pytest

from budwood.cli import output, query
from budwood.cli.output import Column, count_of, printable, time_of, write_json, write_table
from budwood.volume.byte_sizes import bytes_of

COLUMNS = [Column("name"), Column("size", "right")]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")


@pytest.fixture
def db() -> Iterator[apsw.Connection]:
    with closing(apsw.Connection(":memory:")) as connection:
        yield connection


def test_a_pipe_gets_aligned_columns_without_ornament(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(COLUMNS, [["a", "10"], ["longer", "7"]], empty="nothing")
    assert capsys.readouterr().out == "name    size\na         10\nlonger     7\n"
    write_table(COLUMNS, [], empty="nothing")
    assert capsys.readouterr().out == "name  size\n"


@pytest.mark.usefixtures("terminal")
def test_a_terminal_gets_a_ruled_table_that_data_cannot_drive(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(COLUMNS, [["a\x1b[2J[bold]b", "10"]])
    out = capsys.readouterr().out
    assert "\x1b[2J" not in out
    assert "a\\x1b[2J[bold]b" in out
    write_table(COLUMNS, [], empty="nothing")
    assert capsys.readouterr().out == "nothing\n"


def test_json_is_one_array_whatever_the_number_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    cases: list[list[dict[str, object]]] = [[], [{"a": 1}], [{"a": "é\n"}, {"a": None}]]
    for rows in cases:
        write_json(rows)
        assert json.loads(capsys.readouterr().out) == rows


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (103 << 20, "103 MiB"),
        (1023 << 20, "1.0 GiB"),
        (1 << 62, "4096 PiB"),
    ],
)
def test_bytes_read_well(size: int, text: str) -> None:
    assert bytes_of(size) == text


def test_counts_and_times_read_well() -> None:
    assert [count_of(n, "row") for n in (0, 1, 1234)] == ["0 rows", "1 row", "1,234 rows"]
    assert time_of(0) == ""
    assert len(time_of(1_700_000_000_000)) == len("2023-11-14 22:13:20")
    assert printable("a\tb\n") == "a\\tb\n"


SQL = """
-- a comment first
CREATE TABLE t (a, b);
INSERT INTO t VALUES (1, 'x'), (NULL, x'0aff');
SELECT a, b, b FROM t;
SELECT a FROM t WHERE 0;
SELECT 'tab\there' AS text, 1e999 AS far;
DROP TABLE t;
"""


def render(db: apsw.Connection, write: Callable[[query.Results], None], sql: str = SQL) -> None:
    write(query.Results(db, sql))


def test_piped_rows_are_lines_of_tabs(db: apsw.Connection, capsys: pytest.CaptureFixture[str]) -> None:
    render(db, query.write_lines)
    assert capsys.readouterr().out == "1\tx\tx\n\t0AFF\t0AFF\ntab\\there\tinf\n"


def test_json_holds_every_row_of_every_statement(db: apsw.Connection, capsys: pytest.CaptureFixture[str]) -> None:
    render(db, query.write_json)
    assert json.loads(capsys.readouterr().out) == [
        {"a": 1, "b": "x", "b:1": "x"},
        {"a": None, "b": "0AFF", "b:1": "0AFF"},
        {"text": "tab\there", "far": float("inf")},
    ]
    for sql in ("", "SELECT 1 WHERE 0", "CREATE TABLE q (a)"):
        render(db, query.write_json, sql)
        assert json.loads(capsys.readouterr().out) == []


@pytest.mark.usefixtures("terminal")
def test_a_terminal_gets_a_table_for_each_statement(db: apsw.Connection, capsys: pytest.CaptureFixture[str]) -> None:
    render(db, query.write_tables)
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.endswith(("row", "rows"))] == ["2 rows", "0 rows", "1 row"]
    assert "NULL" in out
    assert "x'0AFF'" in out


def test_rows_come_out_while_the_statement_runs(db: apsw.Connection) -> None:
    endless = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    _titles, rows = next(iter(query.Results(db, endless)))
    assert [next(rows) for _ in range(3)] == [(1,), (2,), (3,)]


def test_a_failing_statement_keeps_the_rows_before_it(db: apsw.Connection, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(apsw.SQLError, match="no such table"):
        render(db, query.write_lines, "SELECT 1; SELECT 2 FROM nowhere")
    assert capsys.readouterr().out == "1\n"


def test_titles_that_come_twice_stay_apart() -> None:
    assert query.unique(["a", "a", "a:1", "a"]) == ["a", "a:1", "a:1:1", "a:2"]

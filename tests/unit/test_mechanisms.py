"""docs/mechanisms.md is so: every mechanism once, every test that it names is there, and every number of a mechanism
that stands in a docstring agrees with it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
COUNTS = {"S0": 41, "S1": 27, "S2": 33, "S3": 38, "S4": 28}
"""How many each design has."""
LABEL = re.compile(r"\b(S[0-4])\.(\d+)(?:[-–](\d+))?")
ROW = re.compile(r"^\| (S\d\.\d+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(\w+/test_\w+\.py::\w+)`")
REST = re.compile(r"not built yet|not shown")
FOLDERS = ("tests", *(each.parent.name for each in ROOT.glob("*/__init__.py") if each.parent.name != "tests"))


class Row(NamedTuple):
    what: str
    tests: list[str]
    rest: str
    """What stands in its place, or behind it."""


class Docstring(NamedTuple):
    where: str
    """file::name, or the file alone where it is the module's."""
    text: str


def rows_of(text: str) -> list[tuple[str, Row]]:
    return [
        (one, Row(what, NAMED.findall(cell), NAMED.sub("", cell).strip(" ,;"))) for one, what, cell in ROW.findall(text)
    ]


def labels_in(text: str) -> Iterator[str]:
    """S2.10-13 are four."""
    for design, first, last in LABEL.findall(text):
        yield from (f"{design}.{number}" for number in range(int(first), int(last or first) + 1))


def collected_in(path: Path) -> Iterator[str]:
    """What pytest collects there."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (to.id for to in node.targets if isinstance(to, ast.Name) and to.id.startswith("Test"))


def docstrings(path: Path) -> Iterator[Docstring]:
    tree, name = ast.parse(path.read_text()), path.relative_to(ROOT).as_posix()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield Docstring(name if isinstance(node, ast.Module) else f"{name}::{node.name}", text)


def disagreements(rows: dict[str, Row], found: Docstring) -> Iterator[str]:
    """A test says what it shows, a module of tests what its tests show; what a module of ours names is built."""
    where = found.where.removeprefix("tests/")
    for label in labels_in(found.text):
        row = rows.get(label)
        if row is None:
            yield f"{found.where} speaks of {label}, which is none"
        elif where != found.where and "/test_" in where:
            shown = where in row.tests if "::" in where else any(test.startswith(f"{where}::") for test in row.tests)
            if not shown:
                yield f"{found.where} says that it shows {label}, and the table doesn't"
        elif row.rest == "not built yet":
            yield f"{found.where} speaks of {label}, which is not built yet"


@pytest.fixture(scope="module")
def table() -> list[tuple[str, Row]]:
    return rows_of((ROOT / "docs/mechanisms.md").read_text())


def test_every_mechanism_stands_there_once(table: list[tuple[str, Row]]) -> None:
    expected = [f"{design}.{number}" for design, count in COUNTS.items() for number in range(1, count + 1)]
    assert [one for one, _ in table] == expected
    assert all(row.tests or REST.match(row.rest) for _, row in table)
    text = (ROOT / "docs/mechanisms.md").read_text()
    assert len([line for line in text.splitlines() if line.startswith("| S")]) == len(expected)


def test_every_test_that_is_named_is_there(table: list[tuple[str, Row]]) -> None:
    named = {test for _, row in table for test in row.tests}
    files = {test.partition("::")[0] for test in named}
    there = {
        f"{file}::{name}"
        for file in files
        if (ROOT / "tests" / file).exists()
        for name in collected_in(ROOT / "tests" / file)
    }
    assert named <= there, sorted(named - there)
    # None is passed over for how it is written.
    assert all(row.rest.count("::") == 0 == row.rest.count("`test") for _, row in table)


def test_every_number_in_a_docstring_agrees(table: list[tuple[str, Row]]) -> None:
    rows = dict(table)
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [docstring for path in paths if path.name != Path(__file__).name for docstring in docstrings(path)]
    assert len(found) > 1000
    assert [words for docstring in found for words in disagreements(rows, docstring)] == []


def test_what_disagrees_is_told() -> None:
    rows = dict(rows_of("| S0.1 | one | `unit/test_a.py::test_a`; not shown: more |\n| S0.2 | two | not built yet |\n"))
    assert rows["S0.1"] == Row("one", ["unit/test_a.py::test_a"], "not shown: more")

    def told(where: str, text: str) -> int:
        return len([*disagreements(rows, Docstring(where, text))])

    assert told("tests/unit/test_a.py::test_a", "S0.1.") == told("tests/unit/test_a.py", "S0.1.") == 0
    assert told("tests/unit/test_a.py::test_b", "S0.1.") == told("tests/unit/test_b.py", "S0.1.") == 1
    assert told("tests/unit/test_a.py::test_a", "S0.1-3") == 2
    assert told("server/a.py", "S0.1") == 0
    assert told("server/a.py::f", "S0.2 and S0.9") == 2

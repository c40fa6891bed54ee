"""The ingest example, killed wherever a commit may be: no line comes twice, and none is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

import budwood.lite

from .crash_harness import Place, cut, finish

INGEST = Path(__file__).parents[2] / "examples" / "ingest.py"
LINES = [f"line {number:04}" for number in range(350)]
"""Of four commits."""

POINTS = [
    "log: entry sealed, not sent",
    "store: temp written, not linked",
    "store: linked, directory not synced",
    "store: directory synced, temp not removed",
    "log: entry durable, not acknowledged",
]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    (tmp_path / "orders").write_text("".join(f"{line}\n" for line in LINES) + "half a line")
    place.execute("CREATE TABLE made(by_hand)", remote=place.store)
    with place.edge() as edge:
        edge.volume("ledger").push()
    return place


def arguments(place: Place) -> tuple[str, str, str]:
    return str(place.folder / "orders"), place.store, "ledger"


def found(place: Place) -> list[str]:
    db = budwood.lite.connect(place.store, "ledger", mode="ro")
    try:
        tables = db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'lines'").fetchall()
        return [str(text) for (text,) in db.execute("SELECT text FROM lines ORDER BY rowid")] if tables else []
    finally:
        db.close()


@pytest.mark.parametrize("nth", [1, 3])
@pytest.mark.parametrize("point", POINTS)
def test_a_source_that_is_read_by_one_who_is_killed_comes_once(place: Place, point: str, nth: int) -> None:
    """S3.34: what was bound stands with its rows, and neither without the other."""
    acknowledged = cut(f"{point}#{nth}", INGEST, *arguments(place))
    before = found(place)
    assert before == LINES[: len(before)]
    assert len(before) // 100 in {len(acknowledged), len(acknowledged) + 1}
    finish(INGEST, *arguments(place))
    assert found(place) == LINES
    assert finish(INGEST, *arguments(place)) == []


def test_what_is_added_comes_and_what_has_come_does_not(place: Place) -> None:
    said = finish(INGEST, *arguments(place))
    assert [line.rpartition(" ")[2] for line in said] == ["1000", "2000", "3000", "3500"]
    assert found(place) == LINES
    with (place.folder / "orders").open("a") as file:
        file.write(" and the rest\n")
    finish(INGEST, *arguments(place))
    assert found(place) == [*LINES, "half a line and the rest"]

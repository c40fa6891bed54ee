"""What docs/spark.md says one can type works as it stands, but for where things lie; and its tables are complete."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import budwood
from budwood.cli.main import run
from budwood.spark_export import session
from budwood.spark_export.source import options
from budwood.spark_export.source.inventory import SCHEMAS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
TEXT = PAGE.read_text()
PUSHED = "spark.sql.python.filterPushdown.enabled"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    """From a bold name or a heading to the next."""
    return re.split(r"^(?:\*\*|#)", TEXT.partition(title)[2], maxsplit=1, flags=re.MULTILINE)[0]


def first_column(text: str) -> list[str]:
    """The names in backquotes in the first column of the tables."""
    cells = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@pytest.fixture
def remote(tmp_path: Path) -> str:
    """With a volume `shop`: two orders at LSN 1, three at LSN 2."""
    remote, home = (tmp_path / "store").as_uri(), tmp_path / "home"
    for sql in (
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT); INSERT INTO orders VALUES (1, 'bolt'), (2, 'nut')",
        "INSERT INTO orders VALUES (3, 'washer'); UPDATE orders SET item = 'screw' WHERE id = 2",
    ):
        with closing(budwood.connect("shop", home=home, remote=remote)) as db:
            db.execute(sql)
            db.execute("PRAGMA budwood_push")
    return remote


@pytest.fixture
def kept(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """The session of all tests, as it was afterwards: a page may set it as it likes, and starts and ends its own."""
    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(session, "end", let_it_run)
    yield spark
    spark.conf.unset(PUSHED)
    spark.sparkContext.setLogLevel("OFF")


def let_it_run(_: SparkSession) -> None:
    """It is that of all tests."""


def rows(frame: DataFrame) -> list[tuple[str, int, str]]:
    return sorted((row["_change_type"], row["id"], row["item"]) for row in frame.collect())


def test_every_line_of_python_runs(
    kept: SparkSession, remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BUDWOOD_HOME", str(tmp_path / "none"))
    named = {name: str(tmp_path / name.lower()) for name in ("LAKE", "CHECKPOINT", "OUTPUT")}
    # A page reads from above to below; its first example takes a session for granted.
    known: dict[str, Any] = {"spark": kept, "REMOTE": remote, **named}
    for block in blocks("python"):
        exec(compile(block.replace("http://127.0.0.1:7447", remote), str(PAGE), "exec"), known)
    assert known["spark"].sparkContext is kept.sparkContext
    shown = capsys.readouterr().out
    assert re.search(r"\| *screw\| *1\|", shown)
    assert "sum(stored_bytes)" in shown
    assert [row["id"] for row in known["gone"].collect()] == []
    assert rows(known["changes"]) == [
        ("insert", 3, "washer"),
        ("update_postimage", 2, "screw"),
        ("update_preimage", 2, "nut"),
    ]
    assert rows(kept.read.parquet(named["OUTPUT"])) == [
        ("insert", 1, "bolt"),
        ("insert", 2, "screw"),
        ("insert", 3, "washer"),
    ]


def test_every_export_of_the_page_runs(
    kept: SparkSession, remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("deltalake")
    pytest.importorskip("pyiceberg")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("BUDWOOD_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("BUDWOOD_REMOTE", remote)
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("budwood spark-export")]
    assert len(lines) == 4
    done: list[list[str]] = []
    for line in lines:
        words = shlex.split(line.replace("s3://bucket", str(tmp_path / "s3")).replace("/srv", str(tmp_path / "srv")))
        status = run(words[1:])
        said = capfd.readouterr()
        assert status == 0, said.err
        done.append([line for line in said.out.splitlines() if line.startswith("shop")])
    assert [[re.split(r"\s{2,}", line)[:5] for line in each] for each in done] == [
        [["shop", "orders", "written", "2", "3"]],
        [["shop", "orders", "unchanged, verified", "2", "3"]],
        [["shop", "orders", "written", "2", "3"]],
        [["shop", "orders", "written", "2", "3"]],
    ]
    assert {path.name for path in (tmp_path / "srv").iterdir()} == {"lake", "iceberg"}


def test_the_table_of_options_has_every_option_and_no_other() -> None:
    known = {*options._OPTIONS, *options._TYPE_OPTIONS, "type.COLUMN"}  # pyright: ignore[reportPrivateUsage]
    assert sorted(first_column(section("## Options"))) == sorted(known)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_tables_of_metadata_have_every_column_in_its_place(kind: str) -> None:
    told = section(f"**`{kind}`**")
    names = re.findall(r"`(\w+)` \(", told) if kind == "pages" else first_column(told)
    assert names == SCHEMAS[kind].names

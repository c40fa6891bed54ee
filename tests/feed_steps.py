"""Steps: two images of a database, the feed between them, and what stock sqlite3 says that it must be."""

from __future__ import annotations

import math
import pickle
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.images import ImagePages

from budwood.sqlite.names import same_name
from budwood.tables.changes.change_plan import ChangePlan, plan_changes
from budwood.tables.changes.page_diff import run_changes
from budwood.tables.scan_plan import Mismatch, Options, Plan, Target
from budwood.volume.pageset import PageSet

Value = None | int | float | str | bytes
Shown = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Change:
    kind: str
    row: Shown


def pages_that_differ(old: bytes, new: bytes, page_size: int) -> PageSet:
    """Cut ranges included, as a volume tells them."""
    count = -(-max(len(old), len(new)) // page_size)
    parts = ((image[n * page_size : (n + 1) * page_size] for image in (old, new)) for n in range(count))
    return PageSet(number for number, (one, other) in enumerate(parts, 1) if one != other)


@dataclass(frozen=True)
class Step:
    """`page_size` is the volume's, the database's unless told; `wider` are further pages said to have changed."""

    old: bytes
    new: bytes
    page_size: int | None = None
    wider: Sequence[int] = ()

    def sources(self) -> tuple[ImagePages | None, ImagePages | None]:
        size = self.page_size or ImagePages(self.new or self.old).page_size
        old, new = (ImagePages(image, size) if image else None for image in (self.old, self.new))
        return old, new

    def plan(self, table: str = "t", **options: object) -> tuple[ChangePlan, ImagePages | None, ImagePages | None]:
        old, new = self.sources()
        size = (new or old or ImagePages(self.old)).page_size
        changed = pages_that_differ(self.old, self.new, size) | PageSet(self.wider)
        return plan_changes(old, new, changed, table, **options), old, new  # type: ignore[arg-type]

    def feed(self, table: str = "t", **options: object) -> tuple[ChangePlan, list[Change]]:
        """The plan, and all changes, every task run from what it pickles to."""
        plan, old, new = self.plan(table, **options)
        told: list[Change] = []
        for task in plan.tasks:
            for batch in run_changes(pickle.loads(pickle.dumps(task)), old, new):
                batch.validate(full=True)
                assert batch.schema == plan.schema
                assert batch.num_rows
                *columns, kinds = batch.to_pydict().values()
                told += [Change(kind, shown(row)) for kind, *row in zip(kinds, *columns, strict=True)]
        return plan, told

    def check(self, table: str = "t", **options: object) -> tuple[ChangePlan, list[Change]]:
        """The feed turns the old rows into the new ones, tells each old row as it was, and nothing that stayed."""
        plan, told = self.feed(table, **options)
        old, new = (Counter(rows_shown(image, table, plan.plan)) for image in (self.old, self.new))
        by_kind = {
            kind: Counter(change.row for change in told if change.kind == kind)
            for kind in ("delete", "insert", "update_preimage", "update_postimage")
        }
        gone = by_kind["delete"] + by_kind["update_preimage"]
        assert gone <= old, "a row that was not there is gone"
        assert old - gone + by_kind["insert"] + by_kind["update_postimage"] == new
        before = [place for place, change in enumerate(told) if change.kind == "update_preimage"]
        after = [place for place, change in enumerate(told) if change.kind == "update_postimage"]
        assert [place + 1 for place in before] == after
        assert all(told[one].row != told[other].row for one, other in zip(before, after, strict=True))
        if plan.plan.rowid is not None:
            assert all(told[one].row[0] == told[other].row[0] for one, other in zip(before, after, strict=True))
            deleted, inserted = ({row[0] for row in by_kind[kind]} for kind in ("delete", "insert"))
            assert not (deleted & inserted) - {("NoneType", "None")} or "encoding" in plan.reason
        return plan, told


def shown(row: Sequence[Value]) -> Shown:
    return tuple((type(value).__name__, repr(value)) for value in row)


class Stored(bytes):
    """A TEXT's bytes."""


def rows_shown(image: bytes, table: str, feed: Plan) -> list[Shown]:
    """A table's rows as the feed is to show them, by stock sqlite3; none unless it is a table."""
    if not image:
        return []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "db"
        path.write_bytes(image)
        with closing(sqlite3.connect(path)) as db:
            facts = db.execute(
                "SELECT type, wr FROM pragma_table_list WHERE schema = 'main' AND name = ? COLLATE NOCASE", (table,)
            )
            found = [wr for kind, wr in facts if kind == "table"]
            if not found:
                return []
            names = [name for _, name, *_ in db.execute(f'PRAGMA table_xinfo("{table}")')]
            asked = ["NULL" if found[0] else "rowid"] if feed.rowid is not None else []
            for reading in feed.readings:
                there = any(same_name(name, reading.column.name) for name in names)
                asked.append(f'"{reading.column.name}"' if there else "NULL")
            db.text_factory = Stored
            rows = db.execute(f'SELECT {", ".join(asked)} FROM "{table}"').fetchall()
    targets = [*([Target.LONG] if feed.rowid is not None else []), *(reading.target for reading in feed.readings)]
    return [shown([as_shown(v, t, feed.mismatch) for v, t in zip(row, targets, strict=True)]) for row in rows]


def as_shown(value: Value, target: Target, policy: Mismatch) -> Value:
    match target, value:
        case _, None:
            return None
        case Target.TEXT, float():
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value) or repr(value)
        case Target.TEXT, int():
            return str(value)
        case ((Target.TEXT | Target.STRING), Stored()):
            return _mended(value, policy)
        case Target.TEXT, bytes():
            return f"X'{value.hex().upper()}'"
        case (Target.LONG, int()) | (Target.DOUBLE, float()):
            return value
        case Target.DOUBLE, int() if int(float(value)) == value:
            return float(value)
        case Target.BINARY, bytes() if not isinstance(value, Stored):
            return value
        case _:
            assert policy == Mismatch.NULL, (value, target)
            return None


def _mended(value: bytes, policy: Mismatch) -> str | None:
    with suppress(UnicodeDecodeError):
        return value.decode()
    return None if policy == Mismatch.NULL else value.decode(errors="replace")


SHOW_ALL = Options(mismatch=Mismatch.STRING)
"""Every value of any class is shown, and differently from every other."""

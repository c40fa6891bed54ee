"""What tests of change feeds share: a volume that is committed to, the table as stock SQLite sees it at an LSN, and a
mirror that a feed's rows are applied to.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import budwood
from budwood.remote.portal import BlockingRemote, open_remote
from budwood.sync.edge import Edge
from budwood.volume.ids import VolumeId

NAME = "v"
Row = tuple[Any, ...]


@dataclass
class Source:
    """The volume `v` of an edge, and the remote that it is pushed to."""

    edge: Edge
    remote: BlockingRemote

    @property
    def vid(self) -> VolumeId:
        return self.edge.volume(NAME).id

    def commit(self, *statements: str) -> int:
        """One commit; the LSN afterwards, which is a new one unless nothing changed."""
        with closing(budwood.connect(NAME, home=self.edge.home, remote=self.edge.remote)) as db:
            for statement in statements:
                db.execute(statement)
        return int(self.edge.volume(NAME).push())

    def rows(self, lsn: int, table: str = "t", columns: str = "*") -> list[Row]:
        """As stock SQLite reads them at that LSN; none where there is no such table."""
        with closing(budwood.connect(NAME, home=self.edge.home, lsn=lsn)) as db:
            if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (table,)).fetchall():
                return []
            return sorted(db.execute(f"SELECT {columns} FROM {table}").fetchall(), key=repr)

    def options(self, **more: object) -> dict[str, str]:
        """For `format("budwood")`."""
        return as_texts({"volume": NAME, "table": "t", "remote": self.edge.remote, **more})


def as_texts(options: Mapping[str, object]) -> dict[str, str]:
    """As Spark hands them on."""
    return {
        name.lower(): str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
    }


@contextmanager
def sourced(folder: Path, url: str = "") -> Generator[Source]:
    """At `url`, or in a store that lies in the folder."""
    with (
        budwood.open(home=folder / "home", remote=url or (folder / "store").as_uri()) as edge,
        closing(open_remote(edge.remote)) as remote,
    ):
        yield Source(edge, remote)


@dataclass
class Mirror:
    """Rows by their first column. A change that doesn't fit what is there is an error of the feed."""

    rows: dict[Any, Row] = field(default_factory=dict[Any, Row])

    def apply(self, changes: Iterable[Row]) -> Iterator[int]:
        """`changes` end with _change_type, _commit_version and _commit_timestamp. The versions, each applied."""
        for version, some in groupby(sorted(changes, key=lambda row: row[-2]), key=lambda row: row[-2]):
            told = [(row[-3], row[:-3]) for row in some]
            for kind, row in told:
                if kind in ("delete", "update_preimage"):
                    assert self.rows.pop(row[0], None) == row, f"LSN {version}: {kind} of {row}, which isn't there"
            for kind, row in told:
                if kind in ("insert", "update_postimage"):
                    assert self.rows.setdefault(row[0], row) is row, f"LSN {version}: {kind} of {row}, which is there"
            kinds = [kind for kind, _ in told]
            assert kinds.count("update_preimage") == kinds.count("update_postimage")
            assert set(kinds) <= {"insert", "delete", "update_preimage", "update_postimage"}
            yield version

    @property
    def sorted(self) -> list[Row]:
        return sorted(self.rows.values(), key=repr)

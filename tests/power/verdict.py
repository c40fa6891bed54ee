"""Verdict: whether a home holds what was promised, at a cut of what was recorded."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import budwood
from budwood.sync.record_check import check_records

from .program import SHARED


@dataclass
class Commit:
    who: str
    n: int
    volume: str
    full: bool
    begun: int
    """The step."""
    done: int | None = None


@dataclass
class Promises:
    """What programs began, and were told."""

    commits: dict[tuple[str, int], Commit] = field(default_factory=dict[tuple[str, int], Commit])
    before: dict[str, set[tuple[str, int]]] = field(default_factory=dict[str, set[tuple[str, int]]])
    """By volume what was there when they began, after an earlier power loss: it is on the disk."""

    def note(self, step: int, who: str, line: dict[str, Any]) -> None:
        if "begin" in line:
            n = line["begin"]
            self.commits[who, n] = Commit(who, n, line["volume"], line["full"], step)
        else:
            self.commits[who, line["done"]].done = step

    def check(self, found: dict[str, set[tuple[str, int]]], cut: int) -> None:
        """`found` by volume, at a cut before step `cut`."""
        for volume, rows in self.before.items():
            assert rows <= found[volume], f"what outlived a power loss is gone from {volume}: {rows - found[volume]}"
        found = {volume: rows - self.before.get(volume, set()) for volume, rows in found.items()}
        begun = [commit for commit in self.commits.values() if commit.begun < cut]
        there = {commit for rows in found.values() for commit in rows}
        keys = {(commit.who, commit.n) for commit in begun}
        assert there <= keys, f"rows that nobody has written yet: {there - keys}"
        for volume, rows in found.items():
            for row in rows:
                assert self.commits[row].volume == volume
        acknowledged = [commit for commit in begun if commit.done is not None and commit.done < cut]
        lost = [commit for commit in acknowledged if (commit.who, commit.n) not in there]
        assert not [commit for commit in lost if commit.full], f"durable commits are lost: {lost}"
        first = min((commit.done for commit in lost if commit.done is not None), default=cut)
        late = [commit for commit in begun if (commit.who, commit.n) in there and commit.begun > first]
        assert not late, f"{late} are there, and what was done before they began is not: {lost}"


def rows_of(home: Path, volumes: list[str]) -> dict[str, set[tuple[str, int]]]:
    """Of each volume, which SQLite and Budwood must find sound."""
    found: dict[str, set[tuple[str, int]]] = {}
    with budwood.open(home=home, remote="") as edge:
        check_records(edge.environment)
        names = {row["name"] for row in edge.ls()}
    for volume in volumes:
        found[volume] = set()
        if volume not in names:
            continue
        with closing(budwood.connect(volume, home=home, remote="")) as db:
            if not db.execute("SELECT count(*) FROM sqlite_schema").get:
                continue
            assert db.execute("PRAGMA integrity_check").get == "ok", volume
            found[volume] = {(who, n) for who, n in db.execute("SELECT who, n FROM t")}
    return found


def judge(home: Path, promises: Promises, cut: int) -> None:
    """Raises AssertionError, or what the home raised."""
    volumes = sorted({commit.who for commit in promises.commits.values()} | {SHARED} | promises.before.keys())
    found = rows_of(home, volumes)
    promises.check(found, cut)
    # It goes on from there.
    for volume in volumes:
        with closing(budwood.connect(volume, home=home, remote="")) as db:
            db.execute("CREATE TABLE IF NOT EXISTS t(who TEXT, n, payload BLOB, PRIMARY KEY(who, n))")
            for n in range(2):
                db.execute("INSERT INTO t VALUES('after', ?, zeroblob(50))", (10**6 + 2 * cut + n,))
        found[volume] |= {("after", 10**6 + 2 * cut), ("after", 10**6 + 2 * cut + 1)}
    assert rows_of(home, volumes) == found, "what was found, and what was added"

"""The mixture of test_mixed.py, followed by Spark: by streams that apply a table's changes to a mirror of it, and by
exports that bring a folder to the newest LSN.

A stream begins with the whole table or with any LSN, takes batches now and then, is killed between any two of its steps
and goes on from its checkpoint; meanwhile its volume is forked, restored, renamed and removed, and its past is
forgotten, folded and collected. After each batch the mirror has the rows of the LSN that the query has come to: what it
has come to it holds, so that nothing is ever lost to it, but single steps that were forgotten come as their sum. After
each export, whole or incremental, the folder has the rows of its LSN.

Spark's part is played here, in one process: what it asks a stream's reader, and the pieces of work of an export.
MIXED_SEEDS=1000 tries as many.
"""

from __future__ import annotations

import json
import os
import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import pyarrow.dataset as pads
import pytest

from budwood.spark_export.export import export, pipeline
from budwood.spark_export.export.job import run_in_threads
from budwood.spark_export.source.remotes import connected
from budwood.volume.errors import NotFound

from ..feeds import Mirror, as_texts
from ..streams import Query
from .test_mixed import STEPS, Mixed, Rows, There, mixing

P = TypeVar("P")
A = TypeVar("A")

SEEDS = int(os.environ.get("MIXED_SEEDS", "3"))
CHAIN = 150
MOST = 4
"""Streams at a time."""


class Cluster:
    """Of no machine: `run_here` does its jobs."""

    defaultParallelism = 2  # noqa: N815 - Spark's name

    @property
    def sparkContext(self) -> Cluster:  # noqa: N802 - Spark's name
        return self


def run_here(_: object, __: str, pieces: Sequence[P], ___: object, work: Callable[[P], A], ____: object = None) -> Any:
    return run_in_threads(pickle.loads(pickle.dumps(pieces)), work)


def pairs(rows: Rows) -> dict[int, tuple[int, str]]:
    return {key: (key, text) for key, text in rows.items()}


@dataclass
class Stream:
    """One query, and what it follows."""

    url: str
    volume: str
    """Its name; once it was begun, its id."""
    there: There
    more: dict[str, Any]
    mirror: Mirror = field(default_factory=Mirror)

    def __post_init__(self) -> None:
        self.query = Query(self, {"readChangeFeed": True, "failOnDataLoss": False, **self.more})

    def options(self, **more: object) -> dict[str, str]:
        return as_texts({"volume": self.volume, "table": "t", "remote": self.url, **more})

    def end(self, batch: int) -> dict[str, Any]:
        """The offset that a batch ends at."""
        found: dict[str, Any] = json.loads(self.query.log[batch])
        return found

    @property
    def is_behind(self) -> bool:
        return self.query.done < len(self.query.log) or self.end(-1)["lsn"] < len(self.there.history) - 1

    def apply(self) -> None:
        """The batch that was run last."""
        end: int = self.end(self.query.done - 1)["lsn"]
        assert all(version <= end for version in self.mirror.apply(self.query.sink[self.query.done - 1]))
        assert self.mirror.rows == pairs(self.there.history[end])


class MixedSpark(Mixed):
    steps: ClassVar = STEPS + 3 * ["follow"] + 6 * ["take"] + 2 * ["kill"] + 3 * ["export"]

    def __init__(self, folder: Path, dice: random.Random) -> None:
        super().__init__(folder, dice)
        self.streams: list[Stream] = []
        self.lake = folder / "lake"

    def close(self) -> None:
        for stream in self.streams:
            stream.query.kill()
        connected(self.url, "").close()
        super().close()

    def follow(self) -> None:
        if not self.names or len(self.streams) >= MOST:
            return
        name, there = self._pick_there("follow")
        more: dict[str, Any] = {}
        if self.dice.random() < 0.5:
            more["maxVersionsPerTrigger"] = self.dice.choice([1, 2])
        newest = len(there.history) - 1
        before = self.dice.choice([None, newest, self.dice.randint(0, newest)])
        if before is not None:
            more["startingVersion"] = "latest" if before == newest else before + 1
        stream = Stream(self.url, name, there, more)
        stream.query.plan()
        if before is not None:
            after: int = stream.end(0)["after"]
            assert after == before or (before and there.may_be_forgotten(before))
            stream.mirror.rows = pairs(there.history[after])
        stream.volume = stream.end(0)["volume"]
        self.streams.append(stream)

    def take(self) -> None:
        if self.streams:
            self.take_of(self.dice.choice(self.streams))

    def take_of(self, stream: Stream) -> None:
        query = stream.query
        self.said.append(f"a stream of {stream.volume} takes a batch")
        try:
            if query.done == len(query.log) and not query.plan():
                assert not stream.is_behind
            elif self.dice.random() < 0.2:
                query.run(crashes=True)
            else:
                query.run()
                stream.apply()
        except NotFound:
            assert stream.there.removed
            self._leave(stream)

    def kill(self) -> None:
        if self.streams:
            stream = self.dice.choice(self.streams)
            self.said.append(f"a stream of {stream.volume} is killed")
            stream.query.kill()
            if self.dice.random() < 0.2:
                self._leave(stream)

    def export(self) -> None:
        if not self.names:
            return
        name, there = self._pick_there("export")
        (result,) = export(
            name,
            to=self.lake,
            tables=["t"],
            incremental=self.dice.random() < 0.8,
            verify=self.dice.random() < 0.3,
            remote=self.url,
            session=cast("Any", Cluster()),
        )
        assert result.lsn == len(there.history) - 1
        found = pads.dataset(self.lake / name / "t").to_table().to_pylist()
        assert sorted((row["k"], row["v"]) for row in found) == sorted(there.history[-1].items())

    def _leave(self, stream: Stream) -> None:
        """Its leases stay."""
        stream.query.kill()
        self.streams.remove(stream)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_spark_has_of_a_volume_is_what_befell_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("budwood.spark_export.source.stream.WAIT_SECONDS", 0.0)
    monkeypatch.setattr(pipeline, "run_job", run_here)
    with mixing(MixedSpark, tmp_path, monkeypatch, seed) as mixed:
        mixed.run(CHAIN)
        for stream in list(mixed.streams):
            while stream in mixed.streams and stream.is_behind:
                mixed.take_of(stream)

"""A streaming query without Spark: what drives a stream's reader, as Spark drives it."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from pyspark.sql.streaming.datasource import ReadLimit

from budwood.spark_export.source.change_feed import plan_feed
from budwood.spark_export.source.feed_table import open_feed_table
from budwood.spark_export.source.resolution import resolve
from budwood.spark_export.source.stream import TableStream, open_stream

from .feeds import Row


class Given(Protocol):
    def options(self, **more: object) -> dict[str, str]:
        """For `format("budwood")`: the volume and its table, and more."""
        ...


@dataclass
class Query:
    """A streaming query of Spark: its checkpoint, and a sink that keeps each batch under its number."""

    source: Given
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    log: list[str] = field(default_factory=list[str])
    done: int = 0
    sink: dict[int, list[Row]] = field(default_factory=dict[int, list[Row]])
    reader: TableStream | None = None

    def start(self, *, available_now: bool = False) -> TableStream:
        """In a process of the driver; what was asked for, and the columns, are resolved anew."""
        resolved = resolve(self.source.options(**self.options))
        feed = self.options.get("readChangeFeed", False)
        schema = (
            plan_feed(resolved).schema
            if feed
            else open_feed_table(resolved.ref, resolved.request, resolved.view, fixed=True).plan.schema
        )
        self.reader = cast("TableStream", open_stream(resolved, schema))
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        if self.log:
            # As Spark tells a source where it was.
            last = json.loads(self.log[-1])
            assert self.reader.partitions(last, last) == []
        return self.reader

    def kill(self) -> None:
        """The process's thread is all that must not outlive it here."""
        if self.reader is not None:
            self.reader.stop()
        self.reader = None

    def plan(self) -> bool:
        reader = self.reader or self.start()
        assert self.done == len(self.log), "a planned batch is run first"
        before = self._start(len(self.log))
        limit: ReadLimit = reader.getDefaultReadLimit()
        after = json.dumps(reader.latestOffset(json.loads(before), limit))
        if after == before:
            return False
        self.log.append(after)
        if len(self.log) > 1:
            reader.commit(json.loads(self.log[-2]))
        return True

    def run(self, *, crashes: bool = False) -> list[Row]:
        """The planned batch; each executor gets a copy of the reader. A crash comes after the sink has it."""
        reader = self.reader or self.start()
        start, end = self._start(self.done), self.log[self.done]
        rows: list[Row] = []
        for partition in reader.partitions(json.loads(start), json.loads(end)):
            copy = pickle.loads(pickle.dumps(reader))
            for batch in copy.read(pickle.loads(pickle.dumps(partition))):
                rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        rows.sort(key=repr)
        if self.options.get("failOnDataLoss", True):
            assert self.sink.get(self.done, rows) == rows, "a batch that runs again has other rows"
        self.sink[self.done] = rows
        if crashes:
            self.kill()
        else:
            self.done += 1
        return rows

    def process_all(self) -> list[Row]:
        found: list[Row] = []
        while self.done < len(self.log) or self.plan():
            found += self.run()
        return found

    def _start(self, batch: int) -> str:
        if batch:
            return self.log[batch - 1]
        assert self.reader is not None
        return json.dumps(self.reader.initialOffset())

    @property
    def rows(self) -> list[Row]:
        return [row for batch in sorted(self.sink) for row in self.sink[batch]]

    def lsns(self) -> list[int]:
        return [json.loads(text)["lsn"] for text in self.log]

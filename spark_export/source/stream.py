"""Stream: `spark.readStream.format("budwood")`: a table's rows or changes as they come, each once.

Spark keeps one reader in a process of the driver; it answers how far the volume has come (latestOffset), cuts what lies
between two offsets into tasks (partitions), and hears how far the query has come (commit). A copy of it goes to the
executors, whose `read` looks at nothing but its task. What offsets mean, and why a query that is killed anywhere and
started again loses and repeats nothing, stands in offsets.py.

With readChangeFeed=true a batch has the feed's rows; without it, a table that is only appended to has its new rows, and
the first update or delete ends the query with one clear error.

The columns are those that the table had when the stream was loaded. A table that gets others ends the query; started
again, from the same checkpoint, it has the new ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from ...tables.changes.change_batch import CHANGE_TYPE
from ...volume.calls import WAIT, WaitRequest
from ...volume.errors import BadInput, Forgotten, NotFound
from .feed_table import COMMIT_VERSION, META, FeedTable, available_lsns, first_at, is_readable, open_feed_table
from .offsets import AvailableLsns, Offset, check_batch, following, opening, parse_offset, steps
from .page_reader import RemoteVolume, open_volume
from .partitions import Partition
from .resolution import Resolved, plain_errors
from .steps import StepTask, distinct, plan_snapshot, plan_steps, run_steps
from .stream_leases import StreamLeases

WAIT_SECONDS: Final = 1.0
"""How long a query whose trigger is as fast as it can be waits for a commit before it asks again."""


def open_stream(resolved: Resolved, schema: pa.Schema) -> DataSourceStreamReader:
    """Raises BadInput where the options ask for what no stream does."""
    request = resolved.request
    for given, name in (
        (request.version, "versionAsOf"),
        (request.time_ms, "timestampAsOf"),
        (request.ending_version, "endingVersion"),
        (request.ending_ms, "endingTimestamp"),
    ):
        if given is not None:
            raise BadInput(
                f"option {name} is not for streams: they begin by startingVersion or startingTimestamp, and go on"
            )
    return TableStream(resolved, schema)


class TableStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, resolved: Resolved, schema: pa.Schema) -> None:
        self._resolved = resolved
        self._schema = schema
        self._driven: _Driven | None = None

    def __reduce__(self) -> tuple[Callable[..., TableStream], tuple[Resolved, pa.Schema]]:
        # What drives the stream stays where it is.
        return TableStream, (self._resolved, self._schema)

    @property
    def _driver(self) -> _Driven:
        self._driven = self._driven or _Driven(self._resolved)
        return self._driven

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        with plain_errors():
            return self._driver.start.json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Spark knows limits of its own kinds alone: this one's files are LSNs."""
        most = self._resolved.request.most_versions
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        with plain_errors():
            self._driver.stop_at_newest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        with plain_errors():
            end = self._driver.next(start, limit.max_files if isinstance(limit, ReadMaxFiles) else None)
            # The very words of the start, where nothing is new: Spark compares them.
            return start if end is None else end.json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        return None if self._driven is None else self._driven.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with plain_errors():
            # Asked for nothing, Spark tells where a query that is started again had come to.
            return [Partition(task) for task in self._driver.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        task = cast("Partition[StepTask]", partition).task
        assert task is not None
        with plain_errors():
            for batch in run_steps(task):
                yield batch if self._resolved.request.feed else _appended(task, batch, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        with plain_errors():
            self._driver.come_to(end)

    def stop(self) -> None:
        if self._driven is not None:
            self._driven.leases.close()


class _Driven:
    """What the driver's process knows of a stream beside its offsets: leases, and the table's columns."""

    def __init__(self, resolved: Resolved) -> None:
        request = resolved.request
        self._volume: RemoteVolume = open_volume(resolved.ref)
        self._request = request
        self._feed_table: FeedTable = open_feed_table(resolved.ref, request, resolved.view, fixed=True)
        self._target: int | None = None
        self._seen = 0
        self.leases = StreamLeases(resolved.ref, request.lease_seconds)
        self.start = Offset(str(resolved.ref.vid), self._feed_table.table)

    def stop_at_newest(self) -> None:
        self._target = self._volume.snapshot().lsn

    def next(self, raw: Mapping[str, Any], limit: int | None) -> Offset | None:
        """The end of the next batch, held; None if nothing is new. Raises NotFound where the volume was removed."""
        start = self._own(raw)
        loses = not self._request.fail_on_data_loss
        if start.lsn is None:
            available = self._available(0, of_removed=False)
            first = self._first(available)
            held = first is not None and first <= available.oldest and is_readable(self._volume, first - 1)
            end: Offset | None = opening(start, available, first, limit=limit, held=held, loses=loses)
        else:
            if self._target is None:
                request = WaitRequest(self._volume.ref.vid.raw, after=start.lsn, timeout_seconds=WAIT_SECONDS)
                self._volume.remote.ask(WAIT, request)
            available = self._available(start.lsn, of_removed=False)
            held = self._adopt(start)
            end = following(start, available, limit=limit, held=held, loses=loses)
        if end is None or end.lsn is None:
            return None
        return replace(end, pin=self.leases.take(end.lsn))

    def tasks(self, raw_start: Mapping[str, Any], raw_end: Mapping[str, Any]) -> list[StepTask]:
        start, end = self._own(raw_start), self._own(raw_end)
        if start == end:
            return []
        check_batch(start, end)
        assert end.lsn is not None
        self._adopt(start)
        held = self.leases.adopt(end.lsn, end.pin)
        if end.after is None:
            if not held:
                raise Forgotten(
                    f"the stream began with the table as LSN {end.lsn} has it, which was forgotten before its batch "
                    "was done: begin again with a new checkpoint"
                )
            return plan_snapshot(self._feed_table, self._volume.snapshot(lsn=end.lsn), self.leases.all())
        held = held and self.leases.adopt(end.after, start.pin if end.after == start.lsn else "")
        available = self._available(end.after)
        pairs = steps(end, available, held=held, loses=not self._request.fail_on_data_loss)
        return plan_steps(self._feed_table, pairs, self.leases.all())

    def _adopt(self, start: Offset) -> bool:
        """Lease where the query has come to, and no longer what its last batch began with."""
        if start.lsn is None:
            return True
        if start.before and start.after is not None and start.after < start.lsn:
            self.leases.drop(start.after, start.before)
        return self.leases.adopt(start.lsn, start.pin)

    def come_to(self, raw: Mapping[str, Any]) -> None:
        end = parse_offset(raw)
        if end.lsn is not None:
            self.leases.release_below(end.lsn)

    def report(self) -> dict[str, Any] | None:
        """How far the volume has come, as far as is known here."""
        return {**self.start.json(), "lsn": self._seen} if self._seen else None

    def _own(self, raw: Mapping[str, Any]) -> Offset:
        """An offset of this volume and table."""
        offset = parse_offset(raw)
        if offset.lsn is None:
            return self.start
        check_batch(self.start, offset)
        return offset

    def _available(self, after: int, *, of_removed: bool = True) -> AvailableLsns:
        """`of_removed`: whether what is held of a volume that was removed counts. Raises NotFound otherwise."""
        newest = self._volume.snapshot()
        if newest.is_removed and not of_removed:
            come_to = f"has come to LSN {after}" if after else "hasn't begun"
            raise NotFound(
                f"volume {self._volume.ref.name!r} was removed at LSN {newest.lsn}, and the stream {come_to}"
            )
        if newest.lsn < after:
            raise BadInput(
                f"the stream has come to LSN {after}, and volume {self._volume.ref.name!r} ends at LSN {newest.lsn}:"
                " its store was put back to an older state, so begin again with a new checkpoint"
            )
        available = available_lsns(self._volume, newest, after)
        self._seen = max(self._seen, available.newest)
        return available if self._target is None else replace(available, newest=min(available.newest, self._target))

    def _first(self, available: AvailableLsns) -> int | None:
        """The first LSN whose changes are asked for; None where the whole table is."""
        request = self._request
        if request.starting_version == "latest":
            return available.newest + 1
        if request.starting_ms is None:
            return request.starting_version
        if request.starting_ms > time.time_ns() // 1_000_000:
            raise BadInput("startingTimestamp lies in the future: startingVersion=latest begins with the next commit")
        return first_at(self._volume, request.starting_ms, available)


def _appended(task: StepTask, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows alone, which must all be new."""
    if distinct(batch, CHANGE_TYPE) != ["insert"]:
        (lsn,), feed_table = distinct(batch, COMMIT_VERSION), task.feed_table
        raise BadInput(
            f"LSN {lsn} of volume {feed_table.ref.name!r} changed or deleted rows of table {feed_table.table}, and "
            "this stream gives new rows alone: readChangeFeed=true gives all changes (where _change_type = 'insert' "
            "are the new rows), from a new checkpoint"
        )
    columns: list[pa.Array[Any]] = batch.columns  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return pa.record_batch(columns[: -len(META)], schema=schema)

"""Feed table: the table whose changes a feed or a stream reads, with one set of columns from the first row to the last;
and which LSNs of its volume can be read.

The columns are those of the snapshot that it was planned by, and three more, named and typed as Delta's are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ...sqlite.names import same_name
from ...tables.changes.change_batch import CHANGE_TYPE
from ...tables.changes.change_tasks import feed_schema
from ...tables.scan_plan import Plan
from ...tables.schema import Generated, Kind, Relation
from ...volume.calls import PULL_COMMITS, RangeRequest
from ...volume.errors import BadInput, Forgotten, NotFound
from ...volume.wire import SnapshotInfo
from .offsets import AvailableLsns, is_whole
from .options import Request
from .page_reader import RemoteVolume
from .scan import plan_rows
from .volume_ref import VolumeRef

COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
META: Final = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
_COMMIT: Final = (
    pa.field(COMMIT_VERSION, pa.int64(), nullable=False),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", "UTC"), nullable=False),
)


@dataclass(frozen=True, slots=True)
class FeedTable:
    """The table that is followed, as it is read; it pickles. `at` is the LSN by whose schema it was planned.

    `fixed`: later LSNs may not have other columns. A feed that ends at `at` has none.
    """

    ref: VolumeRef
    request: Request
    plan: Plan
    at: int
    fixed: bool

    @property
    def table(self) -> str:
        return self.plan.relation.name

    @property
    def schema(self) -> pa.Schema:
        fields: list[pa.Field[Any]] = [*feed_schema(self.plan), *_COMMIT]
        return pa.schema(fields)


def open_feed_table(ref: VolumeRef, request: Request, view: SnapshotInfo, *, fixed: bool) -> FeedTable:
    """The table of `request` as the snapshot has it. Raises BadInput, NotFound, Unsupported, Corrupt."""
    _, _, plan = plan_rows(ref, view, **request.scan_options())
    relation = plan.relation
    if relation.kind not in (Kind.TABLE, Kind.SHADOW) or relation.root <= 1:
        kind = "SQLite's own schema" if relation.root == 1 else f"a {relation.kind}"
        raise BadInput(
            f"{relation.name} is {kind}: changes can be told of tables alone; follow those that it is made of"
        )
    for name in plan.schema.names:
        if name.lower() in META:
            raise BadInput(f"{relation.name} has a column {name} of its own: name others by the option columns")
    return FeedTable(ref, request, plan, view.lsn, fixed)


def available_lsns(volume: RemoteVolume, newest: SnapshotInfo, after: int) -> AvailableLsns:
    """What can be read of the volume, for a look behind the LSN `after`."""
    available = AvailableLsns(newest.since, newest.lsn)
    if newest.parent and newest.lsn and not is_whole(after, available):
        # Of the LSNs that a fork shares with its parent, more may be readable than its own since tells.
        volume.requests += 1
        oldest = volume.remote.ask(PULL_COMMITS, RangeRequest(volume.ref.vid.raw)).commits[0]
        available = AvailableLsns(oldest.lsn, newest.lsn)
    return available


def is_readable(volume: RemoteVolume, lsn: int) -> bool:
    """Below `since` an LSN is as long as somebody holds it."""
    try:
        volume.snapshot(lsn=lsn)
    except Forgotten:
        return False
    return True


def first_at(volume: RemoteVolume, ms: int, available: AvailableLsns) -> int:
    """The first LSN that is not earlier than the time; the one after the newest where all are."""
    try:
        return min(volume.snapshot(at_ms=ms - 1).lsn, available.newest) + 1
    except NotFound:
        # The volume is younger.
        return 1
    except Forgotten:
        return available.oldest


def check_columns(feed_table: FeedTable, relation: Relation, lsn: int) -> None:
    """Raises BadInput where the table has other columns than those that are followed."""
    then, now = _columns(feed_table, feed_table.plan.relation), _columns(feed_table, relation)
    if then == now:
        return
    words = [f"{name} is new" for name in now if name not in then]
    words += [f"{name} is gone" for name in then if name not in now]
    words += [
        f"{name} was declared {then[name]} and is {declared}"
        for name, declared in now.items()
        if then.get(name, declared) != declared
    ]
    raise BadInput(
        f"LSN {lsn} of volume {feed_table.ref.name!r} gave table {relation.name} other columns ({', '.join(words)}); "
        f"this stream has those of LSN {feed_table.at}: start the query again, and it goes on with the new ones, from "
        "the same checkpoint if its sink takes them"
    )


def _columns(feed_table: FeedTable, relation: Relation) -> dict[str, str]:
    """How those that are read are declared. What they are read as follows from that."""
    read = feed_table.request.columns
    return {
        column.name: column.declared.upper() or "without a type"
        for column in relation.columns
        if column.generated != Generated.HIDDEN and (read is None or any(same_name(column.name, name) for name in read))
    }

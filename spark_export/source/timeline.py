"""Timeline: a volume's commits, and the snapshots that can be read, as rows.

Both go from the oldest LSN that is remembered to the one that is read; ranges of LSNs are asked for side by side. What
is forgotten while a job runs is left out. Below the oldest, single LSNs are readable that a pin or a fork holds: these
are snapshots without a history.

A fork's LSNs up to the one it was forked at are its parent's own, and the pins that hold them lie there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ...volume.calls import PINS, PULL_COMMITS, SNAPSHOT, RangeRequest, SnapshotRequest, VolumeRequest
from ...volume.errors import Corrupt, Forgotten
from ...volume.ids import ClientId, VolumeId
from ...volume.pageset import decode_pages, page_count
from ...volume.pins import Pin, PinState
from ...volume.wire import CommitInfo, SnapshotInfo
from .columnar import TIME, batch, list_of, needed, schema_of

if TYPE_CHECKING:
    from ...remote.portal import BlockingRemote

HISTORY: Final = schema_of(
    {
        "lsn": needed(pa.int64()),
        "base": needed(pa.int64()),
        "time": needed(TIME),
        "length": needed(pa.int64()),
        "page_count": needed(pa.int64()),
        "pages_written": needed(pa.int64()),
        "bytes_written": needed(pa.int64()),
        "client": needed(pa.string()),
        "bindings": pa.binary(),
    }
)

_PINS: Final = list_of(
    {
        "id": needed(pa.string()),
        "kind": needed(pa.string()),
        "owner": needed(pa.string()),
        "expires": TIME,
    }
)
SNAPSHOTS: Final = schema_of(
    {
        "lsn": needed(pa.int64()),
        "time": needed(TIME),
        "length": needed(pa.int64()),
        "page_count": needed(pa.int64()),
        "held": needed(pa.bool_()),
        "pins": needed(_PINS),
    }
)


def oldest(remote: BlockingRemote, view: SnapshotInfo) -> int:
    """The first of the LSNs up to the view's that can all be read."""
    found = remote.ask(PULL_COMMITS, RangeRequest(view.vid, to=view.lsn)).commits if view.lsn else ()
    return found[0].lsn if found else view.lsn + 1


def commits(remote: BlockingRemote, view: SnapshotInfo, first: int, last: int) -> Iterator[Sequence[CommitInfo]]:
    """The commits of [first, last] in their order, some at a time. Raises Unavailable, Corrupt."""
    vid, after = VolumeId(view.vid), first - 1
    while after < last:
        try:
            some: Sequence[CommitInfo] = remote.ask(PULL_COMMITS, RangeRequest(vid.raw, after=after, to=last)).commits
        except Forgotten:
            some = _remembered(remote, vid, after, last)
        if not some:
            return
        if some[0].lsn <= after or some[-1].lsn > last:
            raise Corrupt(f"the answer of {remote.url}", f"it tells of LSN {some[0].lsn}, which was not asked for")
        after = some[-1].lsn
        yield some


def _remembered(remote: BlockingRemote, vid: VolumeId, after: int, last: int) -> list[CommitInfo]:
    """What of (after, last] is left, now that its beginning is forgotten."""
    try:
        found = remote.ask(PULL_COMMITS, RangeRequest(vid.raw, to=last)).commits
        return [commit for commit in found if commit.lsn > after]
    except Forgotten:
        return []


def history(some: Sequence[CommitInfo], view: SnapshotInfo, source: str) -> pa.RecordBatch:
    """`source` names who told of them, where what was told is damaged."""
    rows: list[dict[str, object]] = []
    for commit in some:
        written = len(decode_pages(source, commit.pages))
        row = {
            "base": commit.base,
            "pages_written": written,
            "bytes_written": written * view.page_size,
            "client": str(ClientId(commit.client)),
            "bindings": commit.bindings or None,
        }
        rows.append(_common_columns(commit, view) | row)
    return batch(HISTORY, rows)


def live_pins(remote: BlockingRemote, view: SnapshotInfo) -> list[Pin]:
    """Every pin that holds an LSN up to the view's, of the volume and of those it was forked from."""
    vid, last, info = VolumeId(view.vid), view.lsn, view
    found: list[Pin] = []
    while True:
        pins = remote.ask(PINS, VolumeRequest(vid.raw)).pins
        found += [pin for pin in pins if pin.state is PinState.LIVE and pin.lsn <= last]
        if not info.parent:
            return found
        vid, last = VolumeId(info.parent), min(last, info.parent_lsn)
        info = remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))


def snapshots(
    some: Sequence[CommitInfo] | Sequence[SnapshotInfo], view: SnapshotInfo, pins: Sequence[Pin]
) -> pa.RecordBatch:
    holding = {each.lsn: [_pin_struct(pin) for pin in pins if pin.lsn == each.lsn] for each in some}
    rows = [_common_columns(each, view) | {"held": bool(holding[each.lsn]), "pins": holding[each.lsn]} for each in some]
    return batch(SNAPSHOTS, rows)


def held_below(remote: BlockingRemote, view: SnapshotInfo, pins: Sequence[Pin], below: int) -> list[SnapshotInfo]:
    """The snapshots below that LSN which pins keep readable."""
    found: list[SnapshotInfo] = []
    for lsn in sorted({pin.lsn for pin in pins if 0 < pin.lsn < below}):
        try:
            found.append(remote.ask(SNAPSHOT, SnapshotRequest(view.vid, lsn=lsn)))
        except Forgotten:
            continue
    return found


def _pin_struct(pin: Pin) -> dict[str, object]:
    return {
        "id": str(pin.pin_id),
        "kind": pin.kind,
        "owner": pin.owner,
        "expires": pin.expiry * 1000 if pin.expiry else None,
    }


def _common_columns(each: CommitInfo | SnapshotInfo, view: SnapshotInfo) -> dict[str, object]:
    """What both tables say."""
    return {
        "lsn": each.lsn,
        "time": each.time * 1000,
        "length": each.length,
        "page_count": page_count(each.length, view.page_size),
    }

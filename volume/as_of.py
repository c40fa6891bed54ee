"""As of: which snapshot of a volume is meant by a time, or by the label of a named one (`@v1`).

Whatever reads the past takes both: the VFS, the mount, the lite client, Spark and the commands.
"""

from __future__ import annotations

from datetime import datetime

from .calls import SnapshotRequest
from .errors import BadInput
from .ids import VolumeId

Time = int | str | datetime
"""Milliseconds since the Unix epoch; an ISO 8601 text; a datetime. What names no time zone is local time."""


def snapshot_request(vid: VolumeId, *, lsn: int | None = None, at: Time | None = None) -> SnapshotRequest:
    """What to ask a remote for: the newest snapshot, the one at an LSN or time, or the one of the label behind an @.
    Raises BadInput."""
    at_ms, label = moment_of(at)
    return SnapshotRequest(vid.raw, lsn=lsn, at_ms=at_ms, label=label)


def moment_of(at: Time | None) -> tuple[int | None, str]:
    """A time in milliseconds, or else the label behind an @. Raises BadInput."""
    if isinstance(at, str) and at.startswith("@"):
        return None, label_of(at)
    return None if at is None else time_ms(at), ""


def label_of(text: str) -> str:
    """Without its @. Raises BadInput."""
    if not text[1:]:
        raise BadInput("@ stands before a label: @LABEL, as `budwood pins` lists it")
    return text[1:]


def time_ms(at: Time) -> int:
    """A time as milliseconds since the Unix epoch. Raises BadInput."""
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError as error:
            raise BadInput(
                f"{at!r} is no time: write it like 2030-01-31T12:00:00, with Z or an offset unless it is local"
            ) from error
    if isinstance(at, datetime):
        try:
            return round(at.timestamp() * 1000)
        except (ValueError, OverflowError) as error:
            # Local time next to year 1 or 9999 is worked out beyond them.
            raise BadInput(f"{at.isoformat()} lies beyond the times that can be told") from error
    return at

"""Words: values as people read them on a page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from ...sqlite.record import Value
from ...volume.retention_policy import RetentionPolicy

MOST_TEXT: Final = 200
"""Characters of one cell."""
_UNITS: Final = ((365 * 86_400_000, "y"), (86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"))


def moment_of(time_ms: int) -> str:
    """UTC, to the second; "" for 0, which stands for unknown."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") if time_ms else ""


def cell_of(value: Value) -> str:
    """A value of SQLite's: of a blob its size, of a long text its beginning."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"blob of {len(value):,} bytes"
    text = str(value)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}… ({len(text):,} characters)"


def policy_of(policy: RetentionPolicy | None) -> str:
    """For how long LSNs stay."""
    if policy is None or not policy.forgets:
        return "every LSN, for ever"
    terms = ((policy.all_ms, "every LSN"), (policy.hourly_ms, "one an hour"), (policy.daily_ms, "one a day"))
    return ", ".join(f"{what} for {_lasting(ms)}" for ms, what in terms if ms)


def _lasting(ms: int) -> str:
    unit, name = next(((unit, name) for unit, name in _UNITS if ms % unit == 0), (1, "ms"))
    return f"{ms // unit}{name}"

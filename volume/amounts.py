"""Amounts of money, and days, as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_DAY_SECONDS: Final = 86_400


def amount_of(amount: float) -> str:
    """To the cent, or to the first digits that say something."""
    if amount >= 100 or not amount:
        return f"{amount:,.0f}"
    return f"{amount:.2f}" if amount >= 1 else f"{amount:.4f}" if amount >= 0.0001 else "<0.0001"


def date_of(day: int) -> str:
    """A day since 1970, in UTC."""
    return datetime.fromtimestamp(day * _DAY_SECONDS, UTC).strftime("%Y-%m-%d")

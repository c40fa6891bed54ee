"""Names: SQLite tells them apart without regard to case, but of ASCII's letters alone: É and é are two tables."""

from __future__ import annotations

from typing import Final

_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def folded(name: str) -> str:
    """The same for all spellings of one name."""
    return name.translate(_LOWER)


def same_name(one: str, other: str) -> bool:
    return folded(one) == folded(other)

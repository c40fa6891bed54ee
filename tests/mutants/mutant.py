"""One mutant: a bug that breaks a promise (DESIGN §4, §7, §9), and the smallest tests that must catch it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    """What the bug does."""
    file: str
    before: str
    """Stands exactly once in the file."""
    after: str
    tests: tuple[str, ...]
    """Arguments for pytest."""

"""Findings: what a scrub says of an object that is wrong, and whom it is told to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ...volume.errors import BudwoodError, Corrupt

_FEW = 8
"""Spans that a line names."""


class Span(NamedTuple):
    """LSNs of a volume, revisions of a namespace, or positions of a plain log's stream, that can't be read as they were
    written."""

    stream: str
    """The id of the volume, or of the namespace; or the stream's name."""
    first: int
    last: int | None
    """None: and all that follow."""
    names: bool = False
    plain: bool = False

    def __str__(self) -> str:
        what = "the names' revision" if self.names else f"volume {self.stream} LSN"
        if self.plain:
            what = f"stream {self.stream!r} position"
        if self.last is None:
            return f"{what} {self.first} on"
        return f"{what} {self.first}" if self.last == self.first else f"{what} {self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One object, and all that is wrong with it."""

    key: str
    what: str
    spoils: tuple[Span, ...] = ()
    stops: str = ""
    """The log that can't be opened while it is so; "*": the whole store can't."""

    def __str__(self) -> str:
        """One line."""
        spans = ", ".join(map(str, self.spoils[:_FEW]))
        if len(self.spoils) > _FEW:
            spans += f" and {len(self.spoils) - _FEW} more"
        parts = [f"{self.key}: {self.what}", *([f"spoils {spans}"] if spans else [])]
        if self.stops:
            parts.append("the store can't be opened" if self.stops == "*" else f"log {self.stops} can't be opened")
        if len(parts) == 1:
            parts.append("spoils nothing that is read")
        return "; ".join(parts)


class Told(Protocol):
    """Whoever listens to a scrub."""

    def found(self, finding: Finding) -> None: ...


@dataclass(slots=True)
class Wrong:
    """An object, while it is looked at."""

    key: str
    problems: list[str] = field(default_factory=list[str])
    spoils: list[Span] = field(default_factory=list[Span])
    stops: str = ""

    def add(self, problem: str, spoils: Iterable[Span] = ()) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
        self.spoils += spoils


class Findings:
    """Tells each wrong object once."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._keys: set[str] = set()

    @property
    def count(self) -> int:
        return len(self._keys)

    def knows(self, key: str) -> bool:
        return key in self._keys

    def tell(self, wrong: Wrong) -> None:
        if wrong.problems and wrong.key not in self._keys:
            more = f" (and {len(wrong.problems) - 1} more)" if len(wrong.problems) > 1 else ""
            what = " ".join(f"{wrong.problems[0]}{more}".split())
            self.pass_on(Finding(wrong.key, what, tuple(joined(wrong.spoils)), wrong.stops))

    def pass_on(self, finding: Finding) -> None:
        """What was found elsewhere."""
        if finding.key not in self._keys:
            self._keys.add(finding.key)
            self._told.found(finding)


def words_of(key: str, error: BudwoodError) -> str:
    """What an error says of the object `key`, without its name."""
    return error.what if isinstance(error, Corrupt) and error.key == key else str(error)


def joined(spans: Iterable[Span]) -> list[Span]:
    """The fewest spans that say the same, sorted."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.names, span.stream, span.first)):
        before = found[-1] if found else None
        if before is None or (before.names, before.stream) != (span.names, span.stream):
            found.append(span)
        elif before.last is not None:
            if span.first > before.last + 1:
                found.append(span)
            elif span.last is None or span.last > before.last:
                found[-1] = before._replace(last=span.last)
    return found

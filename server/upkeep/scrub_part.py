"""Scrub part: a piece of a scrub that can be named, carried elsewhere and done there, and what came of it.

A scrub is its parts, in order: volumes by their ids, then logs by their names, and of a log that has rollups slots
after slots. All of these are values. What a part needs to know of those before it, it assumes, and says what it leaves
to the next: whoever puts the answers together (spread_scrub.py) holds each to that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from .covered_scrub import Link, Walked
from .findings import Finding
from .log_outline import Outline
from .moves import Unmet
from .position import Position


@dataclass(frozen=True, slots=True)
class VolumesPart:
    vids: tuple[str, ...]
    """Sorted."""

    @property
    def end(self) -> Position:
        return Position(vid=self.vids[-1])


@dataclass(frozen=True, slots=True)
class LogPart:
    """A log, or slots of one."""

    log: str
    first: int = 0
    """Nothing is said of what comes before that slot."""
    outline: Outline | None = None
    """Of a log that several parts look at: they all go by the same one."""
    behind: str = ""
    """It assumes that this rollup was found right, and begins behind it."""
    upto: int | None = None
    """The slot that it ends before; None: the log's end, whatever that is."""
    covered_by: str = ""
    """The rollup whose covered entries others look at, too; of them it looks at those from `covered_from` on."""
    covered_from: int = 0
    blind: bool = False
    """Whether what came before could not read all nodes: see `Left`."""

    @property
    def end(self) -> Position | None:
        # What others look at comes before.
        return None if self.upto is None or self.covered_by else Position(log=self.log, slot=self.upto)


@dataclass(frozen=True, slots=True)
class CoveredPart:
    """Entries that the rollup covers which a log begins behind."""

    outline: Outline
    rollup: str
    slots: range
    link: Link | None = None
    guessed: bool = True
    """It assumes what it guesses, and not `link`."""
    end: None = None

    @property
    def log(self) -> str:
        return self.outline.log


@dataclass(frozen=True, slots=True)
class NodesPart:
    """The nodes of a log's rollups, by their names alone: once one can't be read, nothing leads to what it led to."""

    outline: Outline
    end: None = None


Part: TypeAlias = VolumesPart | LogPart | CoveredPart | NodesPart


@dataclass(frozen=True, slots=True)
class Left:
    """What a part leaves to those after it."""

    base: str = ""
    """The newest rollup of the log that was found right; "" where none was."""
    blind: bool = False
    """Whether the log's nodes are to be looked at by their names."""
    covered_by: str = ""
    """The rollup that it began behind without trusting it."""
    walked: Walked = field(default_factory=lambda: Walked(None))
    """Of the entries that this one covers."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one part."""

    findings: tuple[Finding, ...]
    """Each object once, in the order in which they were met."""
    left: Left = Left()
    unmet: Unmet = field(default_factory=Unmet)
    objects: int = 0
    bytes: int = 0
    locked: frozenset[str] = frozenset()
    """Encrypted volumes that no key at hand opens."""

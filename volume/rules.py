"""Rules: what a volume wants of its commits, beside their base (DESIGN §5; S3.12, S3.34).

    optimistic   whoever commits first wins, and everybody else begins anew
    exclusive    whoever took the newest writer epoch commits, and nobody else
    replicated   several writers make the same commits: one lands, and the rest are told of it

In any mode a commit may *bind* offsets of sources: with it, everything before that offset is in the volume. What is
bound only grows. So whoever reads a source asks how far it has come, reads on from there, and commits what it found
with the next offset: after any crash that either stands or doesn't, and nothing comes twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from .errors import BadInput
from .limits import MOST_SOURCE_BYTES, MOST_SOURCES

OPTIMISTIC: Final = "optimistic"
EXCLUSIVE: Final = "exclusive"
REPLICATED: Final = "replicated"
MODES: Final = (OPTIMISTIC, EXCLUSIVE, REPLICATED)

_U64: Final = range(1 << 64)


class Offset(msgspec.Struct, frozen=True, gc=False):
    """How far a source was read: everything before `offset`. What an offset counts is the source's own."""

    source: str
    offset: int


class Binding(msgspec.Struct, frozen=True, gc=False):
    """The newest of a source, and the LSN that brought it."""

    source: str
    offset: int
    lsn: int


class Rules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    mode: str = OPTIMISTIC
    writer_epoch: int = 0
    """The newest that was taken; it never goes back, whatever the mode."""
    sources: tuple[Binding, ...] = ()
    """Sorted by source."""
    encryption: bytes = b""
    """The newest encryption header (encryption.py); "" while that of its birth goes."""

    def binding(self, source: str) -> Binding | None:
        return next((each for each in self.sources if each.source == source), None)

    def has(self, offset: Offset) -> bool:
        """Whether its source was read so far, or farther."""
        held = self.binding(offset.source)
        return held is not None and offset.offset <= held.offset

    def bound(self, offsets: Sequence[Offset], lsn: int) -> Rules:
        """With what the commit that makes this LSN binds."""
        sources = {each.source: each for each in self.sources}
        sources |= {each.source: Binding(each.source, each.offset, lsn) for each in offsets}
        return msgspec.structs.replace(self, sources=tuple(sources[source] for source in sorted(sources)))


NO_RULES: Final = Rules()
"""A volume's, where nobody said otherwise."""


def check_mode(mode: str) -> str:
    """Raises BadInput."""
    if mode not in MODES:
        raise BadInput(f"{mode!r} is no mode of a volume: it is {', '.join(MODES[:-1])} or {MODES[-1]}")
    return mode


def check_offsets(offsets: Sequence[Offset]) -> None:
    """Raises BadInput on what no commit may bind."""
    if len(offsets) > MOST_SOURCES or len({each.source for each in offsets}) != len(offsets):
        raise BadInput(f"a commit binds each source once, and {MOST_SOURCES} at most")
    for each in offsets:
        # What can't be encoded is not printable either.
        if not each.source.isprintable() or not 0 < len(each.source.encode()) <= MOST_SOURCE_BYTES:
            raise BadInput(f"a source's name has 1 to {MOST_SOURCE_BYTES} bytes of printable text")
        if each.offset not in _U64:
            raise BadInput(f"the offset of source {each.source!r} is a number from 0 to 2**64 - 1, not {each.offset}")

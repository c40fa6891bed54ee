"""Merge: what is unpushed is laid over the remote's newest snapshot by pages, if no page was changed on both sides.

What that promises is snapshot isolation and no more: both sides' pages stand as they were written, though whoever wrote
them may have read what the other was writing meanwhile. Two that each withdraw from one of two accounts, having looked
at the sum of both, are merged. So it is for files whose pages stand for themselves. In a SQLite database no page does
(the first counts the others), and its rows are replayed instead (rows/replay.py).

Whoever makes the length another than the sync point's has changed it; a side that cuts the file off has changed every
page from there on, those that the other appends included. What is unpushed becomes one commit, made in memory.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from ..sqlite.header import MAGIC
from ..volume.errors import BadInput, Diverged
from ..volume.pageset import PageSet, beyond, page_count, span
from ..volume.wire import SnapshotInfo
from .change import Change
from .pull import Move
from .snapshot import LocalSnapshot

if TYPE_CHECKING:
    from .volume import Volume

_NAMED: Final = 8
"""So many runs of pages are named to whoever is refused."""


class Merged(NamedTuple):
    onto: int
    """The remote's LSN that it was laid over; 0 where there was nothing to merge."""
    pages: int
    """Pages that were laid over it."""


def merge(volume: Volume, *, dry_run: bool = False, keep_as: str | None = None, move: Move | None = None) -> Merged:
    """Raises Diverged if a page was changed on both sides, with nothing changed; BadInput for a SQLite database;
    Forgotten, Unavailable, Busy. `keep_as` forks what is unpushed as it stands first.
    """
    merged = Merged(0, 0)

    def remake(mine: LocalSnapshot, to: SnapshotInfo) -> Change | None:
        nonlocal merged
        change = _laid_over(volume, mine, to)
        merged = Merged(to.lsn, len(change.pages))
        if dry_run:
            raise _OnlyTried
        return change

    with suppress(_OnlyTried):
        volume.rebase(remake, keep_as=keep_as, move=move)
    return merged


def merging(_edge: object, volume: Volume) -> str:
    """For `on_diverged` (autosync.py). Raises what `merge` raises."""
    merged = merge(volume)
    return f"volume {volume.name!r} had diverged: its {merged.pages} unpushed pages stand on LSN {merged.onto} now"


class _OnlyTried(Exception):
    """Nothing is to be changed."""


def _laid_over(volume: Volume, mine: LocalSnapshot, to: SnapshotInfo) -> Change:
    head, size = mine.head, mine.head.page_size
    if head.length and mine.read(1).startswith(MAGIC):
        raise BadInput(
            f"volume {volume.name!r} is a SQLite database, whose pages say something about each other: its rows are "
            f"merged by `budwood replay {volume.name}`"
        )
    base = volume.base(head).length if head.sync_remote else 0
    written = mine.local.unpushed(mine.transaction, head)
    theirs = volume.changed_between(head.sync_remote, to.lsn)
    if head.floor < base:
        # What is written behind the cut was zeros before, and the remote's pages there must not show through.
        ours = written | span(head.floor // size + 1, page_count(max(base, to.length), size))
    else:
        ours = written
    both = ours & theirs
    if both:
        raise Diverged(
            f"volume {volume.name!r} can't be merged, since {_in_words(both)} changed here and on the remote: take the "
            f"remote's with `budwood reset {volume.name} --keep-as NEW`"
        )
    if head.length != base != to.length and head.length != to.length:
        raise Diverged(
            f"volume {volume.name!r} can't be merged, since its length was changed here, to {head.length} bytes, and "
            f"on the remote, to {to.length}: take the remote's with `budwood reset {volume.name} --keep-as NEW`"
        )
    length = to.length if head.length == base else head.length
    lasting = written - beyond(written, page_count(length, size))
    return Change(
        items=[(page, mine.read(page)) for page in lasting],
        pages=lasting,
        skeleton=PageSet(),
        length=length,
        floor=min(to.length, length, head.floor if head.floor < base else to.length),
        page_size=size,
    )


def _in_words(pages: PageSet) -> str:
    """As "pages 3, 9-12 were"."""
    runs: list[str] = []
    for _, run in groupby(enumerate(pages), key=lambda each: each[1] - each[0]):
        numbers = [page for _, page in run]
        runs.append(str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    if len(runs) > _NAMED:
        runs = [*runs[:_NAMED], "…"]
    return f"page {runs[0]} was" if len(pages) == 1 else f"pages {', '.join(runs)} were"

"""Restore: an old snapshot becomes the volume's new head, as a commit on top of what stands.

Nothing of the history is taken away: the LSNs between stay readable, and the restore can itself be restored from. The
commit is local, like any other, and everybody's with the next push. It holds only the pages that differ: which commit
wrote each page is asked of the remote for both snapshots (`locate`), and where that is the same commit, so is the page.
No page travels for the comparison; those that differ are fetched, since a commit's checksums name the LSN that it
makes, and are sent again by the push.

Unpushed commits would vanish beneath the restored content, in one remote commit with it. So they are refused, or kept
as a fork first.

Order: the volume moves to the remote's head (by a pull, or by a reset that keeps), then the pages are fetched, with
nothing held meanwhile, then one local commit is made on that head, unless someone else has committed by then. A crash
leaves the volume at the remote's head, where the restore can be done again, or at the restored one.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from datetime import datetime
from typing import NamedTuple, Protocol

from ..sqlite.shown_cookie import counted_on
from ..volume import faults
from ..volume.calls import LOCATE, LocateRequest
from ..volume.errors import BadInput, Conflict, Diverged, Unavailable
from ..volume.pageset import PageSet, decode_pages, encode_pages, page_count, span
from ..volume.protocols import Durability
from ..volume.wire import SnapshotInfo
from .connection import Connection, origin
from .dirty_pages import DirtyPages
from .local_volume import Local
from .tables import Head, VolumeRecord
from .transfer import Progress
from .writer import LocalWriter

FETCHED = faults.point("restore: pages fetched, nothing committed")
COMMITTED = faults.point("restore: committed, caller not told")

_Writer = tuple[bytes, int] | None
"""The volume and LSN of the commit that wrote a page; None for zeros that lie nowhere."""


class Restorable(Protocol):
    """What is needed of a volume (volume.py)."""

    @property
    def name(self) -> str: ...
    @property
    def local(self) -> Local: ...
    def moment(self, lsn: int | None, at: int | str | datetime | None = None) -> SnapshotInfo: ...
    def pull(self) -> str: ...
    def reset(self, *, keep_as: str | None = None) -> str: ...
    def writer(self, *, page_size: int | None = None) -> LocalWriter: ...


class Pages(Protocol):
    """Where its pages come from, at any LSN."""

    def connection(self, record: VolumeRecord | None = None) -> Connection: ...
    def fetch_in_parts(self, lsn: int, pages: PageSet, page_size: int) -> Generator[dict[int, bytes]]: ...


class Restored(NamedTuple):
    lsn: int
    """What was restored."""
    pages: int
    """Pages that the commit holds."""
    label: str
    """Where the volume stands now."""


def restore(
    volume: Restorable,
    engine: Pages,
    *,
    lsn: int | None = None,
    at: int | str | datetime | None = None,
    keep_as: str | None = None,
    progress: Progress | None = None,
) -> Restored:
    """Raises Diverged while commits are unpushed, unless told how to keep them; BadInput, NotFound, Forgotten for a
    snapshot that can't be read; Conflict if someone commits meanwhile; Unavailable where the remote doesn't answer.
    """
    if (lsn is None) == (at is None):
        raise BadInput("say which snapshot to restore: an LSN, or a time or @LABEL, and not both")
    local = volume.local
    _refuse_unpushed(local.peek(), volume.name, keep_as)
    try:
        wanted = volume.moment(lsn, at)
        _to_the_head(volume, keep_as)
    except Unavailable as error:
        raise _offline(volume.name, error) from error
    head, record = local.peek(), local.record()
    _refuse_unpushed(head, volume.name, None)
    if wanted.lsn == head.sync_remote:
        return Restored(wanted.lsn, 0, head.label)
    connection = engine.connection(record)
    try:
        pages = differing(connection, record, wanted, head)
        with closing(DirtyPages(local.environment.spill, head.page_size or wanted.page_size or 4096)) as fetched:
            _fetch(engine, wanted, pages, fetched, progress)
            FETCHED()
            _commit(volume, head, wanted, fetched)
    except Unavailable as error:
        raise _offline(volume.name, error) from error
    COMMITTED()
    return Restored(wanted.lsn, len(pages), local.peek().label)


def differing(connection: Connection, record: VolumeRecord, wanted: SnapshotInfo, head: Head) -> PageSet:
    """The pages of `wanted` that aren't what they are at the head's sync point."""
    if not wanted.length:
        return PageSet()
    every = span(1, page_count(wanted.length, wanted.page_size))
    if not head.length:
        return every
    both = every & span(1, page_count(head.length, head.page_size))
    then = _writers(connection, record, wanted.lsn, every)
    now = _writers(connection, record, head.sync_remote, both)
    # Beyond the head's length everything is zeros.
    now[None] = now.get(None, PageSet()) | (every - both)
    same = PageSet()
    for writer, pages in then.items():
        same |= pages & now.get(writer, PageSet())
    return every - same


def _writers(connection: Connection, record: VolumeRecord, lsn: int, pages: PageSet) -> dict[_Writer, PageSet]:
    """Which commit wrote each of these pages, as they are at a remote LSN."""
    found: dict[_Writer, PageSet] = {}
    while pages:
        request = LocateRequest(origin(record).raw, lsn=lsn, pages=encode_pages(pages))
        located = connection.remote.ask(LOCATE, request)
        found[None] = found.get(None, PageSet()) | decode_pages(connection.url, located.zeros)
        for placement in located.placements:
            key = placement.vid, placement.lsn
            found[key] = found.get(key, PageSet()) | decode_pages(connection.url, placement.pages)
        pages = decode_pages(connection.url, located.rest) if located.rest else PageSet()
    return found


def _refuse_unpushed(head: Head, name: str, keep_as: str | None) -> None:
    if head.unpushed and keep_as is None:
        raise Diverged(
            f"volume {name!r} has {head.in_words}, which a restore would cover: push them first, or keep them as a "
            "volume of their own with --keep-as NEW"
        )


def _to_the_head(volume: Restorable, keep_as: str | None) -> None:
    """The restore is a commit on the newest that the remote has."""
    if keep_as is not None and volume.local.peek().unpushed:
        volume.reset(keep_as=keep_as)
    else:
        volume.pull()


def _fetch(engine: Pages, wanted: SnapshotInfo, pages: PageSet, fetched: DirtyPages, progress: Progress | None) -> None:
    with closing(engine.fetch_in_parts(wanted.lsn, pages, wanted.page_size)) as parts:
        for part in parts:
            for page, data in part.items():
                if page in pages:
                    fetched.put(page, data)
            if progress is not None:
                progress(len(fetched.pages), len(pages))


def _commit(volume: Restorable, head: Head, wanted: SnapshotInfo, fetched: DirtyPages) -> None:
    writer = volume.writer(page_size=wanted.page_size or None)
    try:
        now = volume.local.peek()
        if (now.lsn, now.generation) != (head.lsn, head.generation):
            raise Conflict(f"volume {volume.name!r} was changed by someone else meanwhile: restore once more")
        before = writer.read(1) if now.length and 1 in fetched.pages else b""
        writer.truncate(wanted.length)
        for page, data in fetched.items():
            writer.write(page, counted_on(data, before) if page == 1 else data)
        # Behind the last page's write, which counts as a whole one.
        writer.truncate(wanted.length)
        made = writer.commit(Durability.DURABLE)
    finally:
        writer.rollback()
    if made is not None:
        made.close()


def _offline(name: str, error: Unavailable) -> Unavailable:
    return Unavailable(
        f"an old snapshot of {name!r} lies with its remote, which can't be asked: nothing was restored; "
        f"try again once it answers ({error})"
    )

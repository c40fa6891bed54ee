"""Difference: what is to be compared, as somebody names it, and what came of the one until the other.

    with budwood.diff("shop@7", "shop") as found:          # home=, remote= and token= as budwood.open takes them
        for change in found.rows(): ...                    # row_changes.RowChange; of a SQLite database, as
        found.schema()                                     # schema_changes.SchemaChange, and
        left_out = found.changeset(file.write)             # what SQLite's session extension reads
        found.pages()                                      # of any volume: the pages whose bytes differ

What is named:

    NAME                what stands here, unpushed commits included
    NAME@7              LSN 7
    NAME@2030-01-31     the last LSN not later than a time (ISO 8601)
    NAME@LABEL          a named snapshot
    NAME@base           where this home synced last, without what was committed here since
    NAME@remote         the remote's newest

Of two moments of one volume the remote says which pages changed from one to the other, and this home which its unpushed
commits wrote: no other page is looked at. Of two volumes all pages are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Self

from ..sync.edge import Edge
from ..sync.edge import open as open_edge
from ..sync.remote_snapshot import View as AnyView
from ..sync.reset import touched
from ..sync.snapshot import LocalSnapshot
from ..sync.volume import Volume
from ..volume.errors import BadInput, Forgotten, NotFound
from ..volume.pageset import PageSet, page_count, span
from .changeset import write_changeset
from .row_changes import RowChange, row_changes
from .schema_changes import SchemaChange, schema_changes
from .table import tables_of
from .view import Fetches, View, batches

_UNPUSHED: Final = re.compile(r"[0-9]*\+[0-9]+")
BASE: Final = "base"
REMOTE: Final = "remote"


@dataclass(frozen=True, slots=True)
class Moment:
    """Of a volume. `at`: what stood behind the @, "" for what stands here."""

    volume: Volume
    at: str
    snapshot: AnyView

    @property
    def words(self) -> str:
        return f"{self.volume.name}@{self.at}" if self.at else f"{self.volume.name} ({self.snapshot.label})"


class Difference:
    """Between two moments; holds both until it is closed. Raises NotFound, Forgotten, BadInput, Unavailable, and for a
    volume that is no SQLite database BadInput where that must be one."""

    def __init__(self, edge: Edge, before: str, after: str, *, owned: bool = False) -> None:
        """`owned`: the edge is closed with it."""
        with ExitStack() as stack:
            if owned:
                stack.callback(edge.close)
            self.before = _moment(edge, before, stack)
            self.after = _moment(edge, after, stack)
            self.changed = _changed(self.before, self.after)
            """The pages that may differ; None where it may be any."""
            self._views: tuple[View, View] | None = None
            self._stack = stack.pop_all()

    def views(self) -> tuple[View, View]:
        """Both as SQLite databases."""
        if self._views is None:
            before, after = (
                self._stack.enter_context(closing(View(each.volume.name, each.snapshot, fetches_of(each.snapshot))))
                for each in (self.before, self.after)
            )
            self._views = before, after
        return self._views

    def rows(self) -> Iterator[RowChange]:
        """One at a time, table by table."""
        return row_changes(*self.views(), self.changed)

    def schema(self) -> list[SchemaChange]:
        return schema_changes(*self.views())

    def changeset(self, write: Callable[[bytes], object]) -> list[str]:
        """The rows as SQLite's session extension reads them, written bit by bit; what was left out, a line each."""
        return write_changeset(self.rows(), tables_of(self.views()[1]), write)

    def pages(self) -> PageSet:
        """Whatever the pages are of: those whose bytes differ. Raises BadInput where they have two sizes."""
        one, other = self.before.snapshot, self.after.snapshot
        if one.length and other.length and one.page_size != other.page_size:
            raise BadInput(
                f"{self.before.words} has pages of {one.page_size} bytes and {self.after.words} of {other.page_size}: "
                "what is no text is compared where both are the same"
            )
        size = one.page_size or other.page_size
        counts = [page_count(each.length, size) if size else 0 for each in (one, other)]
        both = span(1, min(counts))
        found = span(min(counts) + 1, max(counts))
        for some in batches(both if self.changed is None else both & self.changed, size or 1):
            for each in (one, other):
                fetches_of(each)(PageSet(some))
            found |= PageSet(page for page in some if one.read(page) != other.read(page))
        return found

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def diff(
    before: str,
    after: str | None = None,
    *,
    home: str | Path | None = None,
    remote: str | None = None,
    token: str | None = None,
) -> Difference:
    """What became of `before` until `after`: each as above; without `after`, what is unpushed of the volume `before`.
    To be closed, or used by `with`. `home`, `remote` and `token` are what `budwood.open` takes.
    """
    return Difference(open_edge(home=home, remote=remote, token=token), *operands(before, after), owned=True)


def operands(before: str, after: str | None) -> tuple[str, str]:
    return (f"{before}@{BASE}", before) if after is None else (before, after)


def _moment(edge: Edge, text: str, stack: ExitStack) -> Moment:
    name, at = text, ""
    volume: Volume | None = None
    if "@" in text:
        # A name may have one in it.
        with suppress(NotFound):
            volume = edge.volume(text)
        if volume is None:
            name, _, at = text.rpartition("@")
    volume = volume or edge.volume(name)
    snapshot = _snapshot(volume, at)
    return Moment(volume, at, stack.enter_context(closing(snapshot)))


def _snapshot(volume: Volume, at: str) -> AnyView:
    if not at:
        return LocalSnapshot(volume.local, volume.misses, settled=True)
    if at.isascii() and at.isdecimal():
        return volume.snapshot(lsn=int(at))
    if _UNPUSHED.fullmatch(at):
        raise BadInput(f"unpushed commits have no LSN that lasts: say {volume.name} for the newest, and not @{at}")
    if at == REMOTE:
        return volume.snapshot(lsn=volume.moment(None, None).lsn)
    if at == BASE:
        with closing(volume.snapshot()) as now:
            head = now.head
        if not head.sync_remote:
            raise BadInput(f"volume {volume.name!r} was never synced: it has no base")
        return volume.snapshot_of(volume.base(head)) if head.unpushed else volume.snapshot(lsn=head.sync_remote)
    try:
        datetime.fromisoformat(at)
    except ValueError:
        return volume.snapshot(at=f"@{at}")
    return volume.snapshot(at=at)


def fetches_of(snapshot: AnyView) -> Fetches:
    """All that is missing of some pages, in one request."""

    held = snapshot if isinstance(snapshot, LocalSnapshot) else snapshot.local or snapshot

    def fetch(pages: PageSet) -> None:
        missing = held.missing(pages)
        if missing:
            found = held.misses.fetch(held.head, missing.min(), missing)
            held.adopt(found, held.save(found))

    return fetch


def _changed(before: Moment, after: Moment) -> PageSet | None:
    """The pages that may differ; None where that can't be told, and it may be any."""
    if before.volume.id != after.volume.id:
        return None
    first, last = sorted((before, after), key=lambda moment: moment.snapshot.head.sync_remote)
    lsns = first.snapshot.head.sync_remote, last.snapshot.head.sync_remote
    found = _of_unpushed(first) | _of_unpushed(last)
    if lsns[0] == lsns[1]:
        return found
    try:
        found |= last.volume.changed_between(*lsns)
    except (Forgotten, NotFound):
        # A fork that was never pushed, and what is told of its parent.
        return None
    least, most = sorted(page_count(each.length, last.snapshot.page_size) for each in (first.snapshot, last.snapshot))
    return found | span(least + 1, most)


def _of_unpushed(moment: Moment) -> PageSet:
    return touched(moment.snapshot) if isinstance(moment.snapshot, LocalSnapshot) else PageSet()

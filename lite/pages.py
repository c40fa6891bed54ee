"""Pages: the lite client's answer to the protocol Pages.

**When it looks for a newer view.** At open; when a write transaction begins; at `PRAGMA budwood_pull`; and when a
read transaction begins more than `refresh_seconds` after it last looked (None: never by itself; 0: each time). A
transaction keeps the view it began with.

A volume's identity is its LSN: there is nothing local that could differ from the remote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..volume.calls import PULL_COMMITS, RULES, RangeRequest, VolumeRequest
from ..volume.errors import BadInput, Conflict, ReadOnly
from ..volume.ids import ClientId
from ..volume.pageset import decode_pages
from ..volume.protocols import Row, Snapshot
from ..volume.rules import Offset, check_offsets
from ..volume.wire import CommitInfo, SnapshotInfo
from .source import Source
from .view import LiteSnapshot

if TYPE_CHECKING:
    from .transaction import LiteWriter

_MOMENT_SECONDS: Final = 1.0


class LitePages:
    """One connection to one volume."""

    def __init__(
        self,
        source: Source,
        name: str,
        *,
        read_only: bool,
        fixed: bool,
        refresh_seconds: float | None,
        writer_epoch: int = 0,
    ) -> None:
        self.source = source
        self.name = name
        self.read_only = read_only
        self.client = ClientId.ephemeral()
        self._fixed = fixed
        self._refresh_seconds = refresh_seconds
        self._writer_epoch = writer_epoch
        self._writing: LiteWriter | None = None
        self._confirmed: SnapshotInfo | None = None
        """The view that a writer was just refused for: the head a moment ago, so the next try need not ask again."""

    @property
    def page_size(self) -> int:
        return self.source.view.page_size

    def snapshot(self) -> LiteSnapshot:
        return LiteSnapshot(self.source, self.source.view, self.has_moved)

    def has_moved(self, view: SnapshotInfo) -> bool:
        """Whether the next transaction begins on another view."""
        source = self.source
        wait = self._refresh_seconds
        if wait is not None and not self._fixed and view is source.view and source.age_seconds >= wait:
            source.refresh()
        return view is not source.view

    def writer(self, snapshot: Snapshot, *, page_size: int | None = None) -> LiteWriter:
        """Raises Conflict if the remote has moved on since: the transaction that is begun then has the newest view."""
        assert isinstance(snapshot, LiteSnapshot)
        if self.read_only:
            raise ReadOnly(f"volume {self.name!r} was opened to be read only")
        if page_size not in (None, snapshot.page_size):
            raise BadInput(
                f"volume {self.name!r} has {snapshot.page_size}-byte pages; that can't be changed to {page_size}"
            )
        confirmed, self._confirmed = self._confirmed, None
        if snapshot.view is not confirmed or self.source.age_seconds > _MOMENT_SECONDS:
            self.source.refresh()
        if snapshot.view is not self.source.view:
            self._confirmed = self.source.view
            raise Conflict(
                f"volume {self.name!r} has moved on from LSN {snapshot.label} to {self.source.view.lsn}: "
                "begin the transaction again",
                head=self.source.view.lsn,
            )
        # Loading it takes as long as a query: only once there is something to write.
        from .transaction import LiteWriter

        self._writing = LiteWriter(self.name, self.client, snapshot, writer_epoch=self._writer_epoch)
        return self._writing

    def status(self) -> Row:
        return {**self._row(self.source.view), "held_bytes": self.source.held_bytes, "requests": self.source.requests}

    def view_row(self, view: Snapshot | None) -> Row:
        return self._row(view.view if isinstance(view, LiteSnapshot) else self.source.view)

    def pull_row(self) -> Row:
        newest = self.source.view
        if self._fixed:
            raise BadInput(f"this view of volume {self.name!r} is pinned to LSN {newest.lsn}")
        self.source.refresh()
        return {"from": newest.lsn, "to": self.source.view.lsn}

    def bind_rows(self, argument: str | None) -> list[Row]:
        """Without an argument, as the remote has them now."""
        if argument is None:
            self.source.requests += 1
            told = self.source.remote.ask(RULES, VolumeRequest(self.source.vid.raw))
            return [{"source": each.source, "offset": each.offset, "lsn": each.lsn} for each in told.sources]
        number, _, source = argument.partition(" ")
        if not (number.isascii() and number.isdecimal()) or not source:
            raise BadInput(
                f"PRAGMA budwood_bind='{argument}': say OFFSET SOURCE, as in PRAGMA budwood_bind='120 orders'"
            )
        offset = Offset(source, int(number))
        check_offsets([offset])
        if self._writing is None or not self._writing.bind(offset):
            raise BadInput(
                "an offset is bound by the transaction that brings what lies before it: BEGIN IMMEDIATE first"
            )
        return [{"source": source, "offset": offset.offset}]

    def push_row(self, as_name: str | None) -> Row:
        """Each commit went to the remote by itself."""
        return {"lsn": self.source.view.lsn, "pushed": 0}

    def fetch_row(self) -> Row:
        raise BadInput("a lite client keeps nothing, so it can't fetch: use budwood.connect for that")

    def _row(self, view: SnapshotInfo) -> Row:
        return {
            "name": self.name,
            "volume": str(self.source.vid),
            "remote": self.source.remote.url,
            "lsn": view.lsn,
            "length": view.length,
            "page_size": view.page_size,
            "time": view.time,
        }

    def log_rows(self, argument: str | None) -> list[Row]:
        """The commits after the argument, an LSN (default: the last 100 commits), oldest first; as many as one answer
        has, 1,000 at most."""
        view = self.source.view
        if argument is not None and not argument.isdecimal():
            raise BadInput(f"PRAGMA budwood_log({argument}): the argument is an LSN to begin after")
        after = max(view.since - 1, view.lsn - 100) if argument is None else int(argument)
        commits: tuple[CommitInfo, ...] = ()
        if after < view.lsn:
            request = RangeRequest(self.source.vid.raw, after=after, to=view.lsn)
            commits = self.source.remote.ask(PULL_COMMITS, request).commits
        return [
            {
                "lsn": commit.lsn,
                "time": commit.time,
                "length": commit.length,
                "pages": len(decode_pages("the remote's answer", commit.pages)),
            }
            for commit in commits
        ]

    def close(self) -> None:
        self.source.forget()

"""Engine: what the threads of this process share of one volume: its remote, and the pages that come from there.

Pages come at the head's sync point (`request`), or at any LSN (`fetch`); many, in parts. What goes wrong is said in
words of the volume: which page isn't here, what its remote has forgotten, which way leads out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from ..remote.bulk_fetch import fetch_in_parts
from ..volume.calls import PLAN_QUERY, PlanRequest
from ..volume.errors import Corrupt, Forgotten, Full, NotFound, ReadOnly, Unavailable, Unsupported
from ..volume.pageset import PageSet, decode_pages
from .connection import Connection, origin
from .lease_keeper import LeaseKeeper
from .local_volume import Local
from .prefetch import SharedFetches
from .pull import Move, Mover
from .snapshot import LocalSnapshot
from .tables import Head, VolumeRecord
from .volume_keys import check_encrypted

if TYPE_CHECKING:
    from ..remote.portal import BlockingRead


class Engine:
    """What the threads of this process share of one volume."""

    def __init__(
        self, local: Local, connect: Callable[[str], Connection], leases: LeaseKeeper, mover: Callable[[], Mover]
    ) -> None:
        self.local = local
        self._mover = mover
        self._connect = connect
        self._leases = leases
        self.fetches = SharedFetches(self.request, self.ask_ahead)

    def connection(self, record: VolumeRecord | None = None) -> Connection:
        """The volume's remote. Raises BadInput if it has none."""
        return self._connect((record or self.local.record()).remote)

    def ask_ahead(self, head: Head, pages: PageSet) -> BlockingRead:
        """Have the remote asked for pages that `request` is given the answer to later."""
        record, connection = self._asked()
        return connection.remote.read_pages(origin(record), head.sync_remote, pages).begin()

    def request(
        self, head: Head, pages: PageSet, extra_bytes: int, begun: BlockingRead | None = None
    ) -> dict[int, bytes]:
        """Pages at the head's sync point, from the remote; `begun` where it was asked ahead."""
        with self._missed(head, pages):
            found = self.fetch(head.sync_remote, pages, head.page_size, extra_bytes, begun)
        self._leases.fetched(self.local, head, self.connection, self.fetches)
        return found

    def request_in_parts(self, head: Head, pages: PageSet) -> Generator[dict[int, bytes]]:
        """The same, of more pages than should be held together. To be closed."""
        left = PageSet(pages)
        with self._missed(head, left), closing(self.fetch_in_parts(head.sync_remote, pages, head.page_size)) as parts:
            for part in parts:
                left -= PageSet(part)
                # At once: what is left may take longer than the remote holds the LSN by itself.
                self._leases.fetched(self.local, head, self.connection, self.fetches)
                yield part

    def move(self, *, apart: bool = False) -> Move:
        """How the head moves where nobody says it otherwise; `apart` if to another history."""
        return self._mover()(self.local.vid, apart)

    def synced(self, record: VolumeRecord, head: Head) -> Head:
        """A push, a pull or a reset led to this head; the record is as it was then, or before."""
        self._leases.synced(self.local, record, head, self.connection, self.fetches)
        return head

    def keep(self, lsn: int, pages: dict[int, bytes]) -> None:
        """Pages that came otherwise, at that remote LSN."""
        # Who can't keep them fetches them again.
        with suppress(NotFound, Full, ReadOnly):
            if self.local.save(lsn, pages):
                self._leases.fetched(self.local, self.local.peek(), self.connection, self.fetches)

    def plan(self, head: Head, sql: str) -> PageSet:
        """The pages that the query touches at the head's sync point, by what the remote says."""
        record, connection = self._asked()
        vid = origin(record)
        try:
            found = connection.remote.ask(PLAN_QUERY, PlanRequest(vid.raw, lsn=head.sync_remote, sql=sql))
        except NotFound as error:
            mended = connection.mend(record, error, seen=head.sync_remote)
            if mended is not error:
                raise mended from None
            raise Unsupported(
                f"{connection.url} is an older node, which can't tell which pages a query touches: run the query, or "
                f"fetch the whole volume with `budwood fetch {record.name}`"
            ) from None
        except Forgotten as error:
            raise forgotten_sync_point(record, head, error.oldest) from None
        source = f"the answer of {connection.url}"
        if (found.snapshot.vid, found.snapshot.lsn) != (vid.raw, head.sync_remote):
            raise Corrupt(source, f"it speaks of another view than LSN {head.sync_remote} of volume {vid}")
        return decode_pages(source, found.pages)

    def fetch(
        self, lsn: int, pages: PageSet, page_size: int, extra_bytes: int = 0, begun: BlockingRead | None = None
    ) -> dict[int, bytes]:
        """Pages at a remote LSN. Raises Forgotten, Unavailable, Corrupt, and what its being gone really means."""
        record, connection = self._asked()
        with self._gone(record, connection, lsn):
            source = origin(record)
            view, found = connection.pages(source, lsn, pages, page_size, extra_bytes=extra_bytes, begun=begun)
        check_encrypted(connection.url, record, view)
        return found

    def fetch_in_parts(self, lsn: int, pages: PageSet, page_size: int) -> Generator[dict[int, bytes]]:
        """The same, of more pages than should be held together. To be closed."""
        record, connection = self._asked()
        with (
            self._gone(record, connection, lsn),
            closing(fetch_in_parts(connection.remote, origin(record), lsn, pages, page_size)) as parts,
        ):
            for part in parts:
                check_encrypted(connection.url, record, part.view)
                yield part.pages

    def take(self, before: LocalSnapshot | None = None) -> LocalSnapshot:
        """The newest view; quicker with one from `before`."""
        return LocalSnapshot(self.local, self.fetches, before=before)

    def _asked(self) -> tuple[VolumeRecord, Connection]:
        """The volume, and the remote that is asked for its pages."""
        record = self.local.record()
        connection = self._connect(record.remote)
        if connection.url != record.remote:
            connection.check(record)
        return record, connection

    @contextmanager
    def _gone(self, record: VolumeRecord, connection: Connection, lsn: int) -> Generator[None]:
        """What a remote means that doesn't have an LSN which was seen there."""
        try:
            yield
        except NotFound as error:
            # That LSN has been seen, or there would be no view of it.
            raise connection.mend(record, error, seen=lsn) from None
        except Forgotten as error:
            raise _forgotten(self.local.name, lsn, error.oldest) from None

    @contextmanager
    def _missed(self, head: Head, pages: PageSet) -> Generator[None]:
        """These pages aren't here: what it means that they can't be had."""
        try:
            yield
        except Forgotten as error:
            raise forgotten_sync_point(self.local.record(), head, error.oldest) from None
        except Unavailable as error:
            if type(error) is not Unavailable or not pages:
                raise
            raise Unavailable(
                f"page {pages.min()} of volume {self.local.name!r} isn't here, and {error}",
                determinate=error.determinate,
            ) from error


def _forgotten(name: str, lsn: int, oldest: int) -> Forgotten:
    newer = f"one from {oldest} on" if oldest else "a newer one"
    return Forgotten(f"the remote has forgotten LSN {lsn} of volume {name!r}: pull it, or read {newer}", oldest=oldest)


def forgotten_sync_point(record: VolumeRecord, head: Head, oldest: int, missing: str = "this page") -> Forgotten:
    """Something of it is needed that isn't here, and the remote has it no more."""
    name = record.name
    if not record.created:
        way_out = f"{name!r} is a fork of it that was never pushed: it keeps its commits and the pages that are here"
    elif head.unpushed:
        way_out = (
            f"the {head.in_words} on it are kept: take the remote's with `budwood reset {name} --keep-as NEW` "
            "(or --discard); a fork keeps them with the pages that are here"
        )
    else:
        way_out = f"move on with `budwood pull {name}`"
    return Forgotten(
        f"the remote has forgotten LSN {head.sync_remote} of volume {name!r}{_left(oldest)}, and {missing} isn't here; "
        f"{way_out}",
        oldest=oldest,
    )


def _left(oldest: int) -> str:
    return f" (the oldest left is {oldest})" if oldest else ""

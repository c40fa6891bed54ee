"""Connection: one remote as the edge uses it, blocking, opened at the first call that needs it.

It remembers the store's id, so that a volume that belongs to another store is refused before anything is sent. A
one-row push asks no such question: a volume's id exists in its own store only, so the push itself is the check, and
only a NotFound is looked into.

Where a URL names a store and there is none, nothing is made in its place (a file system that isn't mounted looks like
that), except by the first push of a new volume to a URL at which this home has never seen a store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..remote.page_fetch import fetch_pages
from ..volume.calls import HELLO, LOOKUP, REMOVE, SNAPSHOT, Done, LookupRequest, SnapshotRequest, VolumeRequest
from ..volume.errors import Corrupt, NotFound, Unavailable, WrongStore
from ..volume.ids import VolumeId
from ..volume.pageset import PageSet
from ..volume.wire import NameEntry, SnapshotInfo
from .afterfork import ForkSafeLock
from .name_table import list_volumes
from .tables import VolumeRecord

if TYPE_CHECKING:
    from pathlib import Path

    from ..remote.opening import Opening
    from ..remote.portal import BlockingRead, BlockingRemote
    from ..remote.token import Tokens
    from .environment import Environment


class Connection:
    """For any thread."""

    def __init__(self, url: str, tokens: Tokens, cache_dir: Path) -> None:
        self.url = url
        self._tokens = tokens
        self._cache_dir = cache_dir
        self._remote: BlockingRemote | None = None
        self._store = ""
        self._create = False
        self._lock = ForkSafeLock()

    @property
    def remote(self) -> BlockingRemote:
        with self._lock.held:
            if self._remote is None:
                # Imported here: a program that stays offline needs no HTTP client.
                from ..remote.portal import open_remote

                self._remote = open_remote(
                    self.url, token=self._tokens, cache_dir=self._cache_dir, create=lambda: self._create
                )
            return self._remote

    @property
    def store(self) -> str:
        """The id of the store that answers; asked once."""
        if not self._store:
            self._store = self.remote.ask(HELLO, Done()).store
        return self._store

    def open(self, name: str, *, pages: bool) -> tuple[NameEntry | None, Opening | None]:
        """What the remote calls that, as from `lookup`; and its newest snapshot, with the first `pages` if told, where
        one request brought all of it."""
        from ..remote.opening import Opening, Unopened, open_by_name

        opening = open_by_name(self.remote, name, pages=pages)
        if isinstance(opening, Opening):
            self._store = self._store or opening.store
            return opening.entry, opening
        return (None if opening is Unopened.FREE else self.lookup(name)), None

    def lookup(self, name: str) -> NameEntry | None:
        """What the remote calls that. Raises NotFound where there is no store."""
        return self.remote.ask(LOOKUP, LookupRequest(name)).entry

    def name_of(self, record: VolumeRecord) -> NameEntry | None:
        """The name that the remote has for the volume, if it still leads there."""
        entry = self.lookup(record.bound) if record.bound else None
        return entry if entry is not None and entry.target == record.vid else None

    def remove(self, vid: VolumeId) -> None:
        """Remove the volume from the remote, for everybody. Harmless where it is gone."""
        try:
            self.remote.ask(REMOVE, VolumeRequest(vid.raw))
        except NotFound:
            # All of it was collected meanwhile.
            return

    def make(self, environment: Environment) -> None:
        """Make the store where there is none, unless a volume of this home has seen one here (then Unavailable)."""
        try:
            _ = self.store
        except NotFound as error:
            self.check_new(environment, error)
            # The next call opens it anew.
            self._create = True

    def check_new(self, environment: Environment, error: NotFound) -> None:
        """Raises Unavailable if a volume of this home has seen a store where `error` says there is none."""
        for record in list_volumes(environment):
            if record.store and record.remote == self.url:
                raise Unavailable(
                    f"{error}; volume {record.name!r} belongs to store {record.store}, which was there: bring it back, "
                    "or give the URL where it is now"
                ) from None

    def check(self, record: VolumeRecord) -> None:
        """Raises WrongStore unless the volume belongs to the store behind this remote."""
        if not record.store:
            return
        owner = f"volume {record.name!r} belongs to store {record.store} (last seen at {record.remote}), and"
        way_out = f"name {record.remote} or wherever that store is now, or no remote at all"
        try:
            store = self.store
        except NotFound as error:
            raise WrongStore(f"{owner} {error}: {way_out}") from None
        if store != record.store:
            raise WrongStore(f"{owner} {self.url} is store {store}: {way_out}")

    def mend(self, record: VolumeRecord, error: NotFound, *, seen: int = 0) -> Exception:
        """What a NotFound about a volume that was there, `seen` up to that LSN, really means."""
        try:
            self.check(record)
            self.check_seen(record, seen)
        except (WrongStore, Corrupt) as found:
            return found
        except NotFound:
            return self._removed(record)
        return error

    def check_there(self, record: VolumeRecord, view: SnapshotInfo) -> None:
        """Raises NotFound if the volume was removed for everybody, by what its newest view says: a fork or a lease may
        hold that."""
        if view.is_removed:
            raise self._removed(record)

    def _removed(self, record: VolumeRecord) -> NotFound:
        name = record.name
        what = f"volume {name!r}" if record.created else f"the volume that {name!r} was forked from"
        return NotFound(
            f"{what} was removed from {self.url}. What is here stays: `budwood export {name} FILE` makes a file of "
            f"it if all of its pages are here, `budwood rm {name} --discard` drops it"
        )

    def check_seen(self, record: VolumeRecord, seen: int) -> None:
        """Raises Corrupt if the remote, by what its log says now, has less of the volume than was seen of it, or has
        another commit under that LSN: commits that it acknowledged are gone, and it gives their LSNs to others. And
        NotFound if it was removed.
        """
        newest = self.remote.ask(SNAPSHOT, SnapshotRequest(origin(record).raw, confirm=True))
        self.check_there(record, newest)
        if newest.lsn == seen:
            self.check_same(record, seen, newest.time)
        if newest.lsn < seen:
            raise Corrupt(
                f"the log of volume {record.name!r} at {self.url}",
                f"it ends at LSN {newest.lsn}, and LSN {seen} was seen before: bring back what it lost; "
                f"`budwood fork {record.name} NEW` keeps what is here",
            )

    def check_same(self, record: VolumeRecord, lsn: int, time_ms: int) -> None:
        """Raises Corrupt if the commit at the sync point's LSN has another time than the one that was seen there."""
        if record.synced_ms and time_ms and time_ms != record.synced_ms:
            raise Corrupt(
                f"the log of volume {record.name!r} at {self.url}",
                f"its LSN {lsn} is another commit than the one that was seen before: bring back what it lost; "
                f"`budwood fork {record.name} NEW` keeps what is here",
            )

    def pages(
        self,
        vid: VolumeId,
        lsn: int,
        pages: PageSet,
        page_size: int,
        *,
        extra_bytes: int = 0,
        begun: BlockingRead | None = None,
    ) -> tuple[SnapshotInfo, dict[int, bytes]]:
        """The pages asked for at that remote LSN (0: the newest), and the neighbours that came along; `begun` where the
        same was asked for before.

        Raises Corrupt when the answer isn't what was asked for; `page_size` 0 takes whatever the volume has.
        """
        fetched = fetch_pages(self.remote, vid, lsn, pages, page_size, extra_bytes=extra_bytes, begun=begun)
        return fetched.view, fetched.pages

    def close(self) -> None:
        with self._lock.held:
            remote, self._remote = self._remote, None
        if remote is not None:
            remote.close()


def hang_up() -> None:
    """This process ends: every call on a remote, under way or to come, raises Unavailable."""
    from ..remote.loop import end

    end()


def has_hung_up() -> bool:
    """Whether every call on a remote fails since this process ends: nobody need be told then."""
    from ..remote.loop import is_ending

    return is_ending()


def may_wait() -> bool:
    """Whether this thread may wait for a remote's answer: not the one that brings them, in which the garbage collector
    may close whatever nobody closed.
    """
    from ..remote.loop import standing

    host = standing()
    return host is None or not host.is_here


def origin(record: VolumeRecord) -> VolumeId:
    """The volume that the remote's pages come from: a fork that the remote doesn't have yet reads from its parent."""
    if record.created or not record.parent:
        return VolumeId(record.vid)
    return VolumeId(record.parent)

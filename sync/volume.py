"""Volume: what a program does with one volume of its home.

    vol = edge.volume("inventory")
    vol.status()            what stands here, what is unpushed, what was fetched
    vol.push(), vol.pull(), vol.fetch(), vol.reset(), vol.restore(lsn=7), vol.log(), vol.export(path)
    vol.snapshot(), vol.snapshot(lsn=7), vol.writer()
    for commit in vol.listen(after=7): …

It answers the protocol `Pages`, so that the VFS and the mount can open it.
"""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..volume import tracing
from ..volume.as_of import Time, snapshot_request
from ..volume.calls import PULL_CHANGES, PULL_COMMITS, SNAPSHOT, RangeRequest, SnapshotRequest
from ..volume.errors import BadInput, Forgotten, NotFound, ReadOnly
from ..volume.ids import VolumeId
from ..volume.pageset import PageSet, decode_pages
from ..volume.protocols import Row, Snapshot
from ..volume.wire import SnapshotInfo
from .confirm import Confirmed, confirm, waited_sync_lock
from .connection import origin
from .engine import Engine, forgotten_sync_point
from .invalidation import Invalidation
from .local_volume import Local, SyncState
from .overlay import Overlay
from .publish import lacks_name
from .pull import Move, pull
from .push import push
from .rebase import Remake, rebase
from .remote_snapshot import RemoteMisses, RemoteSnapshot
from .reset import reset
from .restore import Restored, restore
from .snapshot import LocalSnapshot, Misses
from .tables import DIVERGED, HERE, Head, VolumeRecord
from .transfer import Progress, export_file, fetch_all, fetch_some
from .writer import LocalWriter

if TYPE_CHECKING:
    from ..remote.blocking_listening import BlockingListener
    from ..remote.listening import OnSilence
    from ..remote.portal import BlockingRemote

_LOG_PAGE: Final = 1000
_MODES: Final = ("disabled", "push", "pull", "both")


class Volume:
    """For any thread; what it hands out is not."""

    def __init__(self, engine: Engine, *, read_only: bool = False) -> None:
        self._engine = engine
        self._local = engine.local
        self._read_only = read_only
        self.invalidation = Invalidation(engine.local)
        """Of what is read through this object."""

    @property
    def name(self) -> str:
        return self._local.name

    @property
    def id(self) -> VolumeId:
        return self._local.vid

    @property
    def local(self) -> Local:
        """What the local store knows of it."""
        return self._local

    @property
    def misses(self) -> Misses:
        """Where its missing pages come from: blocks, and shares one request among threads."""
        return self._engine.fetches

    @property
    def page_size(self) -> int | None:
        return self._local.peek().page_size or None

    @property
    def read_only(self) -> bool:
        return self._read_only or self._local.environment.read_only

    def snapshot(
        self, *, lsn: int | None = None, at: Time | None = None, wait_seconds: float = 0.0
    ) -> LocalSnapshot | RemoteSnapshot:
        """The newest view; or the one at a remote LSN, or the last that is not later than a time, for reading. An LSN
        that is still to come is waited for.

        Raises NotFound, Forgotten, Unavailable.
        """
        if lsn is None and at is None:
            return self._take()
        return self.snapshot_at(lsn=lsn, at=at, wait_seconds=wait_seconds)

    def snapshot_at(
        self, *, lsn: int | None = None, at: Time | None = None, wait_seconds: float = 0.0
    ) -> RemoteSnapshot:
        """The view at a remote LSN or time."""
        if lsn is not None and at is not None:
            raise BadInput("give an LSN or a time, not both")
        view = self._engine.take()
        head = view.head
        if lsn is not None and lsn == head.sync_remote and not head.unpushed:
            info = SnapshotInfo(
                vid=self._local.raw,
                lsn=lsn,
                length=head.length,
                page_size=head.page_size,
                encryption=self._local.record().encryption,
            )
            return self._remote_snapshot(info, view)
        try:
            info = self.moment(lsn, at, wait_seconds=wait_seconds)
        except BaseException:
            view.close()
            raise
        if info.lsn != head.sync_remote or head.unpushed:
            view.close()
            return self._remote_snapshot(info)
        return self._remote_snapshot(info, view)

    def writer(self, snapshot: object | None = None, *, page_size: int | None = None) -> LocalWriter:
        """A transaction on `snapshot`, or on the newest view. Raises Busy, Conflict, ReadOnly."""
        if self.read_only:
            raise ReadOnly(f"volume {self.name!r} is open for reading only")
        if snapshot is None:
            return LocalWriter(
                self._local, self._engine.take(), self._take, self._confirm, page_size=page_size, own=True
            )
        if not isinstance(snapshot, LocalSnapshot):
            raise ReadOnly(f"volume {self.name!r} is open at a past LSN, which can't be written")
        return LocalWriter(self._local, snapshot, self._take, self._confirm, page_size=page_size)

    def _take(self, before: LocalSnapshot | None = None) -> LocalSnapshot:
        return self.invalidation.taken(self._engine.take(before))

    def _confirm(self, overlay: Overlay) -> Confirmed:
        lock = waited_sync_lock(self._local)
        try:
            state = self._sync_state("push")
            return confirm(self._local, self._engine.connection(state.record), state, overlay, lock, self._synced)
        except BaseException:
            lock.release()
            raise

    def _synced(self, record: VolumeRecord, head: Head) -> Head:
        """A push led to this head."""
        # What was here alone is cache from now on.
        self._local.environment.cache.evict()
        return self._engine.synced(record, head)

    def push(self, *, as_name: str | None = None, progress: Progress | None = None) -> str:
        """Make the unpushed commits the remote's next one; the LSN afterwards. See push.py for what it raises."""
        with tracing.span("push", volume=str(self.id)), self._local.sync_lock():
            state = self._sync_state("push")
            head, record, pending = state
            if pending is None and not head.unpushed and not lacks_name(record, head, as_name):
                return head.label
            connection = self._engine.connection(record)
            head = push(self._local, connection, state, as_name=as_name, progress=progress)
            return self._synced(record, head).label

    def pull(self, *, move: Move | None = None) -> str:
        """Move to the remote's newest snapshot; the LSN afterwards. See pull.py for what it raises."""
        with tracing.span("pull", volume=str(self.id)), self._local.sync_lock():
            state = self._sync_state("pull")
            connection, move = self._engine.connection(state.record), move or self._engine.move()
            return self._engine.synced(state.record, pull(self._local, connection, state, move=move)).label

    def newest_bytes(self, count: int, on_remote: bool) -> bytes:
        """The first bytes of what stands here, or of the remote's newest snapshot. Raises Unavailable."""
        if on_remote:
            record = self._local.record()
            info, pages = self._engine.connection().pages(origin(record), 0, PageSet([1]), 0)
            return pages[1][: min(count, info.length)]
        with closing(self._engine.take()) as snapshot:
            return snapshot.read(1)[: min(count, snapshot.length)] if snapshot.length else b""

    def fetch_query(self, sql: str, *, progress: Progress | None = None) -> int:
        """Fetch the pages that this query touches at the sync point, which the remote finds out; how many were missing.

        Raises BadInput for what isn't a query or takes more than a node spends on one, Unsupported where the node is an
        older one, Unavailable.
        """
        engine = self._engine
        return fetch_some(engine.take, lambda head: engine.plan(head, sql), engine.request_in_parts, progress)

    def keep(self, lsn: int, pages: dict[int, bytes]) -> None:
        """Pages of the remote LSN, which came along with something else; none that is here already is replaced."""
        self._engine.keep(lsn, pages)

    def fetch(self, *, progress: Progress | None = None) -> int:
        """Fetch every missing page of the current snapshot; how many there were. Raises BadInput where the home may not
        keep as many.
        """
        self._local.environment.cache.check_fits(self._local.peek().length)
        return fetch_all(self._engine.take, self._engine.request_in_parts, progress)

    def reset(self, *, keep_as: str | None = None, discard: bool = False, move: Move | None = None) -> str:
        """Take the remote's head; the LSN afterwards. Unpushed commits are kept as a fork or dropped, as told."""
        with self._local.sync_lock():
            engine = self._engine
            move = move or engine.move(apart=True)
            head = reset(self._local, engine.connection(), engine.fetches, keep_as=keep_as, discard=discard, move=move)
            return engine.synced(self._local.record(), head).label

    def restore(
        self,
        *,
        lsn: int | None = None,
        at: Time | None = None,
        keep_as: str | None = None,
        progress: Progress | None = None,
    ) -> Restored:
        """Make the snapshot at a remote LSN, a time or an @LABEL the new head, as a commit. See restore.py."""
        return restore(self, self._engine, lsn=lsn, at=at, keep_as=keep_as, progress=progress)

    def rebase(self, remake: Remake, *, keep_as: str | None = None, move: Move | None = None) -> str:
        """Have what is unpushed made anew on the remote's newest snapshot (rebase.py); the LSN afterwards."""
        with self._local.sync_lock():
            engine = self._engine
            move = move or engine.move(apart=True)
            head = rebase(self._local, engine.connection(), engine.fetches, remake, keep_as=keep_as, move=move)
            return engine.synced(self._local.record(), head).label

    def export(
        self,
        path: str | Path,
        *,
        lsn: int | None = None,
        at: Time | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """The content as a file, which appears when it is complete."""
        with closing(self.snapshot(lsn=lsn, at=at)) as snapshot:
            export_file(snapshot, Path(path), overwrite=overwrite, progress=progress)

    def status(self, *, count: bool = True) -> Row:
        """What stands here; `count` walks the rows to say how many pages are held."""
        head, record, pending = self._local.sync_state()
        status: Row = {
            "name": record.name,
            "id": str(self.id),
            "lsn": head.label,
            "remote_lsn": head.sync_remote,
            "unpushed": head.unpushed,
            "pending": pending is not None,
            "diverged": head.state == DIVERGED,
            "remote": record.remote,
            "remote_name": record.bound,
            "store": record.store,
            "mode": record.mode,
            "page_size": head.page_size or None,
            "length": head.length,
            "pages": -(-head.length // head.page_size) if head.page_size else 0,
        }
        if count:
            held, nothing = self._local.counts()
            status |= {"held_pages": held, "held_bytes": (held - nothing) * head.page_size}
        return status

    def log(self, *, limit: int = 100) -> list[Row]:
        """The newest commits, newest first: unpushed ones, then the remote's. Raises Unavailable if the remote is
        needed and silent.
        """
        with self._local.environment.look() as (txn, tail):
            head, record, part = self._local.head(txn), self._local.record(txn), tail.volumes.get(self._local.raw)
            commits = [*self._local.commits(txn, head.sync_local, head.lsn), *(part.commits if part else ())]
        rows = [
            _log_row(f"{head.sync_remote}+{number}", HERE, commit.pages, commit.length, commit.time_ms, pushed=False)
            for number, (_, commit) in enumerate(commits, 1)
        ][::-1]
        if (record.created or record.parent) and len(rows) < limit:
            rows += self._remote_log(limit - len(rows))
        return rows[:limit]

    def listen(
        self,
        *,
        after: int | None = None,
        patience_seconds: float | None = None,
        on_silence: OnSilence | None = None,
    ) -> BlockingListener:
        """The remote's commits after that LSN, or from now on, each once and in order, as they are made; what stands
        here stays as it is. remote/listening.py says what the iteration ends in. Raises NotFound, Unavailable.
        """
        from ..remote.blocking_listening import BlockingListener

        record = self._local.record()
        if not record.created:
            raise NotFound(f"volume {self.name!r} was never pushed, so there is nothing to listen to: push it first")
        connection = self._engine.connection()
        if connection.url != record.remote:
            connection.check(record)
        return BlockingListener(
            connection.remote,
            VolumeId(record.vid),
            after=after,
            patience_seconds=patience_seconds,
            on_silence=on_silence,
        )

    def set_mode(self, mode: str) -> None:
        """What may be synced: disabled, push, pull or both (S2.30)."""
        if mode not in _MODES:
            raise BadInput(f"{mode!r} is no sync mode: take one of {', '.join(_MODES)}")
        self._local.change_record(mode=mode)

    def write_under(self, epoch: int) -> None:
        """Pushes are those of that writer epoch, of an exclusive volume, from here on."""
        self._local.change_record(writer_epoch=epoch)

    def base(self, head: Head) -> SnapshotInfo:
        """The remote's snapshot that the unpushed commits of this head were made on. Raises Forgotten, Unavailable."""
        try:
            return self.moment(head.sync_remote)
        except Forgotten as error:
            raise forgotten_sync_point(self._local.record(), head, error.oldest, "what was there") from None

    def view_row(self, view: Snapshot | None) -> Row:
        head = self._local.peek()
        label, identity, length = head.label, head.lsn, head.length
        if view is not None:
            label, identity, length = view.label, view.identity, view.length
        row = {"name": self.name, "lsn": label, "identity": identity, "length": length}
        return row | {"read_only": self.read_only}

    def log_rows(self, argument: str | None) -> list[Row]:
        """The argument is how many, at the most."""
        return self.log(limit=int(argument) if argument and argument.isdecimal() else 100)

    def bind_rows(self, argument: str | None) -> list[Row]:
        raise BadInput("a source is bound by a commit that is the remote's at once: use budwood.lite.connect for that")

    def push_row(self, as_name: str | None) -> Row:
        return {"name": self.name, "lsn": self.push(as_name=as_name)}

    def pull_row(self) -> Row:
        return {"name": self.name, "lsn": self.pull()}

    def fetch_row(self) -> Row:
        return {"name": self.name, "pages": self.fetch()}

    def close(self) -> None:
        """Nothing to give back: the home stays open with its edge."""

    def _sync_state(self, verb: str) -> SyncState:
        """Raises BadInput where the volume's mode forbids what is to be done."""
        state = self._local.sync_state()
        mode = state.record.mode
        if mode not in (verb, "both"):
            raise BadInput(
                f"the sync mode of volume {self.name!r} is {mode!r}, so it doesn't {verb}: set it to 'both' or {verb!r}"
            )
        return state

    def _remote_snapshot(self, info: SnapshotInfo, view: LocalSnapshot | None = None) -> RemoteSnapshot:
        def fetch(pages: PageSet, extra_bytes: int) -> dict[int, bytes]:
            return self._engine.fetch(info.lsn, pages, info.page_size, extra_bytes)

        return RemoteSnapshot(info, RemoteMisses(fetch), view)

    def snapshot_of(self, info: SnapshotInfo) -> RemoteSnapshot:
        """A snapshot that the remote has told of."""
        return self._remote_snapshot(info)

    def moment(self, lsn: int | None, at: Time | None = None, *, wait_seconds: float = 0.0) -> SnapshotInfo:
        """What the remote knows of an LSN, or of a time. Raises BadInput, NotFound, Forgotten, Unavailable."""
        record = self._local.record()
        if not record.created and not record.parent:
            raise NotFound(f"volume {self.name!r} was never pushed, so it has no past LSNs: push it first")
        connection = self._engine.connection()
        if connection.url != record.remote:
            connection.check(record)
        try:
            if lsn is not None and wait_seconds > 0:
                return _awaited(connection.remote, origin(record), lsn, wait_seconds)
            return connection.remote.ask(SNAPSHOT, snapshot_request(origin(record), lsn=lsn, at=at))
        except NotFound as error:
            raise connection.mend(record, error, seen=self._local.peek().sync_remote) from None

    def changed_between(self, after: int, to: int) -> PageSet:
        """The pages that changed on the remote in the LSNs (after, to]. Raises Forgotten, NotFound, Unavailable."""
        connection = self._engine.connection()
        changes = connection.remote.ask(PULL_CHANGES, RangeRequest(self._local.raw, after=after, to=to))
        return decode_pages(connection.url, changes.pages)

    def _remote_log(self, limit: int) -> list[Row]:
        record, connection = self._local.record(), self._engine.connection()
        vid = origin(record)
        last = record.parent_lsn if not record.created else None
        newest = self.moment(None).lsn if last is None else last
        rows: list[Row] = []
        after = max(0, newest - limit)
        while after < newest:
            try:
                commits = connection.remote.ask(
                    PULL_COMMITS, RangeRequest(vid.raw, after=after, to=min(newest, after + _LOG_PAGE))
                ).commits
            except Forgotten:
                # The log begins where the remote's memory does.
                since = connection.remote.ask(SNAPSHOT, SnapshotRequest(vid.raw)).since
                if after >= min(newest, since - 1):
                    raise
                after = min(newest, since - 1)
                continue
            if not commits:
                break
            rows += [
                _log_row(str(commit.lsn), connection.url, commit.pages, commit.length, commit.time, pushed=True)
                for commit in commits
            ]
            after = commits[-1].lsn
        return rows[::-1]


def _awaited(remote: BlockingRemote, vid: VolumeId, lsn: int, wait_seconds: float) -> SnapshotInfo:
    from ..remote.awaited import snapshot_when

    return remote.call(lambda opened: snapshot_when(opened, vid, lsn, wait_seconds=wait_seconds))


def _log_row(lsn: str, whose: str, pages: bytes, length: int, ms: int, *, pushed: bool) -> Row:
    time = datetime.fromtimestamp(ms / 1000).astimezone().isoformat(timespec="milliseconds")
    return {"lsn": lsn, "pushed": pushed, "pages": len(decode_pages(whose, pages)), "length": length, "time": time}

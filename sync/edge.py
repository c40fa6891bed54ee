"""Edge: a home — the volumes that are here, their names, and the remote they sync with.

    edge = budwood.open(home=…, remote=…)
    vol  = edge.volume("inventory")

A name is looked for here first; then, if there is a remote, there: a volume that it knows comes in without its pages
(they are fetched when they are read). Each volume remembers its remote, and the store behind it: `remote` needs to be
given once, and another store is refused (WrongStore), as soon as it is named where it answers. Where none is given, a
name that isn't here is looked for at the one that this home remembers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import msgspec

from ..remote.token import Tokens, usual
from ..volume import faults
from ..volume.as_of import Time
from ..volume.byte_sizes import bytes_in
from ..volume.calls import (
    CHANGE_NAME,
    FORK,
    LIST_NAMES,
    SNAPSHOT,
    ForkRequest,
    NamesRequest,
    SnapshotRequest,
)
from ..volume.errors import AlreadyExists, BadInput, Busy, Conflict, Diverged, Full, NotFound, ReadOnly, Unavailable
from ..volume.ids import VolumeId, check_utf8
from ..volume.name_attributes import is_of_volume, volume_of
from ..volume.page import check_page_size
from ..volume.protocols import Durability, Pages
from ..volume.user_paths import default_home, expanded
from ..volume.wire import NameEntry, NameRequest, SnapshotInfo
from .afterfork import ForkSafeLock
from .attributes import Attributes
from .connection import Connection
from .engine import Engine
from .environment import open_environment
from .fork import fork
from .free_room import give_back, is_in_use_by_others
from .lease_keeper import LeaseKeeper, release_all
from .local_volume import Local
from .name_table import (
    NameTable,
    check_free,
    check_open,
    find_place,
    find_volume,
    gone_name,
    is_reserved,
    list_volumes,
    namespace_of,
)
from .pull import Mover, moves_at_once
from .remote_snapshot import PagesAtLsn
from .snapshot import LocalSnapshot
from .tables import NO_HEAD, PlaceRecord, VolumeRecord
from .tokens import given_for, note_given
from .transfer import Progress, Say, import_file
from .volume import Volume
from .volume_lifecycle import (
    add_volume,
    adopt_place,
    check_unpushed,
    first_head,
    record_rename,
    remove,
    remove_leftover_locks,
    remove_orphans,
    restore_removed,
    unbind,
)

if TYPE_CHECKING:
    from ..remote.opening import Opening
    from .autosync import Autosync
    from .divergence import OnDiverged

_MODES = ("ro", "rw", "rwc")

REMOVED_THERE = faults.point("rm: removed there, its name stands")


def open(  # noqa: A001 - the package's own face: budwood.open
    *,
    home: str | os.PathLike[str] | None = None,
    remote: str | None = None,
    token: str | None = None,
    fallback: str = "",
    cache_bytes: int | str | None = None,
) -> Edge:
    """The edge at `home` (BUDWOOD_HOME, else $XDG_DATA_HOME/budwood), made if it isn't there.

    `remote` (BUDWOOD_REMOTE) is the URL of a node (http, https) or of a store (file, s3, …), `token` (BUDWOOD_TOKEN)
    what a node asks for, and goes to that remote alone (remote/token.py says how to name others). `fallback` is for
    when none is given; like those that volumes remember, it gets a token that was given for it before. Nothing is sent
    before it is needed. `cache_bytes` (BUDWOOD_CACHE_BYTES; 500M, 2G) is what the home keeps of pages that the remote
    has too, from now on; 0: all that were fetched. Raises BadInput for what names no place, Unsupported for a newer or
    foreign home, Corrupt for a damaged one.
    """
    if home == "":
        raise BadInput('"" is no home: name a directory, or leave it out for the usual one')
    if cache_bytes is None:
        cache_bytes = os.environ.get("BUDWOOD_CACHE_BYTES") or None
    return Edge(
        expanded(home) if home is not None else default_home(),
        os.environ.get("BUDWOOD_REMOTE", "") if remote is None else remote,
        usual(remote) if token is None else token,
        fallback,
        bytes_in(cache_bytes) if isinstance(cache_bytes, str) else cache_bytes,
    )


class Edge(AbstractContextManager["Edge"]):
    """For any thread. Close it, or use it as a context manager."""

    def __init__(self, home: Path, remote: str, token: str, fallback: str = "", cache_bytes: int | None = None) -> None:
        check_utf8(remote or fallback, f"{remote or fallback!r} is no remote: it")
        self._tokens = Tokens.of(token)
        self.environment = open_environment(home)
        self.home = self.environment.home
        self.remote = remote or fallback
        self._given = remote
        # Those in use: a mount that lives long comes to any number of volumes.
        self._engines: WeakValueDictionary[bytes, Engine] = WeakValueDictionary()
        self._connections: dict[str, Connection] = {}
        self._leases = LeaseKeeper()
        self._autosyncs: list[Autosync] = []
        self._lock = ForkSafeLock()
        self._closed = False
        self.mover: Mover = moves_at_once
        """How heads move where nobody says it otherwise: a mount has readers to hold back."""
        self.was_named = True
        """Whether somebody asked for this remote; else it is where to look for what has none of its own."""
        self._is_silent = False
        """The remote that was named did not answer when it was to be compared with a volume's own."""
        # What can't be written now is tidied when it can.
        with suppress(Full, ReadOnly):
            remove_orphans(self.environment)
            if cache_bytes is not None:
                self.environment.cache.set_limit(cache_bytes)
        note_given(self.environment, self._tokens, remote)

    def close(self) -> None:
        """Ends the connections and, with the last edge of the process on it, the home."""
        with self._lock.held:
            if self._closed:
                return
            self._closed = True
        try:
            for syncing in self._autosyncs:
                syncing.close()
            self._leases.close()
        finally:
            with self._lock.held:
                connections = list(self._connections.values())
                self._connections.clear()
            for connection in connections:
                connection.close()
            self.environment.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def volume(self, name: str) -> Volume:
        """A volume that is here, or that the remote knows by this name. Raises NotFound, Unavailable; WrongStore if
        another remote was named than its own.
        """
        volume = self._find(name)
        if volume is None:
            return self._bring(name)
        self._check_remote(volume)
        return volume

    def volume_here(self, name: str) -> Volume:
        """As `volume`, for whoever serves all volumes of this home, wherever they belong: asks no remote about one that
        is here.
        """
        return self._find(name) or self._bring(name)

    def pages(
        self,
        name: str,
        mode: str = "rwc",
        *,
        lsn: int | None = None,
        at: Time | None = None,
        wait_seconds: float = 0.0,
    ) -> Pages:
        """What the VFS opens. `mode`: ro, rw, or rwc, which makes a volume that nobody knows; it needs no remote until
        it is pushed. One that nothing was ever written to, and that is in nobody's use, makes way for the remote's
        volume of its name. An LSN that is still to come is waited for.

        Raises NotFound, Unavailable when the remote would have to be asked and can't be, WrongStore if another remote
        was named than the volume's own.
        """
        if mode not in _MODES:
            raise BadInput(f"{mode!r} is no mode: take ro, rw or rwc")
        new = mode == "rwc" and lsn is None and at is None
        volume = self._find(name)
        if volume is not None:
            self._check_remote(volume)
            if self._gives_way(volume):
                volume = None
        if volume is None:
            try:
                volume = self._bring(name, pages=lsn is None and at is None)
            except NotFound:
                if not new:
                    raise
            except Unavailable:
                # Nobody named a remote: whether the one that this home remembers has the name is found out later.
                if not new or self.remote or find_place(self.environment, name) is not None:
                    raise
        if volume is None:
            volume = self._unless_made(name, lambda: self.create(name))
        if lsn is not None or at is not None:
            # One moment, settled once: every view of these pages is of the same LSN.
            chosen = volume.snapshot_at(lsn=lsn, at=at, wait_seconds=wait_seconds)
            settled = chosen.info.lsn
            chosen.close()
            return PagesAtLsn(volume, lambda: volume.snapshot_at(lsn=settled))
        return Volume(self._engine(volume.id, name), read_only=True) if mode == "ro" else volume

    def create(
        self,
        name: str,
        *,
        page_size: int | None = None,
        attributes: Attributes | None = None,
        durability: Durability = Durability.DURABLE,
    ) -> Volume:
        """An empty volume. Without a page size the first commit settles it. Raises AlreadyExists."""
        head = NO_HEAD if page_size is None else NO_HEAD._replace(page_size=check_page_size(page_size))
        record = VolumeRecord(
            vid=VolumeId.new().raw, name=name, remote=self.remote, attributes=attributes or Attributes()
        )
        return self._volume(add_volume(self.environment, record, head, durability=durability))

    def import_(
        self,
        file: str | os.PathLike[str],
        name: str,
        *,
        check: bool = True,
        progress: Progress | None = None,
        say: Say | None = None,
    ) -> Volume:
        """A new volume with the content of a SQLite file, as one commit. Raises AlreadyExists, BadInput, Full; Corrupt
        if SQLite finds its pages damaged, unless told not to `check` them.
        """
        record = VolumeRecord(vid=VolumeId.new().raw, name=name, remote=self.remote)
        return self._volume(import_file(self.environment, Path(file), record, check=check, progress=progress, say=say))

    def clone(self, name: str, local: str | None = None) -> Volume:
        """The remote's volume `name`, here as `local`; its pages come when they are read. Raises NotFound,
        AlreadyExists.
        """
        return self._adopt(name, local or name)

    def fork(self, name: str, new: str, *, lsn: int | None = None, at: Time | None = None) -> Volume:
        """A new volume that starts as `name` stands here, unpushed commits included; or as it was at a remote LSN, a
        time or an @LABEL."""
        volume = self.volume(name)
        check_free(self.environment, new)
        if lsn is not None or at is not None:
            return self._fork_past(volume, new, lsn, at)
        engine = self._engine(volume.id, name)
        with closing(LocalSnapshot(engine.local, engine.fetches, settled=True)) as snapshot:
            return self._volume(fork(snapshot, new))

    def mv(self, old: str, new: str) -> None:
        """Give a volume another name; on the remote first, if it is known there by the old one. Raises
        AlreadyExists.
        """
        record = self._record(old)
        check_free(self.environment, new)
        bound, revision = record.bound, 0
        if bound == old:
            try:
                connection = self.connection(record.remote)
                entry = connection.name_of(record)
                bound, revision = new, 0 if entry is None else self._change_name(connection, entry, "move", new)
            except Conflict:
                raise AlreadyExists(f"the remote knows another volume by the name {new!r}: take another name") from None
        record_rename(self.environment, old, new, bound=bound, revision=revision)

    def rm(self, name: str, *, discard: bool = False, remote: bool = False) -> None:
        """Remove the local copy; the remote keeps the volume. `remote` removes it there too, for everybody, and need
        not find it here.

        Raises Diverged while commits are unpushed, unless told to `discard` them.
        """
        if remote and find_volume(self.environment, name) is None:
            connection, there, _ = self._open_there(name, pages=False)
            connection.remove(VolumeId(there.target))
            self._change_name(connection, there, "unbind")
            return
        record = self._record(name)
        local = Local(self.environment, VolumeId(record.vid), name)
        check_unpushed(local.peek(), name, discard=discard)
        if remote and record.created:
            connection = self.connection(record.remote)
            connection.check(record)
            connection.remove(local.vid)
            REMOVED_THERE()
            entry = connection.name_of(record)
            if entry is not None:
                self._change_name(connection, entry, "unbind")
            unbind(self.environment, local)
        remove(self.environment, local, discard=discard)
        release_all(record.leases, lambda: self.connection(record.remote))
        with self._lock.held:
            self._engines.pop(record.vid, None)

    def ls(self, *, remote: bool = False) -> list[dict[str, Any]]:
        """The volumes here, by name; or those that the remote knows."""
        if remote:
            return self._ls_remote()
        return [volume.status(count=False) for volume in self.volumes()]

    def volumes(self) -> list[Volume]:
        """Those that are here, by name."""
        records = sorted(list_volumes(self.environment), key=lambda record: record.name)
        return [self._of(record) for record in records if not is_reserved(record.name)]

    def volume_of(self, vid: bytes) -> Volume | None:
        """The volume of that raw id; None if it is gone from here, or from its names."""
        with self.environment.view() as txn:
            record = self.environment.get(txn, "volumes", vid, VolumeRecord)
        return None if record is None or is_reserved(record.name) else self._of(record)

    def autosync(self, on_diverged: OnDiverged | None = None, *, say: Say = lambda _line: None) -> Autosync:
        """Push and pull by itself, for as long as it isn't closed (autosync.py); `say` is given lines for people."""
        from .autosync import Autosync
        from .divergence import tell

        syncing = Autosync(self, on_diverged=on_diverged or tell, say=say)
        with self._lock.held:
            self._autosyncs.append(syncing)
        return syncing

    def compact(self) -> None:
        """Give what the home's file has free back to the disk; and when the last of this process has closed it, and no
        other one has it open, make it as short as what it holds. Raises Full, Unavailable, Corrupt.
        """
        environment = self.environment
        environment.settle()
        remove_leftover_locks(environment)
        environment.cache.evict()
        environment.compacts = True
        if is_in_use_by_others(environment):
            give_back(environment)

    def check_fits(self, lengths: Iterable[int]) -> None:
        """Raises BadInput if volumes of these lengths are more than the home may keep."""
        self.environment.cache.check_fits(sum(lengths))

    def connection(self, recorded: str = "") -> Connection:
        """The remote that was given, else the one that the volume remembers. Raises BadInput if there is neither."""
        url = self.remote or recorded
        if not url:
            raise BadInput("no remote is known: give one with --remote URL (or BUDWOOD_REMOTE)")
        with self._lock.held:
            if url not in self._connections:
                tokens = self._tokens if url == self._given else given_for(self.environment, self._tokens, url)
                self._connections[url] = Connection(url, tokens, self.home / "cache")
            return self._connections[url]

    def _find(self, name: str) -> Volume | None:
        record = find_volume(self.environment, name)
        return None if record is None else self._of(record)

    def _check_remote(self, volume: Volume) -> None:
        """Where another remote was named than the volume remembers, the same store must be there. One that doesn't
        answer is asked again when something is needed of it.
        """
        record = volume.local.record()
        if not self.remote or not record.remote or record.remote == self.remote:
            return
        if self._is_silent or not self.was_named:
            return
        if not record.store:
            # It was never pushed: it belongs where it is to go now.
            volume.local.change_record(remote=self.remote)
            return
        try:
            self.connection().check(record)
        except Unavailable:
            self._is_silent = True

    def _gives_way(self, volume: Volume) -> bool:
        """Remove a volume that nothing was ever written to if the remote has another by its name; whether it did."""
        local = volume.local
        with self.environment.view() as txn:
            record = local.record(txn)
            untouched = NameTable(self.environment, txn).is_untouched(record)
        if not untouched or record.bound:
            return False
        url = record.remote or self._remembered()
        if not (self.remote or url):
            return False
        try:
            connection = self.connection(url)
            entry = connection.lookup(volume.name)
            if entry is None or entry.target == record.vid or not is_of_volume(entry):
                return False
            _newest(connection, VolumeId(entry.target), volume.name)
            remove(self.environment, local, discard=False)
        except (Unavailable, NotFound, Busy, Diverged):
            # Out of reach; or it is written at this moment, and no longer untouched.
            return False
        with self._lock.held:
            self._engines.pop(record.vid, None)
        return True

    def _remembered(self) -> str:
        """The remote of this home's names, or the one that all its volumes have that were ever pushed; "" if none."""
        namespace = namespace_of(self.environment)
        if namespace is not None:
            return namespace.remote
        remotes = {record.remote for record in list_volumes(self.environment) if record.store}
        return remotes.pop() if len(remotes) == 1 else ""

    def _record(self, name: str) -> VolumeRecord:
        record = find_volume(self.environment, name)
        if record is None:
            raise NotFound(f"there is no volume {name!r} here")
        return record

    def _engine(self, vid: VolumeId, name: str) -> Engine:
        with self._lock.held:
            engine = self._engines.get(vid.raw)
            if engine is None:
                engine = self._engines[vid.raw] = Engine(
                    Local(self.environment, vid, name), self.connection, self._leases, lambda: self.mover
                )
            # The same volume under a new name: whoever has it open, and its write lock, goes on with this one.
            engine.local.name = name
            return engine

    def _of(self, record: VolumeRecord) -> Volume:
        return Volume(self._engine(VolumeId(record.vid), record.name))

    def _volume(self, local: Local) -> Volume:
        return Volume(self._engine(local.vid, local.name))

    def _unless_made(self, name: str, make: Callable[[], Volume]) -> Volume:
        """A volume that was not here; or what another process, which was quicker, has made of that name."""
        try:
            return make()
        except AlreadyExists:
            volume = self._find(name)
            if volume is None:
                raise
            return volume

    def _bring(self, name: str, *, pages: bool = False) -> Volume:
        """The remote's volume, which was not here."""
        return self._unless_made(name, lambda: self._adopt(name, name, pages=pages))

    def _adopt(self, name: str, local: str, *, pages: bool = False) -> Volume:
        """Bring the remote's volume in; without its pages, or with the first of them for whoever reads at once."""
        check_open(name)
        place = find_place(self.environment, local)
        if place is not None and name in {local, place.bound}:
            return self._adopt_place(place)
        check_free(self.environment, local)
        connection, entry, opening = self._open_there(name, pages=pages)
        vid = VolumeId(entry.target)
        info = _newest(connection, vid, name) if opening is None or opening.view.is_removed else opening.view
        self.drop_gone(vid)
        head = first_head(info.length, info.lsn, info.page_size)
        record = VolumeRecord(
            vid=vid.raw,
            name=local,
            remote=connection.url,
            store=connection.store,
            bound=name,
            created=True,
            synced_ms=info.time,
            encryption=info.encryption,
        )
        volume = self._bring_in(lambda: add_volume(self.environment, record, head), local, vid)
        if opening is not None and info.length and opening.page1:
            volume.keep(info.lsn, opening.pages())
        return volume

    def _adopt_place(self, place: PlaceRecord) -> Volume:
        """Bring in what has its name here already."""
        if place.kind != "file":
            raise BadInput(f"{place.name!r} is a {place.kind}, and no volume")
        namespace = namespace_of(self.environment)
        connection = self.connection("" if namespace is None else namespace.remote)
        vid = VolumeId(place.target)
        record = VolumeRecord(vid=vid.raw, name=place.name, remote=connection.url, store=connection.store, created=True)
        if namespace is not None:
            connection.check(msgspec.structs.replace(record, remote=namespace.remote, store=namespace.store))
        info = _newest(connection, vid, place.bound or place.name)
        record = msgspec.structs.replace(record, synced_ms=info.time, encryption=info.encryption)
        # It may have been removed here, while a name of it lived on elsewhere.
        self.drop_gone(vid)
        head = first_head(info.length, info.lsn, info.page_size)
        return self._bring_in(lambda: adopt_place(self.environment, place, record, head), place.name, vid)

    def _bring_in(self, make: Callable[[], Local], name: str, vid: VolumeId) -> Volume:
        """Unless another process has brought it in meanwhile: then that one's."""
        try:
            return self._volume(make())
        except (AlreadyExists, NotFound):
            found = self._find(name)
            if found is None or found.id != vid:
                raise
            return found

    def drop_gone(self, vid: VolumeId) -> None:
        """The rows of a volume whose name was removed. What was committed to it since others took its name away stays,
        under a conflict name. Raises Busy while someone writes or syncs it.
        """
        name = gone_name(vid.raw)
        record = find_volume(self.environment, name)
        if record is None:
            return
        try:
            remove(self.environment, Local(self.environment, vid, name), discard=not record.left)
        except Diverged:
            restore_removed(self.environment, record)
            return
        release_all(record.leases, lambda: self.connection(record.remote))
        with self._lock.held:
            self._engines.pop(vid.raw, None)

    def _fork_past(self, volume: Volume, new: str, lsn: int | None, at: Time | None) -> Volume:
        """A fork at a remote LSN is made on the remote at once: from then on that LSN is kept for it."""
        with closing(volume.snapshot_at(lsn=lsn, at=at)) as view:
            info = view.info
        origin = self._record(volume.name)
        connection = self.connection(origin.remote)
        child = VolumeId.new()
        parent = origin.vid if origin.created else origin.parent
        try:
            connection.remote.ask(FORK, ForkRequest(parent, child=child.raw, lsn=info.lsn))
        except NotFound as error:
            raise connection.mend(origin, error, seen=info.lsn) from None
        record = VolumeRecord(
            vid=child.raw,
            name=new,
            remote=connection.url,
            store=connection.store,
            created=True,
            mode=origin.mode,
            encryption=origin.encryption,
        )
        return self._volume(add_volume(self.environment, record, first_head(info.length, info.lsn, info.page_size)))

    def _open_there(self, name: str, *, pages: bool) -> tuple[Connection, NameEntry, Opening | None]:
        """The remote's volume of that name, which isn't here, and what Connection.open tells of it."""
        remembered = "" if self.remote else self._remembered()
        if not self.remote and not remembered:
            raise NotFound(f"there is no volume {name!r} here, and no remote is given that could know it")
        connection = self.connection(remembered)
        try:
            entry, opening = connection.open(name, pages=pages)
        except NotFound as error:
            connection.check_new(self.environment, error)
            raise NotFound(f"there is no volume {name!r} here, and {error}") from None
        if entry is None:
            raise NotFound(f"there is no volume {name!r} here, and {connection.url} knows none")
        volume_of(entry, connection.url)
        return connection, entry, opening

    def _change_name(self, connection: Connection, entry: NameEntry, op: str, new: str = "") -> int:
        """Move or unbind it on the remote; the revision."""
        client = self.environment.client.raw
        request = NameRequest(op=op, name=entry.name, revision=entry.revision, new=new, client=client)
        return connection.remote.ask(CHANGE_NAME, request).lsn

    def _ls_remote(self) -> list[dict[str, Any]]:
        remote = self.connection().remote
        rows: list[dict[str, Any]] = []
        after = ""
        while True:
            page = remote.ask(LIST_NAMES, NamesRequest(after=after))
            rows += [
                {"name": entry.name, "id": str(VolumeId(entry.target)), "revision": entry.revision}
                for entry in page.entries
                if is_of_volume(entry)
            ]
            if not page.next:
                # A remote lists encrypted names in an order of its own.
                return sorted(rows, key=lambda row: str(row["name"]))
            after = page.next


def _newest(connection: Connection, vid: VolumeId, name: str) -> SnapshotInfo:
    """What the remote's volume of that name is now. Raises NotFound where it was removed, whoever holds what it was."""
    try:
        info = connection.remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))
    except NotFound as error:
        why = str(error)
    else:
        if not info.is_removed:
            return info
        why = f"volume {vid} was removed"
    raise NotFound(
        f"{connection.url} has a name {name!r} that leads nowhere, since {why} "
        f"(`budwood rm {name} --on-remote` takes it off)"
    )

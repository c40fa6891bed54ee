"""Namespace: the names of a home as a tree of files, directories and symbolic links, here and on the remote.

    names = Namespace(edge)
    names.make_directory("notes", attributes)
    names.move("notes/a~", "notes/a", replace=True)
    names.push(), names.pull()

What is here is changed here at once, offline too, each change in one LMDB transaction (name_table.py has its rules).
The remote learns of it by `push`, this home of the remote's changes by `pull`; between the two stands what was last
seen of the remote (names_push.py, names_pull.py). A removed file's content stays until `sweep`, since programs may have
it open.

A directory exists as an entry with attributes, or because some name lies below it, or both: entries() and entry() tell
of the first kind alone. One name may be a file *and* have names below it, as others may have made them so ('a' and
'a/b'): both are reported, and who shows them as a tree decides. Nor is anything said of parents: a name may be made
below one that doesn't exist.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from ..volume.calls import LIST_NAMES, WAIT_NAMES, NamesRequest, WaitNamesRequest
from ..volume.errors import AlreadyExists, BadInput, BudwoodError, Busy, Full, NotFound, Unavailable
from ..volume.ids import VolumeId
from ..volume.protocols import Durability
from ..volume.thread_pool import ThreadPool
from ..volume.wire import NameEntry, NameList
from .attributes import Attributes, Kind
from .connection import Connection
from .edge import Edge
from .file_locks import names_lock
from .journal_tail import Tail, VolumeTail
from .name_table import NameTable, Record, check_open, is_gone, is_reserved, list_volumes, namespace_of
from .names_pull import belongs, check_store
from .names_push import pull_settled_names, push_names
from .tables import CommitRecord, Head, PlaceRecord, Txn, VolumeRecord, commit_key, unpack_head
from .volume import Volume

_ADOPTIONS: Final = 16
"""Volumes that come in at once."""
_LISTED: Final = 10_000
_ROUNDS: Final = 20
"""Of listings, each begun anew since the names changed in the midst of it; those of the past don't."""


class Entry(NamedTuple):
    id: bytes
    """Its record's: it keeps it wherever it is moved."""
    name: str
    kind: Kind
    vid: bytes
    """A file's volume; of a directory or a link, what it is known by wherever it is moved."""
    attributes: Attributes
    """With nothing left open: what was never set is the mounting user's."""
    length: int
    """In bytes: the content's, or the link's."""
    unpushed: int
    """Local commits that the remote doesn't have."""
    head: Head | None
    """Of a file that is a volume of this home."""

    @property
    def here(self) -> bool:
        """False: a file of the remote that is no volume of this home yet; `adopt` makes it one."""
        return self.kind != "file" or self.head is not None


class Look(NamedTuple):
    """What the names are at one moment, told as far as it isn't what was seen before."""

    version: int
    seen: dict[bytes, int]
    """Of everything that there is, by id, a hash within this process."""
    entries: list[Entry]
    """Those that are new, or not what they were; by name."""
    retired: set[bytes]
    """Ids of those of them that have a name of Budwood's own by now, and are no entries."""


class Namespace:
    """For any thread."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._environment = edge.environment
        self._uid, self._gid = os.getuid(), os.getgid()
        self._one_at_a_time = threading.Lock()

    def version(self) -> int:
        """One more with every change of names and attributes here, by any process."""
        with self._environment.view() as txn:
            return NameTable(self._environment, txn).version()

    def entries(self) -> Iterator[Entry]:
        """All of them, by name, as they stood at one moment."""
        with self._environment.look() as (txn, tail):
            records = NameTable(self._environment, txn).everything()
            found = [self._entry(txn, tail, record) for record in records if not is_reserved(record.name)]
        return iter(sorted(found, key=lambda entry: entry.name))

    def entries_at(self, at: int) -> tuple[list[Entry], int]:
        """The remote's names as they stood at a time, in milliseconds, whatever this home has of them, beside the
        volumes here that are another store's; and the time at which they did: a later one, where what was before isn't
        remembered; 0 where the node knows no names but today's. Waits for the network. Raises Unavailable, NotFound,
        WrongStore, Locked.
        """
        connection = self._connection()
        check_store(connection, namespace_of(self._environment))
        for _ in range(_ROUNDS):
            parts = _listing(connection, at)
            if parts[-1].head == parts[0].head:
                break
        else:
            raise Unavailable("the remote's names change faster than they are told: try again")
        found = [self._entry_then(told) for part in parts for told in part.entries if not is_reserved(told.name)]
        names = {entry.name for entry in found}
        return [*found, *(entry for entry in self._others(connection) if entry.name not in names)], parts[0].at

    def _others(self, connection: Connection) -> list[Entry]:
        with self._environment.look() as (txn, tail):
            records = [each for each in NameTable(self._environment, txn).everything() if not is_reserved(each.name)]
            return [self._entry(txn, tail, record) for record in records if not belongs(record, connection.store)]

    def _entry_then(self, told: NameEntry) -> Entry:
        attributes = Attributes.from_wire(told.attributes).seen_by(self._uid, self._gid, told.time * 1_000_000)
        key = blake2b(told.name.encode(), digest_size=16).digest()
        length = attributes.size if attributes.kind == "file" else len(attributes.link.encode())
        return Entry(key, told.name, attributes.kind, told.target, attributes, length, 0, None)

    def look(self, seen: Mapping[bytes, int], again: Iterable[bytes] = ()) -> Look:
        """What has changed since a look that had `seen` this; the entries with the ids `again` are told in any case.
        It costs what has changed, and next to nothing for each other name.
        """
        with self._environment.look() as (txn, tail):
            names = NameTable(self._environment, txn)
            now = names.hashes()
            changed = {key for key, value in now.items() if seen.get(key) != value} | (now.keys() & set(again))
            entries: list[Entry] = []
            retired: set[bytes] = set()
            for key in changed:
                record = names.load(key)
                if record is None or is_reserved(record.name):
                    retired.add(key)
                else:
                    entries.append(self._entry(txn, tail, record))
            version = names.version()
        return Look(version, now, sorted(entries, key=lambda entry: entry.name), retired)

    def entry(self, name: str) -> Entry | None:
        with self._environment.look() as (txn, tail):
            record = NameTable(self._environment, txn).visible(name)
            return None if record is None else self._entry(txn, tail, record)

    def make_directory(self, name: str, attributes: Attributes) -> bytes:
        """The id of its entry. Raises AlreadyExists, BadInput. It may have names below it already."""
        return self._make(name, "directory", attributes)

    def make_link(self, name: str, attributes: Attributes) -> bytes:
        """A symbolic link to `attributes.link`; the id of its entry. Raises AlreadyExists, BadInput."""
        return self._make(name, "link", attributes)

    def make_file(self, name: str, attributes: Attributes) -> Volume:
        """An empty volume; a power loss may take it back until the home is flushed, as any change of names. Raises
        AlreadyExists, BadInput.
        """
        _check_kind(name, "file", attributes)
        return self._edge.create(name, attributes=attributes, durability=Durability.ORDERED)

    def set_attributes(self, name: str, attributes: Attributes) -> None:
        """Raises NotFound, BadInput for another kind of file."""

        def change(names: NameTable) -> None:
            record = names.visible(name)
            if record is None:
                raise NotFound(f"there is no {name!r} here")
            _check_kind(name, record.kind, attributes)
            names.store(msgspec.structs.replace(record, attributes=attributes))

        self._change(change)

    def keep_times(self, entries: Iterable[Entry]) -> bool:
        """Of files that were committed to before a crash: that time, which their names would forget once it is pushed.
        Whether there were any. `entries` are those of this namespace.
        """
        unpushed = {entry.name: entry.attributes for entry in entries if entry.unpushed}
        told: dict[str, Attributes] = {}
        with self._environment.view() as txn:
            names = NameTable(self._environment, txn)
            for name, shown in unpushed.items():
                record = names.find(name)
                # Nothing is made up of a name that says nothing.
                if record is not None and record.attributes not in (Attributes(), shown):
                    times = {"mtime_ns": shown.mtime_ns, "ctime_ns": shown.ctime_ns}
                    kept = msgspec.structs.replace(record.attributes, **times)
                    if kept != record.attributes:
                        told[name] = kept
        if told:
            self.set_attributes_of(told)
        return bool(told)

    def owes_attributes(self, vid: bytes) -> bool:
        """Whether a volume's name says something else on the remote than here, as far as is known."""
        with self._environment.view() as txn:
            names = NameTable(self._environment, txn)
            record = names.load(vid)
            row = None if record is None or not record.bound else names.known_at(record.bound)
            return record is not None and row is not None and not record.attributes.says_as(row.attributes)

    def set_attributes_of(self, told: Mapping[str, Attributes]) -> None:
        """Of several files at once, in one transaction; a name that has gone is passed over."""

        def change(names: NameTable) -> None:
            for name, attributes in told.items():
                record = names.find(name)
                if record is not None and record.kind == attributes.kind:
                    names.store(msgspec.structs.replace(record, attributes=attributes))

        self._change(change)

    def move(self, old: str, new: str, *, replace: bool = False, directory: bool = False) -> None:
        """A file, a link, or a directory with all that lies below it; open files go on. `replace`: what is called `new`
        goes as by `remove`, in the same transaction. Of a file that shares its name with a directory the file is moved,
        or else the `directory`.

        Raises NotFound; AlreadyExists if `new` is taken, or is a directory that something lies below; BadInput for a
        move to below itself, or one that makes a name longer than any may be.
        """
        check_open(new)
        if f"{new}/".startswith(f"{old}/") and new != old:
            raise BadInput(f"{old!r} can't be moved to below itself")

        def change(names: NameTable) -> None:
            moving = list(names.below(old))
            own = names.find(old)
            if directory and own is not None and own.kind != "directory":
                own = None
            if is_reserved(old) or (own is None and not moving):
                raise NotFound(f"there is no {old!r} here")
            if new == old:
                return
            _make_room(names, new, own, replace)
            if own is not None and own.kind != "directory":
                moving = []
            if own is not None:
                names.rename_here(own, new)
            for record in moving:
                names.rename_here(record, check_open(new + record.name[len(old) :]))

        self._change(change)

    def remove(self, name: str) -> None:
        """A file's name is free at once, and its content stays until it is swept. Raises NotFound; AlreadyExists if
        something lies below a directory.
        """

        def change(names: NameTable) -> None:
            record = names.visible(name)
            if not is_reserved(name) and (record is None or record.kind == "directory"):
                _check_empty(names, name)
            if record is None:
                raise NotFound(f"there is no {name!r} here")
            names.retire(record)

        with self._environment.ballast.making_room():
            self._change(change)

    def sweep(self, vid: VolumeId | bytes | None = None) -> bool:
        """Drop the content of a removed file; without an id, of all of them. Whether nothing is left to another sweep,
        as what someone writes or syncs right now is. Raises Full.
        """
        is_done = True
        if vid is not None:
            gone = [vid if isinstance(vid, VolumeId) else VolumeId(vid)]
        else:
            gone = [VolumeId(record.vid) for record in list_volumes(self._environment) if is_gone(record.name)]
        for one in gone:
            try:
                self._edge.drop_gone(one)
            except Busy:
                is_done = False
            except NotFound:
                continue
        return is_done

    def adopt(self, name: str) -> Volume:
        """The volume of that name; a file of the remote becomes a volume here, without its pages. Raises NotFound,
        Unavailable, BadInput for a directory or link.
        """
        if self.entry(name) is None:
            raise NotFound(f"there is no {name!r} here")
        return self._edge.volume(name)

    def adopt_all(self) -> list[str]:
        """Whatever this home has no more than a name of becomes a volume here, several at a time; the names of what the
        remote refused. Raises Unavailable, Full.
        """

        def refused(name: str) -> bool:
            try:
                self._edge.volume_here(name)
            except (Unavailable, Full):
                raise
            except BudwoodError:
                return True
            return False

        names = [entry.name for entry in self.entries() if not entry.here]
        with ThreadPool(_ADOPTIONS, thread_name_prefix="budwood-adoptions") as pool:
            return [name for name, failed in zip(names, pool.map(refused, names), strict=True) if failed]

    def push(self) -> list[str]:
        """Tell the remote what has changed here (names_push.py); a line for each entry that had to take another name,
        or that the remote would not take. Waits for the network. Raises Unavailable, WrongStore, Busy while another
        process syncs the names of this home.
        """
        with self._syncing() as connection:
            return push_names(self._environment, connection)

    def pull(self) -> set[str]:
        """Take over what has changed on the remote (names_pull.py); the names that appeared, vanished or changed here.
        Waits for the network. Raises as `push` does.
        """
        with self._syncing() as connection:
            return set(pull_settled_names(self._environment, connection).changed)

    def head(self) -> int:
        """The LSN of the remote's names that is here: what to `wait` for the next of."""
        record = namespace_of(self._environment)
        return 0 if record is None else record.head

    def is_changing(self) -> bool:
        """Whether this home has asked for changes of the remote's names whose outcome isn't recorded."""
        with self._environment.view() as txn:
            return bool(NameTable(self._environment, txn).asked())

    def wait(self, after: int, timeout_seconds: float) -> int:
        """The LSN of the remote's names, as soon as it is above `after`, or at the timeout. Raises Unavailable."""
        request = WaitNamesRequest(after=after, timeout_seconds=timeout_seconds)
        return self._connection().remote.ask(WAIT_NAMES, request).lsn

    def url(self) -> str:
        """The remote whose names these are; "" if there is none."""
        record = namespace_of(self._environment)
        return self._edge.remote or ("" if record is None else record.remote)

    def _connection(self) -> Connection:
        return self._edge.connection(self.url())

    @contextmanager
    def _syncing(self) -> Generator[Connection]:
        with self._one_at_a_time, names_lock(self._environment.home):
            yield self._connection()

    def _make(self, name: str, kind: Kind, attributes: Attributes) -> bytes:
        _check_kind(name, kind, attributes)
        own = VolumeId.new().raw
        record = PlaceRecord(
            id=own, name=name, kind=kind, target=own, attributes=attributes, born_ms=time.time_ns() // 1_000_000
        )

        def add(names: NameTable) -> None:
            names.check_free(name)
            names.add(record)

        self._change(add)
        return own

    def _change(self, change: Callable[[NameTable], None]) -> None:
        """One transaction, which lands whole or, where it raises, not at all."""

        def work(txn: Txn) -> None:
            names = NameTable(self._environment, txn)
            change(names)
            names.touch()

        self._environment.update(work)

    def _entry(self, txn: Txn, tail: Tail, record: Record) -> Entry:
        attributes = record.attributes.seen_by(self._uid, self._gid, record.born_ms * 1_000_000)
        if isinstance(record, VolumeRecord):
            raw = txn.get(record.vid, db=self._environment.tables.heads)
            if raw is None:
                raise NotFound(f"volume {record.name!r} is gone from this home")
            part = tail.volumes.get(record.vid)
            head = unpack_head(record.vid, raw) if part is None else part.head
            if head.unpushed:
                attributes = self._written(txn, part, record.vid, head, attributes)
            return Entry(record.id, record.name, "file", record.vid, attributes, head.length, head.unpushed, head)
        kind = record.kind
        length = attributes.size if kind == "file" else len(attributes.link.encode())
        return Entry(record.id, record.name, kind, record.target, attributes, length, 0, None)

    def _written(self, txn: Txn, part: VolumeTail | None, vid: bytes, head: Head, attributes: Attributes) -> Attributes:
        """A crash may have come between a commit and what the name tells of it."""
        commit = (
            part.commits[-1][1]
            if part is not None
            else self._environment.get(txn, "commits", commit_key(vid, head.lsn), CommitRecord)
        )
        time_ns = 0 if commit is None else commit.time_ms * 1_000_000
        # The commit's time was cut to whole milliseconds.
        if commit is None or time_ns <= attributes.ctime_ns:
            return attributes
        return msgspec.structs.replace(attributes, mtime_ns=time_ns, ctime_ns=time_ns)


def _listing(connection: Connection, at: int) -> list[NameList]:
    """In parts of one revision, but for the last one where the names have changed meanwhile."""
    parts = [connection.remote.ask(LIST_NAMES, NamesRequest(limit=_LISTED, at=at))]
    while (after := parts[-1].next) and parts[-1].head == parts[0].head:
        parts.append(connection.remote.ask(LIST_NAMES, NamesRequest(after=after, limit=_LISTED, at=at)))
    return parts


def _make_room(names: NameTable, new: str, own: Record | None, replace: bool) -> None:
    """For `own`, or for a directory that has no entry, to be called `new`."""
    standing = names.find(new)
    if standing is None or not replace:
        names.check_vacant(new)
    is_directory = own is None or own.kind == "directory"
    if is_directory or standing is None or standing.kind == "directory":
        _check_empty(names, new)
    if standing is None:
        return
    if is_directory != (standing.kind == "directory"):
        raise AlreadyExists(f"a {standing.kind} {new!r} stands where one of another kind was to go")
    names.retire(standing)


def _check_empty(names: NameTable, name: str) -> None:
    record = next(names.below(name), None)
    if record is not None:
        raise AlreadyExists(f"{name!r} is not empty: {record.name!r} lies below it")


def _check_kind(name: str, kind: Kind, attributes: Attributes) -> None:
    if attributes.kind != kind:
        raise BadInput(f"the mode of the {kind} {name!r} is that of a {attributes.kind}")

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
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..volume.calls import WAIT_NAMES, WaitNamesRequest
from ..volume.errors import AlreadyExists, BadInput, Busy, NotFound
from ..volume.ids import VolumeId
from . import name_table
from .attributes import Attributes, Kind
from .file_locks import names_lock
from .local_volume import list_volumes
from .names_pull import pull_names
from .names_push import push_names
from .tables import CommitRecord, Head, PlaceRecord, VolumeRecord, commit_key, open_row, unpack_head
from .volume_lifecycle import check_free

if TYPE_CHECKING:
    from .connection import Connection
    from .edge import Edge
    from .environment import Txn
    from .name_table import Record
    from .volume import Volume

__all__ = ["Entry", "Namespace"]


class Entry(NamedTuple):
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
    here: bool
    """False: a file of the remote that is no volume of this home yet; `adopt` makes it one."""


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
            return name_table.version(self._environment, txn)

    def entries(self) -> Iterator[Entry]:
        """All of them, by name, as they stood at one moment."""
        environment = self._environment
        with environment.view() as txn:
            found: list[Entry] = []
            for _, key in txn.cursor(environment.tables.names):
                record = name_table.load(environment, txn, key)
                if record is not None and not name_table.is_reserved(record.name):
                    found.append(self._entry(txn, record))
        # Keys hold the beginning of a long name only.
        found.sort(key=_by_name)
        return iter(found)

    def entry(self, name: str) -> Entry | None:
        with self._environment.view() as txn:
            record = name_table.find(self._environment, txn, name)
            return None if record is None or name_table.is_reserved(name) else self._entry(txn, record)

    def make_directory(self, name: str, attributes: Attributes) -> None:
        """Raises AlreadyExists, BadInput. It may have names below it already."""
        self._make(name, "directory", attributes)

    def make_link(self, name: str, attributes: Attributes) -> None:
        """A symbolic link to `attributes.link`. Raises AlreadyExists, BadInput."""
        self._make(name, "link", attributes)

    def make_file(self, name: str, attributes: Attributes) -> Volume:
        """An empty volume. Raises AlreadyExists, BadInput."""
        _check_kind(name, "file", attributes)
        return self._edge.create(name, attributes=attributes)

    def set_attributes(self, name: str, attributes: Attributes) -> None:
        """Raises NotFound, BadInput for another kind of file."""

        def change(txn: Txn) -> None:
            record = self._found(txn, name)
            _check_kind(name, name_table.kind_of(record), attributes)
            name_table.store(self._environment, txn, msgspec.structs.replace(record, attributes=attributes))
            name_table.touch(self._environment, txn)

        self._environment.update(change)

    def set_attributes_of(self, told: Mapping[str, Attributes]) -> None:
        """Of several files at once, in one transaction; a name that has gone is passed over."""

        def change(txn: Txn) -> None:
            for name, attributes in told.items():
                record = name_table.find(self._environment, txn, name)
                if record is not None and name_table.kind_of(record) == attributes.kind:
                    name_table.store(self._environment, txn, msgspec.structs.replace(record, attributes=attributes))
            name_table.touch(self._environment, txn)

        self._environment.update(change)

    def move(self, old: str, new: str, *, replace: bool = False) -> None:
        """A file, a link, or a directory with all that lies below it; open files go on. `replace`: what is called `new`
        goes as by `remove`, in the same transaction.

        Raises NotFound; AlreadyExists if `new` is taken, or is a directory that something lies below; BadInput for a
        move to below itself, or one that makes a name longer than any may be.
        """
        environment = self._environment
        name_table.check_open(new)
        if f"{new}/".startswith(f"{old}/") and new != old:
            raise BadInput(f"{old!r} can't be moved to below itself")

        def change(txn: Txn) -> None:
            moving = list(name_table.below(environment, txn, old))
            own = name_table.find(environment, txn, old)
            if name_table.is_reserved(old) or (own is None and not moving):
                raise NotFound(f"there is no {old!r} here")
            if new == old:
                return
            self._make_room(txn, new, own, replace)
            # A file that shares its name with a directory moves alone.
            if own is not None and name_table.kind_of(own) != "directory":
                moving = []
            if own is not None:
                name_table.rename(environment, txn, own, new)
            for record in moving:
                name_table.rename(environment, txn, record, name_table.check_open(new + record.name[len(old) :]))
            name_table.touch(environment, txn)

        environment.update(change)

    def remove(self, name: str) -> None:
        """A file's name is free at once, and its content stays until it is swept. Raises NotFound; AlreadyExists if
        something lies below a directory.
        """

        def change(txn: Txn) -> None:
            record = name_table.find(self._environment, txn, name)
            if not name_table.is_reserved(name) and (record is None or name_table.kind_of(record) == "directory"):
                self._check_empty(txn, name)
            if record is None or name_table.is_reserved(name):
                raise NotFound(f"there is no {name!r} here")
            name_table.retire(self._environment, txn, record)
            name_table.touch(self._environment, txn)

        self._environment.update(change)

    def sweep(self, vid: VolumeId | bytes | None = None) -> None:
        """Drop the content of a removed file; without an id, of all of them. What someone writes or syncs right now is
        left to the next sweep.
        """
        if vid is not None:
            gone = [vid if isinstance(vid, VolumeId) else VolumeId(vid)]
        else:
            with self._environment.view() as txn:
                volumes = list_volumes(self._environment, txn)
                gone = [VolumeId(record.vid) for record in volumes if name_table.is_gone(record.name)]
        for one in gone:
            try:
                self._edge.drop_gone(one)
            except (Busy, NotFound):
                continue

    def adopt(self, name: str) -> Volume:
        """The volume of that name; a file of the remote becomes a volume here, without its pages. Raises NotFound,
        Unavailable, BadInput for a directory or link.
        """
        if self.entry(name) is None:
            raise NotFound(f"there is no {name!r} here")
        return self._edge.volume(name)

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
            return set(pull_names(self._environment, connection).changed)

    def head(self) -> int:
        """The LSN of the remote's names that is here: what to `wait` for the next of."""
        with self._environment.view() as txn:
            record = name_table.namespace(self._environment, txn)
        return 0 if record is None else record.head

    def wait(self, after: int, timeout_seconds: float) -> int:
        """The LSN of the remote's names, as soon as it is above `after`, or at the timeout. Raises Unavailable."""
        request = WaitNamesRequest(after=after, timeout_seconds=timeout_seconds)
        return self._connection().remote.ask(WAIT_NAMES, request).lsn

    def url(self) -> str:
        """The remote whose names these are; "" if there is none."""
        with self._environment.view() as txn:
            record = name_table.namespace(self._environment, txn)
        return self._edge.remote or ("" if record is None else record.remote)

    def _connection(self) -> Connection:
        return self._edge.connection(self.url())

    @contextmanager
    def _syncing(self) -> Generator[Connection]:
        with self._one_at_a_time, names_lock(self._environment.home):
            yield self._connection()

    def _make(self, name: str, kind: Kind, attributes: Attributes) -> None:
        _check_kind(name, kind, attributes)
        own = VolumeId.new().raw
        record = PlaceRecord(
            id=own, name=name, kind=kind, target=own, attributes=attributes, born_ms=time.time_ns() // 1_000_000
        )

        def add(txn: Txn) -> None:
            check_free(self._environment, name, txn)
            name_table.add_place(self._environment, txn, record)
            name_table.touch(self._environment, txn)

        self._environment.update(add)

    def _make_room(self, txn: Txn, new: str, own: Record | None, replace: bool) -> None:
        """For `own`, or for a directory that has no entry, to be called `new`."""
        environment = self._environment
        standing = name_table.find(environment, txn, new)
        if standing is None or not replace:
            name_table.check_vacant(environment, txn, new)
        is_directory = own is None or name_table.kind_of(own) == "directory"
        if is_directory or standing is None or name_table.kind_of(standing) == "directory":
            self._check_empty(txn, new)
        if standing is None:
            return
        if is_directory != (name_table.kind_of(standing) == "directory"):
            raise AlreadyExists(f"a {name_table.kind_of(standing)} {new!r} stands where one of another kind was to go")
        name_table.retire(environment, txn, standing)

    def _check_empty(self, txn: Txn, name: str) -> None:
        record = next(name_table.below(self._environment, txn, name), None)
        if record is not None:
            raise AlreadyExists(f"{name!r} is not empty: {record.name!r} lies below it")

    def _found(self, txn: Txn, name: str) -> Record:
        record = None if name_table.is_reserved(name) else name_table.find(self._environment, txn, name)
        if record is None:
            raise NotFound(f"there is no {name!r} here")
        return record

    def _entry(self, txn: Txn, record: Record) -> Entry:
        attributes = record.attributes.seen_by(self._uid, self._gid, record.born_ms * 1_000_000)
        if isinstance(record, VolumeRecord):
            raw = txn.get(record.vid, db=self._environment.tables.heads)
            if raw is None:
                raise NotFound(f"volume {record.name!r} is gone from this home")
            head = unpack_head(record.vid, raw)
            if head.unpushed:
                attributes = self._written(txn, record.vid, head, attributes)
            return Entry(record.name, "file", record.vid, attributes, head.length, head.unpushed, here=True)
        kind = record.kind
        length = attributes.size if kind == "file" else len(attributes.link.encode())
        return Entry(record.name, kind, record.target, attributes, length, 0, here=kind != "file")

    def _written(self, txn: Txn, vid: bytes, head: Head, attributes: Attributes) -> Attributes:
        """A crash may have come between a commit and what the name tells of it."""
        key = commit_key(vid, head.lsn)
        raw = txn.get(key, db=self._environment.tables.commits)
        if raw is None:
            return attributes
        time_ns = open_row("commits", key, raw, CommitRecord).time_ms * 1_000_000
        # The commit's time was cut to whole milliseconds.
        if time_ns <= attributes.ctime_ns:
            return attributes
        return msgspec.structs.replace(attributes, mtime_ns=time_ns, ctime_ns=time_ns)


def _by_name(entry: Entry) -> str:
    return entry.name


def _check_kind(name: str, kind: Kind, attributes: Attributes) -> None:
    if attributes.kind != kind:
        raise BadInput(f"the mode of the {kind} {name!r} is that of a {attributes.kind}")

"""Home image: all that can be read of a home, without opening it and without writing to it.

Its tables are read from LMDB's file page by page (lmdb_salvage.py), and its journal behind them. Every record and row
is checked against its own checksum; what doesn't hold is a finding, and left out. So a home that can't be opened any
more is read as far as it goes, and one that others have open isn't touched (`held` keeps its pages from being used
again meanwhile).
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import lmdb

from ..volume.errors import Corrupt, Unavailable, Unsupported
from ..volume.ids import VolumeId
from ..volume.pageset import PageSet
from . import clean_shutdown
from .commit_journal import CommitJournal
from .environment import opened_here
from .journal_format import JournalRecord, LostRecord
from .journal_tail import MovedRecord, Tail
from .lmdb_errors import system_errors
from .lmdb_open import MAP_BYTES
from .lmdb_salvage import Entry, Salvage
from .rows import AVAILABLE, PREFIX, Rows
from .tables import (
    FORMAT_VERSION,
    MAX_LSN,
    NO_HEAD,
    CommitRecord,
    Format,
    Head,
    KnownRecord,
    NamespaceRecord,
    PlaceRecord,
    PushRecord,
    StageRecord,
    VolumeRecord,
    open_row,
    unpack_head,
)

_T = TypeVar("_T")

_RECORDS: Final[dict[str, type[object]]] = {
    "volumes": VolumeRecord,
    "commits": CommitRecord,
    "pushes": PushRecord,
    "stages": StageRecord,
    "places": PlaceRecord,
    "known": KnownRecord,
}
_LOOKS: Final = 100
"""At a home that others write to, until nobody has moved its journal meanwhile. Of a damaged one the last is taken."""
_META: Final[dict[bytes, type[object]]] = {b"format": Format, b"namespace": NamespaceRecord, b"journal": MovedRecord}
_TAIL_BYTES: Final = 9
_VID_BYTES: Final = 16
_COMMIT_KEY_BYTES: Final = 24
_MOST_ORPHANS: Final = 4096


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a home."""

    where: str
    what: str
    volume: str = ""
    """Its name, or its id where that isn't known."""
    pages: tuple[int, ...] = ()
    lsns: tuple[str, ...] = ()
    """Of unpushed commits, as `budwood log` shows them."""
    lost: bool = False
    """What it spoils can be had nowhere else."""

    def __str__(self) -> str:
        parts = [f"{self.where}: {self.what}"]
        if self.volume:
            pages = f" page{'s' * (len(self.pages) != 1)} {_few(self.pages)}" if self.pages else ""
            commits = f" unpushed commit{'s' * (len(self.lsns) != 1)} {_few(self.lsns)}" if self.lsns else ""
            fate = "which is nowhere else" if self.lost else "which its remote has"
            parts.append(f"spoils volume {self.volume!r}{commits}{pages}, {fate}")
        return "; ".join(parts)


class Row(NamedTuple):
    """A row whose checksum holds."""

    vid: bytes
    page: int
    lsn: int
    state: int
    key: bytes
    tail: bytes
    body: bytes | None

    @property
    def data(self) -> bytes:
        return (self.body or b"") + self.tail[_TAIL_BYTES:]


class HomeImage:
    """Of one home, as of one moment; made by `read_home`."""

    def __init__(self, home: Path, salvage: Salvage, copy: bytes | None) -> None:
        """The `copy` of its journal is of the same moment; None where nobody has it open."""
        self.home = home
        self.salvage = salvage
        self._copy = copy
        self.findings: list[Finding] = []
        self.sound: dict[str, list[Entry]] = {}
        """The entries of the small tables whose values hold."""
        self.names: dict[bytes, bytes] = {}
        self.volumes: dict[bytes, VolumeRecord] = {}
        self.places: dict[bytes, PlaceRecord] = {}
        self.heads: dict[bytes, Head] = {}
        """As LMDB has them."""
        self.commits: dict[bytes, dict[int, CommitRecord]] = {}
        self.pushes: dict[bytes, PushRecord] = {}
        self.stages: dict[bytes, StageRecord] = {}
        self.format: Format | None = None
        self.moved = MovedRecord()
        self.journal: dict[bytes, list[JournalRecord]] = {}
        """By volume, the commits that LMDB doesn't have."""
        self.is_suspect = False
        """Something of the tables is missing, or does not hold."""
        self.mended: set[bytes] = set()
        """Volumes whose heads are made of their commits."""
        self.guessed: set[bytes] = set()
        """These, and those whose heads are the newest that was found: what came later may be lost."""
        self._page_sizes: dict[bytes, int] = {}
        self._bodies: dict[bytes, bytes] = {}
        """Of rows whose tail is in no tree."""
        self._strays: list[Row] = []
        """Sound rows of unpushed commits that no tree leads to."""
        self._read_tables()
        if salvage.broken:
            self._read_strays()
        self._mend_heads()
        self._read_journal()

    def name_of(self, vid: bytes) -> str:
        record = self.volumes.get(vid)
        return str(VolumeId(vid)) if record is None else record.name

    def found(self, where: str, what: str, **spoils: object) -> None:
        self.findings.append(Finding(where, what, **spoils))  # type: ignore[arg-type]

    def head(self, vid: bytes) -> Head | None:
        """With the journal's commits."""
        head = self.heads.get(vid)
        if head is None:
            return None
        for record in self.journal.get(vid, ()):
            gone, head = record.lsn - head.lsn - 1, head.advanced(record.commit)
            head = head._replace(lsn=record.lsn, unpushed=head.unpushed + gone)
        return head

    def rows(self) -> Iterator[Row]:
        """Every row of LMDB whose checksum holds, by key; each that doesn't is a finding."""
        return heapq.merge(self._tree_rows(), self._strays, key=lambda row: row.key)

    def _tree_rows(self) -> Iterator[Row]:
        bodies = self.salvage.entries("bodies")
        body = next(bodies, None)
        for key, value in self.salvage.entries("tails"):
            while body is not None and body[0] < key:
                self._orphan(*body)
                body = next(bodies, None)
            own = None
            if body is not None and body[0] == key:
                own, body = body[1], next(bodies, None)
            row = self.row(key, value, own)
            if row is not None:
                yield row
        while body is not None:
            self._orphan(*body)
            body = next(bodies, None)

    def row(self, key: bytes, value: bytes, body: bytes | None, *, tell: bool = True) -> Row | None:
        if len(key) != PREFIX + 8 or len(value) < _TAIL_BYTES:
            return None
        vid, page, lsn = key[:16], int.from_bytes(key[16:PREFIX]), MAX_LSN - int.from_bytes(key[PREFIX:])
        head = self.heads.get(vid)
        size = head.page_size if head is not None and head.page_size else len(body or b"") + len(value) - _TAIL_BYTES
        try:
            rows = Rows(vid, size, self.salvage.path)
            if value[0] == AVAILABLE:
                rows.page(page, key, value, body)
            else:
                rows.check_mark(page, key, value)
        except (Corrupt, LookupError, ValueError, OverflowError):
            if tell:
                self._damaged_row(vid, page, lsn)
            return None
        return Row(vid, page, lsn, value[0], key, value, body)

    def _read_strays(self) -> None:
        """What of unpushed commits is in leaves that no tree leads to: a commit or row of which there is but one
        version; of a head the newest.
        """
        self.is_suspect = True
        reached = set[bytes]()
        for row in self._tree_rows():
            reached.add(row.key)
            if row.state == AVAILABLE:
                self._page_sizes[row.vid] = len(row.data)
        found: dict[bytes, set[bytes]] = {}
        for key, value in self.salvage.strays():
            found.setdefault(key, set()).add(value)
        for key, values in found.items():
            if len(key) == _VID_BYTES and key not in self.volumes:
                records = [record for value in values if (record := _volume_in(key, value)) is not None]
                if records:
                    self.volumes[key] = max(records, key=lambda record: (record.created, record.synced_ms))
        for key, values in found.items():
            if len(key) == _VID_BYTES and key not in self.heads:
                heads = [head for value in values if (head := _head_in(key, value)) is not None]
                if heads and key in self.volumes:
                    self.heads[key] = max(heads)
                    self.guessed.add(key)
        for key, values in found.items():
            head = self.heads.get(key[:_VID_BYTES])
            if head is None or not head.unpushed:
                continue
            if len(key) == _COMMIT_KEY_BYTES:
                self._stray_commit(key, values, head)
            elif len(key) == PREFIX + 8 and key not in reached:
                self._stray_row(key, values, head)
        self._strays.sort()

    def _stray_commit(self, key: bytes, values: set[bytes], head: Head) -> None:
        lsn, mine = int.from_bytes(key[_VID_BYTES:]), self.commits.setdefault(key[:_VID_BYTES], {})
        commits = list[CommitRecord]()
        for value in values:
            with suppress(Corrupt):
                commits.append(open_row("commits", key, value, CommitRecord))
        if len(commits) == 1 and lsn not in mine and head.sync_local < lsn <= head.lsn:
            mine[lsn] = commits[0]

    def _stray_row(self, key: bytes, values: set[bytes], head: Head) -> None:
        if not head.sync_local < MAX_LSN - int.from_bytes(key[PREFIX:]) <= head.lsn:
            return
        # The body may be one that the tree of bodies still has, or a stray, too.
        bodies: list[bytes | None] = [None, *values]
        bodies += [self._bodies[key]] if key in self._bodies else []
        rows = {row for tail in values for body in bodies if (row := self.row(key, tail, body, tell=False)) is not None}
        if len(rows) == 1:
            self._strays.append(rows.pop())

    def _damaged_row(self, vid: bytes, page: int, lsn: int) -> None:
        self.is_suspect = True
        head = self.heads.get(vid)
        unpushed = head is not None and (lsn > head.sync_local or not head.sync_remote)
        name = self.name_of(vid) if head is not None else ""
        self.found("tails", f"page {page} does not match its checksum", volume=name, pages=(page,), lost=unpushed)

    def _orphan(self, key: bytes, body: bytes) -> None:
        self.is_suspect = True
        if len(self._bodies) < _MOST_ORPHANS:
            self._bodies[key] = body
        self.found("bodies", f"a page of volume {self.name_of(key[:16])!r} has lost its row in tails")

    def _read_tables(self) -> None:
        for table, kind in _RECORDS.items():
            mine: dict[bytes, object] = {}
            for key, value in self._entries(table):
                record: object = self._open(table, key, value, kind)
                if record is not None:
                    mine[key] = record
                    self.sound[table].append((key, value))
            self._take(table, mine)
        for key, value in self._entries("heads"):
            try:
                self.heads[key] = unpack_head(key, value)
            except Corrupt as error:
                self.found("heads", error.what, volume=self.name_of(key), lost=True)
            else:
                self.sound["heads"].append((key, value))
        for key, value in self._entries("names"):
            self.names[key] = value
            self.sound["names"].append((key, value))
        for key, value in self._entries("meta"):
            opened: object = self._open("meta", key, value, _META[key]) if key in _META else value
            if opened is not None:
                self.sound["meta"].append((key, value))
            if isinstance(opened, Format):
                self.format = opened
            elif isinstance(opened, MovedRecord):
                self.moved = opened

    def _take(self, table: str, records: dict[bytes, object]) -> None:
        if table == "commits":
            for key, record in records.items():
                if isinstance(record, CommitRecord):
                    self.commits.setdefault(key[:16], {})[int.from_bytes(key[16:])] = record
        elif table != "known":
            getattr(self, table).update(records)

    def _entries(self, table: str) -> Iterator[Entry]:
        self.sound[table] = []
        return self.salvage.entries(table)

    def _open(self, table: str, key: bytes, value: bytes, kind: type[_T]) -> _T | None:
        try:
            return open_row(table, key, value, kind)
        except Corrupt as error:
            volume = self.name_of(key[:16]) if table in ("volumes", "commits", "pushes") else ""
            self.found(table, error.what, volume=volume, lost=table in ("volumes", "commits"))
            return None

    def _mend_heads(self) -> None:
        """A commit above the head was made with a newer head, which is lost; it says all that a head does. So do the
        commits of a volume that was never pushed, all of them.
        """
        for vid in self.volumes.keys() - self.heads.keys():
            record, commits = self.volumes[vid], self.commits.get(vid, {})
            if commits and not record.created and not record.parent:
                self.found("heads", "its head is gone: it is made again of its commits", volume=record.name)
                start = min(commits) - 1
                page_size = self._page_sizes.get(vid, 0)
                self.heads[vid] = NO_HEAD._replace(lsn=start, sync_local=start, page_size=page_size)
                self.mended.add(vid)
                self.guessed.add(vid)
        for vid, head in self.heads.items():
            commits, mended = self.commits.get(vid, {}), head
            while mended.lsn + 1 in commits:
                mended = mended.advanced(commits[mended.lsn + 1])
            if any(lsn > head.lsn for lsn in commits):
                what = "a commit stands above the head: the newest head was lost"
                self.found("heads", what, volume=self.name_of(vid), lost=True)
            self.heads[vid] = mended

    def _read_journal(self) -> None:
        """Its commits, as far as they follow one another and continue what LMDB has."""
        home = self.format.home if self.format is not None else marked_home(self.home)
        if self.format is not None and self.format.version != FORMAT_VERSION:
            return
        data, end = self.salvage.path, 0
        for strict in (False, True):
            is_alone = self._copy is None
            journal = CommitJournal(data, home, is_alone=is_alone, was_left=strict, can_write=False, copy=self._copy)
            try:
                journal.recover(self.moved)
                if not strict:
                    end = self._follow(journal)
            except (Corrupt, Unsupported, Unavailable) as error:
                self.found("journal", error.what if isinstance(error, Corrupt) else str(error))
                if strict:
                    self._read_behind(journal, end)
                else:
                    self.guessed.update(self.heads)
                return
            finally:
                journal.close()

    def _read_behind(self, journal: CommitJournal, end: int) -> None:
        """What was acknowledged is gone from there. The commits that stand behind tell by their LSNs whose it was, or
        the heads of the lost ones; else it may have been any volume's.
        """
        is_told = False
        try:
            for record in journal.behind(end):
                head, is_told = self.head(record.vid), True
                if isinstance(record, LostRecord):
                    self.guessed.update(self.heads if head is None else (record.vid,))
                elif head is not None and record.lsn > head.lsn and record.generation == head.generation:
                    self.journal.setdefault(record.vid, []).append(record)
        except (Corrupt, Unavailable) as error:
            self.guessed.update(self.heads)
            self.found("journal", error.what if isinstance(error, Corrupt) else str(error))
        if not is_told:
            self.guessed.update(self.heads)

    def _follow(self, journal: CommitJournal) -> int:
        """Where it ends."""
        tail = Tail(self.moved)
        for record in journal.read(tail):
            head = self.heads.get(record.vid)
            if head is None:
                self.found(
                    "journal",
                    "it has commits of a volume whose head is gone",
                    volume=self.name_of(record.vid),
                    pages=tuple(record.pages),
                    lost=True,
                )
                break
            if record.vid in self.mended and record.vid not in self.journal:
                head = self.heads[record.vid] = head._replace(generation=record.generation, page_size=record.page_size)
            tail.add(record, head)
            self.journal.setdefault(record.vid, []).append(record)
        return tail.end


def _head_in(vid: bytes, value: bytes) -> Head | None:
    try:
        return unpack_head(vid, value)
    except Corrupt:
        return None


def _volume_in(vid: bytes, value: bytes) -> VolumeRecord | None:
    try:
        record = open_row("volumes", vid, value, VolumeRecord)
    except Corrupt:
        return None
    return record if record.vid == vid else None


def marked_home(home: Path) -> bytes:
    """The home's id, as home.json has it."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return bytes.fromhex(json.loads((home / "home.json").read_text())["home"])
    return b""


@contextmanager
def read_home(home: Path) -> Generator[HomeImage]:
    """Raises Unavailable where there is no home, Corrupt where nothing of it can be read."""
    data = home / "store" / "data.mdb"
    if not data.is_file():
        raise Unavailable(f"{home} holds no local store: name the home with --home")
    for left in reversed(range(_LOOKS)):
        with held(data) as transaction, Salvage(data) as salvage:
            copy = None if transaction is None else _journal_of(data)
            if transaction is None or not left or _is_newest(data, transaction, salvage):
                yield HomeImage(home, salvage, copy)
                return


def _journal_of(data: Path) -> bytes:
    with system_errors(f"the journal beside {data} can't be read"), suppress(FileNotFoundError):
        return data.with_name("journal").read_bytes()
    return b""


def _is_newest(data: Path, transaction: int, salvage: Salvage) -> bool:
    """What was read is that transaction's, and nothing has been moved into LMDB since: so a journal that was copied
    before goes on from there.
    """
    with Salvage(data) as now:
        return salvage.transaction == transaction == now.transaction


@contextmanager
def held(data: Path) -> Generator[int | None]:
    """No page that the newest transaction sees is used again meanwhile, whoever has the home open: which one that is;
    None where nobody has, or LMDB can't hold it.
    """
    opened = opened_here(data.parent.parent)
    env: lmdb.Environment | None = None
    txn = None
    if opened is not None:
        # Looking at its lock would let go of it.
        txn = opened.read()
    elif clean_shutdown.is_in_use(data):
        with suppress(lmdb.Error):
            env = lmdb.open(str(data.parent), readonly=True, create=False, max_dbs=1, map_size=MAP_BYTES)
            txn = env.begin()
    try:
        yield None if txn is None else txn.id()
    finally:
        if txn is not None:
            txn.abort()
        if env is not None:
            env.close()


def _few(what: tuple[object, ...]) -> str:
    if what and all(isinstance(each, int) for each in what):
        return ranges_of(PageSet([each for each in what if isinstance(each, int)]))
    shown = ", ".join(map(str, what[:8]))
    return f"{shown} and {len(what) - 8} more" if len(what) > 8 else shown


def ranges_of(pages: PageSet) -> str:
    spans: list[list[int]] = []
    for page in pages:
        if spans and spans[-1][1] + 1 == page:
            spans[-1][1] = page
        else:
            spans.append([page, page])
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans[:8])
    return f"{shown} and {len(spans) - 8} more spans" if len(spans) > 8 else shown

"""Home builder: a new local store from what holds of another, and what became of each of its volumes (rebuild.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final, NamedTuple

import msgspec

from ..volume.ids import VolumeId
from ..volume.pageset import PageSet, decode_pages
from .change import record_of
from .environment import Environment
from .fork import record_of_fork
from .home_image import HomeImage, Row, ranges_of
from .local_volume import Local
from .migration import write_marker
from .name_table import NameTable
from .rows import AVAILABLE
from .stage import batches
from .tables import (
    FORMAT_VERSION,
    HERE,
    NO_HEAD,
    CommitRecord,
    Head,
    Txn,
    VolumeRecord,
    commit_key,
    name_key,
    pack_head,
    seal_row,
)
from .unpushed_state import UnpushedState, unpushed_states
from .volume_lifecycle import add_volume, fork_head

_BATCH_BYTES: Final = 16 * 1024 * 1024
_LATER: Final = ("later commits, if there were any",)
_MORE: Final = ("meta", "pushes", "places", "known")
"""Tables that are copied as far as they hold; the others volume by volume."""


class Fate(NamedTuple):
    """What became of a volume."""

    name: str
    outcome: str
    """whole: as it was; found: as of the newest of its heads that could be found; cut: to its last whole commit;
    remote: what the remote has, fetched when it is opened by its
    name; rescued: only what could be read; gone: nothing."""
    kept: tuple[str, ...] = ()
    """Unpushed commits that it still has, by label."""
    lost: tuple[str, ...] = ()
    """Unpushed commits that can't be read as they were made."""
    rescued_as: str = ""
    """The volume that has what could be read of those."""
    rescued: int = 0
    """How many of its pages are of unpushed commits."""
    pages: tuple[int, ...] = ()
    """Unpushed pages that are nowhere."""

    def __str__(self) -> str:
        said = {
            "whole": f"{self.name}: as it was",
            "cut": f"{self.name}: up to its unpushed commit {self.kept[-1] if self.kept else ''}",
            "remote": f"{self.name}: as its remote has it",
            "found": f"{self.name}: as it was when the newest head was written that is left",
            "rescued": f"{self.name}: only what could be read",
            "gone": f"{self.name}: nothing of it could be read",
        }[self.outcome]
        if self.lost:
            said += f"; not whole: {_span(self.lost)}"
        if self.rescued_as:
            said += f"; {self.rescued} unpushed pages are in {self.rescued_as!r}"
        if self.pages:
            said += f"; lost: pages {ranges_of(PageSet(self.pages))}"
        return said


def _span(labels: tuple[str, ...]) -> str:
    return labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]}"


class HomeBuilder:
    def __init__(self, image: HomeImage, environment: Environment) -> None:
        self._image = image
        self._environment = environment
        self._states = unpushed_states(image)
        self._records = {vid: image.volumes.get(vid) or self._nameless(vid) for vid in self._states}
        self._heads: dict[bytes, Head] = {}
        """Where the volumes stand that stay what they are."""

    def build(self) -> list[Fate]:
        for row in self._image.rows():
            if row.vid in self._states:
                self._states[row.vid].note(row)
        for vid, state in self._states.items():
            self._heads[vid] = _stands_at(state.judge(), self._records[vid])
        self._copy_records()
        self._copy_rows()
        fates = [self._fate(vid) for vid in self._states]
        fates += [self._headless(record) for vid, record in self._image.volumes.items() if vid not in self._states]
        return sorted(fates)

    def _headless(self, record: VolumeRecord) -> Fate:
        """Of a volume whose head is gone: on which LSN of the remote its commits were made isn't known any more."""
        commits = self._image.commits.get(record.vid, {})
        pages = PageSet.union(PageSet(), *(decode_pages(HERE, commit.pages) for commit in commits.values()))
        lost = tuple(f"local commit {lsn}" for lsn in sorted(commits))
        if not lost and not record.created:
            lost = ("all of it",)
        return Fate(record.name, "remote" if record.created else "gone", lost=lost, pages=tuple(pages))

    def _nameless(self, vid: bytes) -> VolumeRecord:
        """Of a volume whose record is gone."""
        return VolumeRecord(vid=vid, name=f"{VolumeId(vid)} (rescued)", created=self._image.heads[vid].sync_remote > 0)

    def _copy_records(self) -> None:
        environment, image = self._environment, self._image

        def copy(txn: Txn) -> None:
            for table in _MORE:
                for key, value in image.sound[table]:
                    if table == "meta" and key in (b"journal", b"format"):
                        continue
                    if table != "pushes" or self._keeps_push(key):
                        txn.put(key, value, db=getattr(environment.tables, table))
            if image.format is not None:
                record = msgspec.structs.replace(image.format, version=FORMAT_VERSION)
                environment.put(txn, "meta", b"format", record)
                write_marker(environment.home / "home.json", record)
            for place in image.places.values():
                txn.put(name_key(place.name), place.id, db=environment.tables.names)
            for vid, head in self._heads.items():
                if head is not NO_HEAD:
                    self._put_volume(txn, vid, head)

        environment.update(copy)

    def _keeps_push(self, vid: bytes) -> bool:
        head = self._heads.get(vid, NO_HEAD)
        return head is not NO_HEAD and self._image.pushes[vid].end <= head.lsn

    def _put_volume(self, txn: Txn, vid: bytes, head: Head) -> None:
        tables, record = self._environment.tables, self._records[vid]
        txn.put(name_key(record.name), vid, db=tables.names)
        txn.put(vid, seal_row(vid, record), db=tables.volumes)
        txn.put(vid, pack_head(vid, head), db=tables.heads)
        for lsn, commit in self._states[vid].commits.items():
            if head.sync_local < lsn <= head.lsn and head.unpushed:
                key = commit_key(vid, lsn)
                txn.put(key, seal_row(key, commit), db=tables.commits)

    def _copy_rows(self) -> None:
        """Those of LMDB, and the newest of the journal's."""
        for rows in _batched(self._wanted_rows()):
            self._write(rows)
        for vid, head in self._heads.items():
            self._copy_journal(vid, head)

    def _copy_journal(self, vid: bytes, head: Head) -> None:
        journal, local = self._states[vid].journal, self._local(vid)
        newest = {page: lsn for lsn in sorted(journal) if lsn <= head.lsn for page in journal[lsn]}
        pages: dict[int, list[tuple[int, bytes]]] = {}
        for page, lsn in sorted(newest.items()):
            pages.setdefault(lsn, []).append((page, journal[lsn][page]))

        def put(txn: Txn) -> None:
            editor = local.editor(txn, head.page_size)
            for lsn, items in pages.items():
                editor.put(items, lsn)
                editor.prune([page for page, _ in items], lsn, local.keep(txn))

        if pages:
            self._environment.update(put)

    def _wanted_rows(self) -> Iterator[Row]:
        """While a push or a stage is under way, there are older versions beside the newest: where rows are missing, an
        older one might pass for it. What is left out is fetched.
        """
        image = self._image
        several = {*image.pushes, *image.stages} if image.is_suspect else set[bytes]()
        for row in image.rows():
            head = self._heads.get(row.vid, NO_HEAD)
            is_unpushed = row.lsn > head.sync_local
            if head is not NO_HEAD and row.lsn <= head.lsn and (is_unpushed or row.vid not in several):
                yield row

    def _write(self, rows: list[Row]) -> None:
        tables = self._environment.tables

        def put(txn: Txn) -> None:
            for row in rows:
                txn.put(row.key, row.tail, db=tables.tails)
                if row.body is not None:
                    txn.put(row.key, row.body, db=tables.bodies)

        self._environment.update(put)

    def _fate(self, vid: bytes) -> Fate:
        state, record, head = self._states[vid], self._records[vid], self._heads[vid]
        if state.is_whole:
            kept, guessed = _labels(state, state.head.sync_local, state.head.lsn), vid in self._image.guessed
            return Fate(record.name, "found" if guessed else "whole", kept=kept, lost=_LATER if guessed else ())
        rescued_as, rescued = self._rescue(vid)
        outcome = "rescued" if head is NO_HEAD and not record.created else "cut" if head.unpushed else "remote"
        return Fate(
            record.name,
            outcome,
            kept=_labels(state, state.head.sync_local, state.whole),
            lost=_labels(state, state.whole, state.head.lsn),
            rescued_as=rescued_as,
            rescued=rescued,
            pages=tuple(sorted(state.lost)),
        )

    def _rescue(self, vid: bytes) -> tuple[str, int]:
        """What can be read of the unpushed pages as a volume of its own: its name, and how many they are."""
        state, record = self._states[vid], self._records[vid]
        readable = state.readable()
        if not readable:
            return "", 0
        name = self._free_name(record.name)
        head, child = state.head, VolumeId.new()
        pages = PageSet(readable)
        commit = record_of(pages, PageSet(), head.length, head.floor)
        own = record_of_fork(record, head, child, name)
        items = self._read(vid, readable)
        add_volume(self._environment, own, fork_head(head), pages=batches(items, head.page_size), commit=lambda: commit)
        return name, len(pages)

    def _read(self, vid: bytes, readable: dict[int, int]) -> Iterator[tuple[int, bytes]]:
        """Ascending."""
        journal, size = self._states[vid].journal, self._states[vid].head.page_size
        in_journal = {page for page, lsn in readable.items() if page in journal.get(lsn, ())}
        late = iter(sorted(in_journal))
        page = next(late, 0)
        for row in self._image.rows():
            if row.vid != vid or readable.get(row.page) != row.lsn or row.page in in_journal:
                continue
            while page and page < row.page:
                yield page, journal[readable[page]][page]
                page = next(late, 0)
            yield row.page, row.data if row.state == AVAILABLE else bytes(size)
        while page:
            yield page, journal[readable[page]][page]
            page = next(late, 0)

    def _free_name(self, name: str) -> str:
        stem = name.removesuffix(" (rescued)")
        taken = {record.name for record in self._image.volumes.values()}
        with self._environment.view() as txn:
            names = NameTable(self._environment, txn)
            tried = (f"{stem} (rescued{'' if number == 1 else f' {number}'})" for number in count(1))
            return next(each for each in tried if each not in taken and names.find(each) is None)

    def _local(self, vid: bytes) -> Local:
        return Local(self._environment, VolumeId(vid), self._records[vid].name)


def _stands_at(state: UnpushedState, record: VolumeRecord) -> Head:
    """The head of a volume that stays; NO_HEAD for one that doesn't."""
    head = state.head
    if state.is_whole:
        return head
    kept = [state.commits[lsn] for lsn in range(head.sync_local + 1, state.whole + 1)]
    if not kept:
        # How long it was at the sync point isn't known any more: the remote is asked when it is opened by its name.
        return NO_HEAD
    return _cut(head, state.whole, kept)


def _cut(head: Head, lsn: int, kept: list[CommitRecord]) -> Head:
    floor = min(commit.floor for commit in kept)
    return head._replace(lsn=lsn, length=kept[-1].length, floor=floor, unpushed=len(kept))


def _labels(state: UnpushedState, after: int, upto: int) -> tuple[str, ...]:
    return tuple(state.label(lsn) for lsn in range(after + 1, upto + 1)) if state.head.unpushed else ()


def _batched(rows: Iterable[Row]) -> Iterator[list[Row]]:
    batch, size = list[Row](), 0
    for row in rows:
        batch.append(row)
        size += len(row.tail) + len(row.body or b"")
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch

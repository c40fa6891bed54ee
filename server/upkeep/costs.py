"""Costs: what a store holds and what is written to it, volume by volume, as far as the store itself can tell.

    costs = await survey(store, Wanted(days=7.0))

It takes one listing of all that stands, what opening each volume does, and the head of each entry of those days; it
writes nothing. Reads leave nothing behind in a store: nodes count those (store/counted.py).

A volume with a log of its own has what that log takes, too. The names are a log without a volume.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import anyio
from anyio.lowlevel import checkpoint

from ...volume.errors import BudwoodError, Unauthorized, Unavailable
from ...volume.ids import VolumeId
from ...volume.retention_policy import RetentionPolicy
from ..metastore.logs import Logs
from ..metastore.naming import Naming
from ..metastore.open_volumes import Volumes
from ..metastore.pin_store import Pins
from ..store.protocol import Store
from ..store.retrying import PATIENT, Patience
from ..store.root import Root, open_root
from .forgettable import Forgettable
from .objects import Objects
from .stored_bytes import LogBytes, Stored, StoredBytes, Unread, VolumeBytes
from .written import DAY_MS, HOUR_MS, Creates, Written, WrittenLog

_NAMES: Final = 1000
"""In one look."""


class Wanted(NamedTuple):
    now_ms: int
    days: float = 7.0
    """So far back entries are read."""
    window_ms: int = 0
    """What if entries were collected for so long?"""
    policy: RetentionPolicy | None = None
    """What if every volume were kept so?"""


@dataclass
class Usage:
    """Of a volume; or of a log that several share, the names' among them, or of the root: what is nobody's alone."""

    volume: str = ""
    log: str = ""
    names: list[str] = field(default_factory=list[str])
    pages: int = 0
    entries: float = 0.0
    records: int = 0
    waiting: int = 0
    let_go: float = 0.0
    """In bytes; see stored_bytes.py."""
    days: dict[int, Creates] = field(default_factory=dict[int, Creates])
    """By day since 1970."""
    commits_a_day: float = 0.0
    creates_a_day: float = 0.0

    @property
    def bytes(self) -> float:
        return self.pages + self.entries + self.records + self.waiting

    def add_volume(self, held: VolumeBytes) -> None:
        self.pages += held.pages
        self.entries += held.entries
        self.records += held.records
        self.let_go += held.let_go

    def add_log(self, held: LogBytes) -> None:
        self.entries += held.entries
        self.records += held.records
        self.waiting += held.waiting

    def add_days(self, days: dict[int, Creates], covered: float) -> None:
        for day, creates in days.items():
            self.days.setdefault(day, Creates()).add(creates)
            self.commits_a_day += creates.commits / covered
            self.creates_a_day += creates.all / covered


@dataclass
class Costs:
    objects: int
    usages: list[Usage]
    """Volumes by id, then logs that several share, then the root."""
    entries_a_day: float
    spared_a_day: float
    """Entries that another window would not have needed."""
    covers_days: float
    """The least that any log with entries was read back."""
    unread: list[Unread]


async def survey(store: Store, wanted: Wanted, *, patience: Patience = PATIENT) -> Costs:
    """Raises NotFound where there is no store, Corrupt, Unsupported, Unavailable, Unauthorized."""
    root = await open_root(store, create=False, patience=patience)

    async def nothing(_key: str, _data: bytes) -> None:
        await checkpoint()

    failure: BudwoodError | None = None
    costs: Costs | None = None
    async with anyio.create_task_group() as tasks:
        logs = Logs(
            store,
            tasks=tasks,
            now_ms=lambda: 0,
            seed=nothing,
            gc_interval_seconds=root.gc_interval_seconds,
            patience=patience,
        )
        try:
            costs = await _Survey(logs, root, wanted).run()
        except BudwoodError as error:
            # Kept from the group, which would wrap it in an ExceptionGroup.
            failure = error
        finally:
            logs.close()
    if failure is not None:
        raise failure
    assert costs is not None
    return costs


class _Survey:
    def __init__(self, logs: Logs, root: Root, wanted: Wanted) -> None:
        self._logs = logs
        self._names_id = root.names_id
        self._wanted = wanted
        self._usages: dict[str, Usage] = {}
        """By volume, or by log."""
        self._unread: list[Unread] = []
        # By a clock that stands still no pin is ever overdue, so that none is ended here.
        self._pins = Pins(logs.store, now_ms=lambda: 0, patience=logs.patience)

    async def run(self) -> Costs:
        wanted, logs = self._wanted, self._logs
        let_go = None if wanted.policy is None else Forgettable(wanted.policy, self._pins, wanted.now_ms).tell
        stored = await StoredBytes(logs, Volumes(logs), let_go=let_go).survey()
        self._take(stored)
        objects = Objects(logs.store, logs.patience)
        written = Written(objects, now_ms=wanted.now_ms, days=wanted.days, window_ms=wanted.window_ms)
        entries = spared = 0.0
        covers = max(wanted.days, HOUR_MS / DAY_MS)
        for log in stored.logs:
            try:
                found = await written.survey(log)
            except (Unavailable, Unauthorized):
                raise
            except BudwoodError as error:
                self._unread.append(Unread(f"log {log}", error))
                continue
            self._add(found)
            entries += found.entries / found.days
            spared += (found.entries - found.batches) / found.days
            covers = min(covers, found.days) if found.entries else covers
        await self._name()
        usages = [*sorted(self._usages.values(), key=_order), Usage(records=stored.root)]
        return Costs(stored.objects, usages, entries, spared, covers, self._unread)

    def _take(self, stored: Stored) -> None:
        self._unread += stored.unread
        for vid, own in stored.volumes.items():
            self._usages.setdefault(vid, Usage(volume=vid)).add_volume(own)
        for log, held in stored.logs.items():
            self._of_log(log).add_log(held)

    def _add(self, found: WrittenLog) -> None:
        for stream, days in found.streams.items():
            usage = self._usages.get(stream) if stream else None
            (usage or self._of_log(found.log)).add_days(days, found.days)

    def _of_log(self, log: str) -> Usage:
        """Of the volume whose log it is, or its own."""
        return self._usages.setdefault(log, Usage(log=log))

    async def _name(self) -> None:
        try:
            names = await Naming(self._logs, self._names_id).get()
            after = "\0"
            while after:
                listed = await names.listed("", "" if after == "\0" else after, _NAMES)
                for entry in listed.entries:
                    if entry.target and (usage := self._usages.get(str(VolumeId(entry.target)))) is not None:
                        usage.names.append(entry.name)
                after = listed.next
        except (Unavailable, Unauthorized):
            raise
        except BudwoodError as error:
            self._unread.append(Unread("the names", error))
        if (own := self._usages.get(str(self._names_id))) is not None:
            own.names.append("the names of all volumes")


def _order(usage: Usage) -> tuple[bool, str, str]:
    return not usage.volume, usage.volume, usage.log


def total_of(usages: list[Usage]) -> Usage:
    """All of them together."""
    total = Usage()
    for each in usages:
        total.pages += each.pages
        total.entries += each.entries
        total.records += each.records
        total.waiting += each.waiting
        total.let_go += each.let_go
        total.commits_a_day += each.commits_a_day
        total.creates_a_day += each.creates_a_day
    return total


def days_of(usages: list[Usage]) -> Iterator[tuple[int, Creates]]:
    """What was written each day, oldest first."""
    days: dict[int, Creates] = {}
    for each in usages:
        for day, creates in each.days.items():
            days.setdefault(day, Creates()).add(creates)
    yield from sorted(days.items())

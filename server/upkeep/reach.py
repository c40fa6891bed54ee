"""Reach: which LSNs read what is damaged.

Pages that one commit wrote are read at its LSN and at those that follow, until later ones have written or cut off the
last of them; and so they are at the LSNs of forks from there, and at those that later forks share. This asks the
volumes as any reader opens them. Where they can't be opened, or what would tell is damaged too, the damage reaches as
far as anybody knows: to the newest LSN.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Self, TypeAlias

import anyio
from anyio.lowlevel import checkpoint

from ...volume.encryption import VolumeKeys
from ...volume.errors import BadInput, BudwoodError, Corrupt, NotFound, Unsupported
from ...volume.ids import VolumeId
from ...volume.pageset import PageSet
from ...volume.rollup import RolledState
from ..metastore.folded import Folded
from ..metastore.logs import Logs
from ..metastore.naming import Naming
from ..metastore.open_volume import Volume
from ..metastore.open_volumes import Volumes
from ..metastore.rolled_stream import RolledStream
from ..store.tree_nodes import loading
from .births import Births
from .findings import Span
from .objects import Objects

Unlock: TypeAlias = Callable[[bytes], VolumeKeys | None]
"""The keys of a volume with that encryption header; None where none at hand opens it. Raises BadInput, Unsupported."""

_Still: TypeAlias = Callable[[int], PageSet]
"""At an LSN: those of the pages that still read as the commit wrote them. From memory; raises NotLoaded."""


@dataclass(slots=True)
class Reach:
    _logs: Logs
    _names: Naming
    _volumes: Volumes
    _births: Births
    _damaged: set[str]
    """Logs that can't be opened: each try would take longer than the one before."""
    unlock: Unlock | None = None
    locked: set[str] = field(default_factory=set[str])
    """Encrypted volumes that no key at hand opens."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        objects: Objects,
        births: Births,
        names: VolumeId,
        gc_interval_seconds: float,
        unlock: Unlock | None = None,
    ) -> AsyncGenerator[Self]:
        async def nothing(_key: str, _data: bytes) -> None:
            await checkpoint()

        async with anyio.create_task_group() as tasks:
            logs = Logs(
                objects.store,
                tasks=tasks,
                now_ms=lambda: 0,
                seed=nothing,
                gc_interval_seconds=gc_interval_seconds,
                patience=objects.patience,
            )
            try:
                yield cls(logs, Naming(logs, names), Volumes(logs), births, set(), unlock)
            finally:
                logs.close()

    async def volume(self, stream: str) -> Volume | None:
        """None where it can't be opened."""
        birth = await self._births.get(stream)
        if birth is None or birth.log in self._damaged:
            return None
        try:
            return await self._volumes.get(VolumeId.parse(stream))
        except BudwoodError:
            if not self._logs.is_open(birth.log):
                self._damaged.add(birth.log)
            return None

    async def keys_of(self, stream: str) -> VolumeKeys | None:
        """Those of an encrypted volume, if they are at hand."""
        volume, birth = await self.volume(stream), await self._births.get(stream)
        header = volume.encryption if volume is not None else birth.encryption if birth is not None else b""
        try:
            keys = self.unlock(header) if self.unlock is not None and header else None
        except (BadInput, Unsupported):
            # It is no header that this one knows: pages are looked at as without a key.
            keys = None
        if keys is None:
            self.locked.add(stream)
        return keys

    async def rolled_state(self, log: str, stream: str) -> RolledState | None:
        """What the rollup that readers go by says of a stream: of what is deleted by now it says so. Raises Corrupt,
        Unavailable."""
        found = await self._logs.get(log)
        await self._logs.make_sure(found)
        return await loading(RolledStream(found.rolled, stream).state)

    async def named(self, name: str) -> VolumeId:
        """The volume of that name. Raises NotFound, Corrupt, Unavailable."""
        entry = (await self._names.get()).state.lookup(name)
        if entry is None:
            raise NotFound(f"there is no {name!r} in this store")
        return VolumeId(entry.target)

    async def of_pages(self, stream: str, lsn: int, pages: PageSet, *, in_entry: bool = False) -> list[Span]:
        """Of these pages of the commit that made that LSN; `in_entry`: as the entry has them that carries it."""
        volume = await self.volume(stream)
        if volume is None or not volume.history.start < lsn <= volume.state.head:
            return await self.of_all(stream, lsn)
        if lsn <= (volume.history.settled_to if in_entry else volume.history.folded_to):
            # Nobody reads it there any more.
            return []
        return await self._spans(volume, lsn, lambda at: volume.history.newest_in(lsn, at, pages))

    async def of_region(self, volume: Volume, lsn: int, pages: PageSet) -> list[Span]:
        """Of these pages of the region of its checkpoint that ends with that LSN."""
        return await self._spans(volume, lsn, lambda at: volume.history.newest_in(lsn, at, pages))

    async def folded_to(self, stream: str) -> int | None:
        """The LSN up to which a volume's commits are needed no more; None where it can't be opened."""
        volume = await self.volume(stream)
        return None if volume is None else volume.history.folded_to

    async def of_all(self, stream: str, first: int, *, whole: bool = False) -> list[Span]:
        """From that LSN on; with `whole`, of a volume that can't be opened at all, and so none of its forks can."""
        spans = [Span(stream, first, None)]
        waiting = [(stream, first)]
        while waiting:
            parent, bad = waiting.pop()
            for child, lsn in await self._births.forks_of(parent):
                if whole or lsn >= bad:
                    spans.append(Span(child, first, None))
                    waiting.append((child, bad))
        return spans

    async def below_since(self, stream: str) -> list[Span]:
        """The LSNs that pins and forks alone may hold: nobody can tell which, where one of them can't be read."""
        volume = await self.volume(stream)
        if volume is None:
            return []
        since = volume.state.since
        return await self.of_range(stream, 1, since - 1) if since > 1 else []

    async def born_between(self, first: bytes, end: bytes) -> list[str]:
        """The volumes behind that id, up to the other; to the last where there is no other."""
        found: list[str] = []
        start = _text(first)
        while vids := await self._births.all(start):
            for vid in vids:
                if end and vid > _text(end):
                    return found
                found.append(vid)
            start = vids[-1]
        return found

    async def was_born_in(self, stream: str, log: str) -> bool:
        birth = await self._births.get(stream)
        return birth is not None and birth.log == log

    async def of_range(self, stream: str, first: int, last: int) -> list[Span]:
        """These LSNs of a volume's own, and of its forks."""
        spans: list[Span] = []
        waiting = [Span(stream, first, last)]
        while waiting:
            span = waiting.pop()
            spans.append(span)
            forks = await self._births.forks_of(span.stream)
            waiting += [Span(child, first, min(last, lsn)) for child, lsn in forks if lsn >= first]
        return spans

    async def _spans(self, volume: Volume, first: int, still: _Still) -> list[Span]:
        spans: list[Span] = []
        waiting = [(volume, still)]
        while waiting:
            volume, still = waiting.pop()
            try:
                last = await loading(partial(_last, still, await _readable(volume, first)))
            except (Corrupt, Unsupported):
                # What would tell is damaged itself.
                spans += await self.of_all(volume.id, first)
                continue
            spans.append(Span(volume.id, first, last))
            for child, lsn in await self._births.forks_of(volume.id):
                if lsn < first:
                    continue
                # One from after the last LSN shares those up to there.
                fork = await self.volume(child)
                if fork is None:
                    spans += await self.of_all(child, first)
                else:
                    waiting.append((fork, partial(_still_in_fork, fork, still)))
        return spans


def _text(raw: bytes) -> str:
    try:
        return str(VolumeId(raw))
    except BadInput:
        return ""


async def _readable(volume: Volume, first: int) -> list[int] | range:
    """The LSNs from that one on which the volume's logs and its checkpoint still have."""
    folding, head = volume.history.folding, volume.state.head
    if not isinstance(folding, Folded) or first > folding.lsn:
        return range(first, head + 1)
    lsns, _ = await loading(folding.regions)
    return [*(lsn for lsn in lsns if lsn >= first), *range(max(first, folding.lsn + 1), head + 1)]


def _last(still: _Still, lsns: Sequence[int]) -> int:
    """The newest of these, which begin with one at which some are left. Once none is, none will be."""
    return lsns[max(bisect_left(lsns, True, key=lambda lsn: not still(lsn)), 1) - 1]


def _still_in_fork(fork: Volume, parent: _Still, lsn: int) -> PageSet:
    start = fork.history.start
    if lsn <= start:
        return parent(lsn)
    return fork.history.resolve(lsn, parent(start)).below

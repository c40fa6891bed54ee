"""Forgettable: what a volume would let go of at another retention policy. Nothing is changed.

The policy's schedule (retention_schedule.py) says from which LSN on all would stay, and which of those below. Of the
commits below, a page version goes that a later one hides at the next LSN which stays. So it is reckoned as a fold would
do it, from page sets alone; what a fold copies keeps about its size.

What was folded already is kept for pins and forks, which another policy doesn't end; only its newest LSN was merely the
oldest that could be read. The pins of a policy that the volume has now count as any others, until they end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from anyio.lowlevel import checkpoint as let_others

from ...volume.pageset import PageSet, beyond, page_count
from ...volume.retention_policy import RetentionPolicy
from ..metastore.folded import Folded
from ..metastore.history import Landed
from ..metastore.open_volume import Volume
from ..metastore.pin_store import Pins
from ..store.tree_nodes import loading
from .retention_schedule import Schedule, schedule
from .stored_bytes import AT_ONCE, Going

_NOWHERE = 1 << 32


class Forgettable:
    def __init__(self, policy: RetentionPolicy, pins: Pins, now_ms: int) -> None:
        self._policy = policy
        self._pins = pins
        self._now_ms = now_ms

    async def tell(self, volume: Volume, take: Callable[[Going], None]) -> None:
        """All that it would let go of. Raises Corrupt, Unavailable."""
        before, history = max(volume.state.since, volume.history.start + 1), volume.history
        since, stays = await self._schedule(volume, before)
        if since == before:
            return
        forks = await loading(lambda: [lsn for _, lsn in volume.state.forks.items()])
        stays |= {pin.lsn for pin in await self._pins.all(volume.vid) if pin.holds} | set(forks) | {since}
        hidden, moved = _Hidden(), dict[str, int]()
        if isinstance(history.folding, Folded):
            moved = {each.object: each.pages for _, each in await loading(history.folding.relocations)}
        for last in range(since, history.folded_to, -AT_ONCE):
            first = max(last - AT_ONCE, history.folded_to) + 1
            commits = await loading(partial(_commits, volume, first, last))
            for commit in reversed(commits):
                if commit.lsn in stays:
                    hidden = _Hidden()
                for location, pages in commit.placed():
                    if count := hidden.among(pages):
                        take(Going(location, count, moved.get(location.object, len(pages))))
                hidden.add(commit.pages, page_count(commit.floor, volume.page_size))
            await let_others()
        if isinstance(history.folding, Folded) and history.folding.lsn not in stays:
            for going in await loading(partial(_of_newest_region, history.folding, hidden)):
                take(going)

    async def _schedule(self, volume: Volume, since: int) -> tuple[int, set[int]]:
        """From where on everything would stay, and what of that below."""
        state, history, stays = volume.state, volume.history, set[int]()

        def time_of(lsn: int) -> int:
            return state.time if lsn == state.head else history.at(lsn).time

        def due() -> Schedule | None:
            return schedule(self._policy, time_of, since, state.head, self._now_ms)

        while found := await loading(due):
            since = found.since
            stays.update(hold.lsn for hold in found.holds)
            if found.whole:
                break
        return since, stays


class _Hidden:
    """The pages that later commits have written or cut off, up to the next LSN that stays."""

    def __init__(self) -> None:
        self._pages = PageSet()
        self._floor = _NOWHERE

    def among(self, pages: PageSet) -> int:
        return len((pages & self._pages) | beyond(pages, self._floor))

    def add(self, pages: PageSet, floor: int) -> None:
        self._pages |= pages
        self._floor = min(self._floor, floor)


def _commits(volume: Volume, first: int, last: int) -> list[Landed]:
    return [volume.history.at(lsn) for lsn in range(first, last + 1)]


def _of_newest_region(folded: Folded, hidden: _Hidden) -> list[Going]:
    lsns, regions = folded.regions()
    if not lsns:
        return []
    number, found = regions[-1].number, list[Going]()
    for place in folded.places(number):
        for segment, pages in folded.range_at(number, place).items():
            stands = folded.segment(segment)
            found.append(Going(stands.location, hidden.among(pages), stands.pages))
    return found

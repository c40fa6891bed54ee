"""Upkeep: keeps the logs of a store from growing for ever, a little at a time (DESIGN §5).

    a volume    its policy is enforced (retainer.py); what lies below its `since` is folded, once that is worth it; and
                where it holds its log back, what it keeps is relocated (fold.py)
    a log       is collected, one step at a time (collector.py)

In a node it looks after what that node appends to: at the volumes that have changed since it looked last, and once a
day at all of a log's, since the end of a pin frees as much as a commit, and policies go by time. Who changes nothing
causes no request and no write. What must be looked for, fragments that nobody named and revisions of pins, is taken out
once a day: of logs that something came to since those could have grown old, and of volumes whose pins were changed
here. One thing is done after another, and after each it rests for some times as long as that took, so that those who
commit have the machine and the store for the most part. Whatever it is cut off in, the next turn finds.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

from anyio.lowlevel import checkpoint as let_others
from anyio.lowlevel import checkpoint_if_cancelled

from ...volume.entry import entry_key, is_entry, slot_of
from ...volume.errors import BadInput, BudwoodError, Conflict, NotFound, NotOwner, Unavailable
from ...volume.ids import VolumeId
from ...volume.records import Location, settled_by
from ...volume.retention_policy import RetentionPolicy
from ...volume.rollup import Stay
from ..log.boundary import LogIsOver
from ..metastore.births import read_birth
from ..metastore.folded import Folded
from ..metastore.logs import Log, Logs
from ..metastore.open_volume import Volume
from ..metastore.open_volumes import Volumes
from ..metastore.rolled_stream import RolledStream
from ..store.store_clock import StoreClock
from ..store.tree_nodes import loading
from .collector import Collector, Progress, Stage
from .fold import Folder, folds
from .garbage_check import Refused
from .garbage_plan import Hold
from .over import Cleared
from .removed import nothing_left, was_removed
from .retainer import Default, Retainer
from .tidying import Tidying
from .unnamed import OLD_MS

COMMITS: Final = 256
BYTES: Final = 1 << 20
"""Below `since`: so many are worth a fold."""

ENTRIES: Final = 1024
"""That a volume may hold a log back by, before as little as one commit is folded, or relocated."""

NEW_ENTRIES: Final = 64
"""That make a log worth a look at its garbage."""

RETAIN_SECONDS: Final = 3600.0
DAY_SECONDS: Final = 86_400.0

_STIRRED_SECONDS: Final = OLD_MS / 1000 + 2 * DAY_SECONDS
"""After the last entry: then nothing is left in its log that nobody named."""
_MOST_PINNED: Final = 65_536
"""Volumes; the pins of others are looked through when they are changed again."""

_logger: Final = logging.getLogger(__name__)


class Pace(NamedTuple):
    every_seconds: float = 60.0
    """Between two looks at what has changed."""
    rest: float = 3.0
    """Times as long as the work before it took."""
    deletes_a_second: float = 1000.0
    """0: as many as can be."""


CALM: Final = Pace()
"""Of a node that others use."""

HASTY: Final = Pace(every_seconds=0.0, rest=0.0, deletes_a_second=0.0)
"""Of whoever waits for it."""


class Extent(Enum):
    """Which volumes of a log are folded."""

    NONE = "none"
    """It is only collected."""
    WORTH_IT = "worth it"
    """Those of which enough was forgotten."""
    FREED = "freed"
    """And those whose checkpoint holds something for others, who may have let go of it."""
    ALL = "all"
    """And those of which anything was forgotten."""


class Turn(NamedTuple):
    """What was done for a log."""

    folded: int = 0
    """Volumes."""
    deleted: int = 0
    """Objects."""
    due_ms: int = 0
    """When what waits may be deleted; 0 where nothing does."""
    failures: tuple[tuple[VolumeId, BudwoodError], ...] = ()


@dataclass(slots=True)
class Done:
    """Since the process began."""

    folds: int = 0
    """Of volumes, relocations included."""
    objects_deleted: int = 0
    failures: int = 0
    """Of a volume or a log, which is looked after later."""
    busy_seconds: float = 0.0


@dataclass(slots=True)
class _Known:
    """Of one log."""

    changed: set[str] = field(default_factory=set[str])
    """Streams, since the last turn."""
    to_retain: set[str] = field(default_factory=set[str])
    """The same, since policies were enforced."""
    slot: int = 0
    """The first that the last garbage plan did not look at."""
    folded: int = 0
    """Volumes."""
    folded_slot: int = 0
    """The first that had not been written when the last of them was."""
    pending: bool = False
    """Whether something is left: a plan that is not due yet, or whatever the store did not answer to."""
    sweep: bool = False
    """Whether the next plan takes out what must be looked for."""
    stirred_at: float = -math.inf
    """When something came to it last."""
    collect_at: float = 0.0
    retain_at: float = 0.0
    all_at: float = 0.0


class Upkeep:
    """Of one node. Belongs to one event loop."""

    def __init__(
        self,
        logs: Logs,
        volumes: Volumes,
        retainer: Retainer,
        folder: Folder,
        collector: Collector,
        namespace: VolumeId,
        clock: StoreClock,
        *,
        pace: Pace = CALM,
    ) -> None:
        self._logs = logs
        self._names = {namespace}
        """Namespaces that are known: the store's, and organisations'."""
        self._no_names: set[str] = set()
        """Private logs that are volumes'."""
        self._volumes = volumes
        self._retainer = retainer
        self._folder = folder
        self._collector = collector
        self.clock = clock
        self._pace = pace
        self._known: dict[str, _Known] = {}
        self.done = Done()
        self._pinned: dict[VolumeId, str] = {}
        """Volumes whose pins were changed here, and the log that each is in, once that is known."""

    @property
    def changed_volumes(self) -> int:
        """That were not looked at since."""
        return sum(len(known.changed) for known in self._known.values())

    @property
    def waiting_plans(self) -> int:
        """Logs whose garbage plan waits for its time, or that are to be looked at again."""
        return sum(known.pending for known in self._known.values())

    def pinned(self, vid: VolumeId) -> None:
        """This process has made a revision of one of its pins."""
        if len(self._pinned) < _MOST_PINNED:
            self._pinned.setdefault(vid, "")

    def stood(self, log: str, streams: list[str]) -> None:
        """An entry of this process has come to stand, which carries these."""
        now = self._logs.patience.now()
        known = self._known.get(log)
        if known is None:
            known = self._known[log] = _Known(all_at=now + DAY_SECONDS)
        known.stirred_at = now
        known.changed.update(streams)
        known.to_retain.update(streams)

    async def run(self, own: str = "", *, tidies: bool = True) -> None:
        """Look after what this node appends to, and the log that is its own, until it is cancelled; and finish creates
        that were cut off, whosever they were, unless another process of this node does."""
        if own:
            now = self._logs.patience.now()
            self._known[own] = _Known(all_at=now + RETAIN_SECONDS, stirred_at=now)
        tidying = Tidying(self._logs.store, self._logs.patience)
        while True:
            await self._logs.patience.sleep(self._pace.every_seconds)
            failure = await tidying.if_due() if tidies else None
            if failure is not None:
                _logger.warning("creates that were cut off are finished later: %s", failure)
            await self._place_pinned()
            for name, known in list(self._known.items()):
                await self._tend(name, known)

    async def tend(self, name: str, extent: Extent, *, on_deleted: Callable[[int], None] = lambda _: None) -> Turn:
        """Look at all volumes of a log, and go as far with its collection as the time allows, at once. Raises NotOwner,
        Conflict, Corrupt, Unavailable; what befell single volumes is told."""
        try:
            return await self._tend_once(name, extent, on_deleted)
        except LogIsOver:
            cleared = await self._cleared(name, on_deleted)
            return Turn(deleted=cleared.deleted, due_ms=cleared.due_ms)

    async def _tend_once(self, name: str, extent: Extent, on_deleted: Callable[[int], None]) -> Turn:
        """Raises LogIsOver where nothing of it is left to be looked after, and as `tend` does."""
        log = await self._logs.get(name)
        await self._logs.writer(log)
        await self.clock.check()
        known, failures, default = _Known(), list[tuple[VolumeId, BudwoodError]](), self._default_once()
        for vid in await self._tended_of(log, extent, default):
            try:
                await self._retainer.enforce(vid, default)
                await self._fold(vid, known, extent)
            except (Conflict, NotOwner):
                # Another is at it, or it has moved away.
                continue
            except BudwoodError as error:
                failures.append((vid, error))
        deleted, most = 0, self._pace.deletes_a_second
        while True:
            progress = await self._collector.collect(name, most_a_second=most, on_deleted=on_deleted)
            deleted += progress.deleted
            if progress.stage is Stage.NOTHING and await self._collector.over_logs.declare(log):
                cleared = await self._cleared(name, on_deleted)
                return Turn(known.folded, deleted + cleared.deleted, cleared.due_ms)
            if progress.stage is not Stage.DONE:
                # By now the rollup tells of all that was so when each was looked at.
                failures = [(vid, error) for vid, error in failures if not await self._is_gone(name, vid, error)]
                return Turn(known.folded, deleted, progress.due_ms, tuple(failures))

    async def has_work(self, name: str, extent: Extent) -> bool:
        """Whether a turn might do anything, as far as reading tells. Raises Corrupt, Unavailable."""
        if not await self._collector.is_waiting(name) and await self._collector.planned(name) is not None:
            return True
        log, default = await self._logs.get(name), self._default_once()
        for vid in await self._tended_of(log, extent, default):
            try:
                volume = await self._volumes.get(vid)
            except BudwoodError:
                # What befell it a turn tells.
                return True
            if volume.state.policy is not None or await default() is not None or await self._is_due(volume, extent):
                return True
        return False

    async def _tend(self, name: str, known: _Known) -> None:
        now = self._logs.patience.now()
        retains = known.to_retain and now >= known.retain_at
        if not (known.changed or known.pending or known.sweep or retains or now >= known.all_at):
            return
        try:
            try:
                await self._look_after(name, known, now)
            except LogIsOver:
                if now >= known.collect_at:
                    await self._clear(name, known)
        except NotOwner:
            # Whoever owns it by now looks after it.
            self._known.pop(name, None)
        except Unavailable as error:
            # A node that ends has whoever reads in it fail, just before it ends this.
            await checkpoint_if_cancelled()
            self.done.failures += 1
            _logger.warning("log %s is looked after later: %s", name, error)
            known.pending = True
        except BudwoodError as error:
            self.done.failures += 1
            _logger.warning("log %s can't be looked after: %s", name, error)
            known.collect_at = now + DAY_SECONDS
        except Exception:
            # Whoever commits here is not to go down with it.
            self.done.failures += 1
            _logger.exception("log %s is looked after again tomorrow", name)
            known.collect_at = known.all_at = now + DAY_SECONDS

    async def _look_after(self, name: str, known: _Known, now: float) -> None:
        """Raises LogIsOver where there is nothing left to be looked after, and whatever else it meets."""
        default, log = self._default_once(), await self._logs.get(name)
        await self._logs.writer(log)
        await self.clock.check()
        await self._note_names(log)
        everything, to_retain = now >= known.all_at, set[str]()
        if everything:
            known.to_retain.update(str(vid) for vid in await self._volumes_of(log, default))
            known.all_at = now + DAY_SECONDS
            known.sweep = now < known.stirred_at + _STIRRED_SECONDS or name in self._pinned.values()
        if everything or now >= known.retain_at:
            known.retain_at = now + RETAIN_SECONDS
            to_retain, known.to_retain = known.to_retain, set()
            for vid in self._volumes_in(to_retain):
                await self._one(name, vid, known, partial(self._retainer.enforce, vid, default))
            known.changed |= to_retain
        changed, known.changed = known.changed, set()
        for vid in self._volumes_in(changed):
            extent = Extent.FREED if everything else Extent.WORTH_IT
            await self._one(name, vid, known, partial(self._fold, vid, known, extent))
        if now >= known.collect_at and self._is_worth_collecting(log, known):
            await self._collect(log, known)
        if everything and log.private and not (to_retain or known.changed or known.pending or known.sweep):
            # Nothing comes here any more.
            self._known.pop(name, None)

    async def _one(self, name: str, vid: VolumeId, known: _Known, work: Callable[[], Awaitable[object]]) -> None:
        began = self._logs.patience.now()
        try:
            await work()
        except (Conflict, NotOwner) as error:
            # Another is at it, or it has moved away.
            _logger.info("volume %s: %s", vid, error)
        except Unavailable as error:
            await checkpoint_if_cancelled()
            known.changed.add(str(vid))
            known.to_retain.add(str(vid))
            self.done.failures += 1
            _logger.warning("volume %s is looked after later: %s", vid, error)
        except BudwoodError as error:
            if not await self._is_gone(name, vid, error):
                self.done.failures += 1
                _logger.warning("volume %s can't be looked after: %s", vid, error)
        await self._rest(began)

    async def _is_gone(self, log: str, vid: VolumeId, error: BudwoodError) -> bool:
        """Whether it can't be looked after since nothing is left of it."""
        with suppress(BudwoodError):
            return isinstance(error, NotFound) and await was_removed(self._logs, log, vid)
        return False

    async def _place_pinned(self) -> None:
        """In which logs the volumes are whose pins were changed: those are looked after, too."""
        for vid in [vid for vid, name in self._pinned.items() if not name]:
            try:
                name = (await self._volumes.get(vid)).log
            except BudwoodError:
                # It can't be read just now: with its next change.
                self._pinned.pop(vid, None)
                continue
            self._pinned[vid] = name
            if name not in self._known:
                self._known[name] = _Known(all_at=self._logs.patience.now() + DAY_SECONDS)

    async def _fold(self, vid: VolumeId, known: _Known, extent: Extent) -> None:
        volume = await self._volumes.get(vid, fresh=True)
        if not await self._is_due(volume, extent):
            return
        relocate = await self._holds_back(volume)
        done = await self._folder.fold(vid, relocate=relocate)
        known.folded += done is not None
        self.done.folds += done is not None
        while done is not None and not done.whole:
            done = await self._folder.fold(vid, relocate=relocate)
        if isinstance(volume.keeps, Log):
            known.folded_slot = volume.keeps.reader.chain.next

    async def _is_due(self, volume: Volume, extent: Extent) -> bool:
        """Whether it is to be folded, or relocated."""
        history = volume.history
        if await self._holds_back(volume):
            return True
        if extent is Extent.ALL and min(volume.state.since, volume.state.head) > max(history.folded_to, history.start):
            return True
        return await self._is_worth_folding(volume) or (extent is not Extent.WORTH_IT and await _may_be_freed(volume))

    async def _is_worth_folding(self, volume: Volume) -> bool:
        history, upto = volume.history, min(volume.state.since, volume.state.head)
        folded_to = max(history.folded_to, history.start)
        if volume.state.is_forgotten and (history.folding is None or upto > folded_to):
            return True
        if upto <= folded_to:
            return False
        if upto - folded_to >= COMMITS:
            return True

        def of_them() -> list[Location]:
            commits = [history.at(lsn) for lsn in range(folded_to + 1, upto + 1)]
            return [location for commit in commits for location in commit.locations]

        locations, log = await loading(of_them), volume.keeps
        if sum(location.size for location in locations) >= BYTES:
            return True
        if not isinstance(log, Log):
            return False
        entries = entry_key(log.name, 0).rpartition("/")[0]
        slots = [slot_of(each.object) for each in locations if each.object.startswith(entries)]
        return bool(slots) and log.reader.chain.next - min(slots) >= ENTRIES

    async def _holds_back(self, volume: Volume) -> bool:
        """Whether a log can't be cut off since pages that the volume keeps lie in its entries; or whether nobody can
        tell without a look at very many commits."""
        history, state, log = volume.history, volume.state, volume.keeps
        settled_to = max(history.settled_to, min(state.since, state.head) if folds(volume) else 0)
        if state.is_forgotten or not isinstance(log, Log) or settled_to >= history.head:
            return False

        def oldest() -> str:
            commits = (history.at(lsn) for lsn in range(settled_to + 1, history.head + 1))
            inline = (location.object for commit in commits for location in commit.locations)
            return next((key for key in inline if is_entry(key)), "")

        key = await loading(oldest)
        if not key:
            return history.head - settled_to >= ENTRIES
        if not key.startswith(entry_key(log.name, 0).rpartition("/")[0]):
            # In another log, where it comes no more.
            return True
        return log.reader.chain.next - slot_of(key) >= ENTRIES

    def _laggards(self, log: Log, holds: Iterable[Hold]) -> Iterator[str]:
        """The streams that hold a log back by so much that it is worth while to do something about it."""
        for hold in holds:
            if log.reader.chain.next - hold.slot < ENTRIES:
                return
            with suppress(BadInput):
                yield str(VolumeId(hold.stream))

    def _is_worth_collecting(self, log: Log, known: _Known) -> bool:
        if known.pending or known.sweep:
            return True
        return known.folded_slot > known.slot or log.reader.chain.next - known.slot >= NEW_ENTRIES

    async def _collect(self, log: Log, known: _Known) -> None:
        began, pinned = self._logs.patience.now(), list[VolumeId]()
        if known.sweep:
            pinned = [vid for vid, name in self._pinned.items() if name == log.name]
            for vid in pinned:
                # What changes from here on is for the next time.
                del self._pinned[vid]
        try:
            progress = await self._collector.collect(
                log.name, most_a_second=self._pace.deletes_a_second, leftovers=known.sweep, pinned=pinned
            )
        except Conflict as error:
            # It was refused; or another's was acknowledged first, which is carried out in its time.
            _logger.log(logging.WARNING if isinstance(error, Refused) else logging.INFO, "log %s: %s", log.name, error)
            progress = Progress(Stage.NOTHING)
        known.changed.update(self._laggards(log, progress.holds))
        if progress.looked:
            known.sweep = False
        for vid in () if progress.looked else pinned:
            self._pinned.setdefault(vid, log.name)
        self.done.objects_deleted += progress.deleted
        now, pause = self._logs.patience.now(), self._collector.gc_interval_seconds
        known.pending = progress.stage is Stage.WAITING
        if known.pending:
            known.slot = progress.planned
            pause = max(progress.due_ms - self._logs.now_ms(), 0) / 1000
        elif progress.stage is Stage.DONE:
            # What came while the plan waited is for the next.
            known.slot, pause = progress.planned, 0.0
        else:
            known.slot = log.reader.chain.next
        if progress.deleted:
            _logger.info("log %s: %d objects were collected", log.name, progress.deleted)
        known.collect_at = now + pause
        if progress.stage is Stage.NOTHING and await self._collector.over_logs.declare(log):
            await self._clear(log.name, known)
        await self._rest(began)

    async def _cleared(self, name: str, on_deleted: Callable[[int], None] = lambda _: None) -> Cleared:
        most = self._pace.deletes_a_second
        await self.clock.check()
        return await self._collector.over_logs.clear(name, most_a_second=most, on_deleted=on_deleted)

    async def _clear(self, name: str, known: _Known) -> None:
        """Of a log that is over."""
        cleared = await self._cleared(name)
        self.done.objects_deleted += cleared.deleted
        known.pending = bool(cleared.due_ms)
        known.collect_at = self._logs.patience.now() + max(cleared.due_ms - self._logs.now_ms(), 0) / 1000
        if not known.pending:
            self._known.pop(name, None)

    async def _rest(self, began: float) -> None:
        """After work that began then."""
        pace, patience = self._pace, self._logs.patience
        self.done.busy_seconds += patience.now() - began
        await patience.sleep(min(pace.rest * (patience.now() - began), pace.every_seconds))

    def _default_once(self) -> Default:
        """The store's default policy, asked for once, if at all."""
        asked = list[RetentionPolicy | None]()

        async def default() -> RetentionPolicy | None:
            if not asked:
                asked.append(await self._retainer.default())
            return asked[0]

        return default

    async def _tended_of(self, log: Log, extent: Extent, default: Default) -> list[VolumeId]:
        return [] if extent is Extent.NONE else await self._volumes_of(log, default)

    async def _volumes_of(self, log: Log, default: Default) -> list[VolumeId]:
        """Those that something may be forgotten of: of the rollup, what has a policy or lies below `since` or was
        folded; and all that came since. And those that hold back the log, or the one that they came from."""
        await self._logs.refresh(log)
        await self._note_names(log)
        found = set(self._volumes_in(log.streams.tails(log.reader.chain.next)))
        found.update(self._volumes_in(self._laggards(log, (await self._collector.survey(log.name)).holds)))
        rolled = log.rolled.as_it_is()
        key = await loading(rolled.next_stream)
        while key:
            await let_others()
            stream = RolledStream(rolled, key)
            state = await loading(stream.state)
            stay = state.stays[-1] if state is not None else None
            if stay is not None and stay.closed is None and await _may_be_due(stream, stay, default):
                found.add(VolumeId(key))
            key = await loading(partial(rolled.next_stream, key))
        return sorted(found)

    def _volumes_in(self, streams: Iterable[str]) -> Iterator[VolumeId]:
        """Those of the streams that are volumes: names are folded by the rollup."""
        return (vid for vid in map(VolumeId.parse, streams) if vid not in self._names)

    async def _note_names(self, log: Log) -> None:
        """Whether it is an organisation's names, which have a private log and no birth. Raises Corrupt, Unavailable."""
        if not log.private or log.name in self._no_names or VolumeId.parse(log.name) in self._names:
            return
        try:
            await read_birth(self._logs.store, VolumeId.parse(log.name), self._logs.patience)
        except NotFound:
            self._names.add(VolumeId.parse(log.name))
        else:
            if len(self._no_names) >= _MOST_PINNED:
                self._no_names.clear()
            self._no_names.add(log.name)


def _holds_back_where_it_was(stay: Stay) -> bool:
    """Whether pages of it may lie in the log that it came from. Who looks after that one can't do anything about it."""
    return stay.opened is not None and settled_by(stay.fold) < stay.start


async def _may_be_due(stream: RolledStream, stay: Stay, default: Default) -> bool:
    if _holds_back_where_it_was(stay):
        return True
    if stay.fold is not None:
        # Where nothing is left, even the birth may be gone.
        return not await loading(partial(nothing_left, stream, stay.fold))
    if stay.since > stay.start + 1 or stay.policy is not None:
        return True
    return stay.since < stay.head and await default() is not None


async def _may_be_freed(volume: Volume) -> bool:
    """Whether its checkpoint holds something for others, who may have let go of it."""
    folding = volume.history.folding
    if not isinstance(folding, Folded):
        return False
    lsns, _ = await loading(folding.regions)
    if volume.state.is_forgotten:
        return bool(lsns) or await loading(lambda: next(volume.state.forks.items(), None)) is not None
    return len(lsns) > 1

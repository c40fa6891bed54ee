"""Reader: follows a log from its anchor or a rollup, and hands on what counts (DESIGN §4, rules 1, 4, 5 and 9).

`open` asks for the newest name (one LIST of one key), and begins behind the rollup that the entry there names: two
requests more, whatever the history. From there, or from the anchor, it reads every slot up to the newest, at most
`PARALLEL` at once, and then looks at the next slots until one is missing: that is the tip. `refresh` looks from where
it stands. Canonical entries go to the sink in order, each once, their records not decoded.

Heads alone are fetched, never a body: so many of an entry's first bytes as the heads seen lately had, and the rest of a
longer head with a second request.

Rules:
- Readers never pass a gap. A slot that is missing below the newest name is a gap only if nobody had acknowledged it:
  an entry behind it that says so (`acked`) makes it a lost object, which is Corrupt, for whoever took it for the tip
  would fill it anew.
- A writer may have several entries in flight (`alpha` says how many), so some may stand behind a gap. Nothing here
  goes by them: who fills the gap decides whether they count.
- Whoever wants the log from a rollup on says so (`on_rollup`), and is told which it is before the sink gets anything;
  everybody else is given all of it. The newest entry may be void, and the rollup that it names is right all the same:
  that covers acknowledged slots alone, which are the same for everyone.
- The newest entry is read before its turn, and judged in its turn. If it is damaged, the one before it says where to
  begin; if that says nothing, the log is read from its beginning. So all that stands before the damage is handed on. A
  rollup that was named and is damaged or missing is Corrupt.
- What was read once must go on standing. A look that finds nothing behind the tip finds out whether the tip itself
  stands as it was read, by its first bytes, in the same round trip: create-if-absent forgets names that were deleted,
  so that others would write that slot anew, under LSNs that were acknowledged. Whoever has read the entry says Corrupt
  then, until it is put back, and appends nothing. A glance, for whoever looks every second, leaves that out.
- `refresh` sees everything that stood when it was called. Callers that come while one is under way share the next, not
  that one: it may have looked before they came.
- No answer about a slot is gone by unless it is certain that the slot was never deleted (boundary.py). After a long
  pause the boundary is looked for together with the tip; if it has passed by, this reading ends.
- All that moves the chain holds `lock`: a refresh, or a writer with an entry in flight. Between two awaits the chain
  and what the sink was given agree, so a cancelled call leaves both as they were after some entry, and `open` goes on
  from there.
- Where they might not agree, since the sink failed half-way or a writer met what should not be, this reading of the log
  `end`s: nothing is read or written through it any more, and the log is opened anew by another reader. That ends no
  other log, and not the process. What is wrong with one stream's records is no business of this file (streams.py).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import anyio

from ...volume.entry import Entry, entry_key, parse_entry, slot_of
from ...volume.envelope import START_BYTES, head_length
from ...volume.errors import BadInput, BudwoodError, Corrupt, NotFound, Unavailable, Unsupported
from ...volume.records import Record, StreamRecords
from ...volume.rollup import Rollup, parse_rollup, rollup_key, slot_of_rollup
from ..store.protocol import Store
from ..store.retrying import PATIENT, Patience, get_retried, retried
from ..store.root import GC_INTERVAL_SECONDS
from .boundary import OVER, BoundaryWatch, LogIsOver
from .chain import Chain, Verdict, slot_covered_by, slot_named_by

PARALLEL: Final = 16
"""Slots read at once."""

FIRST_HEAD_BYTES: Final = 1024
MOST_HEAD_BYTES: Final = 64 << 10
"""How much of an entry is asked for at once: to begin with, and at most."""

LONG_TAIL: Final = 64
"""Slots behind the rollup that was named: with so many a newer one may stand, though nobody has named it."""

_logger: Final = logging.getLogger(__name__)


class Canonical(NamedTuple):
    """An entry that counts, without its body."""

    key: str
    slot: int
    size: int
    """The whole object's, in bytes."""
    streams: dict[str, StreamRecords]
    """By the id of their stream."""
    decoded: dict[str, tuple[Record, ...]]
    """The same, of an entry that was written here; else nothing."""


Sink = Callable[[Canonical], None]


class LogReader:
    """One log, from its anchor or a rollup to where this process has read it. Belongs to one event loop.

    `on_rollup` is told name and contents of the rollup that the log is read from; without it the log is read from its
    anchor. `on_named` is told each name that an entry gives of another rollup than is known.
    """

    def __init__(
        self,
        store: Store,
        log: str,
        sink: Sink,
        *,
        gc_interval_seconds: float = GC_INTERVAL_SECONDS,
        patience: Patience = PATIENT,
        on_end: Callable[[], None] = lambda: None,
        on_rollup: Callable[[str, Rollup], None] | None = None,
        on_named: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.store = store
        self.log = log
        self.chain = Chain(log=log)
        self.boundary = BoundaryWatch(store, log, gc_interval_seconds, patience)
        self.lock = anyio.Lock()
        self.ended: Unavailable | None = None
        """What to tell whoever still comes here after the end; `on_end` was called then."""
        self.rollup = ""
        """The newest that is known: the log was read from it, or an entry named it."""
        self.whole_at = -math.inf
        """By the clock of the boundary: everything that stood then was read."""
        self._proposed, self._proposed_behind = "", ""
        self._sink = sink
        self._on_end = on_end
        self._on_rollup = on_rollup
        self._on_named = on_named
        self._patience = patience
        self._looks = 0
        self._last_good_look = 0
        self._last_check = 0
        """The last look that found the tip standing."""
        self._tip = b""
        """The first bytes of the last slot that was read."""
        self._tip_seen_at = -math.inf
        self._head_bytes = FIRST_HEAD_BYTES
        """How much of an entry is asked for at first: somewhat more than the heads seen lately had."""
        self._fetched_bytes = 0
        """Of heads, so far."""
        self._ahead: dict[int, Entry] = {}
        """While the log is opened: what was read before its turn, by slot."""
        self._ahead_at = -math.inf

    def end(self, error: Exception) -> None:
        """What was read and written here can't be relied upon any more. Said once, with the cause."""
        if self.ended is None:
            if isinstance(error, LogIsOver):
                _logger.info("%s", error)
            else:
                _logger.error("log %s ends here, and is opened anew", self.log, exc_info=error)
            words = str(error) if isinstance(error, BudwoodError) else repr(error)
            self.ended = Unavailable(f"log {self.log} ended ({words}) and is opened anew: try again")
            self._on_end()

    async def open(self) -> None:
        """Read everything that stands; again, if an earlier call was cut off. Raises Corrupt, Unsupported, LogIsOver,
        Unavailable."""
        async with self.lock:
            anew = not self.chain.next
            try:
                newest = await self._begin()
                while self.chain.next <= newest:
                    if not await self._read_span(min(newest + 1 - self.chain.next, PARALLEL), newest):
                        break
            finally:
                self._ahead.clear()
            # A tip that was read just now needs no second look.
            await self.look(glance=anew)

    async def refresh(self, *, glance: bool = False) -> None:
        """Read what was appended since; everything that stood when this was called is read when it returns, and but
        for a `glance` its tip was seen standing. Raises Corrupt if that is gone."""
        mine = self._looks + 1
        async with self.lock:
            if self._last_good_look < mine:
                await self.look(glance=glance)
            elif not glance and self._last_check < mine:
                await self.check_tip()

    async def catch_up(self, entries: int, size_bytes: int) -> bool:
        """As a glance, for whoever follows the log beside other work: at most so many entries, and no more once their
        heads took so many bytes. Whether that was all. Raises as `refresh`."""
        async with self.lock:
            if self.ended is not None:
                raise self.ended.with_traceback(None)
            look, first, fetched, width = self.begin_look(), self.chain.next, self._fetched_bytes, 1
            while await self._read_span(width):
                left = entries - (self.chain.next - first)
                if left <= 0 or self._fetched_bytes - fetched >= size_bytes:
                    return False
                width = min(2 * width, PARALLEL, left)
            self.end_look(look, checked=False)
            return True

    async def look(self, *, glance: bool = False) -> None:
        """`refresh`, for whoever holds the lock."""
        if self.ended is not None:
            raise self.ended.with_traceback(None)
        look, width, standing = self.begin_look(), 1, self.chain.next
        gone: Corrupt | None = None

        async def check() -> None:
            nonlocal gone
            try:
                await self.check_tip()
            except Corrupt as error:
                gone = error

        while await self._read_span(width, also=() if glance or self.chain.next > standing else (check,)):
            width = min(2 * width, PARALLEL)
        # What stands behind the tip has told already whether that is the one it follows.
        if gone is not None and self.chain.next == standing:
            raise gone
        self.end_look(look, checked=not glance)

    async def check_tip(self, within_seconds: float = 0.0) -> None:
        """Raises Corrupt unless the last slot that was read stands as it was; not looked for again if it was seen
        standing within that time. And `be_sure`, at the same time."""
        seen = not self._tip or self._patience.now() - self._tip_seen_at < within_seconds
        calls = [] if seen else [self._look_for_tip]
        if self.boundary.stale:
            calls.append(self.be_sure)
        await _all_of(calls)

    async def be_sure(self) -> None:
        """Whoever holds the lock was answered about slot `next`, or is about to ask. Ends this reading, and raises that
        as Unavailable, if the slot may have been deleted; as LogIsOver, if that is so."""
        if self.boundary.stale:
            await self._check_boundary()

    async def _check_boundary(self) -> None:
        asked_at = self.boundary.now()
        first = await self.boundary.read()
        if first == OVER:
            over = self.boundary.refuse(first)
            self.end(over)
            raise over
        if first > self.chain.next:
            self.end(
                Unavailable(f"it was collected up to slot {first}, and was read here up to slot {self.chain.next}")
            )
            assert self.ended is not None
            raise self.ended.with_traceback(None)
        self.boundary.clear(asked_at)

    async def _look_for_tip(self) -> None:
        key = entry_key(self.log, self.chain.next - 1)
        try:
            stands = await get_retried(self.store, key, end=START_BYTES, patience=self._patience)
        except NotFound:
            await self._check_boundary()
            words = "it was read here and is gone: put it back, since what was acknowledged with it is lost without it"
            raise Corrupt(key, words) from None
        if stands != self._tip:
            await self._check_boundary()
            raise Corrupt(key, "it is another one than was read here: the log was cut off before it and written anew")
        self._tip_seen_at = self._patience.now()

    def propose(self, rollup: str, previous: str) -> None:
        """An entry of this process may name that rollup, which was made from `previous`."""
        self._proposed, self._proposed_behind = rollup, previous

    @property
    def to_name(self) -> str:
        """What this process's next entry names, where none is in flight."""
        return self.to_name_behind(self.chain.rollup)

    def to_name_behind(self, named: str) -> str:
        """What it names behind an entry that names that rollup: "" where another was named than the proposed one was
        made from, so that each that is named was made from the one named before."""
        return self._proposed if self._proposed and self._proposed_behind == named else ""

    def begin_look(self) -> int:
        """The holder of the lock is about to find out what stands in the next slot: a create does that too."""
        self._looks += 1
        return self._looks

    def was_whole(self, at: float) -> None:
        """Everything that stood at that time was read."""
        self.boundary.clear(at)
        self.whole_at = max(self.whole_at, at)

    def end_look(self, look: int, *, checked: bool = True) -> None:
        """Everything that stood when `look` began was read, and the tip seen standing."""
        self._last_good_look = look
        if checked:
            self._last_check = look

    def take(
        self,
        entry: Entry,
        records: dict[str, tuple[Record, ...]] | None = None,
        made: tuple[Chain, Chain] | None = None,
    ) -> Verdict:
        """The entry in the next slot, which is known to be durable. Needs the lock; `records`, of whoever wrote them,
        saves decoding them, and so does the chain that they `made` it from, and made of it, judging it again."""
        if made is not None and made[0] is self.chain:
            verdict, behind = Verdict.CANONICAL, made[1]
        else:
            verdict = self.chain.judge(entry)
            behind = self.chain.past(entry) if verdict is Verdict.CANONICAL else self.chain.past_void(entry)
        if verdict is Verdict.VOID:
            self.chain = behind
            self._stood(entry)
            return verdict
        named = self.chain.rollup
        try:
            self._sink(Canonical(entry.key, entry.header.i, entry.size, entry.header.streams, records or {}))
        except Exception as error:
            self.end(error)
            raise
        self.chain = behind
        self._stood(entry)
        if behind.rollup not in {named, self.rollup}:
            if slot_covered_by(behind.rollup) > slot_covered_by(self.rollup):
                self.rollup = behind.rollup
            self._on_named(behind.rollup)
        return verdict

    def _stood(self, entry: Entry) -> None:
        self._tip = entry.start
        self._tip_seen_at = self._ahead_at if entry.header.i in self._ahead else self._patience.now()

    async def _begin(self) -> int:
        """The slot that the newest name says, or -1. One LIST of one key says that, and that there is no boundary: one
        would sort before all else that a log has. Who has read nothing yet begins behind a rollup, if there is one.
        Raises Unsupported where that doesn't reach up to the boundary, LogIsOver."""
        anew, asked_at, first = not self.chain.next, self.boundary.now(), 0
        key = await self._first_key(f"logs/{self.log}/")
        if key.startswith(f"logs/{self.log}/boundary/"):
            first = await self.boundary.at(key)
            if first == OVER and anew:
                raise self.boundary.refuse(first)
            key = await self._first_key(f"logs/{self.log}/entries/")
        newest = self._slot_of(key)
        if anew and self._on_rollup is not None:
            await self._begin_behind_rollup(newest, self._on_rollup)
        if first > self.chain.next:
            if not anew:
                # It was collected since this reading began.
                await self._check_boundary()
            raise self.boundary.refuse(first)
        self.boundary.clear(asked_at)
        return newest

    def _slot_of(self, key: str) -> int:
        if not key.startswith(f"logs/{self.log}/entries/"):
            return -1
        try:
            return slot_of(key)
        except BadInput as error:
            raise Corrupt(key, "it stands among the entries of a log and is none") from error

    async def _begin_behind_rollup(self, newest: int, on_rollup: Callable[[str, Rollup], None]) -> None:
        name = await self._rollup_named_at(newest)
        if name is None:
            name = await self._rollup_named_at(newest - 1)
        found = await self._written_behind(name or "", newest)
        if found is None and not name:
            return
        name, rollup = found or (name or "", await read_rollup(self.store, self.log, name or "", self._patience))
        self.chain, self.rollup = Chain.behind(rollup), name
        if found is not None:
            self.propose(name, rollup.previous)
        try:
            on_rollup(name, rollup)
        except Exception as error:
            self.end(error)
            raise

    async def _written_behind(self, named: str, newest: int) -> tuple[str, Rollup] | None:
        """The newest rollup that nobody has named yet, if so much came since the named one that it is worth a look:
        whoever wrote it may have ended before its next entry. It counts if it was made from that one, and the log
        stands as it says."""
        first = slot_covered_by(named) + 1
        if newest - first < LONG_TAIL:
            return None
        prefix = rollup_key(self.log, "")
        start = f"{prefix}{first:016x}"
        keys = await retried(f"list {prefix}", lambda: self.store.list(prefix, start=start), self._patience)
        for key in reversed(keys):
            name = key.removeprefix(prefix)
            try:
                if not first <= slot_of_rollup(name) < newest:
                    continue
                rollup = await read_rollup(self.store, self.log, name, self._patience)
                entry = await self._read(rollup.canonical)
            except (BadInput, Corrupt, Unsupported):
                continue
            if (
                rollup.previous == named
                and entry is not None
                and (entry.digest, entry.header.total) == (rollup.digest, rollup.total)
            ):
                return name, rollup
        return None

    async def _rollup_named_at(self, slot: int) -> str | None:
        """The rollup that the entry in that slot names, or ""; None if the entry can't be read, or what it names is
        none: what is wrong with it is said in its turn, if it counts."""
        if slot <= 0:
            return ""
        self._ahead_at = self._patience.now()
        try:
            entry = await self._read(slot)
            if entry is None:
                return None
            slot_named_by(entry)
        except (Corrupt, Unsupported):
            return None
        self._ahead[slot] = entry
        return entry.header.rollup

    async def _first_key(self, prefix: str) -> str:
        keys = await retried(f"list {prefix}", lambda: self.store.list(prefix, limit=1), self._patience)
        return keys[0] if keys else ""

    async def _read_span(
        self, width: int, newest: int = -1, also: Sequence[Callable[[], Awaitable[None]]] = ()
    ) -> bool:
        """Read the next `width` slots at once, up to the first that is missing; whether none was. `also` is done at the
        same time."""
        first, asked_at = self.chain.next, self.boundary.now()
        found: list[Entry | None] = [None] * width

        async def read(offset: int) -> None:
            found[offset] = await self._read(first + offset)

        if width == 1 and not also:
            await read(0)
        else:
            await _all_of([*also, *(partial(read, offset) for offset in range(width))])
        await self.be_sure()
        for entry in found:
            if entry is None:
                await self._check_gap(self.chain.next, [other for other in found if other is not None], newest)
                self.was_whole(asked_at)
                return False
            self.take(entry)
        return True

    async def _read(self, slot: int) -> Entry | None:
        if slot in self._ahead:
            return self._ahead[slot]
        key = entry_key(self.log, slot)
        get = partial(get_retried, self.store, key, patience=self._patience)
        asked = self._head_bytes
        try:
            data = await get(end=asked)
            size = head_length(data)
            if size > len(data) == asked:
                data += await get(start=len(data), end=size)
        except NotFound:
            return None
        self._fetched_bytes += len(data)
        entry = parse_entry(key, data)
        # A small one among others, as a fence is, makes none of those that follow cost two requests.
        self._head_bytes = min(max(size + size // 8, self._head_bytes * 31 // 32), MOST_HEAD_BYTES)
        return entry

    async def _check_gap(self, missing: int, behind: list[Entry], newest: int) -> None:
        """Raises Corrupt if someone has acknowledged the missing slot, and it still is missing after that was seen."""
        if newest > missing and not behind:
            last = await self._read(newest)
            behind = [] if last is None else [last]
        acknowledged = any(entry.header.i > missing and entry.header.acked >= missing for entry in behind)
        if acknowledged and await self._read(missing) is None:
            raise Corrupt(entry_key(self.log, missing), "the entry is missing, though later ones build on it")


async def read_rollup(store: Store, log: str, name: str, patience: Patience = PATIENT) -> Rollup:
    """The rollup of that name, which an entry names. Raises Corrupt, if it is missing too; Unsupported, Unavailable."""
    key = rollup_key(log, name)
    try:
        data = await get_retried(store, key, patience=patience)
    except NotFound as error:
        raise Corrupt(key, "the rollup is missing, though an entry names it") from error
    return parse_rollup(log, name, data)


async def _all_of(calls: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """All at once. The first error stops the others and is raised as it is, not in a group."""
    errors: list[Exception] = []

    async def run(call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except Exception as error:
            errors.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(run, call)
    if errors:
        raise errors[0]

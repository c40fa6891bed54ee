"""Writer: appends entries to a log, several in flight, many submissions in each (DESIGN §4, rules 2, 3, 5, 7, 8).

The same loop serves both kinds of log. In a private one, epoch 0, any process appends; a slot lost to another is
read, applied, and the batch judged again. In a shared one the owner appends under its epoch, and whoever fences it
has deposed it.

    submit → waiting → admitted to a draft → sealed → sent → canonical → applied → acknowledged

Rules:
- Batches form by themselves: at once when idle; while entries are in flight the next collects for a window, or
  up to `BATCH_BYTES` of inline pages. So 20 ms make 50 creates a second, for all volumes of the log together.
- Up to alpha entries are in flight in a shared log (rule 3; S0.3). Each is made from the chain behind the one before
  it and judged on what that comes to, so it counts if they all do. In a private log it is one: others append there.
- A submission is acknowledged only after its entry is durable, canonical, and applied: every slot before it was read
  or written here. So entries are acknowledged in their order, whichever the store answers first.
- (slot, writer, n) is bound to exact bytes. An entry whose create may or may not have happened is `unsettled`, and so
  are those that were sent behind it: their submissions fail as indeterminate, and the same bytes go to the same slots
  before anything else is sent.
- Whoever loses a slot to an older epoch waits for what is in flight behind it (S0.32): that is void, since its n does
  not follow. All of it is judged again, and the next entry goes alone until one is canonical.
- Judgement is sequential, on the acknowledged state and what drafts hold already. Whoever is refused because of
  something in a draft waits, and is judged again when that has landed or was lost. Whoever is refused by state that
  may be stale is judged again after a look at the log.
- Whoever can't be judged for want of something that isn't in memory steps aside while that is loaded, and then comes
  first. Loads run beside each other and beside the entries, without the reader's lock, so that nobody else waits for
  one; what a load meets is told to its own submission alone. How often one may ask for a load is the draft's business.
- Nothing more is sent while anyone else waits for the reader's lock, which is theirs once what is in flight has landed;
  nor behind an entry that acknowledges a garbage plan, which everything after it is judged on.
- An entry names the newest rollup that is known (rule 9): the one that was named last, or one that was made from it
  and that nobody has named yet.
- Nothing is appended behind an entry that is gone: after a pause the tip is looked for first, and after a long one the
  boundary, in the same round trip (reader.py). Whoever slept while its entry was on its way looks for it afterwards.
- A *guest* is a process that can't reach the owner, and has one stream closed or opened: under the owner's epoch, whose
  writer it gives as its own, one entry at a time, with a number that the owner has used (chain.py). It deposes nobody:
  the owner, which had sent an entry for that slot, finds the guest's there, reads it, and judges again what it had
  judged. So it acknowledges nothing for that stream behind a close, and all else as before.
- The work runs in the log's own task. A caller that is cancelled stops waiting, and nothing else.
- An error that nobody foresaw ends this term on this log (reader.py), and no other, nor the process: all who wait are
  told, as indeterminate where their entry may have been sent, and the log is opened anew by whoever comes next.

Crash windows (each a fault point): log: entry sealed, not sent · log: entry durable, not acknowledged · log: fence
durable, not open · log: entry durable, boundary not read · log: anchor durable, log empty.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from ...volume import faults
from ...volume.entry import EntryHeader, entry_key, parse_entry
from ...volume.errors import (
    BudwoodError,
    Corrupt,
    Full,
    NotFound,
    NotOwner,
    Overloaded,
    StoreError,
    Unauthorized,
    Unavailable,
    UsageError,
)
from ..in_thread import in_thread
from ..store.retrying import PATIENT, Patience, create_settled
from .chain import GUEST, Verdict
from .in_flight import Flight, InFlight, Landed, Load, Sent, may_stand
from .reader import LogReader
from .submission import Draft, Submission
from .term import PRIVATE, Term, not_owner
from .waiting import Batching, Waiting

QUEUE_BYTES: Final = 64 << 20
"""Inline pages that may wait (S3.28); whoever comes then is asked to try again."""

_FEW_FRAGMENTS: Final = 500
"""An entry that names more is put together in a thread: the most take tens of milliseconds."""

PRIVATE_TIP_SECONDS: Final = 0.2
SHARED_TIP_SECONDS: Final = 10.0
"""Nothing is appended behind an entry that wasn't seen standing for so long: in a private log others may have written
anew what was deleted, in a shared one nobody may."""

_SEALED: Final = faults.point("log: entry sealed, not sent")
_DURABLE: Final = faults.point("log: entry durable, not acknowledged")
_FENCE_DURABLE: Final = faults.point("log: fence durable, not open")
_UNSURE: Final = faults.point("log: entry durable, boundary not read")
_ANCHOR_DURABLE: Final = faults.point("log: anchor durable, log empty")

_PASSING: Final = (Unavailable, Full, Unauthorized)
"""What the store may say to any request; the log itself is none the worse."""

_BATCHING: Final = Batching()
_logger = logging.getLogger(__name__)


class LogWriter:
    """Appends to the log that `reader` follows. `start` runs the writer's work in tasks of the log's own; `stood` is
    called when an entry was acknowledged, and `seed` is given its key and bytes."""

    def __init__(
        self,
        reader: LogReader,
        term: Term,
        *,
        draft: Callable[[int, Sequence[Any]], Draft],
        now_ms: Callable[[], int],
        start: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
        seed: Callable[[str, bytes], Awaitable[None]],
        stood: Callable[[list[str]], None] = lambda _: None,
        landed: Callable[[Landed], None] = lambda _: None,
        patience: Patience = PATIENT,
        batching: Batching = _BATCHING,
        guest: bool = False,
    ) -> None:
        """`draft` makes an entry's, judged on what those before it in flight come to. A `guest` appends under the
        owner's own term. `landed` is told what an acknowledged entry came to."""
        self.reader = reader
        self.term = term
        self.halted: Exception | None = None
        """Why nothing can be appended any more. NotOwner: deposed."""
        self._draft = draft
        self._now_ms = now_ms
        self._start = start
        self._seed = seed
        self._stood = stood
        self._landed = landed
        self._patience = patience
        self._waiting = Waiting(self._begin_load)
        self._kind = GUEST if guest else "data"
        batching = batching if term.epoch != PRIVATE and not guest else batching._replace(alpha=1)
        self._in_flight = InFlight(reader, self._waiting, batching, patience, most_seconds=SHARED_TIP_SECONDS)
        self._running = False
        self._judged: list[Submission] = []
        """By a draft that was not sent yet."""
        self._unsettled: deque[Sent] = deque()

    @property
    def log(self) -> str:
        return self.reader.log

    @property
    def _flights(self) -> deque[Flight]:
        return self._in_flight.flights

    @property
    def load(self) -> Load:
        return Load(len(self._waiting), self._waiting.inline_bytes, len(self._flights))

    @property
    def unsettled(self) -> bool:
        """Whether an entry may stand in the store that nothing is known of: `settle` finds out."""
        return bool(self._unsettled or self._flights)

    @property
    def deposed(self) -> bool:
        """Whether a newer epoch was seen in the log."""
        return self.reader.chain.epoch > self.term.epoch

    async def fence(self) -> None:
        """Make this term's first entry: with it everyone of an older epoch is deposed. Raises NotOwner if a newer one
        was quicker."""
        async with self.reader.lock:
            await self._anchor()
            await self.reader.look()
            while self.reader.chain.n < 0 or self.reader.chain.epoch != self.term.epoch:
                await self._check_owner()
                chain = self.reader.chain
                header = chain.header(
                    epoch=self.term.epoch,
                    writer=self.term.writer,
                    kind="fence",
                    alpha=self._in_flight.alpha,
                    rollup=self.reader.to_name,
                    time=self._now_ms(),
                )
                if await self._create(Sent.of(header)):
                    _FENCE_DURABLE()

    async def anchor(self) -> None:
        """Make slot 0, where the log has none."""
        async with self.reader.lock:
            await self._anchor()

    async def submit(self, submission: Submission) -> Any:
        """Its answer, once its entry is durable, canonical and applied.

        Raises what it was refused with; Overloaded if too much waits already; NotOwner once deposed; Unavailable and
        other store errors, whose `determinate` says whether it may have happened. Cancelling the call takes nothing
        back.
        """
        ended = self.halted or self.reader.ended
        if ended is not None:
            raise ended.with_traceback(None)
        waiting = self._waiting
        if waiting.inline_bytes and waiting.inline_bytes + submission.inline_bytes > QUEUE_BYTES:
            words = f"{waiting.inline_bytes:,} bytes of pages wait to be written already, of {QUEUE_BYTES:,} at most"
            raise Overloaded(f"log {self.log} is full: {words}: try again in a moment", reason="queue")
        self._run()
        waiting.append(submission)
        self._in_flight.tell()
        return await submission.wait()

    async def settle(self) -> None:
        """Find out what became of entries whose answer was lost, if there are any. Raises Unavailable."""
        if self.unsettled:
            async with self.reader.lock:
                await self._settle()

    def _run(self) -> None:
        if not self._running:
            self._start(self._drain)
            self._running = True

    async def _drain(self) -> None:
        try:
            while self._waiting:
                async with self.reader.lock:
                    if self.reader.ended is not None:
                        self._fail(self._waiting.take_all(), self.reader.ended)
                    else:
                        await self._turn()
        except Exception as error:
            self._fail_all(error)
        except BaseException as error:
            # A crash of this task: nobody may wait for ever, and whether the entries landed is not known.
            words = f"the writer of log {self.log} stopped: {error!r}"
            self._give_up(Unavailable(words, determinate=False), Unavailable(words, determinate=False))
            self._fail(self._waiting.take_all(), Unavailable(words))
            raise
        finally:
            self._running = False

    async def _turn(self) -> None:
        """Entries for those who wait, until none is in flight any more; or a look at the log, or answers alone."""
        try:
            await self._anchor()
            await self._settle()
            await self._check_owner()
            await self.reader.check_tip(SHARED_TIP_SECONDS if self.term.epoch != PRIVATE else PRIVATE_TIP_SECONDS)
        except _PASSING as error:
            # None of these was ever sent.
            self._fail(self._waiting.take_all(), _not_sent(error))
            return
        looking: list[Submission] = []
        cut: faults.Cut | None = None
        async with anyio.create_task_group() as tasks:
            try:
                looking = await self._send(tasks)
                while self._flights:
                    await self._in_flight.wait()
                    await self._land()
                    if self._flights:
                        await self._send(tasks)
            except Exception as error:
                self._fail_all(error)
                looking = []
                tasks.cancel_scope.cancel()
            except faults.Cut as error:
                # As it is, not in a group.
                cut = error
                tasks.cancel_scope.cancel()
        if cut is not None:
            raise cut
        if looking:
            await self._look(looking)

    async def _send(self, tasks: TaskGroup) -> list[Submission]:
        """As many entries as may be sent by now. Returned is who needs a look at the log, where none could be."""
        while self._in_flight.may_send():
            draft = self._draft(self._now_ms(), [flight.draft for flight in self._flights])
            self._judged = []
            looking = self._waiting.admit(draft, self._judged)
            if not self._judged:
                return looking
            flight = await self._seal(draft, looking)
            _SEALED()
            self._in_flight.send(flight, tasks)
            self._judged = []
        return []

    async def _seal(self, draft: Draft, looking: list[Submission]) -> Flight:
        contents = draft.finish()
        before = self._in_flight.behind
        header = before.header(
            epoch=self.term.epoch,
            writer=self.term.writer,
            kind=self._kind,
            alpha=self._in_flight.alpha,
            acked=self.reader.chain.next - 1,
            streams=contents.streams,
            fragments=contents.fragments,
            rollup=self.reader.to_name_behind(before.rollup) if self._kind != GUEST else "",
            garbage=contents.garbage,
            fragments_since=contents.fragments_since,
            time=self._now_ms(),
        )
        seal = partial(Sent.of, header, contents.body, contents.records)
        sent = await in_thread(seal) if len(contents.fragments) > _FEW_FRAGMENTS else seal()
        return Flight(
            sent,
            draft,
            contents.body,
            [*contents.streams],
            self._judged,
            looking,
            before,
            before.past(sent.entry),
            look=self.reader.begin_look(),
            asked_at=self.reader.boundary.now(),
            sent_at=self._patience.now(),
            barrier=bool(contents.garbage),
        )

    async def _land(self) -> None:
        """Acknowledge those that have landed, up to the first that nothing is known of."""
        while self._flights and self._flights[0].done:
            flight = self._flights[0]
            if flight.error is None:
                try:
                    await self._be_sure()
                except _PASSING as error:
                    flight.error = error
            if flight.error is not None:
                await self._in_flight.all_done()
                self._leave_unsettled(flight.error)
            elif flight.found is not None:
                await self._in_flight.all_done()
                self._judge_again()
            else:
                verdict = self.reader.take(flight.sent.entry, flight.sent.records, (flight.before, flight.behind))
                # Every earlier slot was read or written here, and none held a newer epoch, or it would not be next.
                assert verdict is Verdict.CANONICAL, f"{flight.sent.entry.key} was sent and is void"
                self.reader.end_look(flight.look)
                self.reader.was_whole(flight.asked_at)
                _DURABLE()
                await self._acknowledge(self._flights.popleft())

    async def _acknowledge(self, flight: Flight) -> None:
        self._in_flight.alone = False
        self._waiting.to_judge = True
        flight.draft.acknowledge()
        for submission in flight.looking:
            submission.looked = True
        self._stood(flight.streams)
        seconds = self._patience.now() - flight.sent_at
        self._landed(Landed(len(flight.taken), len(flight.sent.data), seconds))
        if flight.body:
            await self._seed(flight.sent.entry.key, flight.sent.data)

    def _leave_unsettled(self, error: Exception) -> None:
        """Nobody knows of the oldest in flight whether it stands, and so not of those that were sent behind it. The
        last ones may certainly not have been sent."""
        if not isinstance(error, _PASSING):
            raise error
        while self._flights and (last := self._flights[-1]).error is not None and not may_stand(last.error):
            self._fail(last.taken, last.error)
            self._flights.pop()
        self._unsettled.extend(flight.sent for flight in self._flights)
        for flight in self._flights:
            self._fail(flight.taken, error if may_stand(error) else _not_known(error))
        self._flights.clear()

    def _judge_again(self) -> None:
        """Another's entry stands where the oldest in flight was to be: those behind it are void, wherever they stand,
        and their slots are read as far as it is known what stands there."""
        known = list(takewhile(lambda flight: flight.error is None, self._flights))
        # What is damaged there may be the very entry that was sent, so that nobody is told yet that it was lost.
        stand = [
            flight.sent.entry if flight.found is None else parse_entry(flight.sent.entry.key, flight.found)
            for flight in known
        ]
        self._waiting.put_back(submission for flight in self._flights for submission in flight.taken)
        self._flights.clear()
        self._in_flight.alone = True
        for flight, entry in zip(known, stand, strict=True):
            verdict = self.reader.take(entry)
            assert flight.found is not None or verdict is Verdict.VOID, f"{entry.key} was lost before, and counts"

    async def _look(self, looking: list[Submission]) -> None:
        try:
            await self.reader.look()
        except _PASSING as error:
            for submission in looking:
                self._waiting.remove(submission)
            self._fail(looking, _not_sent(error))
        else:
            for submission in looking:
                submission.looked = True

    def _begin_load(self, submission: Submission) -> None:
        try:
            self._start(partial(self._load, submission))
        except Unavailable as error:
            # The process is about to end.
            submission.fail(error)
        else:
            self._waiting.begin_load(submission)

    async def _load(self, submission: Submission) -> None:
        """Load what judging it needs, and have it judged again, before those who came meanwhile."""
        try:
            await submission.load()
            ended = self.halted or self.reader.ended
            if ended is not None:
                raise ended.with_traceback(None)
            self._run()
        except _PASSING as error:
            submission.fail(_not_sent(error))
        except BudwoodError as error:
            submission.fail(error)
        except Exception as error:
            _logger.exception("log %s: what judging a change needs can't be loaded", self.log)
            words = f"what judging a change needs can't be loaded ({error!r}): the node's log says more"
            submission.fail(Unavailable(words))
        except BaseException as error:
            submission.fail(Unavailable(f"the writer of log {self.log} stopped: {error!r}"))
            raise
        else:
            self._waiting.put_back([submission])
            self._in_flight.tell()
        finally:
            self._waiting.end_load(submission)

    async def _create(self, sent: Sent) -> bool:
        """One entry alone: whether it stands, canonical and applied; if another stands in its slot, that was read
        instead."""
        again = bool(self._unsettled) and self._unsettled[0] is sent
        if not again:
            self._unsettled = deque([sent])
        key, look, asked_at = sent.entry.key, self.reader.begin_look(), self.reader.boundary.now()
        try:
            found = await create_settled(self.reader.store, key, sent.data, self._patience)
        except NotFound as error:
            raise Unavailable(str(error), determinate=False) from error
        except _PASSING as error:
            if not again and not may_stand(error):
                self._unsettled.clear()
            raise
        await self._be_sure()
        if found is not None:
            self._unsettled.popleft()
            self.reader.take(parse_entry(key, found))
            return False
        verdict = self.reader.take(sent.entry, sent.records)
        # Only now: if taking it fails, it stands all the same, and whoever waits for it must not hear otherwise.
        self._unsettled.popleft()
        # Every earlier slot was read or written here, and none held a newer epoch, or this would not have been sent.
        assert verdict is Verdict.CANONICAL, f"{key} was sent and is void"
        if not again:
            # An entry that was sent before may have stood for long, and others behind it: that says nothing of the tip.
            self.reader.end_look(look)
            self.reader.was_whole(asked_at)
        return True

    async def _be_sure(self) -> None:
        """What stands in the slot now goes for nothing, if the slot was deleted before."""
        if self.reader.boundary.stale:
            _UNSURE()
            try:
                await self.reader.be_sure()
            except _PASSING as error:
                raise Unavailable(str(error), determinate=False) from error

    async def _settle(self) -> None:
        """What became of the entries whose answer was lost: the same bytes, to the same slots."""
        while self._unsettled:
            sent, chain = self._unsettled[0], self.reader.chain
            if chain.next > sent.entry.header.i:
                # A look at the log has read that slot meanwhile, whosever entry it was.
                self._unsettled.popleft()
            elif sent.entry.header.previous_digest != chain.digest:
                # One before it was lost: it is void, wherever it stands, and so are those behind it.
                self._unsettled.clear()
            else:
                await self._create(sent)

    async def _anchor(self) -> None:
        if not self.reader.chain.next:
            header = EntryHeader(
                log=self.log, i=0, epoch=PRIVATE, writer=self.term.writer, n=0, kind="anchor", time=self._now_ms()
            )
            if await self._create(Sent.of(header)):
                _ANCHOR_DURABLE()

    async def _check_owner(self) -> None:
        """Raises NotOwner if a newer epoch stands in the log, Corrupt if another writer has this one."""
        chain = self.reader.chain
        if chain.epoch > self.term.epoch:
            raise await not_owner(self.reader.store, self.log, chain.epoch, patience=self._patience)
        if chain.epoch == self.term.epoch != PRIVATE and chain.writer != self.term.writer:
            what = f"two writers share epoch {chain.epoch}: stop both, and look at the log"
            raise Corrupt(entry_key(self.log, chain.slot), what)

    def _fail_all(self, error: Exception) -> None:
        """Tell everyone of an error that is no passing one of the store's."""
        if isinstance(error, UsageError | Corrupt):
            # Deposed; or an entry that is damaged, or a newer program's; or a store that refuses the request itself.
            # That ends the work on this log, and must not end the process, which serves others.
            self._unsettled.extend(flight.sent for flight in self._flights)
            self._stop(error)
            self._give_up(error, _not_known(error))
        else:
            self.reader.end(error)
            words = f"the writer of log {self.log} failed ({error!r}): the log is opened anew"
            self._give_up(Unavailable(words), Unavailable(words, determinate=False))
            self._fail(self._waiting.take_all(), Unavailable(words))

    def _stop(self, error: Exception) -> None:
        """Everyone who waits is told. Damage may be mended, so that the next submission looks again; deposed is
        deposed."""
        if isinstance(error, NotOwner):
            self.halted = error
        if self.reader.ended is None:
            _logger.error("log %s: %s", self.log, error)
        self._fail(self._waiting.take_all(), error)

    def _give_up(self, unsent: Exception, sent: Exception) -> None:
        """Tell those who were judged, and those whose entries were sent."""
        self._fail(self._judged, unsent)
        self._judged = []
        for flight in self._flights:
            self._fail(flight.taken, sent)
        self._flights.clear()

    def _fail(self, submissions: Iterable[Submission], error: Exception) -> None:
        for submission in submissions:
            submission.fail(error)


def _not_known(error: Exception) -> Exception:
    """What to tell those whose entry may have landed before this was met."""
    return Unavailable(str(error), determinate=False)


def _not_sent(error: Exception) -> Exception:
    """What to tell those of whom nothing was sent when this was met."""
    return Unavailable(str(error)) if isinstance(error, StoreError) else error

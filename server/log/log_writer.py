"""Writer: appends entries to a log, one in flight, many submissions in each (DESIGN §4, rules 2, 3, 5, 7, 8).

The same loop serves both kinds of log. In a private one, epoch 0, any process appends; a slot lost to another is
read, applied, and the batch judged again. In a shared one the owner appends under its epoch, and whoever fences it
has deposed it.

    submit → queue → admitted to a draft → sealed → created → canonical → applied → acknowledged

Rules:
- Batches form by themselves: at once when idle, and while one entry is in flight the next collects, up to
  `BATCH_BYTES` of inline pages. So a store that takes 20 ms for a create gives a window of 20 ms, for all volumes of
  the log together.
- A submission is acknowledged only after its entry is durable, canonical, and applied: every slot before it was read
  or written here.
- (slot, writer, n) is bound to exact bytes. An entry whose create may or may not have happened is `unsettled`: its
  submissions fail as indeterminate, and the same bytes go to the same slot before anything else is sent.
- Judgement is sequential, on the acknowledged state and what the draft holds already. Whoever is refused because of
  something in the draft waits, and is judged again when that has landed or was lost. Whoever is refused by state that
  may be stale is judged again after a look at the log.
- Whoever can't be judged for want of something that isn't in memory steps aside while that is loaded, and then comes
  first. Loads run beside each other and beside the entries, without the reader's lock, so that nobody else waits for
  one; what a load meets is told to its own submission alone. How often one may ask for a load is the draft's business.
- An entry names the newest rollup that is known (rule 9): the one that was named last, or one that was made from it
  and that nobody has named yet.
- Nothing is appended behind an entry that is gone: after a pause the tip is looked for first, and after a long one the
  boundary, in the same round trip (reader.py). Whoever slept while its entry was on its way looks for it afterwards.
- The work runs in the log's own task. A caller that is cancelled stops waiting, and nothing else.
- An error that nobody foresaw ends this term on this log (reader.py), and no other, nor the process: all who wait are
  told, as indeterminate where their entry may have been sent, and the log is opened anew by whoever comes next.

Crash windows (each a fault point): log: entry sealed, not sent · log: entry durable, not acknowledged · log: fence
durable, not open · log: entry durable, boundary not read · log: anchor durable, log empty.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from anyio import to_thread

from ...volume import faults
from ...volume.entry import Entry, EntryHeader, entry_key, parse_entry, seal_entry
from ...volume.errors import (
    BudwoodError,
    Corrupt,
    Full,
    NotFound,
    NotOwner,
    StoreError,
    Unauthorized,
    Unavailable,
    UsageError,
)
from ..store.retrying import PATIENT, Patience, create_settled
from .chain import Verdict
from .reader import LogReader
from .submission import Admission, Draft, Records, Submission
from .term import PRIVATE, Term, not_owner

BATCH_BYTES: Final = 1 << 20
"""Inline pages of one entry; a single submission may be larger."""

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

_logger = logging.getLogger(__name__)


class _Sent(NamedTuple):
    """An entry whose bytes may be in the store."""

    entry: Entry
    data: bytes
    records: Records


class LogWriter:
    """Appends to the log that `reader` follows. `start` runs the writer's work in tasks of the log's own; `stood` is
    called when an entry was acknowledged, and `seed` is given its key and bytes."""

    def __init__(
        self,
        reader: LogReader,
        term: Term,
        *,
        draft: Callable[[int], Draft],
        now_ms: Callable[[], int],
        start: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
        seed: Callable[[str, bytes], Awaitable[None]],
        stood: Callable[[list[str]], None] = lambda _: None,
        patience: Patience = PATIENT,
    ) -> None:
        self.reader = reader
        self.term = term
        self.halted: Exception | None = None
        """Why nothing can be appended any more. NotOwner: deposed."""
        self._draft = draft
        self._now_ms = now_ms
        self._start = start
        self._seed = seed
        self._stood = stood
        self._patience = patience
        self._queue: deque[Submission] = deque()
        self._queued_bytes = 0
        """Of those, too, that are being loaded."""
        self._running = False
        self._unsettled: _Sent | None = None

    @property
    def log(self) -> str:
        return self.reader.log

    @property
    def unsettled(self) -> bool:
        """Whether an entry may stand in the store that nothing is known of: `settle` finds out."""
        return self._unsettled is not None

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
                    rollup=self.reader.to_name,
                    time=self._now_ms(),
                )
                if await self._create(_sent(header)):
                    _FENCE_DURABLE()

    async def anchor(self) -> None:
        """Make slot 0, where the log has none."""
        async with self.reader.lock:
            await self._anchor()

    async def submit(self, submission: Submission) -> Any:
        """Its answer, once its entry is durable, canonical and applied.

        Raises what it was refused with; NotOwner once deposed; Unavailable and other store errors, whose
        `determinate` says whether it may have happened. Cancelling the call takes nothing back.
        """
        ended = self.halted or self.reader.ended
        if ended is not None:
            raise ended.with_traceback(None)
        if self._queued_bytes and self._queued_bytes + submission.inline_bytes > QUEUE_BYTES:
            raise Unavailable(f"log {self.log} has {self._queued_bytes} bytes waiting already: try again")
        self._run()
        self._queue.append(submission)
        self._queued_bytes += submission.inline_bytes
        return await submission.wait()

    async def settle(self) -> None:
        """Find out what became of an entry whose answer was lost, if there is one. Raises Unavailable."""
        if self._unsettled is not None:
            async with self.reader.lock:
                await self._settle()

    def _run(self) -> None:
        if not self._running:
            self._start(self._drain)
            self._running = True

    async def _drain(self) -> None:
        taken: list[Submission] = []
        try:
            while self._queue:
                taken.clear()
                async with self.reader.lock:
                    if self.reader.ended is not None:
                        raise self.reader.ended
                    await self._step(taken)
        except (UsageError, Corrupt) as error:
            # Deposed; or an entry that is damaged, or a newer program's; or a store that refuses the request itself.
            # That ends the work on this log, and must not end the process, which serves others.
            self._stop(error)
            self._fail(taken, error if self._unsettled is None else _not_known(error))
        except Exception as error:
            self.reader.end(error)
            words = f"the writer of log {self.log} failed ({error!r}): the log is opened anew"
            self._fail(taken, Unavailable(words, determinate=self._unsettled is None))
            self._fail(self._take_queue(), Unavailable(words))
        except BaseException as error:
            # A crash of this task: nobody may wait for ever, and whether the entry landed is not known.
            self._fail(taken, Unavailable(f"the writer of log {self.log} stopped: {error!r}", determinate=False))
            self._fail(self._take_queue(), Unavailable(f"the writer of log {self.log} stopped: {error!r}"))
            raise
        finally:
            self._running = False

    async def _step(self, taken: list[Submission]) -> None:
        """One entry, or a look at the log, or answers alone. `taken` is filled with those whose fate hangs on an
        entry."""
        try:
            await self._anchor()
            await self._settle()
            await self._check_owner()
            await self.reader.check_tip(SHARED_TIP_SECONDS if self.term.epoch != PRIVATE else PRIVATE_TIP_SECONDS)
        except _PASSING as error:
            # None of these was ever sent.
            self._fail(self._take_queue(), _not_sent(error))
            return
        draft = self._draft(self._now_ms())
        looking = self._admit(draft, taken)
        try:
            if taken:
                looked = await self._append(draft, taken)
            else:
                looked = bool(looking)
                await self._look(looking)
        except _PASSING as error:
            self._fail(taken, error)
            return
        for submission in looking if looked else ():
            submission.looked = True

    async def _look(self, looking: list[Submission]) -> None:
        try:
            if looking:
                await self.reader.look()
        except _PASSING as error:
            for submission in looking:
                self._queue.remove(submission)
                self._queued_bytes -= submission.inline_bytes
            self._fail(looking, _not_sent(error))

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
            self._queue.appendleft(submission)
            self._queued_bytes += submission.inline_bytes
        finally:
            self._queued_bytes -= submission.inline_bytes

    def _admit(self, draft: Draft, taken: list[Submission]) -> list[Submission]:
        """Judge everyone in the queue, as far as there is room. Who is to be judged again stays in it, or comes back to
        it with what it needs; returned are those who need a look."""
        again: list[Submission] = []
        looking: list[Submission] = []
        size = 0
        try:
            while self._queue and (not taken or size + self._queue[0].inline_bytes <= BATCH_BYTES):
                submission = self._queue[0]
                admission = draft.admit(submission)
                self._queue.popleft()
                self._queued_bytes -= submission.inline_bytes
                match admission:
                    case Admission.TAKEN:
                        taken.append(submission)
                        size += submission.inline_bytes
                    case Admission.LOOK:
                        looking.append(submission)
                        again.append(submission)
                    case Admission.LATER:
                        again.append(submission)
                    case Admission.LOAD:
                        self._begin_load(submission)
                    case Admission.ANSWERED:
                        pass
        finally:
            # Also when judging fails: whoever is in neither the queue nor an entry is never told.
            self._put_back(again)
        return looking

    def _begin_load(self, submission: Submission) -> None:
        try:
            self._start(partial(self._load, submission))
        except Unavailable as error:
            # The process is about to end.
            submission.fail(error)
        else:
            self._queued_bytes += submission.inline_bytes

    async def _append(self, draft: Draft, taken: list[Submission]) -> bool:
        """Send the draft as the next slot's entry. If another's stands there, whoever was taken is judged again
        (False)."""
        contents = draft.finish()
        header = self.reader.chain.header(
            epoch=self.term.epoch,
            writer=self.term.writer,
            kind="data",
            streams=contents.streams,
            fragments=contents.fragments,
            rollup=self.reader.to_name,
            garbage=contents.garbage,
            fragments_since=contents.fragments_since,
            time=self._now_ms(),
        )
        seal = partial(_sent, header, contents.body, contents.records)
        sent = await to_thread.run_sync(seal) if len(contents.fragments) > _FEW_FRAGMENTS else seal()
        _SEALED()
        if await self._create(sent):
            _DURABLE()
            draft.acknowledge()
            self._stood([*contents.streams])
            if contents.body:
                await self._seed(sent.entry.key, sent.data)
            return True
        self._put_back(taken)
        taken.clear()
        return False

    async def _create(self, sent: _Sent) -> bool:
        """Whether the entry stands, canonical and applied; if another stands in its slot, that was read instead."""
        again, self._unsettled = self._unsettled is sent, sent
        key, look, asked_at = sent.entry.key, self.reader.begin_look(), self.reader.boundary.now()
        try:
            found = await create_settled(self.reader.store, key, sent.data, self._patience)
        except NotFound as error:
            raise Unavailable(str(error), determinate=False) from error
        except _PASSING as error:
            if not isinstance(error, StoreError) or error.determinate:
                self._unsettled = None
            raise
        await self._be_sure()
        if found is not None:
            self._unsettled = None
            self.reader.take(parse_entry(key, found))
            return False
        verdict = self.reader.take(sent.entry, sent.records)
        # Only now: if taking it fails, it stands all the same, and whoever waits for it must not hear otherwise.
        self._unsettled = None
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
        """What became of the entry whose answer was lost: the same bytes, to the same slot."""
        sent = self._unsettled
        if sent is None:
            return
        if self.reader.chain.next > sent.entry.header.i:
            # A look at the log has read that slot meanwhile, whosever entry it was.
            self._unsettled = None
            return
        await self._create(sent)

    async def _anchor(self) -> None:
        if not self.reader.chain.next:
            header = EntryHeader(
                log=self.log, i=0, epoch=PRIVATE, writer=self.term.writer, n=0, kind="anchor", time=self._now_ms()
            )
            if await self._create(_sent(header)):
                _ANCHOR_DURABLE()

    async def _check_owner(self) -> None:
        """Raises NotOwner if a newer epoch stands in the log, Corrupt if another writer has this one."""
        chain = self.reader.chain
        if chain.epoch > self.term.epoch:
            raise await not_owner(self.reader.store, self.log, chain.epoch, patience=self._patience)
        if chain.epoch == self.term.epoch != PRIVATE and chain.writer != self.term.writer:
            what = f"two writers share epoch {chain.epoch}: stop both, and look at the log"
            raise Corrupt(entry_key(self.log, chain.slot), what)

    def _stop(self, error: Exception) -> None:
        """Everyone who waits is told. Damage may be mended, so that the next submission looks again; deposed is
        deposed."""
        if isinstance(error, NotOwner):
            self.halted = error
        if self.reader.ended is None:
            _logger.error("log %s: %s", self.log, error)
        self._fail(self._take_queue(), error)

    def _fail(self, submissions: Iterable[Submission], error: Exception) -> None:
        for submission in submissions:
            submission.fail(error)

    def _put_back(self, submissions: list[Submission]) -> None:
        """To the front, in their order."""
        self._queue.extendleft(reversed(submissions))
        self._queued_bytes += sum(submission.inline_bytes for submission in submissions)

    def _take_queue(self) -> list[Submission]:
        waiting = list(self._queue)
        self._queue.clear()
        self._queued_bytes -= sum(submission.inline_bytes for submission in waiting)
        return waiting


def _sent(header: EntryHeader, body: bytes = b"", records: Records | None = None) -> _Sent:
    data = seal_entry(header, body)
    return _Sent(parse_entry(entry_key(header.log, header.i), data), data, records or {})


def _not_known(error: Exception) -> Exception:
    """What to tell those whose entry may have landed before this was met."""
    return Unavailable(str(error), determinate=False)


def _not_sent(error: Exception) -> Exception:
    """What to tell those of whom nothing was sent when this was met."""
    return Unavailable(str(error)) if isinstance(error, StoreError) else error

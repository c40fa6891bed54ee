"""Entry draft: one log entry in the making (DESIGN §4, rules 7 and 8; §5).

Submissions are judged one after the other on a tentative state per stream, which starts from the acknowledged one and
dies with the draft. A submission that is refused by a stream that the draft has touched is told nothing: what refused
it is not acknowledged. It is judged again on the next draft, when that has landed or was lost.

Judging may take something of a rollup that isn't in memory: then it is loaded, and the submission judged again.

A judge that fails, which none should, fails its own submission: what it was given is pure, so the draft is as it was.

Segments that travel in the entry are put together into one body. Two of one volume don't go into the same entry,
since an index has one place for each page of a volume.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from ...volume.entry import Fragment
from ...volume.errors import Conflict, Unavailable
from ...volume.ids import SegmentId, VolumeId
from ...volume.records import Commit, Record, encode_records
from ...volume.segment import SegmentWriter
from ...volume.setsum import Setsum
from ..log.submission import Admission, Contents, Submission
from ..store.tree_nodes import NotLoaded, loading
from .content import Checked
from .open_stream import OpenStream
from .state import Refusal

MOST_RECORDS: Final = 4096
"""In one entry."""

_logger: Final = logging.getLogger(__name__)

S = TypeVar("S")


class AlreadyStands(msgspec.Struct, frozen=True):
    """What was asked for stands already, and this is the answer."""

    answer: Any


class Drafted(msgspec.Struct, frozen=True):
    """A record to be written, and the answer once it stands."""

    record: Record
    answer: Any


class Change(Submission, Generic[S]):
    """A submission for one stream. `judge` is pure: the state and the time in milliseconds in, what to do out."""

    def __init__(
        self,
        stream: OpenStream[S],
        judge: Callable[[S, int], Drafted | AlreadyStands | Refusal],
        *,
        inline: Checked | None = None,
        fragments: Sequence[Fragment] = (),
    ) -> None:
        super().__init__(len(inline.data) if inline else 0)
        self.stream = stream
        self.judge = judge
        self.inline = inline
        self.fragments = fragments
        self._kept = ExitStack()
        """What judging it takes stays in memory until it is judged."""

    async def load(self) -> None:
        """See Submission."""
        try:
            await self.stream.catch_up()
            await loading(self._rehearse, self._kept)
        except BaseException:
            self._kept.close()
            raise

    def answer(self, value: Any) -> None:
        self._kept.close()
        super().answer(value)

    def fail(self, error: Exception) -> None:
        self._kept.close()
        super().fail(error)

    def _rehearse(self) -> None:
        state = self.stream.state
        judged = self.judge(state, 0)
        if isinstance(judged, Drafted):
            self.stream.apply(state, judged.record)


class Acknowledgement(Submission):
    """A garbage plan that the log is to acknowledge, if that of its `base` is still the newest that it has. `newest`
    says which that is, and `fragments_since` what the plan says of fragments."""

    def __init__(self, plan: str, base: str, newest: Callable[[], str], fragments_since: int = 0) -> None:
        super().__init__()
        self.plan = plan
        self.base = base
        self.newest = newest
        self.fragments_since = fragments_since


class RollupNaming(Submission):
    """An entry that names the newest rollup is all that is wanted. `named` says whether one has."""

    def __init__(self, named: Callable[[], bool]) -> None:
        super().__init__()
        self.named = named


class EntryDraft:
    """See log.submission.Draft."""

    def __init__(self, now_ms: int, before: Sequence[EntryDraft] = ()) -> None:
        """`before` are those in flight, oldest first."""
        self._now_ms = now_ms
        self._before: Sequence[EntryDraft] = before[::-1]
        self._states: dict[str, Any] = {}
        self._records: dict[str, list[Record]] = {}
        self._count = 0
        self._inline: dict[str, Checked] = {}
        self._fragments: dict[str, Fragment] = {}
        self._answers: list[tuple[Change[Any], Any]] = []
        self._plan: Acknowledgement | None = None
        self._namings: list[RollupNaming] = []

    def admit(self, submission: Any) -> Admission:
        if isinstance(submission, Acknowledgement):
            return self._admit_plan(submission)
        if isinstance(submission, RollupNaming):
            return self._admit_naming(submission)
        change = cast("Change[Any]", submission)
        stream = change.stream
        touched, tentative = self._tentative(stream.id)
        if self._count >= MOST_RECORDS or (change.inline is not None and stream.id in self._inline):
            return Admission.LATER
        if stream.ended:
            anew = Unavailable(f"the log of {stream.id} was opened anew meanwhile: try again")
            change.fail(anew if stream.stop is None else stream.stop.error)
            return Admission.ANSWERED
        if stream.behind:
            return Admission.LOAD
        state = tentative if touched else stream.state
        try:
            judged = change.judge(state, self._now_ms)
            after = stream.apply(state, judged.record) if isinstance(judged, Drafted) else None
        except NotLoaded:
            return Admission.LOAD
        except Exception as error:
            _logger.exception("a change to %s can't be judged", stream.id)
            change.fail(Unavailable(f"the change to {stream.id} can't be judged ({error!r}): the node's log says more"))
            return Admission.ANSWERED
        if isinstance(after, Refusal):
            judged = after
        elif isinstance(judged, Drafted):
            self._take(change, judged, after)
            return Admission.TAKEN
        if touched:
            return Admission.LATER
        if isinstance(judged, AlreadyStands):
            change.answer(judged.answer)
            return Admission.ANSWERED
        if not judged.final and not change.looked:
            return Admission.LOOK
        change.fail(judged.error)
        return Admission.ANSWERED

    def _tentative(self, stream: str) -> tuple[bool, Any]:
        """Whether this draft or one before it has touched the stream, and the state that it comes to."""
        for draft in (self, *self._before):
            if stream in draft._states:
                return True, draft._states[stream]
        return False, None

    def finish(self) -> Contents:
        # Nobody is judged any more. Each would hold the one before it, and that all that came before.
        self._before = ()
        body = self._body()
        records = {stream: tuple(records) for stream, records in self._records.items()}
        streams = {stream: encode_records(own) for stream, own in records.items()}
        garbage, since = (self._plan.plan, self._plan.fragments_since) if self._plan else ("", 0)
        return Contents(body, records, streams, tuple(self._fragments.values()), garbage, since)

    def acknowledge(self) -> None:
        if self._plan is not None:
            self._plan.answer(None)
        for naming in self._namings:
            naming.answer(None)
        for change, answer in self._answers:
            if change.stream.ended:
                # Its record stands, and couldn't be applied here: only this one stream stops.
                words = f"what was written to {change.stream.id} stands, and can't be followed: try again"
                change.fail(Unavailable(words, determinate=False))
            else:
                change.answer(answer)

    def _admit_plan(self, plan: Acknowledgement) -> Admission:
        newest = plan.newest()
        if newest == plan.plan:
            plan.answer(None)
            return Admission.ANSWERED
        if newest != plan.base:
            plan.fail(Conflict(f"garbage plan {newest} was acknowledged meanwhile: make another"))
            return Admission.ANSWERED
        if self._plan is not None or any(draft._plan for draft in self._before):
            return Admission.LATER
        self._plan = plan
        return Admission.TAKEN

    def _admit_naming(self, naming: RollupNaming) -> Admission:
        if naming.named():
            naming.answer(None)
            return Admission.ANSWERED
        self._namings.append(naming)
        return Admission.TAKEN

    def _take(self, change: Change[Any], drafted: Drafted, after: Any) -> None:
        stream = change.stream.id
        self._states[stream] = after
        self._records.setdefault(stream, []).append(drafted.record)
        self._count += 1
        self._answers.append((change, drafted.answer))
        if change.inline is not None:
            self._inline[stream] = change.inline
        for fragment in change.fragments:
            self._fragments[fragment.key] = self._with_earlier(fragment)

    def _with_earlier(self, fragment: Fragment) -> Fragment:
        """Its sum is of all that the entry's commits take from it."""
        earlier = self._fragments.get(fragment.key)
        if earlier is None:
            return fragment
        setsum = Setsum.of_sums((earlier.setsum, fragment.setsum))
        return msgspec.structs.replace(fragment, setsum=setsum.digest)

    def _body(self) -> bytes:
        if len(self._inline) <= 1:
            return next((inline.data for inline in self._inline.values()), b"")
        writer = SegmentWriter(SegmentId.new(at_ms=self._now_ms))
        for inline in self._inline.values():
            writer.merge(inline.index, inline.data, inline.hashes)
        self._place(writer.slots)
        return writer.finish()

    def _place(self, slots: dict[VolumeId, int]) -> None:
        """Each inline commit's location gets its volume's slot in the body that was put together."""
        for records in self._records.values():
            for at, record in enumerate(records):
                if isinstance(record, Commit) and record.locations and not record.locations[0].object:
                    slot = slots[VolumeId(record.vid)]
                    own = msgspec.structs.replace(record.locations[0], slot=slot)
                    records[at] = msgspec.structs.replace(record, locations=(own,))

"""Waiting: the submissions that a writer has not put into an entry yet, in their order (log_writer.py)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ...volume.errors import BadInput
from .submission import Admission, Draft, Submission

BATCH_BYTES: Final = 1 << 20
"""Inline pages of one entry; a single submission may be larger."""


class Batching(NamedTuple):
    """How a writer forms entries, in a shared log."""

    alpha: int = 8
    """The most in flight (rule 3)."""
    window_seconds: float = 0.02
    """How long the next one collects while others are in flight."""


def allowed(batching: Batching, most: int) -> Batching:
    """The same. Raises BadInput where it has more entries in flight than `most`, which the store allows."""
    if not 1 <= batching.alpha <= most:
        raise BadInput(f"{batching.alpha} entries in flight: this store allows 1 to {most}")
    return batching


class Waiting:
    def __init__(self, load: Callable[[Submission], None]) -> None:
        """`load` begins to load what judging a submission needs; it comes back by `comes_back`."""
        self._load = load
        self._queue: deque[Submission] = deque()
        self.inline_bytes = 0
        """Of those, too, that are being loaded."""
        self.to_judge = False
        """Whether someone waits who may be told otherwise than the last time: a newcomer, or what decides has come to
        stand or was lost."""

    def __bool__(self) -> bool:
        return bool(self._queue)

    def __len__(self) -> int:
        return len(self._queue)

    def append(self, submission: Submission) -> None:
        self._queue.append(submission)
        self.inline_bytes += submission.inline_bytes
        self.to_judge = True

    def put_back(self, submissions: Iterable[Submission]) -> None:
        """To the front, in their order."""
        for submission in reversed(list(submissions)):
            self._queue.appendleft(submission)
            self.inline_bytes += submission.inline_bytes
        self.to_judge = True

    def begin_load(self, submission: Submission) -> None:
        self.inline_bytes += submission.inline_bytes

    def end_load(self, submission: Submission) -> None:
        self.inline_bytes -= submission.inline_bytes

    def remove(self, submission: Submission) -> None:
        self._queue.remove(submission)
        self.inline_bytes -= submission.inline_bytes

    def take_all(self) -> list[Submission]:
        waiting = list(self._queue)
        self._queue.clear()
        self.inline_bytes -= sum(submission.inline_bytes for submission in waiting)
        return waiting

    def admit(self, draft: Draft, taken: list[Submission]) -> list[Submission]:
        """Have everyone judged, as far as there is room in the entry. Who is to be judged again stays, or comes back
        with what it needs; returned are those who need a look at the log."""
        again: list[Submission] = []
        looking: list[Submission] = []
        size = 0
        try:
            while self._queue and (not taken or size + self._queue[0].inline_bytes <= BATCH_BYTES):
                submission = self._queue[0]
                admission = draft.admit(submission)
                self._queue.popleft()
                self.inline_bytes -= submission.inline_bytes
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
                        self._load(submission)
                    case Admission.ANSWERED:
                        pass
        finally:
            # Also when judging fails: whoever is in neither the queue nor an entry is never told.
            self.put_back(again)
        self.to_judge = bool(taken)
        return looking

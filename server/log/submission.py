"""Submission: what a writer and those who have something to write agree on (log_writer.py).

Who submits knows how a draft of the next entry judges it; the writer knows when to ask, and what became of the entry.
Neither knows the other's business: the log knows nothing of volumes, and the metastore nothing of slots.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeAlias

import anyio

from ...volume import tracing
from ...volume.entry import Fragment
from ...volume.records import Record, StreamRecords

Records: TypeAlias = dict[str, tuple[Record, ...]]
"""By the id of their stream."""


class Admission(Enum):
    """What a draft answered to a submission."""

    TAKEN = "taken"
    """Its records are in the draft."""
    LATER = "later"
    """To be judged again when the draft has landed or was lost: something in it decides, or it has no room."""
    LOOK = "look"
    """To be judged again after a look at the log: the state may be stale."""
    LOAD = "load"
    """To be judged again after its `load`: what decides isn't in memory."""
    ANSWERED = "answered"
    """Refused for good, or it stands already; the draft has told it."""


class Submission:
    """Something that waits to be written, and its answer. Subclasses know how a draft judges them."""

    def __init__(self, inline_bytes: int = 0) -> None:
        self.inline_bytes = inline_bytes
        self.looked = False
        """Whether the log was looked at since it was submitted."""
        self.span = tracing.here()
        self._done = anyio.Event()
        self._answer: Any = None
        self._error: Exception | None = None

    async def load(self) -> None:
        """Bring into memory what judging it needs. What this raises is told to it, and nobody else is the worse."""

    def answer(self, value: Any) -> None:
        """The answer that `wait` returns once the caller may know."""
        self._answer = value
        self._done.set()

    def fail(self, error: Exception) -> None:
        """Tell it an error; what was answered stays answered, whatever goes wrong behind it."""
        if self._done.is_set():
            return
        self._error = error
        self._done.set()

    async def wait(self) -> Any:
        await self._done.wait()
        if self._error is not None:
            # One error may be told to many, and its traceback would grow with each.
            raise self._error.with_traceback(None)
        return self._answer


class Contents(NamedTuple):
    """What a draft comes to."""

    body: bytes
    """The inline pages as one segment, or nothing."""
    records: Records
    streams: dict[str, StreamRecords]
    """The same as an entry's header carries them."""
    fragments: tuple[Fragment, ...]
    garbage: str = ""
    """The garbage plan that the entry acknowledges."""
    fragments_since: int = 0
    """What that says of fragments, if it does."""


class Draft(Protocol):
    """One entry in the making, judged on tentative state that dies with it."""

    def admit(self, submission: Any) -> Admission: ...

    def finish(self) -> Contents: ...

    def acknowledge(self) -> None:
        """The entry stands and is applied: answer everyone who was taken."""
        ...

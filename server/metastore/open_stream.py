"""Open stream: what a process keeps of a volume, or of the namespace, once it follows its records (streams.py).

Its state is what was acknowledged, and no more than that (DESIGN §4, rule 7); entry_draft.py judges changes on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import anyio

from ...volume.ids import VolumeId
from ...volume.records import Record
from .state import Refusal
from .streams import Stop, Streams

S = TypeVar("S")


class OpenStream(ABC, Generic[S]):
    """See streams.Taker, which a subclass is by its `take`. Belongs to one event loop."""

    def __init__(self, vid: VolumeId, state: S) -> None:
        self.vid = vid
        self.id = str(vid)
        """Under which its records stand in an entry."""
        self.state = state
        self.ended = False
        """Whether this object is of no use any more, and the stream is to be opened anew, unless `stop` says why
        not."""
        self.stop: Stop | None = None
        self.streams: Streams | None = None
        """Of the log that it takes its records from."""
        self.keeps: object = None
        """That log: it stays open for as long as it is taken from."""
        self._changed: anyio.Event | None = None

    @property
    def behind(self) -> bool:
        """Whether records wait for it that it couldn't take at once."""
        return self.streams is not None and self.streams.is_behind(self.id)

    async def catch_up(self) -> None:
        """Take them, if there are any. Raises what stops the stream, and what loading met."""
        if self.streams is not None and self.behind:
            await self.streams.catch_up(self.id)

    @abstractmethod
    def apply(self, state: S, record: Record) -> S | Refusal:
        """The state behind that record, or why it isn't accepted. Nothing here changes."""

    @abstractmethod
    def rebase(self) -> bool:
        """See streams.Taker."""

    def end(self, stop: Stop | None = None) -> None:
        """See streams.Taker."""
        self.ended, self.stop = True, stop
        self.tell()

    def changed(self) -> anyio.Event:
        """Set at the next change that is waited for, and when this object ends."""
        if self._changed is None:
            self._changed = anyio.Event()
        return self._changed

    def tell(self) -> None:
        """It has changed, or may have more to take."""
        if self._changed is not None:
            self._changed.set()
            self._changed = None

"""In flight: entries that were sent, until it is known that they stand (DESIGN §4, rules 3 and 5).

    sent → created, or another stands in its slot, or nobody knows → everything before it stands → acknowledged

Each was made from the chain behind the one that was sent before it, so that all of them count, or those that came
before the first that doesn't.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ...volume.entry import Entry, EntryHeader, entry_key, parse_entry, seal_entry
from ...volume.errors import NotFound, StoreError, Unavailable
from ..store.protocol import Store
from ..store.retrying import Patience, create_settled
from .chain import Chain
from .submission import Draft, Records, Submission


class Sent(NamedTuple):
    """An entry whose bytes may be in the store."""

    entry: Entry
    data: bytes
    records: Records

    @classmethod
    def of(cls, header: EntryHeader, body: bytes = b"", records: Records | None = None) -> Sent:
        data = seal_entry(header, body)
        return cls(parse_entry(entry_key(header.log, header.i), data), data, records or {})


@dataclass(slots=True, eq=False)
class Flight:
    """One of them, and whose fate hangs on it."""

    sent: Sent
    draft: Draft
    body: bytes
    streams: list[str]
    taken: list[Submission]
    looking: list[Submission]
    """Refused by what may be stale: once this stands, everything before it was seen."""
    before: Chain
    behind: Chain
    """The chain that it was made from, and the one that it makes."""
    look: int
    asked_at: float
    """Of the look at the log that sending it is; by the clock of the boundary."""
    sent_at: float
    barrier: bool
    """Whether nothing may be judged before it is acknowledged."""
    done: bool = False
    found: bytes | None = None
    """What stands in its slot instead."""
    error: Exception | None = None
    """Nobody knows whether it stands, unless that says so."""
    ended: Callable[[], None] = field(default=lambda: None)

    async def fly(self, store: Store, patience: Patience) -> None:
        """Send it, until its fate is known or patience has ended; then tell `ended`."""
        self.error = Unavailable("the writer stopped", determinate=False)
        try:
            self.found = await create_settled(store, self.sent.entry.key, self.sent.data, patience)
        except NotFound as error:
            self.error = Unavailable(str(error), determinate=False)
        except Exception as error:
            self.error = error
        else:
            self.error = None
        finally:
            self.done = True
            self.ended()


def may_stand(error: Exception) -> bool:
    """Whether a create that met this may have happened all the same."""
    return isinstance(error, StoreError) and not error.determinate

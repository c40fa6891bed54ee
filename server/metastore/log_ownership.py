"""Log ownership: how this process comes to append to a shared log, and back to its own (DESIGN §4, rule 2; §5,
failover).

A log is taken by a fresh epoch and a fence. That is safe whoever owns it, so all the rest here is manners: a log is
taken only from an owner who is gone, since whoever is deposed while it lives has its callers sent elsewhere.

    its newest epoch is                       at the start       its own node, deposed
    nobody's, or this process's own           taken              taken back
    of an owner who is gone                   taken              taken back
    of an owner who answers                   NotOwner           left to it
    of one who can't be asked from here       NotOwner           left to it

A node that was taken out of the store for good takes nothing, whoever owned it (retirement.py).

A start with --takeover asks nobody. Who takes a log for a moment, to have it reject a transaction, says no address, as
it won't stay: so a node that was fenced by that, while it lived after all, is back at its next write. A move out of the
log of an owner who can't be reached takes nothing (move.py).

An owner is asked for its very epoch, by number and writer, for each log that it holds (remote/owner_liveness.py):
another node that has come to its address, on this machine or another, is not taken for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum
from typing import TypeAlias

from ...volume.entry import EpochRecord
from ...volume.errors import NotOwner
from ...volume.owner import Liveness
from ..log.log_writer import LogWriter
from ..log.reader import LogReader
from ..log.term import PRIVATE, Claim, Term, read_epoch, take_term
from ..store.protocol import Store
from ..store.retrying import Patience
from .retirement import retirement_of, taken_out

LivenessProbe: TypeAlias = Callable[[EpochRecord], Awaitable[Liveness]]
"""Asked with a log's newest epoch: whether its owner lives."""


async def assume_gone(_owner: EpochRecord) -> Liveness:
    """For a process that can't ask: whoever owned a log before is taken to be gone."""
    return Liveness.GONE


class Takeover(Enum):
    """From whom a log is taken."""

    IF_GONE = "if gone"
    ALWAYS = "always"
    """Nobody is asked."""


class LogOwnership:
    def __init__(
        self,
        claim: Claim,
        probe_owner: LivenessProbe,
        *,
        writer: Callable[[LogReader, Term], LogWriter],
        now_ms: Callable[[], int],
        patience: Patience,
    ) -> None:
        self.claim = claim
        self.probe_owner = probe_owner
        self._writer = writer
        self._now_ms = now_ms
        self._patience = patience
        self._own: set[bytes] = set()
        """The writers of every term of this process."""
        self.retired: NotOwner | None = None
        """What this process says once it was seen that its node was taken out for good."""

    async def take(self, reader: LogReader, takeover: Takeover, *, stays: bool = True) -> LogWriter:
        """A writer under a fresh epoch, which has fenced the log. With `stays` false the epoch names no address. Raises
        NotOwner, with the owner's address, if that is not to be deposed; and where this node was taken out for
        good."""
        await self.check_mark(reader.store)
        await reader.refresh()
        while takeover is not Takeover.ALWAYS and (owner := await self.owner(reader)) is not None:
            await self._check(owner)
            # It was asked for a while: by now it may have taken another, or somebody else has.
            await reader.refresh()
            if reader.chain.epoch == owner.n:
                break
        claim = self.claim if stays else replace(self.claim, address="")
        above, now_ms = reader.chain.epoch, self._now_ms()
        term = await take_term(reader.store, reader.log, claim, above=above, now_ms=now_ms, patience=self._patience)
        # Whoever has made the mark since lists the numbers after that.
        await self.check_mark(reader.store)
        self._own.add(term.writer)
        writer = self._writer(reader, term)
        await writer.fence()
        return writer

    async def check_mark(self, store: Store) -> None:
        """Raises NotOwner if this node was taken out for good."""
        if self.retired is None and self.claim.name:
            mark = await retirement_of(store, self.claim.name, self._patience)
            if mark is not None:
                self.retired = taken_out(mark)
        if self.retired is not None:
            raise self.retired.with_traceback(None)

    async def owner(self, reader: LogReader) -> EpochRecord | None:
        """Whoever took the newest epoch that stands in the log; None if nobody ever did."""
        epoch = reader.chain.epoch
        return None if epoch == PRIVATE else await read_epoch(reader.store, reader.log, epoch, patience=self._patience)

    async def _check(self, owner: EpochRecord) -> None:
        if owner.writer in self._own:
            return
        life = await self.probe_owner(owner)
        if life is Liveness.ANSWERS:
            message = f"log {owner.log} is served by a living node at {owner.address}: stop it, or use another name"
            raise NotOwner(message, owner=owner.address, log=owner.log)
        if life is Liveness.UNKNOWN:
            message = (
                f"log {owner.log} was served by a node on another machine, at {owner.address} there, which can't be "
                "asked from here: give this node a name of its own with --node, or take that log with --takeover if "
                "its node is gone"
            )
            raise NotOwner(message, owner=owner.address, log=owner.log)

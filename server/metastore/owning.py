"""Owning: how this process comes to append to a shared log, and back to its own (DESIGN §4, rule 2; §5, failover).

A log is taken by a fresh epoch and a fence. That is safe whoever owns it, so all the rest here is manners: a log is
taken only from an owner who is gone, since whoever is deposed while it lives has its callers sent elsewhere.

    its newest epoch is                       at the start       a move with --takeover     its own node, deposed
    nobody's, or this process's own           taken              taken                      taken back
    of an owner who is gone                   taken              taken                      taken back
    of an owner who answers                   NotOwner           NotOwner                   left to it
    of one who can't be asked from here       NotOwner           taken                      left to it

A start with --takeover asks nobody. Who takes a log for one move says no address, as it won't stay: so a node that
was fenced by such a move, while it lived after all, is back at its next write.

An owner is asked for its very epoch, by number and writer, for each log that it holds (remote/alive.py): another node
that has come to its address, on this machine or another, is not taken for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ...volume.entry import EpochRecord
from ...volume.errors import NotOwner
from ...volume.owner import Life
from ..log.log_writer import LogWriter
from ..log.reader import LogReader
from ..log.term import PRIVATE, Term, read_epoch, take_term
from ..store.retrying import Patience

__all__ = ["Alive", "Claim", "Manners", "Owning", "nobody_is_alive"]

Alive: TypeAlias = Callable[[EpochRecord], Awaitable[Life]]
"""Asked with a log's newest epoch: whether its owner lives."""


async def nobody_is_alive(_owner: EpochRecord) -> Life:
    """For a process that can't ask: whoever owned a log before is taken to be gone."""
    return Life.GONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a node says of itself in the epochs that it takes."""

    log: str = ""
    """Its own, which bears its name; "" for an embedded process."""
    address: str = ""
    stack: str = ""
    """The network stack that the address is of (volume/owner.py)."""


class Manners(Enum):
    """From whom a log is taken."""

    THE_GONE = "the gone"
    ALSO_THE_UNKNOWN = "also the unknown"
    ANYONE = "anyone"


class Owning:
    def __init__(
        self,
        claim: Claim,
        is_alive: Alive,
        *,
        writer: Callable[[LogReader, Term], LogWriter],
        now_ms: Callable[[], int],
        patience: Patience,
    ) -> None:
        self.claim = claim
        self.is_alive = is_alive
        self._writer = writer
        self._now_ms = now_ms
        self._patience = patience
        self._own: set[bytes] = set()
        """The writers of every term of this process."""

    async def take(self, reader: LogReader, manners: Manners, *, stays: bool = True) -> LogWriter:
        """A writer under a fresh epoch, which has fenced the log. Raises NotOwner, with its address, if the owner is
        not to be deposed."""
        await reader.refresh()
        while manners is not Manners.ANYONE and (owner := await self.owner(reader)) is not None:
            await self._check(owner, manners)
            # It was asked for a while: by now it may have taken another, or somebody else has.
            await reader.refresh()
            if reader.chain.epoch == owner.n:
                break
        claim = self.claim
        term = await take_term(
            reader.store,
            reader.log,
            above=reader.chain.epoch,
            node=claim.log,
            address=claim.address if stays else "",
            stack=claim.stack,
            now_ms=self._now_ms(),
            patience=self._patience,
        )
        self._own.add(term.writer)
        writer = self._writer(reader, term)
        await writer.fence()
        return writer

    async def owner(self, reader: LogReader) -> EpochRecord | None:
        """Whoever took the newest epoch that stands in the log; None if nobody ever did."""
        epoch = reader.chain.epoch
        return None if epoch == PRIVATE else await read_epoch(reader.store, reader.log, epoch, patience=self._patience)

    async def _check(self, owner: EpochRecord, manners: Manners) -> None:
        if owner.writer in self._own:
            return
        life = await self.is_alive(owner)
        if life is Life.ANSWERS:
            message = f"log {owner.log} is served by a living node at {owner.address}: stop it, or use another name"
            raise NotOwner(message, owner=owner.address, log=owner.log)
        if life is Life.UNKNOWN and manners is Manners.THE_GONE:
            message = (
                f"log {owner.log} was served by a node on another machine, at {owner.address} there, which can't be "
                "asked from here: give this node a name of its own with --node, or take that log with --takeover if "
                "its node is gone"
            )
            raise NotOwner(message, owner=owner.address, log=owner.log)

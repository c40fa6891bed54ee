"""Term: an owner's time on a shared log, under an epoch number that nobody else has (DESIGN §4, rule 2; S0.28).

Numbers come from `logs/{log}/epochs/`, by create-if-absent: whoever makes the object has the number. Taking one
changes nothing yet; the fence does, which the writer puts into the first missing slot (log_writer.py). So a crash in
between leaves a number that nobody uses.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

import msgspec

from ...volume import faults
from ...volume.entry import EpochRecord, epoch_key
from ...volume.envelope import EPOCH, decode, encode, seal, unseal
from ...volume.errors import Corrupt, NotFound, NotOwner, StoreError
from ..store.protocol import Store
from ..store.retrying import PATIENT, Patience, create_settled, get_retried, retried

PRIVATE: Final = 0
"""The epoch of private logs, which have no owner."""

_TAKEN: Final = faults.point("log: epoch taken, not fenced")


@dataclass(frozen=True, slots=True)
class Term:
    epoch: int
    writer: bytes
    """16 random bytes, fresh at every open, so that no two writers ever send the same entry (rule 5)."""

    @classmethod
    def private(cls) -> Term:
        return cls(PRIVATE, os.urandom(16))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a node says of itself in the epochs that it takes."""

    log: str = ""
    """Its own, which bears its name; "" for an embedded process."""
    node: str = ""
    """Its name: the log's, unless it is one worker of several (metastore/share.py)."""
    address: str = ""
    stack: str = ""
    """The network stack that the address is of (volume/owner.py)."""
    region: str = ""
    """Where it runs, as its operator calls it: a hint for whoever has a choice of nodes."""

    @property
    def name(self) -> str:
        """The node's."""
        return self.node or self.log


async def take_term(
    store: Store, log: str, claim: Claim, *, above: int, now_ms: int, patience: Patience = PATIENT
) -> Term:
    """A number higher than `above` and than any that was ever taken for this log."""
    writer = os.urandom(16)
    record = EpochRecord(
        log=log,
        n=above,
        writer=writer,
        node=claim.name,
        address=claim.address,
        stack=claim.stack,
        region=claim.region,
        time=now_ms,
    )
    n = await _take_number(store, record, patience)
    _TAKEN()
    return Term(n, writer)


async def take_transaction(
    store: Store,
    log: str,
    *,
    above: int,
    writer: bytes,
    now_ms: int,
    node: str = "",
    stream: bytes = b"",
    patience: Patience = PATIENT,
) -> int:
    """A number for a transaction, higher than `above` and than any that was ever taken for this log. It fences
    nothing. `node` is whose it is, `stream` the volume that a fold is of."""
    record = EpochRecord(log=log, n=above, writer=writer, node=node, purpose="transaction", stream=stream, time=now_ms)
    return await _take_number(store, record, patience)


async def _take_number(store: Store, record: EpochRecord, patience: Patience) -> int:
    """A number higher than the record's, and than any that stands, with the record under it."""
    n = max([record.n, *await numbers(store, record.log, record.n, patience)]) + 1
    while True:
        data = seal(EPOCH, encode(msgspec.structs.replace(record, n=n)))
        if await create_settled(store, epoch_key(record.log, n), data, patience) is None:
            return n
        n += 1


async def numbers(store: Store, log: str, start: int, patience: Patience = PATIENT) -> list[int]:
    """Those that were taken, from that one on. Raises Corrupt, Unavailable."""
    key, prefix = epoch_key(log, start), f"logs/{log}/epochs/"
    keys = await retried(f"list {prefix}", lambda: store.list(prefix, start=key), patience)
    return [_number_of(key) for key in keys]


async def read_epoch(store: Store, log: str, n: int, *, patience: Patience = PATIENT) -> EpochRecord:
    """Who took the number. Raises Corrupt (a number that entries carry was taken), Unavailable."""
    record = await find_epoch(store, log, n, patience=patience)
    if record is None:
        raise Corrupt(epoch_key(log, n), "the object is missing, though entries carry its number")
    return record


async def find_epoch(store: Store, log: str, n: int, *, patience: Patience = PATIENT) -> EpochRecord | None:
    """The same; None where nobody took it, or a collector has taken it away since. Raises Corrupt, Unavailable."""
    key = epoch_key(log, n)
    try:
        header = unseal(key, EPOCH, await get_retried(store, key, patience=patience))
    except NotFound:
        return None
    record = decode(key, header, EpochRecord)
    if (record.log, record.n) != (log, n):
        raise Corrupt(key, f"it says that it is epoch {record.n} of log {record.log!r}")
    return record


async def not_owner(store: Store, log: str, epoch: int, *, patience: Patience = PATIENT) -> NotOwner:
    """The error that sends a caller to the owner of the log's newest epoch; without an address if that can't be read
    now."""
    try:
        record = await read_epoch(store, log, epoch, patience=patience)
        who, address = record.address or record.node or "another process", record.address
    except StoreError:
        who, address = "another process", ""
    message = f"log {log} is owned by {who} (epoch {epoch}): send the change there, or move the volume with --takeover"
    return NotOwner(message, owner=address, log=log)


def _number_of(key: str) -> int:
    try:
        return int(key.rpartition("/")[2], 16)
    except ValueError as error:
        raise Corrupt(key, "it stands among the epochs of a log and is none") from error

"""Store report: what a node tells of a whole store, as messages of the protocol (calls.py): its logs, who owns them and
what of them is about to be deleted; what it holds, and what is written to it; and which pages are read."""

from __future__ import annotations

import msgspec


class _Message(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    pass


class CollectionPlan(_Message, frozen=True, kw_only=True):
    """A garbage plan that a log has acknowledged (garbage.py), in numbers."""

    number: int
    time: int
    """When it was made, in ms since 1970."""
    due: int = 0
    """From when on it is carried out; 0 where nobody has said yet since when it stands."""
    first: int = 0
    slot: int = 0
    """The entries of the slots [first, slot) go; where `slot` is 0, none does."""
    folds: int = 0
    """Of which what they took the place of goes."""
    fragments: int = 0
    transactions: int = 0
    """That were never granted."""
    pins: int = 0
    """Whose old revisions go."""


class SharedLog(_Message, frozen=True, kw_only=True):
    log: str
    node: str = ""
    """Who owns it; "": nobody ever did."""
    epoch: int = 0
    since: int = 0
    region: str = ""
    address: str = ""
    state: str = ""
    """Of the owner: answers, gone or unknown (owner.py)."""
    plan: CollectionPlan | None = None
    problem: str = ""
    """Why the rest can't be told."""


class SharedLogs(_Message, frozen=True, kw_only=True):
    logs: tuple[SharedLog, ...]
    next: str = ""
    """Where the rest begins: the request's `after`."""


class Holding(_Message, frozen=True, kw_only=True):
    """What a volume takes, or a log that several share; all of it in bytes."""

    volume: str = ""
    log: str = ""
    names: tuple[str, ...] = ()
    """The first of them."""
    pages: int = 0
    entries: int = 0
    records: int = 0
    waiting: int = 0
    """What nothing needs any more."""
    commits_a_day: float = 0.0
    creates_a_day: float = 0.0

    @property
    def bytes(self) -> int:
        return self.pages + self.entries + self.records + self.waiting


class WrittenDay(_Message, frozen=True, kw_only=True):
    day: int
    """Since 1970, in UTC."""
    commits: int
    creates: float
    """Objects that were made."""
    bytes: float
    """Of commits: in entries, and in fragments."""


class StoreCosts(_Message, frozen=True, kw_only=True):
    """By the last survey of the store (server/upkeep/costs.py)."""

    time: int = 0
    """When it began; 0: there was none yet."""
    under_way: bool = False
    """Whether another is being made."""
    problem: str = ""
    """What the last one failed by."""
    objects: int = 0
    total: Holding = Holding()
    largest: tuple[Holding, ...] = ()
    """At most 50."""
    days: tuple[WrittenDay, ...] = ()
    """Oldest first; the first may be a part of one."""
    covers_days: float = 0.0
    unread: int = 0
    """Logs and volumes that could not be looked at."""


class Heat(_Message, frozen=True, kw_only=True):
    """How often pages of a volume were asked for of late, at any LSN; what was longer ago counts for less."""

    block_pages: int
    blocks: dict[int, float] = {}
    """Pages asked for, by block: number n holds the pages from n * block_pages + 1 on."""

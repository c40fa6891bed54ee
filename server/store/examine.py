"""Examine: what a store does, asked of the store itself, and what that means for Budwood (`budwood doctor --store`).

A probe (probe.py) is what every node does at its start: seven requests, and the first rule that is broken ends it. This
is for people: some hundred requests under `probe/`, all of which are deleted again, and a finding for each of

    create    a second create of a key is refused, and changes nothing: honoured, ignored, or refused altogether
    race      of many creates of one key at once exactly one wins, and its bytes are those that stand
    ranges    parts of an object come as asked for, ends and empty objects included
    listing   keys are listed at once, in the order of their bytes, from where it is told
    delete    what is deleted is gone at once, twice does no harm, and the key is free again
    clock     how far the store's clock is from ours, by when it says that an object was made
    latency   of small requests, one after the other

A finding that isn't `good` and is `needed` makes the store unusable. What a request raises is its finding; where
nothing can be reached, or may be done, the first one tells and the others are left out.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, Final

import anyio

from ...volume.errors import AlreadyExists, BudwoodError, NotFound, StoreError, Unauthorized, Unavailable, Unsupported
from ...volume.ids import StoreId
from .protocol import Store
from .retrying import Patience, get_retried, retried
from .store_clock import ahead_of, dated

RACERS: Final = 16
RACES: Final = 3
TIMED: Final = 8
_SECONDS: Final = 60.0
"""For one check."""
_WAY_OUT: Final = "use a store or gateway that does"
_DATA: Final = bytes(range(256)) * 300
_RANGES: Final = ((0, 1), (0, 256), (255, 258), (76_799, 76_800), (70_000, 900_000), (76_700, None), (100_000, 100_001))


@dataclass(frozen=True, slots=True)
class Observed:
    check: str
    good: bool
    says: str
    needed: bool = True
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


class _Broken(Exception):
    """A rule that the store breaks, in words; whether nothing else can be tried then."""

    def __init__(self, says: str, *, ends: bool = False) -> None:
        super().__init__(says)
        self.ends = ends


class Examination:
    """Of one store; `skew_seconds` is by how much clocks may differ."""

    def __init__(self, store: Store, patience: Patience, *, skew_seconds: float) -> None:
        self._store = store
        self._patience = patience
        self._skew_seconds = skew_seconds
        self._fresh = f"probe/{StoreId.new()}"
        self._made: set[str] = set()

    async def run(self) -> AsyncGenerator[Observed]:
        checks = (self._create, self._race, self._ranges, self._listing, self._delete, self._clock, self._latency)
        try:
            for check in checks:
                name = check.__name__.strip("_")
                found = await self._checked(name, check)
                yield found
                if found.facts.get("ends"):
                    return
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(_SECONDS):
                for key in self._made:
                    with suppress(BudwoodError):  # A few bytes are left then; what went wrong has been told.
                        await self._store.delete(key)

    async def _checked(self, name: str, check: Callable[[], Awaitable[Observed]]) -> Observed:
        try:
            with anyio.fail_after(_SECONDS):
                return await check()
        except _Broken as broken:
            return Observed(name, good=False, says=str(broken), facts={"ends": True} if broken.ends else {})
        except TimeoutError:
            says = f"no end within {_SECONDS:g} s: try again"
            return Observed(name, good=False, says=says, facts={"ends": True})
        except BudwoodError as error:
            ends = isinstance(error, Unavailable | Unauthorized) or name == "create"
            return Observed(name, good=False, says=str(error), facts={"ends": True} if ends else {})

    async def _create(self) -> Observed:
        key = self._key("create")
        try:
            await self._place(key, b"one")
        except Unsupported as error:
            raise _Broken(f"refused: there is no create-if-absent ({error}): {_WAY_OUT}", ends=True) from error
        try:
            await self._store.create(key, b"two")
        except AlreadyExists:
            if await self._read(key) != b"one":
                raise _Broken(f"a second create was refused, and changed what stands there: {_WAY_OUT}") from None
            return Observed("create", good=True, says="honoured: a second create of a key is refused")
        raise _Broken(
            "ignored: a second create of a key was accepted, as if nothing stood there; two writers would overwrite "
            f"each other's commits: {_WAY_OUT}"
        )

    async def _race(self) -> Observed:
        for number in range(RACES):
            key = self._key(f"race-{number}")
            won: list[bytes] = []

            async def create(mine: bytes, key: str = key, won: list[bytes] = won) -> None:
                with suppress(AlreadyExists):
                    await self._store.create(key, mine)
                    won.append(mine)

            await _together([partial(create, b"%d" % racer) for racer in range(RACERS)])
            stands = await self._read(key)
            if len(won) > 1:
                says = f"{len(won)} of {RACERS} creates of one key at once were told that they won"
                raise _Broken(f"{says}; two writers would lose each other's commits: {_WAY_OUT}")
            # None has won where the store answered the winner late and its request was repeated.
            if won and won != [stands]:
                raise _Broken(f"the create that won isn't the one whose bytes stand there: {_WAY_OUT}")
        return Observed(
            "race", good=True, says=f"of {RACERS} creates of a key at once one wins, {RACES} times of {RACES}"
        )

    async def _ranges(self) -> Observed:
        key, empty = self._key("ranges"), self._key("empty")
        await self._place(key, _DATA)
        await self._place(empty, b"")
        for start, end in _RANGES:
            if await self._read(key, start, end) != _DATA[start:end]:
                raise _Broken(f"bytes {start} to {end} of an object aren't those that were put there: {_WAY_OUT}")
        tail = await retried("get a tail", partial(self._store.get_tail, key, 100), self._patience)
        if tail != (_DATA[-100:], len(_DATA)) or await self._read(empty, 0, 7) != b"":
            raise _Broken(f"the end of an object, or an empty one, isn't read as it is: {_WAY_OUT}")
        return Observed("ranges", good=True, says="as asked for, ends and empty objects included")

    async def _listing(self) -> Observed:
        # By whole keys '-' and '.' sort before '/'.
        keys = [f"{self._fresh}-list{end}" for end in ("-a", "-b/x", ".a", "/a", "/a-b", "/b/c", "0")]
        for key in reversed(keys):
            await self._place(key, b"")
        for start, limit in (("", None), (keys[2], None), (keys[2] + "\0", None), (keys[1], 2)):
            wanted = [key for key in keys if key >= start][:limit]
            call = partial(self._store.list, f"{self._fresh}-list", start=start, limit=limit)
            if await retried("list", call, self._patience) != wanted:
                words = "keys aren't listed at once, in the order of their bytes, from where it is told"
                raise _Broken(f"{words}: {_WAY_OUT}")
        return Observed("listing", good=True, says="at once, and in the order of the keys' bytes")

    async def _delete(self) -> Observed:
        key = self._key("delete")
        await self._place(key, b"first")
        for _ in range(2):
            await retried("delete", partial(self._store.delete, key), self._patience)
        listed = await retried("list", partial(self._store.list, key), self._patience)
        if listed or await self._stands(key):
            raise _Broken(f"what was deleted can still be read, or is listed: {_WAY_OUT}")
        await self._place(key, b"second")
        if await self._read(key) != b"second":
            raise _Broken(f"a key that was freed by a deletion isn't free: {_WAY_OUT}")
        return Observed("delete", good=True, says="gone at once, and the key is free again")

    async def _clock(self) -> Observed:
        store = dated(self._store)
        if store is None:
            return Observed("clock", good=True, says="the store doesn't tell the time", needed=False)
        key = self._key("clock")
        before = time.time() * 1000
        await self._place(key, b"")
        after = time.time() * 1000
        # The store's, of ours.
        ahead = -ahead_of(await store.made_at(key), before, after)
        facts = {"ahead_seconds": round(ahead, 3)}
        if not ahead:
            return Observed("clock", good=True, says="as this machine's, within a second", needed=False, facts=facts)
        words = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
        if abs(ahead) < self._skew_seconds:
            says = f"{words}: clocks may lie {self._skew_seconds:g} s apart"
            return Observed("clock", good=True, says=says, needed=False, facts=facts)
        says = f"{words}; clocks may lie {self._skew_seconds:g} s apart: set this one's by NTP"
        return Observed("clock", good=False, says=says, needed=False, facts=facts)

    async def _latency(self) -> Observed:
        key = self._key("latency")
        await self._place(key, b"x")
        fresh = iter([self._key(f"latency-{number}") for number in range(TIMED)])
        taken = {
            "get": await _timed(lambda: self._read(key)),
            "create": await _timed(lambda: self._place(next(fresh), b"x")),
            "list": await _timed(lambda: self._store.list(key, limit=1)),
        }
        facts = {f"{kind}_ms": round(median(each) * 1000, 3) for kind, each in taken.items()}
        facts |= {f"slowest_{kind}_ms": round(max(each) * 1000, 3) for kind, each in taken.items()}
        told = [f"{kind} {median(each) * 1000:.3g} ms (slowest {max(each) * 1000:.3g})" for kind, each in taken.items()]
        commit = median(taken["create"]) * 1000
        says = f"{', '.join(told)}: a commit takes {commit:.3g} ms and more, a cold query two or three gets"
        return Observed("latency", good=True, says=says, needed=False, facts=facts)

    def _key(self, name: str) -> str:
        key = f"{self._fresh}/{name}"
        self._made.add(key)
        return key

    async def _place(self, key: str, data: bytes) -> None:
        """A create of a key that is free. One that met its own repetition has happened."""
        self._made.add(key)
        try:
            await self._store.create(key, data)
        except AlreadyExists:
            if await self._read(key) != data:
                raise _Broken(f"a key that nobody has used is said to be taken: {_WAY_OUT}") from None

    async def _read(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        return await get_retried(self._store, key, start=start, end=end, patience=self._patience)

    async def _stands(self, key: str) -> bool:
        try:
            await self._read(key)
        except NotFound:
            return False
        return True


async def _together(calls: list[Callable[[], Awaitable[None]]]) -> None:
    """All at once; the first error of ours that befalls one is raised, alone."""
    failed: list[StoreError | BudwoodError] = []

    async def run(call: Callable[[], Awaitable[None]]) -> None:
        try:
            await call()
        except BudwoodError as error:
            failed.append(error)

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(run, call)
    if failed:
        raise failed[0]


async def _timed(call: Callable[[], Awaitable[object]]) -> list[float]:
    taken: list[float] = []
    for _ in range(TIMED):
        begun = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - begun)
    return taken

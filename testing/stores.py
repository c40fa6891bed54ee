"""Stores for tests and benches: one in memory, and one that wraps another to count, wait and fail by rule.

    store = RiggedStore(MemoryStore(), latency=0.05)
    lost = store.add(Rule(op="create", key="logs/*", nth=3, after=Unavailable("no answer", determinate=False)))
    ...
    assert lost.fired == 1
    assert store.count("create") == 4 and store.received_bytes("get", "volumes/*") > 0

What a `Rule` can do to the calls that it matches:

    before   raise this: the call did not happen
    after    the call happened; its answer is lost, and this is raised
    mangle   the bytes that a get returns, or that a create stores, go through this function (flip one, cut them short)
    gate     the call waits, before it happens, until the test sets this event
    hang     the call, made ("after") or not ("before"), never answers: only cancelling ends it

Latency is added to every request, and transfers share the link. Both sleep through `sleep` (anyio's, or a
ManualClock's); a distribution draws from a seeded generator, so that a run repeats.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

import anyio
from anyio.lowlevel import checkpoint

from ..server.store.protocol import (
    Data,
    Keys,
    PlainStore,
    Sizes,
    Store,
    buffers,
    check_key,
    check_prefix,
    check_range,
    length_of,
)
from ..volume.errors import AlreadyExists, BadInput, NotFound

Op: TypeAlias = Literal["get", "get_tail", "create", "put", "delete", "list"]
Latency: TypeAlias = "float | Callable[[Op, random.Random], float]"
"""Seconds that each request takes on top: always the same, or drawn for each."""


class MemoryStore:
    """A store in this process's memory, in plain Python: `objects` is all of it. See server.store.protocol.Store."""

    def __init__(self, url: str = "test://") -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self._sorted: Keys = []

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        await checkpoint()
        return self.get_now(key, start=start, end=end)

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        await checkpoint()
        return self.get_tail_now(key, size)

    async def create(self, key: str, data: Data) -> None:
        check_key(key)
        await checkpoint()
        self.create_now(key, data)

    async def put(self, key: str, data: Data) -> None:
        check_key(key)
        await checkpoint()
        self.put_now(key, data)

    async def delete(self, key: str) -> None:
        check_key(key)
        await checkpoint()
        self.delete_now(key)

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        check_prefix(prefix, limit)
        await checkpoint()
        return self.list_now(prefix, start=start, limit=limit)

    async def aclose(self) -> None:
        await checkpoint()

    def get_now(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        """The same without an event loop, as are those below."""
        check_range(start, end)
        return self._whole(key)[start:end]

    def get_tail_now(self, key: str, size: int) -> tuple[bytes, int]:
        if size <= 0:
            raise BadInput("a tail has at least one byte")
        data = self._whole(key)
        return data[-size:], len(data)

    def create_now(self, key: str, data: Data) -> None:
        check_key(key)
        if key in self.objects:
            raise AlreadyExists(f"the object {key} exists")
        self.objects[key] = b"".join(buffers(data))
        bisect.insort(self._sorted, key)

    def put_now(self, key: str, data: Data) -> None:
        self.delete_now(key)
        self.create_now(key, data)

    def delete_now(self, key: str) -> None:
        check_key(key)
        if self.objects.pop(key, None) is not None:
            del self._sorted[bisect.bisect_left(self._sorted, key)]

    def list_now(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        return list(self._matching(prefix, start, limit)) if check_prefix(prefix, limit) else []

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        check_prefix(prefix, limit)
        await checkpoint()
        return self.sizes_now(prefix, start=start, limit=limit)

    def sizes_now(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        return [(key, len(self.objects[key])) for key in self.list_now(prefix, start=start, limit=limit)]

    def _whole(self, key: str) -> bytes:
        check_key(key)
        try:
            return self.objects[key]
        except KeyError:
            raise NotFound(f"no object {key}") from None

    def _matching(self, prefix: str, start: str, limit: int | None) -> Iterator[str]:
        first = bisect.bisect_left(self._sorted, max(prefix, start))
        for at in range(first, len(self._sorted) if limit is None else min(first + limit, len(self._sorted))):
            if not self._sorted[at].startswith(prefix):
                return
            yield self._sorted[at]


@dataclass(slots=True)
class Request:
    """One call that reached a RiggedStore. Bytes are an object's; a listing counts its keys' lengths."""

    op: Op
    key: str
    """The prefix, for a list."""
    sent_bytes: int = 0
    received_bytes: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Rule:
    """Which calls, and what becomes of them; see the module's docstring. `seen` and `fired` count what it met."""

    op: Op | Literal["*"] = "*"
    key: str = "*"
    """As in a shell; '*' matches '/' too."""
    nth: int = 1
    """The first of the matching calls, counted from 1, that it acts on."""
    times: int | None = 1
    """On how many calls it acts; None: on all from `nth`."""
    before: BaseException | None = None
    after: BaseException | None = None
    mangle: Callable[[bytes], bytes] | None = None
    gate: anyio.Event | None = None
    hang: Literal["", "before", "after"] = ""
    seen: int = 0
    fired: int = 0
    reached: anyio.Event = field(default_factory=anyio.Event)
    """Set when it first acts: a test that gates a call waits for this."""

    def meet(self, op: Op, key: str) -> bool:
        """Count the call if it matches, and say whether it is one to act on."""
        if (self.op != op and self.op != "*") or not fnmatchcase(key, self.key):
            return False
        self.seen += 1
        return self.seen >= self.nth and (self.times is None or self.fired < self.times)

    def fire(self) -> Rule:
        self.fired += 1
        self.reached.set()
        return self


_HARMLESS = Rule()


class RiggedStore:
    """Wraps a store: counts requests and bytes, adds latency, limits the link, and applies rules.

    Every rule counts the calls that it matches; of those that would act on a call the first does.
    """

    def __init__(
        self,
        inner: Store,
        *,
        latency: Latency = 0.0,
        link_bytes_per_second: float = math.inf,
        seed: int = 0,
        now: Callable[[], float] = anyio.current_time,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.inner = inner
        self.latency = latency
        self.link_bytes_per_second = link_bytes_per_second
        self.rules: list[Rule] = []
        self.requests: list[Request] = []
        """All of them, in the order they came, until `forget`."""
        self._random = random.Random(seed)
        self._now = now
        self._sleep = sleep
        self._link_free_at = -math.inf

    @property
    def url(self) -> str:
        return self.inner.url

    def add(self, rule: Rule) -> Rule:
        self.rules.append(rule)
        return rule

    def forget(self) -> None:
        """Start counting anew."""
        self.requests.clear()

    def matching(self, op: Op | Literal["*"] = "*", key: str = "*") -> Iterator[Request]:
        return (r for r in self.requests if op in (r.op, "*") and fnmatchcase(r.key, key))

    def count(self, op: Op | Literal["*"] = "*", key: str = "*") -> int:
        return sum(1 for _ in self.matching(op, key))

    def sent_bytes(self, op: Op | Literal["*"] = "*", key: str = "*") -> int:
        return sum(r.sent_bytes for r in self.matching(op, key))

    def received_bytes(self, op: Op | Literal["*"] = "*", key: str = "*") -> int:
        return sum(r.received_bytes for r in self.matching(op, key))

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        rule, request = await self._arrive("get", key)
        data = await self.inner.get(key, start=start, end=end)
        data = rule.mangle(data) if rule.mangle else data
        await self._answer(rule, request, len(data))
        return data

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        rule, request = await self._arrive("get_tail", key)
        data, length = await self.inner.get_tail(key, size)
        data = rule.mangle(data) if rule.mangle else data
        await self._answer(rule, request, len(data))
        return data, length

    async def create(self, key: str, data: Data) -> None:
        rule, request = await self._arrive("create", key, length_of(data))
        await self.inner.create(key, rule.mangle(b"".join(buffers(data))) if rule.mangle else data)
        await self._answer(rule, request)

    async def put(self, key: str, data: Data) -> None:
        """Where what it wraps has it."""
        assert isinstance(self.inner, PlainStore)
        rule, request = await self._arrive("put", key, length_of(data))
        await self.inner.put(key, rule.mangle(b"".join(buffers(data))) if rule.mangle else data)
        await self._answer(rule, request)

    async def delete(self, key: str) -> None:
        rule, request = await self._arrive("delete", key)
        await self.inner.delete(key)
        await self._answer(rule, request)

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        rule, request = await self._arrive("list", prefix)
        keys = await self.inner.list(prefix, start=start, limit=limit)
        await self._answer(rule, request, sum(map(len, keys)))
        return keys

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        rule, request = await self._arrive("list", prefix)
        found = await self.inner.sizes(prefix, start=start, limit=limit)
        await self._answer(rule, request, sum(len(key) for key, _ in found))
        return found

    async def aclose(self) -> None:
        await self.inner.aclose()

    async def _arrive(self, op: Op, key: str, sent_bytes: int = 0) -> tuple[Rule, Request]:
        request = Request(op, key, sent_bytes)
        self.requests.append(request)
        acting = [rule for rule in self.rules if rule.meet(op, key)]
        rule = acting[0].fire() if acting else _HARMLESS
        await self._wait(op, sent_bytes)
        if rule.gate is not None:
            await rule.gate.wait()
        if rule.hang == "before":
            await anyio.sleep_forever()
        if rule.before is not None:
            raise rule.before
        return rule, request

    async def _answer(self, rule: Rule, request: Request, received_bytes: int = 0) -> None:
        if rule.hang == "after":
            await anyio.sleep_forever()
        if rule.after is not None:
            raise rule.after
        request.received_bytes = received_bytes
        await self._transfer(received_bytes)

    async def _wait(self, op: Op, sent_bytes: int) -> None:
        seconds = self.latency(op, self._random) if callable(self.latency) else self.latency
        if seconds > 0:
            await self._sleep(seconds)
        await self._transfer(sent_bytes)

    async def _transfer(self, size: int) -> None:
        """Transfers go through the link one after the other."""
        if size and self.link_bytes_per_second < math.inf:
            now = self._now()
            self._link_free_at = max(now, self._link_free_at) + size / self.link_bytes_per_second
            await self._sleep(self._link_free_at - now)


def lognormal(median_seconds: float, sigma: float = 0.3) -> Latency:
    """Latency as object stores have it: most requests near the median, a few far above (sigma 0.3: p99 is twice the
    median)."""

    def draw(_op: Op, generator: random.Random) -> float:
        return median_seconds * math.exp(generator.gauss(0.0, sigma))

    return draw

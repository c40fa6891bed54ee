"""Names: a namespace as a pure function of its records (DESIGN §5).

A namespace is a volume of kind `names` in a private log, so that every process may change it. Its LSNs count its
records, and the LSN of a change becomes the revision of every name that it writes. A change states the revision of
the names it touches, as its caller saw them, and lands whole or not at all:

    op       touched[0]                          touched[1]                       what stands then
    bind     the name, or 0: it must be free     -                                name → target
    move     the name; 0: only names below it    the new one, or 0: it is free    name and all below it, under the new
    one
    unbind   the name                            -                                the name is free

A `retain` in its stream is no change of names and makes no LSN: it says the store's default (retention_policy.py).

The names are a sorted map over what the newest rollup has of them (name_map.py): moving a prefix of n names costs
O(n), any other change O(log n), and a listing what it lists; and no more of them is in memory than was asked for.

A move carries everything below `name/` along, so nothing may stand below `new/`. A repetition of what stands already,
by its token, succeeds.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Final, TypeVar

import msgspec
from anyio.lowlevel import checkpoint

from ...volume.errors import AlreadyExists, BadInput, Conflict, Corrupt, NotFound
from ...volume.ids import ClientId, VolumeId, check_name
from ...volume.limits import MOST_ANSWER_BYTES, MOST_NAME_BYTES, MOST_NAMES
from ...volume.name_attributes import check_attributes, is_readable
from ...volume.records import NameChange, Record, Retain, Touched
from ...volume.retention_policy import RetentionPolicy
from ...volume.rollup import RolledChange, RolledName
from ...volume.wire import NameDelta, NameEntry, NameList, NameRequest
from ..store.tree_nodes import NotLoaded, loading, loading_in_thread
from .entry_draft import AlreadyStands, Drafted
from .layered_map import LayeredMap
from .name_map import Gone, NameMap
from .open_stream import OpenStream
from .past_names import PastNames, names_at
from .recent_changes import EVERYTHING, Range, RecentChanges, range_below, reach_at, standing
from .rolled_names import ClientsBehind, NamesBehind
from .rolled_stream import RolledLog
from .state import Refusal
from .streams import Placed

MOST_LISTED: Final = 10_000
MANY: Final = 2_000
"""Names: moving or telling so many takes a few milliseconds."""
_REVISIONS: Final = range(1 << 64)


Judged = Drafted | AlreadyStands | Refusal


_NAMESPACE_BYTES: Final = 4_000
_CHANGE_BYTES: Final = 1_500
"""Of memory, about: of an open namespace, and of each name and change that no rollup has."""

T = TypeVar("T")

Bound = RolledName


def _entry(name: str, bound: Bound) -> NameEntry:
    return NameEntry(
        name=name, target=bound.target, revision=bound.revision, attributes=bound.attributes, time=bound.time
    )


@dataclass(frozen=True, slots=True)
class NamesState:
    vid: bytes
    head: int = 0
    time: int = 0
    names: NameMap[Bound] = field(default_factory=NameMap[Bound])
    clients: LayeredMap[bytes, tuple[bytes, int]] = field(default_factory=LayeredMap[bytes, "tuple[bytes, int]"])
    """Each client's newest change: (token, LSN)."""
    policy: RetentionPolicy | None = None
    """Of every volume that has none of its own."""
    last: RolledChange | None = None
    """What made these of those before; None where a rollup did."""

    def lookup(self, name: str) -> NameEntry | None:
        bound = self.names.get(name)
        return None if bound is None else _entry(name, bound)

    def below(self, name: str) -> Iterator[tuple[str, Bound]]:
        return self.names.between(*range_below(name))


def names_behind(vid: bytes, rolled: NamesBehind) -> NamesState:
    """The state that a rollup says. Raises NotLoaded, Corrupt."""
    told = rolled.state()
    if told is None:
        return NamesState(vid)
    names, clients = NameMap(rolled, told.count), LayeredMap(ClientsBehind(rolled))
    return NamesState(vid, told.head, told.time, names, clients, told.policy)


def apply_change(state: NamesState, record: Record) -> NamesState | Refusal:
    if isinstance(record, Retain) and record.vid == state.vid:
        return replace(state, policy=record.policy)
    if not isinstance(record, NameChange) or record.vid != state.vid:
        return Refusal(BadInput("a namespace takes changes of its names alone"), final=True)
    if record.lsn != state.head + 1 or record.time <= state.time:
        return Refusal(BadInput(f"a change of names after LSN {state.head} can't be LSN {record.lsn} at {record.time}"))
    refused = _check(state, record)
    if refused is not None:
        return refused
    names = state.names
    if record.op == "bind":
        names = names.put(record.touched[0].name, _bound(record))
    elif record.op == "unbind":
        names = names.without(record.touched[0].name, record.lsn)
    else:
        names = _moved(state, record)
    clients = state.clients.put(record.client, (record.token, record.lsn))
    last = _told(state, record)
    return replace(state, head=record.lsn, time=record.time, names=names, clients=clients, last=last)


def _told(state: NamesState, record: NameChange) -> RolledChange:
    """Of the change to that state, what is remembered."""
    stood = (state.names.get(touched.name) for touched in record.touched)
    return RolledChange(
        lsn=record.lsn,
        names=tuple(touched.name for touched in record.touched),
        below=record.op == "move",
        time=record.time,
        was=tuple(None if each is None else msgspec.structs.replace(each, token=b"") for each in stood),
    )


def judge_change(state: NamesState, request: NameRequest, now_ms: int) -> Judged:
    """What to write for the request. `apply_change` is asked next."""
    token = token_of_change(request)
    stands = _standing(state, request, token)
    if stands:
        return AlreadyStands(stands)
    touched = [Touched(name=request.name, revision=request.revision)]
    if request.op == "move":
        touched.append(Touched(name=request.new, revision=request.new_revision))
    if request.op == "bind" and len(state.names) >= MOST_NAMES and request.name not in state.names:
        return Refusal(BadInput(f"a namespace has at most {MOST_NAMES:,} names: remove some"))
    if request.op == "move" and _longest_moved(state, request.name, request.new) > MOST_NAME_BYTES:
        message = f"a name below {request.name!r} would have more than {MOST_NAME_BYTES:,} bytes below {request.new!r}"
        return Refusal(BadInput(message))
    record = NameChange(
        vid=state.vid,
        lsn=state.head + 1,
        op=request.op,
        touched=tuple(touched),
        target=request.target,
        attributes=request.attributes,
        client=request.client,
        token=token,
        time=max(state.time + 1, now_ms),
    )
    return Drafted(record, record.lsn)


def judge_default(policy: RetentionPolicy | None) -> Callable[[NamesState, int], Judged]:
    """What to write so that it is the store's default."""

    def judge(state: NamesState, now_ms: int) -> Judged:
        if policy == state.policy:
            return AlreadyStands(None)
        return Drafted(Retain(vid=state.vid, policy=policy, time=now_ms), None)

    return judge


def check_names(request: NameRequest) -> None:
    """Raises BadInput on a request that could never land."""
    check_name(request.name)
    if request.op not in {"bind", "move", "unbind"}:
        raise BadInput(f"{request.op!r} is no change of a name: bind, move or unbind")
    if request.revision not in _REVISIONS or request.new_revision not in _REVISIONS:
        raise BadInput("a name's revision is 0 or more, and has 64 bits")
    if request.client:
        ClientId(request.client)
    if request.op == "bind" or request.target:
        VolumeId(request.target)
    if request.op == "move":
        check_name(request.new)
    check_attributes(request.attributes)


def token_of_change(request: NameRequest) -> bytes:
    """Names the whole request, so that a client alone never swallows a change."""
    return hashlib.blake2b(
        msgspec.msgpack.encode(request, order="deterministic"), digest_size=32, person=b"budwood.names"
    ).digest()


class Namespace(OpenStream[NamesState]):
    """The names as this process has read them."""

    def __init__(self, vid: VolumeId) -> None:
        super().__init__(vid, NamesState(vid.raw))
        self._recent = RecentChanges()
        self._log: RolledLog | None = None
        self._rolled: NamesBehind | None = None
        """What the state lies over."""
        self._rolled_head = 0
        """The revision of that."""
        self._listed_past: tuple[int, PastNames] | None = None
        """By the time that was asked for."""
        self._drafted: tuple[NamesState, Record, NamesState | Refusal] | None = None
        """What the last record that was judged here comes to, so that moving many names is done once and not twice."""

    @property
    def weight(self) -> int:
        """See kept_open.Openable."""
        past = len(self._listed_past[1].names.changes) if self._listed_past is not None else 0
        return _NAMESPACE_BYTES + _CHANGE_BYTES * (len(self.state.names.changes) + len(self._recent) + past)

    @property
    def busy(self) -> bool:
        """See kept_open.Openable: all of it can be read again."""
        return False

    def enter(self, log: RolledLog, rolled: NamesBehind, state: NamesState) -> None:
        """Begin with what that log's rollup has of them."""
        self.state, self._log, self._rolled, self._rolled_head = state, log, rolled, state.head

    def apply(self, state: NamesState, record: Record) -> NamesState | Refusal:
        if self._drafted is None or self._drafted[0] is not state or self._drafted[1] is not record:
            self._drafted = (state, record, apply_change(state, record))
        return self._drafted[2]

    async def rehearsed(self, request: NameRequest, now_ms: int) -> Callable[[NamesState, int], Judged]:
        """What judges the request. A move of many names is judged and applied beforehand, in a thread, so that nobody
        waits for it; that counts if the names are the same when its turn has come."""
        state = self.state

        def judge(state: NamesState, now_ms: int) -> Judged:
            return judge_change(state, request, now_ms)

        def is_large() -> bool:
            return next(islice(state.below(request.name), MANY, None), None) is not None

        if request.op != "move" or not await loading(is_large):
            return judge

        def rehearse() -> tuple[Judged, NamesState | Refusal | None]:
            judged = judge(state, now_ms)
            return judged, apply_change(state, judged.record) if isinstance(judged, Drafted) else None

        early, after = await loading_in_thread(rehearse)
        if isinstance(early, Drafted) and after is not None and self.state is state:
            self._drafted = (state, early.record, after)
        return lambda at, now_ms: early if at is state else judge(at, now_ms)

    def take(self, placed: Placed) -> bool:
        """See streams.Taker."""
        drafted, self._drafted = self._drafted, None
        if drafted is not None and drafted[0] is self.state and drafted[1] is placed.record:
            after = drafted[2]
        else:
            after = apply_change(self.state, placed.record)
        if isinstance(after, Refusal):
            raise Corrupt(placed.key, f"it carries what can't be: {after.error}")
        self.state = after
        if isinstance(placed.record, NameChange) and after.last is not None:
            self._recent.note(after.last)
            self.tell()
        return True

    def rebase(self) -> bool:
        """See streams.Taker. Where the rollup isn't in memory, all stays."""
        if self._log is None:
            return True
        rolled = NamesBehind(self._log, self.id)
        try:
            told = rolled.state()
        except NotLoaded:
            return True
        head = 0 if told is None else told.head
        if not self._rolled_head <= head <= self.state.head:
            return False
        if head > self._rolled_head:
            clients = self.state.clients.over(ClientsBehind(rolled), lambda _, last: last is None or last[1] > head)
            names = self.state.names.over(rolled, lambda change: _lsn_of(change) > head)
            self.state = replace(self.state, names=names, clients=clients)
            self._recent.forget(head)
            self._rolled, self._rolled_head = rolled, head
        return True

    async def lookup(self, name: str) -> NameEntry | None:
        """Raises Corrupt, Unavailable."""
        return await loading(lambda: self.state.lookup(name))

    async def listed(self, prefix: str, after: str, limit: int, at: int = 0) -> NameList:
        """Names that start with `prefix` and sort behind `after`, sorted: at most `limit`, and no more than an answer
        may hold. As they stood at that time, in milliseconds; as they stand, where it is 0.
        """
        past = await self._past(at) if at else PastNames(self.state.names, self.state.head, 0)
        names, head, part = past.names, past.head, _Part(limit)

        def behind(after: str) -> Iterator[tuple[str, Bound]]:
            return ((name, bound) for name, bound in names.between(max(prefix, after)) if name > after)

        async with aclosing(_walk(behind, after, limit)) as walk:
            async for name, bound in walk:
                if not name.startswith(prefix):
                    break
                if part.full:
                    return NameList(entries=tuple(part.entries), next=part.last, head=head, at=past.at)
                await part.add(name, bound)
        return NameList(entries=tuple(part.entries), head=head, at=past.at)

    async def _past(self, at: int) -> PastNames:
        if self._listed_past is not None and self._listed_past[0] == at:
            return self._listed_past[1]
        state, recent, rolled = self.state, list(self._recent), self._rolled

        def remembered() -> list[RolledChange]:
            return [] if rolled is None else list(rolled.changes(reach_at(state.head)))

        past = await names_at(state, [*await loading_in_thread(remembered), *recent], at)
        if past.head < state.head:
            # No later change makes another of it, and who lists it asks for its parts one after the other.
            self._listed_past = at, past
        return past

    async def delta(self, since: int, after: str, limit: int) -> NameDelta:
        """What became of the names since that revision; of all of them, where that isn't remembered."""

        def asked() -> tuple[NamesState, list[Range] | None]:
            return self.state, self._touched_since(since) if since else None

        state, ranges = await loading(asked)
        if ranges is None:
            since, ranges = 0, [EVERYTHING]
        part = _Part(limit)
        async with aclosing(_walk(partial(standing, state.names, ranges), after, limit)) as walk:
            async for name, bound in walk:
                if part.full:
                    break
                await part.add(name, bound)
            else:
                part.last = ""
        entries, gone = tuple(part.entries), tuple(part.gone)
        return NameDelta(since=since, entries=entries, gone=gone, next=part.last, head=state.head)

    def _touched_since(self, revision: int) -> list[Range] | None:
        """Raises NotLoaded."""
        if revision < reach_at(self.state.head):
            return None
        rolled = self._rolled.changes(revision) if self._rolled is not None and revision < self._rolled_head else ()
        return self._recent.since(revision, rolled)


async def _walk(
    behind: Callable[[str], Iterator[tuple[str, T]]], after: str, limit: int
) -> AsyncGenerator[tuple[str, T], None]:
    """What `behind` gives behind `after`, with what isn't in memory loaded; a few at a time, no more of them ahead than
    are wanted."""
    few = max(1, min(limit + 1, MANY))
    while True:
        found = await loading(lambda after=after: list(islice(behind(after), few)))  # type: ignore[misc]
        for each in found:
            yield each
        if len(found) < few:
            return
        after = found[-1][0]


class _Part:
    """Of an answer: as many names as it may hold."""

    def __init__(self, limit: int) -> None:
        self.entries: list[NameEntry] = []
        self.gone: list[str] = []
        self.last = ""
        self._room = max(1, min(limit, MOST_LISTED))
        self._bytes = 0

    @property
    def full(self) -> bool:
        return not self._room or self._bytes >= MOST_ANSWER_BYTES

    async def add(self, name: str, bound: Bound | None) -> None:
        if bound is None:
            self.gone.append(name)
            self._bytes += len(name.encode())
        else:
            self.entries.append(_entry(name, bound))
            self._bytes += len(msgspec.msgpack.encode(self.entries[-1]))
        self._room -= 1
        self.last = name
        if (len(self.entries) + len(self.gone)) % MANY == 0:
            # The names that are walked through stay as they were when the walk began.
            await checkpoint()


def _standing(state: NamesState, request: NameRequest, token: bytes) -> int:
    """The LSN of this very change, if what it made still stands; else 0."""
    if request.op in {"bind", "move"}:
        bound = state.names.get(request.name if request.op == "bind" else request.new)
        if bound is not None and bound.token == token:
            return bound.revision
    last = state.clients.get(request.client)
    if last is None or last[0] != token:
        return 0
    # A revision is used up by the change that names it, so that the same change can't be meant a second time.
    below = state.below(request.new) if request.op == "move" else ()
    if request.revision > 0 or any(bound.token == token for _, bound in below):
        return last[1]
    return 0


def _check(state: NamesState, record: NameChange) -> Refusal | None:
    wanted = 2 if record.op == "move" else 1
    if len(record.touched) != wanted or record.op not in {"bind", "move", "unbind"}:
        return Refusal(BadInput(f"a change of names by {record.op!r} of {len(record.touched)} names"), final=True)
    first, last = record.touched[0].name, record.touched[-1].name
    if record.op == "move" and f"{last}/".startswith(f"{first}/"):
        return Refusal(BadInput(f"{first!r} can't be moved to or below itself"), final=True)
    for touched in record.touched:
        bound = state.names.get(touched.name)
        if (bound.revision if bound else 0) != touched.revision:
            return Refusal(_conflict(touched, bound))
    name = record.touched[0]
    if record.op == "unbind" and name.revision == 0:
        return Refusal(NotFound(f"there is no {name.name!r}"))
    if record.op == "move":
        return _check_move(state, name, record.touched[1])
    return None


def _check_move(state: NamesState, name: Touched, new: Touched) -> Refusal | None:
    own = f"{name.name}/"
    if name.revision == 0 and next(state.below(name.name), None) is None:
        return Refusal(NotFound(f"there is no {name.name!r}"))
    # What is moved out from below `new` is not in the way.
    standing = (other for other, _ in state.below(new.name) if other != name.name and not other.startswith(own))
    other = next(standing, None)
    if other is not None:
        return Refusal(AlreadyExists(f"{other!r} stands below {new.name!r}: move it away first"))
    return None


def _conflict(touched: Touched, bound: Bound | None) -> Conflict:
    if touched.revision == 0:
        return Conflict(f"the name {touched.name!r} is taken", head=bound.revision if bound else 0)
    if bound is None:
        return Conflict(f"the name {touched.name!r} is gone: someone changed it meanwhile")
    return Conflict(f"the name {touched.name!r} was changed meanwhile: look again", head=bound.revision)


def _lsn_of(change: Bound | Gone) -> int:
    return change.lsn if isinstance(change, Gone) else change.revision


def _longest_moved(state: NamesState, old: str, new: str) -> int:
    """In bytes: of the names that a move would make below `new`; 0 where none gets longer."""
    grows = len(new.encode()) - len(old.encode())
    if grows <= 0:
        return 0
    return max((len(name.encode()) for name, _ in state.below(old)), default=0) + grows


def _bound(record: NameChange) -> Bound:
    attributes = record.attributes if is_readable(record.attributes) else {}
    return Bound(target=record.target, revision=record.lsn, attributes=attributes, time=record.time, token=record.token)


def _moved(state: NamesState, record: NameChange) -> NameMap[Bound]:
    old, new = record.touched[0].name, record.touched[1].name

    def moved(name: str, bound: Bound) -> tuple[str, Bound]:
        there = new + name[len(old) :]
        return there, msgspec.structs.replace(bound, revision=record.lsn, time=record.time, token=record.token)

    # They stay in their order, since all of them change the same way at their beginning.
    below = [moved(name, bound) for name, bound in state.below(old)]
    own = state.names.get(old) if record.touched[0].revision else None
    names = state.names.spliced(*range_below(old), (), record.lsn)
    if own is not None:
        names = names.without(old, record.lsn)
    names = names.without(new, record.lsn) if own is None else names.put(*moved(old, own))
    return names.spliced(*range_below(new), below, record.lsn)

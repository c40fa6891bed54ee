"""Rolled streams: what the newest rollup of a log says of its streams (volume/rollup.py; DESIGN §4, rule 9).

All of it raises NotLoaded (store/tree_nodes.py) where a node isn't in memory, and Corrupt where one is damaged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from ...volume.entry import entry_key
from ...volume.envelope import decode
from ...volume.errors import BadInput, Corrupt
from ...volume.lru_cache import LruCache
from ...volume.pageset import decode_pages
from ...volume.records import Close, Commit, decode_record
from ...volume.rollup import (
    CLIENT,
    COMMIT,
    FORK,
    PART,
    RUN,
    STATE,
    RolledClient,
    RolledCommit,
    RolledFork,
    RolledPart,
    RolledRun,
    RolledState,
    Rollup,
    Stay,
    nodes_folder,
    number,
    rollup_key,
    stream_key,
)
from ...volume.setsum import Setsum
from ..store.tree import Tree
from ..store.tree_nodes import Nodes, NotLoaded
from .history import Landed, Run
from .layered_map import LayeredMap
from .state import Last, StreamState
from .streams import Part

_DECODED_BYTES: Final = 16 << 20
"""Of memory: commits and runs that are kept decoded, of all streams of a log."""
_EACH_BYTES: Final = 1_000
"""What one takes beside its bytes, about."""

_NOTHING: Final = Setsum()
_IN_A_ROLLUP: Final = "a commit in a rollup"

_STREAM: Final = 16
"""Bytes that all keys of a stream begin with."""

T = TypeVar("T")


def weigh(key: bytes, value: bytes) -> Setsum:
    """What an item of a rollup's tree adds to its sum. Raises Corrupt."""
    match key[16:17]:
        case b"c":
            return _sum_of(commit_in(_IN_A_ROLLUP, decode(_IN_A_ROLLUP, value, RolledCommit)).setsum)
        case b"p":
            return _sum_of(decode(_IN_A_ROLLUP, value, RolledPart).part.setsum)
        case b"s":
            return _sum_of(decode(_IN_A_ROLLUP, value, RolledState).folded)
        case _:
            return _NOTHING


def _sum_of(digest: bytes) -> Setsum:
    try:
        return Setsum.of_sums([digest])
    except BadInput as error:
        raise Corrupt(_IN_A_ROLLUP, str(error)) from error


def commit_in(key: str, rolled: RolledCommit) -> Commit:
    record = decode_record(key, rolled.record)
    if not isinstance(record, Commit):
        raise Corrupt(key, "a record stands where a commit belongs")
    return record


class _Decoded(NamedTuple):
    what: Any
    weight: int


class RolledLog:
    """The newest rollup of a log that this process goes by. It moves on; what it says of the past stays the same."""

    def __init__(self, nodes: Nodes, log: str) -> None:
        self.log = log
        self.name = ""
        self.slot = -1
        """The last that it covers."""
        self.folds = False
        """Whether a stream in it was folded."""
        self.policies = False
        """Whether a stream in it has a policy, or one in an earlier rollup had."""
        self.relocations = False
        """The same of a fold that has relocated pages."""
        self.rules = False
        """And of rules."""
        self.followed = True
        """Whether it is known that no part in it could not be followed."""
        self.tree = Tree(nodes, nodes_folder(log), None, weigh)
        self.nodes = nodes
        self._decoded = LruCache[bytes, _Decoded](_DECODED_BYTES, lambda held: held.weight)
        self._lock = threading.Lock()

    def move_on(self, name: str, rollup: Rollup) -> None:
        self.name, self.slot = name, rollup.slot
        self.folds, self.policies, self.relocations = rollup.folds, rollup.policies, rollup.relocations
        self.rules, self.followed = rollup.rules, rollup.followed
        self.tree = Tree(self.nodes, nodes_folder(self.log), rollup.tree, weigh)

    def as_it_is(self) -> RolledLog:
        """The same, that does not move on."""
        other = RolledLog(self.nodes, self.log)
        other.name, other.slot = self.name, self.slot
        other.folds, other.policies, other.relocations = self.folds, self.policies, self.relocations
        other.rules, other.followed, other.tree = self.rules, self.followed, self.tree
        return other

    def next_stream(self, key: bytes = b"") -> bytes:
        """The first bytes of the next stream's keys, or of the first's; b"" behind the last."""
        start = (int.from_bytes(key, "big") + 1).to_bytes(_STREAM, "big") if key else b""
        found = next(self.tree.entries(start), None)
        return found[0][:_STREAM] if found else b""

    def decoded(self, key: bytes, decode: Callable[[bytes], T]) -> T:
        """A commit or a run: they never change. Threads may ask."""
        with self._lock:
            found = self._decoded.get(key)
        if found is None:
            value = self.tree.get(key)
            if value is None:
                raise Corrupt(rollup_key(self.log, self.name), f"its tree lacks {key.hex()}, which it said that it has")
            found = _Decoded(decode(value), _EACH_BYTES + 2 * len(value))
            with self._lock:
                self._decoded.put(key, found)
        decoded: T = found.what
        return decoded

    @property
    def decoded_bytes(self) -> int:
        """What those take that are kept decoded."""
        return self._decoded.held


class RolledStream:
    """One stream in it, by its id, or by the bytes that all its keys begin with."""

    def __init__(self, log: RolledLog, stream: str | bytes) -> None:
        self.log = log
        self._key = stream_key(stream) if isinstance(stream, str) else stream

    def state(self) -> RolledState | None:
        found = self.log.tree.get(self._key + STATE)
        return None if found is None else decode(self._name, found, RolledState)

    def restored(self, stay: Stay, vid: bytes, *, finished: bool) -> StreamState:
        """The state at the end of a stay."""
        closed = None
        if stay.closed is not None:
            closed = Close(vid=vid, to=stay.closed[0], head=stay.head, length=stay.length)
        return StreamState(
            vid,
            stay.head,
            stay.length,
            stay.time,
            LayeredMap(_Clients(self)),
            LayeredMap(_Forks(self)),
            stay.since,
            stay.collect,
            stay.collected,
            closed,
            finished,
            stay.fold,
            stay.policy,
            stay.rules,
        )

    def rebased(self, state: StreamState, stay: Stay) -> StreamState:
        """The same state, over what the rollup has at the end of that stay."""
        clients = state.clients.over(_Clients(self), lambda _, last: last is None or last.lsn > stay.head)
        forks = _Forks(self)
        return replace(state, clients=clients, forks=state.forks.over(forks, forks.may_lack))

    def parts(self) -> list[Part]:
        """Those that whoever made the rollup could not follow."""
        return [] if self.log.followed else [self._part(key, value) for key, value in self.between(PART)]

    def unfollowed(self) -> bool:
        """Whether there are any."""
        return not self.log.followed and next(self.between(PART), None) is not None

    def range(self, page_size: int, start: int) -> RolledRange:
        """The commits of the stay that began at that LSN."""
        return RolledRange(self.log, self._key, page_size, start)

    def get(self, letter: bytes, rest: bytes) -> bytes | None:
        return self.log.tree.get(self._key + letter + rest)

    def between(self, letter: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All under that letter: what follows it in the key, and the value."""
        start = self._key + letter
        return ((key[len(start) :], value) for key, value in self.log.tree.entries(start, _behind(start)))

    def commits_behind(self, lsn: int) -> Iterator[tuple[bytes, bytes]]:
        """The keys and values of those with higher LSNs."""
        start = self._key + COMMIT
        return self.log.tree.entries(start + number(lsn + 1), _behind(start))

    def client_of(self, value: bytes) -> Last:
        return Last(*_fields(decode(self._name, value, RolledClient)))

    def fork_of(self, value: bytes) -> int:
        return decode(self._name, value, RolledFork).lsn

    def _part(self, key: bytes, value: bytes) -> Part:
        slot, rolled = int.from_bytes(key, "big"), decode(self._name, value, RolledPart)
        return Part(entry_key(self.log.log, slot), rolled.size, slot, rolled.part, None)

    @property
    def _name(self) -> str:
        return rollup_key(self.log.log, self.log.name)


def _fields(client: RolledClient) -> tuple[bytes, int, int, int]:
    return client.token, client.base, client.lsn, client.time


class RolledRange:
    """See history.Rolled. Threads may ask."""

    def __init__(self, log: RolledLog, key: bytes, page_size: int, start: int) -> None:
        self._log = log
        self._key = key
        self._page_size = page_size
        self._start = start

    def commit(self, lsn: int) -> Landed:
        return self._log.decoded(self._key + COMMIT + number(lsn), self._landed)

    def run(self, level: int, place: int) -> Run:
        if not level:
            return Run.of(self.commit(self._start + place + 1), self._page_size)
        return self._log.decoded(run_key(self._key, self._start, level, place), self._run)

    def _landed(self, value: bytes) -> Landed:
        rolled = decode(self._name, value, RolledCommit)
        entry = entry_key(self._log.log, rolled.slot)
        return Landed.of(commit_in(self._name, rolled), entry, rolled.size, rolled.before)

    def _run(self, value: bytes) -> Run:
        rolled = decode(self._name, value, RolledRun)
        return Run(decode_pages(self._name, rolled.pages), rolled.floor, rolled.reach)

    @property
    def _name(self) -> str:
        return rollup_key(self._log.log, self._log.name)


def _behind(start: bytes) -> bytes:
    """Of all keys that begin so."""
    return start[:-1] + bytes([start[-1] + 1])


def parts_of_run(rest: bytes) -> tuple[int, int, int]:
    """Start, level and place of a run, from what follows the letter in its key."""
    return int.from_bytes(rest[:8], "big"), rest[8], int.from_bytes(rest[9:], "big")


def run_key(stream: bytes, start: int, level: int, place: int) -> bytes:
    return stream + RUN + number(start) + bytes([level]) + number(place)


class _Clients:
    """See layered_map.Below."""

    def __init__(self, stream: RolledStream) -> None:
        self._stream = stream

    def get(self, client: bytes, /) -> Last | None:
        found = self._stream.get(CLIENT, client)
        return None if found is None else self._stream.client_of(found)

    def items(self) -> Iterator[tuple[bytes, Last]]:
        return ((client, self._stream.client_of(value)) for client, value in self._stream.between(CLIENT))


class _Forks:
    """See layered_map.Below."""

    def __init__(self, stream: RolledStream) -> None:
        self._stream = stream

    def get(self, child: bytes, /) -> int | None:
        found = self._stream.get(FORK, child)
        return None if found is None else self._stream.fork_of(found)

    def may_lack(self, child: bytes, lsn: int | None) -> bool:
        """Whether it says something else, or isn't in memory. Since when a fork is there its LSN doesn't tell."""
        try:
            return self.get(child) != lsn
        except NotLoaded:
            return True

    def items(self) -> Iterator[tuple[bytes, int]]:
        return ((child, self._stream.fork_of(value)) for child, value in self._stream.between(FORK))

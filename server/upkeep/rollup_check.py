"""Rollup check: that a rollup is what replaying its log comes to, to the last item.

What a rollup must have otherwise than the one before follows from the entries in between (metastore/rollup_builder.py);
what it has otherwise is read from the two trees (tree_diff.py). So each rollup is checked from the last one that was
found right, and every node of every rollup that stands is read once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec

from ...volume.envelope import decode
from ...volume.errors import BadInput, BudwoodError, Corrupt, Unsupported
from ...volume.ids import VolumeId
from ...volume.pageset import decode_pages
from ...volume.records import Birth, Commit, NameChange, StreamRecords, decode_record
from ...volume.rollup import (
    CHANGE,
    CLIENT,
    COMMIT,
    FORK,
    NAME,
    NAMES,
    PART,
    RUN,
    STATE,
    RolledChange,
    RolledClient,
    RolledCommit,
    RolledFork,
    RolledName,
    RolledNames,
    RolledPart,
    RolledRun,
    RolledState,
    Rollup,
    nodes_folder,
    parse_rollup,
    rollup_key,
    slot_of_rollup,
    stream_key,
)
from ...volume.tree_node import Pointer, node_problem
from ..log.chain import Chain
from ..metastore.rolled_stream import RolledLog
from ..metastore.rollup_builder import rolled_up
from ..metastore.streams import Part
from ..store.tree_nodes import Nodes, loading
from .findings import Span, Wrong, words_of
from .objects import Objects
from .reach import Reach
from .tree_diff import Difference, Hidden, difference

_KINDS: Final[dict[bytes, type[msgspec.Struct]]] = {
    STATE: RolledState,
    COMMIT: RolledCommit,
    RUN: RolledRun,
    CLIENT: RolledClient,
    FORK: RolledFork,
    PART: RolledPart,
    NAMES: RolledNames,
    NAME: RolledName,
    CHANGE: RolledChange,
}


class Behind(NamedTuple):
    """What a log carries behind the rollup that it was last followed from."""

    chain: Chain
    tails: Mapping[str, list[Part]]
    births: Mapping[str, Birth]
    unborn: Collection[str]
    """Streams whose birth can't be read: what they come to isn't known."""
    known: bool
    """Whether every entry could be read."""


@dataclass(slots=True)
class Lost:
    """What an entry carried that is lost, as a rollup has it."""

    commits: list[tuple[RolledCommit, Commit]]
    parts: list[tuple[str, StreamRecords]]


class RollupCheck:
    """Of one log."""

    def __init__(self, objects: Objects, nodes: Nodes, base: RolledLog, reach: Reach, names: str) -> None:
        self._objects = objects
        self._nodes = nodes
        self._base = base
        self._reach = reach
        self._names = names
        self._folder = nodes_folder(base.log)
        self.begin: Rollup | None = None
        """The one that readers begin from."""
        self.begin_name = ""
        self.blind = False
        """Whether a rollup or a node couldn't be read, and so what it leads to not looked at."""

    async def read(self, name: str) -> Rollup:
        """Raises Corrupt, if it is missing too; Unsupported."""
        return await read_rollup_of(self._objects, self._base.log, name)

    async def check(self, name: str, behind: Behind) -> tuple[Rollup | None, list[Wrong]]:
        """The rollup, if readers may go on from it, and what is wrong with it and its nodes."""
        wrong = Wrong(rollup_key(self._base.log, name))
        try:
            rollup = await self.read(name)
        except (Corrupt, Unsupported) as error:
            wrong.add(words_of(wrong.key, error))
            wrong.stops = self._base.log if name == self.begin_name else ""
            self.blind = True
            return None, [wrong]
        stands = Chain.behind(rollup)
        if behind.known and stands != behind.chain:
            wrong.add(f"its log does not stand at slot {rollup.slot} as it says")
        if rollup.previous and not _is_before(rollup.previous, rollup.slot):
            wrong.add("it was made from a rollup of no fewer slots")
        try:
            found = await difference(self._nodes, self._folder, self._base.tree.root, rollup.tree)
        except (Corrupt, Unsupported) as error:
            # A node of the rollup before was right, and is so no more.
            key = error.key if isinstance(error, Corrupt) else wrong.key
            return None, [wrong, Wrong(key, [words_of(key, error)])]
        expected = await self._expected(behind)
        if behind.known and expected is not None:
            for problem, spans in await self._compare(rollup, found, expected, behind):
                wrong.add(problem, spans if name == self.begin_name else [])
        self.blind = self.blind or bool(found.hidden) or expected is None
        blind = not behind.known and not self._base.name
        nodes = [await self._hidden(each, expected or {}, blind=blind) for each in found.hidden]
        right = not wrong.problems and not nodes and expected is not None
        return rollup if right else None, [wrong, *nodes]

    async def lost(self, slot: int, rollup: Rollup) -> Lost:
        """Of the entry in that slot, which the rollup covers. Raises Corrupt, Unsupported."""
        found = await difference(self._nodes, self._folder, self._base.tree.root, rollup.tree)
        lost = Lost([], [])
        key = rollup_key(self._base.log, "")
        for at, value in found.items.items():
            letter = at[16:17]
            if value is None:
                continue
            if letter == COMMIT:
                rolled = decode(key, value, RolledCommit)
                record = decode_record(key, rolled.record)
                if rolled.slot == slot and isinstance(record, Commit):
                    lost.commits.append((rolled, record))
            elif letter == PART and int.from_bytes(at[17:], "big") == slot:
                lost.parts.append((self._stream_of(at), decode(key, value, RolledPart).part))
        return lost

    async def _expected(self, behind: Behind) -> dict[bytes, bytes | None] | None:
        """None where it isn't known: what the log carries, or the rollup before, can't be read."""
        try:
            return dict((await rolled_up(self._base, behind.tails, behind.births)).items)
        except (Corrupt, Unsupported):
            return None

    async def _compare(
        self, rollup: Rollup, found: Difference, expected: dict[bytes, bytes | None], behind: Behind
    ) -> list[tuple[str, list[Span]]]:
        unborn = {stream_key(stream) for stream in behind.unborn}
        tree, told_of_nodes = self._base.tree.at(rollup.tree), {hidden.key for hidden in found.hidden}
        problems: list[tuple[str, list[Span]]] = []
        parts = any(key[16:17] == PART and value is not None for key, value in found.items.items())
        if rollup.followed and (parts or not self._base.followed):
            problems.append(("it says that every part was followed, and has one that was not", []))
        for key in sorted(found.items.keys() | expected.keys()):
            if key[:16] in unborn or found.hides(key):
                continue
            try:
                told = found.items[key] if key in found.items else await loading(partial(tree.get, key))
                same = key in expected and _agree(_value(key, told), _value(key, expected[key]))
            except (Corrupt, Unsupported) as error:
                # A key below the first of all is looked for in the node of that one.
                if not isinstance(error, Corrupt) or error.key not in told_of_nodes:
                    problems.append((f"an item of its tree can't be read: {error}", await self._spans_of(key, None)))
                continue
            if not same:
                what = f"its tree says of {_words(key)} what its log does not"
                problems.append((what, await self._spans_of(key, told)))
        return problems

    async def _hidden(self, hidden: Hidden, expected: Mapping[bytes, bytes | None], *, blind: bool) -> Wrong:
        """`blind` where nothing is known of what it may have held."""
        wrong = Wrong(hidden.key, [hidden.problem])
        if not await self._is_in_use(hidden.pointer):
            return wrong
        items = {key: value for key, value in expected.items() if hidden.hides(key)}
        # Of what the rollup before has there, as far as that can be read.
        with suppress(Corrupt, Unsupported):
            items = {**dict(await self._base.tree.between(hidden.pointer.first, hidden.end)), **items}
        for key, value in sorted(items.items(), key=itemgetter(0)):
            span = self._span_of(key, value)
            if span is not None:
                whole = key[16:17] == STATE
                wrong.spoils += [span] if span.names else await self._reach.of_all(*span[:2], whole=whole)
        for stream in sorted({self._stream_of(key) for key in items if key[16:17] == FORK}):
            wrong.spoils += await self._reach.below_since(stream)
        # Whoever looks for a volume that came since looks there, too.
        streams = await self._reach.born_between(hidden.pointer.first[:16], (hidden.end or b"")[:16])
        if blind and self._stream_of(hidden.pointer.first):
            streams.insert(0, self._stream_of(hidden.pointer.first))
        for stream in streams:
            if stream == self._names:
                wrong.spoils.append(Span(stream, 1, None, names=True))
            elif blind or await self._reach.was_born_in(stream, self._base.log):
                wrong.spoils += await self._reach.of_all(stream, 1, whole=True)
        return wrong

    async def sweep(self) -> list[Wrong]:
        """What is wrong with the nodes that stand, by their names alone: of those that nothing that can be read leads
        to any more, too."""
        found: list[Wrong] = []
        async for key in self._objects.keys(f"{self._folder}/"):
            data = await self._objects.get(key)
            problem = "" if data is None else node_problem(key, data)
            if problem:
                found.append(Wrong(key, [problem]))
        return found

    async def _is_in_use(self, pointer: Pointer) -> bool:
        """Whether the tree that readers begin from leads to it."""
        at = self.begin.tree if self.begin is not None else None
        while at is not None and at.level > pointer.level:
            try:
                node = await self._nodes.load(self._folder, at)
            except (Corrupt, Unsupported):
                return False
            at = node.children[node.child_for(pointer.first)]
        return at is not None and (at.number, at.digest) == (pointer.number, pointer.digest)

    async def _spans_of(self, key: bytes, told: bytes | None) -> list[Span]:
        """What can't be read without that item."""
        if key[16:17] == FORK:
            return await self._reach.below_since(self._stream_of(key))
        span = self._span_of(key, told)
        return [span] if span is not None else []

    def _span_of(self, key: bytes, told: bytes | None) -> Span | None:
        """From which LSN on, but for forks."""
        stream, letter, rest = self._stream_of(key), key[16:17], key[17:]
        if not stream:
            return None
        if letter == STATE:
            return Span(stream, 1, None)
        if letter == COMMIT:
            return Span(stream, int.from_bytes(rest, "big"), None)
        if letter == RUN:
            return Span(stream, int.from_bytes(rest[:8], "big") + 1, None)
        if letter == PART:
            return _span_of_part(stream, told, stream == self._names)
        if letter in (NAMES, NAME, CHANGE):
            return Span(stream, 1, None, names=True)
        return None

    def _stream_of(self, key: bytes) -> str:
        try:
            return str(VolumeId(key[:16]))
        except BadInput:
            return ""


async def read_rollup_of(objects: Objects, log: str, name: str) -> Rollup:
    """Raises Corrupt, if it is missing too; Unsupported."""
    key = rollup_key(log, name)
    data = await objects.get(key)
    if data is None:
        raise Corrupt(key, "it is missing, though an entry names it")
    return parse_rollup(log, name, data)


def _is_before(name: str, slot: int) -> bool:
    try:
        return slot_of_rollup(name) < slot
    except BadInput:
        return False


def _span_of_part(stream: str, value: bytes | None, names: bool) -> Span | None:
    first = 1
    if value is not None:
        try:
            record = decode_record("", decode("", value, RolledPart).part.records[0])
        except (BudwoodError, IndexError):
            return Span(stream, first, None, names)
        if isinstance(record, Commit | NameChange):
            first = record.lsn
    return Span(stream, first, None, names)


def _value(key: bytes, value: bytes | None) -> object:
    """As it is compared: page sets as sets, and fields that nobody here knows left out. Raises Corrupt."""
    kind = _KINDS.get(key[16:17])
    if value is None or kind is None:
        return value
    item = decode("a rollup's tree", value, kind)
    if isinstance(item, RolledRun):
        return decode_pages("a rollup's tree", item.pages), item.floor, item.reach
    return item


def _agree(told: object, expected: object) -> bool:
    if isinstance(told, RolledChange) and isinstance(expected, RolledChange) and not told.time:
        # An older release remembers of it what it touched, and no more.
        return told == msgspec.structs.replace(expected, time=0, was=())
    return told == expected


def _words(key: bytes) -> str:
    letter, rest = key[16:17], key[17:]
    try:
        whose = f"volume {VolumeId(key[:16])}"
    except BadInput:
        whose = f"stream {key[:16].hex()}"
    if letter == COMMIT:
        return f"{whose} LSN {int.from_bytes(rest, 'big')}"
    kinds: Sequence[bytes] = tuple(_KINDS)
    names = (
        "the state",
        "a commit",
        "a run of commits",
        "a client",
        "a fork",
        "a part",
        "the names",
        "a name",
        "a change of names",
    )
    what = names[kinds.index(letter)] if letter in kinds else f"an item {rest.hex()}"
    return f"{what} of {whose}"

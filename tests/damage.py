"""Damage to a store in which every kind of object stands, what scrub says of it, and what readers meet.

old = await grow()                          a store, and what it holds
damaged = flip(old.objects, key, bit)       copies of its objects: `old` stays as it is
await scrubbed(damaged)                     findings, by key
await read_all(damaged, old)                which volumes' LSNs a fresh node can't read; wrong data fails the test
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, cast

import pytest

from budwood.server.log.boundary import Boundary, boundary_key
from budwood.server.node import Node
from budwood.server.store.protocol import Keys, Sizes
from budwood.server.store.retrying import Patience
from budwood.server.upkeep.findings import Finding, Span
from budwood.server.upkeep.position import Position
from budwood.server.upkeep.scrub import open_scrub
from budwood.testing.clock import ManualClock
from budwood.testing.commits import pages_at
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import LIST_NAMES, NamesRequest
from budwood.volume.entry import parse_entry, slot_of
from budwood.volume.envelope import BOUNDARY, encode, seal
from budwood.volume.errors import BudwoodError
from budwood.volume.ids import VolumeId
from budwood.volume.pins import parse_pin
from budwood.volume.rollup import rollup_key, slot_of_rollup

from .estate import Estate, Pages, build_store, fill
from .rolling import after_every, small_nodes

Objects = Mapping[str, bytes]
Filled = TypeVar("Filled", bound=MemoryStore)

FEW = 4
"""Entries that a rollup is due after."""


@dataclass(repr=False)
class Old:
    """A store that was used for a while: too much of it to be printed where a test fails."""

    objects: dict[str, bytes]
    history: dict[VolumeId, list[Pages]]
    names: dict[str, VolumeId]
    logs: dict[VolumeId, set[str]] = field(default_factory=dict[VolumeId, set[str]])
    """Those that each volume, or one that it was forked from, was in."""
    reads: dict[VolumeId, Read] = field(default_factory=dict["VolumeId", "Read"])
    """Of the undamaged store; empty until it is first asked for."""


@dataclass(frozen=True)
class Read:
    """What a fresh node asked the store for, to read every LSN of a volume, and the LSNs that it could not read."""

    keys: frozenset[str]
    listed: frozenset[str]
    """Prefixes."""
    sized: frozenset[str]
    failed: frozenset[int]

    def may_differ(self, before: Objects, after: Objects) -> bool:
        """In a store with other objects."""
        changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
        there = {key for key in changed if (key in before) != (key in after)}
        return (
            not self.keys.isdisjoint(changed)
            or any(key.startswith(prefix) for key in there for prefix in self.listed)
            or any(key.startswith(prefix) for key in changed for prefix in self.sized)
        )


class _Noting(MemoryStore):
    """What it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: set[str] = set()
        self.listed: set[str] = set()
        self.sized: set[str] = set()

    def list_now(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        self.listed.add(prefix)
        return super().list_now(prefix, start=start, limit=limit)

    def sizes_now(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        self.sized.add(prefix)
        return super().sizes_now(prefix, start=start, limit=limit)

    def _whole(self, key: str) -> bytes:
        self.keys.add(key)
        return super()._whole(key)


async def grow() -> Old:
    """Shared and private logs, forks of forks, moves there and back, fragments, pins, names, boundaries, and rollups
    whose trees have branches."""
    store = MemoryStore()
    with pytest.MonkeyPatch.context() as patched:
        after_every(FEW, patched)
        small_nodes(patched)
        estate = await build_store(store)
        await _use(store, estate)
    boundary = Boundary(log="main", slot=0, time=1)
    await store.create(boundary_key("main", 0), seal(BOUNDARY, encode(boundary)))
    old = Old(dict(store.objects), estate.history, estate.names)
    async with Node.open(await copy_of(old.objects), create=False) as node:
        for vid in old.history:
            found: set[str] = set()
            at: VolumeId | None = vid
            while at is not None:
                volume = await node.volumes.get(at)
                found |= {volume.log, *(close.log for close in volume.closes)}
                at = volume.parent
            old.logs[vid] = found
    return old


async def _use(store: MemoryStore, estate: Estate) -> None:
    first, large = list(estate.history)[:2]
    async with Node.open(store, name="main", address="http://last") as node:
        for turn in range(12):
            letter = chr(ord("A") + turn)
            await estate.commit(node, first, {turn % 9 + 1: fill(letter)}, length=9)
            await estate.commit(node, large, {turn * 3 + 1: fill(letter), turn * 3 + 2: fill(letter)}, length=90)
            await estate.bind(node, f"many/{turn}", first)
        await estate.commit_fragments(node, large, [{page: fill("z") for page in range(40, 90)}], length=90)
        late = await estate.fork(node, large, 9)
        await estate.commit(node, late, {4: fill("y")}, length=90)
    async with Node.open(store) as node:
        private = await estate.born(node)
        for turn in range(17):
            pages = {turn % 3 + 1: fill(chr(ord("a") + turn))}
            await estate.commit(node, private, pages, length=3, floor=3 if turn else 0)
        await estate.bind(node, "private", private)


async def copy_of(objects: Objects) -> MemoryStore:
    return await _filled(MemoryStore(), objects)


async def _filled(store: Filled, objects: Objects) -> Filled:
    for key, data in objects.items():
        await store.create(key, data)
    return store


def flip(objects: Objects, key: str, bit: int) -> dict[str, bytes]:
    data = bytearray(objects[key])
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    return {**objects, key: bytes(data)}


def without(objects: Objects, key: str) -> dict[str, bytes]:
    return {each: data for each, data in objects.items() if each != key}


def cut(objects: Objects, key: str, length: int) -> dict[str, bytes]:
    return {**objects, key: objects[key][:length]}


def swapped(objects: Objects, one: str, other: str) -> dict[str, bytes]:
    return {**objects, one: objects[other], other: objects[one]}


def kind_of(key: str) -> str:
    parts = key.split("/")
    if parts[0] == "root":
        return "root"
    if parts[0] == "volumes":
        return parts[2]
    return parts[2] if parts[1] == "main" or parts[2] != "entries" else "private entries"


def of_kind(objects: Objects, kind: str) -> list[str]:
    return sorted(key for key in objects if kind_of(key) == kind)


def unmissed(objects: Objects) -> set[str]:
    """What nothing that stands speaks of (server/upkeep/scrub.py)."""
    found: set[str] = {key for key in objects if kind_of(key) == "boundary"}
    named = {parse_entry(key, data).header.rollup for key, data in objects.items() if "/entries/" in key}
    for key in objects:
        folder = key.rpartition("/")[0]
        newest = min(each for each in objects if each.rpartition("/")[0] == folder)
        if kind_of(key) == "rollups" and key.partition("/rollups/")[2] not in named:
            found.add(key)
        if key == newest and "/entries/" in key and not _is_covered(objects, key):
            found.add(key)
        if kind_of(key) == "pins" and (key == newest or not _begins_what_holds(objects, key, newest)):
            found.add(key)
    return found


def _begins_what_holds(objects: Objects, key: str, newest: str) -> bool:
    """Whether it is revision 0 of a pin that holds."""
    return key.endswith("f" * 16) and parse_pin(newest, objects[newest]).holds


def is_newest(objects: Objects, key: str) -> bool:
    """Of the entries of a log: once that is missing, nobody who hasn't seen it misses it."""
    folder = key.rpartition("/")[0]
    return "/entries/" in key and key == min(each for each in objects if each.rpartition("/")[0] == folder)


def _is_covered(objects: Objects, key: str) -> bool:
    """Whether a rollup stands that an entry is part of."""
    prefix = rollup_key(key.split("/")[1], "")
    names = (each.removeprefix(prefix) for each in objects if each.startswith(prefix))
    return any(slot_of_rollup(name) >= slot_of(key) for name in names)


class Heard:
    """See server.upkeep.scrub.Watcher."""

    def __init__(self, stop_behind: int | None = None) -> None:
        self.findings: list[Finding] = []
        self.positions: list[Position] = []
        self._stop_behind = stop_behind

    def found(self, finding: Finding) -> None:
        self.findings.append(finding)

    def passed(self, position: Position, objects: int, size_bytes: int) -> None:
        assert objects > 0
        assert size_bytes > 0
        self.positions.append(position)
        if len(self.positions) == self._stop_behind:
            raise Interrupted


class Interrupted(Exception):
    """At a position."""


def hasty() -> Patience:
    clock = ManualClock(jumps=True)
    return Patience(deadline_seconds=5, now=clock.now, sleep=clock.sleep)


async def scrubbed(objects: Objects) -> dict[str, Finding]:
    """Findings by key: there is one of each."""
    heard = Heard()
    async with open_scrub(await copy_of(objects), heard, patience=hasty()) as scrub:
        await scrub.run()
    found = {finding.key: finding for finding in heard.findings}
    assert len(found) == len(heard.findings)
    assert all("\n" not in str(finding) for finding in heard.findings)
    return found


def stopped(found: Mapping[str, Finding], old: Old) -> set[VolumeId]:
    """The volumes that can't be opened, or not wholly, since a log of theirs can't."""
    stops = {finding.stops for finding in found.values()} - {""}
    return {vid for vid, logs in old.logs.items() if "*" in stops or logs & stops}


def spoilt(found: Mapping[str, Finding], old: Old) -> set[tuple[VolumeId, int]]:
    """What scrub says can't be read, as volumes and LSNs."""
    spans: list[Span] = [span for finding in found.values() for span in finding.spoils if not span.names]
    told: set[tuple[VolumeId, int]] = set()
    for span in spans:
        vid = VolumeId.parse(span.stream)
        last = len(old.history[vid]) - 1 if span.last is None else span.last
        told |= {(vid, lsn) for lsn in range(max(span.first, 1), last + 1)}
    return told


async def read_all(objects: Objects, old: Old) -> set[tuple[VolumeId, int]]:
    """What a fresh node can't read, in a typed error: everything else is as it was written.

    Of a volume whose reading comes to none of the objects that are not as they were, that is what it was before.
    """
    if not old.reads:
        for vid in old.history:
            store = await _filled(_Noting(), old.objects)
            failed = await _read(store, old, [vid])
            old.reads[vid] = Read(
                frozenset(store.keys),
                frozenset(store.listed),
                frozenset(store.sized),
                frozenset(lsn for _, lsn in failed),
            )
    touched = [vid for vid, read in old.reads.items() if read.may_differ(old.objects, objects)]
    failed = await _read(await copy_of(objects), old, touched) if touched else set[tuple[VolumeId, int]]()
    return failed | {(vid, lsn) for vid in old.reads.keys() - touched for lsn in old.reads[vid].failed}


async def _read(store: MemoryStore, old: Old, vids: Iterable[VolumeId]) -> set[tuple[VolumeId, int]]:
    failed: set[tuple[VolumeId, int]] = set()
    try:
        async with Node.open(store, create=False, patience=hasty(), now_ms=lambda: 0) as node:
            for vid in vids:
                for lsn, pages in enumerate(old.history[vid]):
                    if lsn:
                        try:
                            found = await pages_at(node, vid, lsn)
                        except BudwoodError:
                            failed.add((vid, lsn))
                        else:
                            expected = {page: data for page, data in pages.items() if any(data)}
                            assert found == expected, f"{vid} LSN {lsn}"
    except (BudwoodError, ExceptionGroup) as error:
        # The store can't be opened at all.
        check_typed(error)
        failed = {(vid, lsn) for vid in vids for lsn in range(1, len(old.history[vid]))}
    return failed


async def names_in(objects: Objects) -> dict[str, VolumeId] | None:
    """None where they can't be read."""
    try:
        async with Node.open(await copy_of(objects), create=False, patience=hasty(), now_ms=lambda: 0) as node:
            entries = (await node.ask(LIST_NAMES, NamesRequest(limit=10_000))).entries
            return {entry.name: VolumeId(entry.target) for entry in entries}
    except (BudwoodError, ExceptionGroup) as error:
        check_typed(error)
        return None


def check_typed(error: Exception) -> None:
    """An error of ours, alone or in the group of a node's tasks."""
    at: object = error
    while isinstance(at, ExceptionGroup):
        (at,) = cast("tuple[object, ...]", at.exceptions)
    if not isinstance(at, BudwoodError):
        raise error


def drawn(rng: random.Random, objects: Objects, key: str) -> tuple[str, dict[str, bytes]]:
    """One damage of that object, and what it is."""
    match rng.choice(["flip", "cut", "missing", "swapped", "longer"]):
        case "flip":
            bit = rng.randrange(8 * len(objects[key]))
            return f"bit {bit} of {key}", flip(objects, key, bit)
        case "cut":
            length = rng.randrange(len(objects[key]))
            return f"{key} cut at {length}", cut(objects, key, length)
        case "longer":
            return f"{key} is longer", {**objects, key: objects[key] + b"\0"}
        case "swapped" if len(of_kind(objects, kind_of(key))) > 1:
            other = rng.choice([each for each in of_kind(objects, kind_of(key)) if each != key])
            return f"{key} and {other} exchanged", swapped(objects, key, other)
        case _:
            return f"{key} missing", without(objects, key)

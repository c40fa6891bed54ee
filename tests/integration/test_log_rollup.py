"""A log that is opened from a rollup: what is asked for, what is handed on, and what is said where something of it is
missing or damaged. The rollups here have no tree: the log knows positions and names alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from budwood.server.log.boundary import Boundary, boundary_key
from budwood.server.log.chain import Chain, Verdict
from budwood.server.log.reader import Canonical, LogReader, read_rollup
from budwood.server.store.retrying import Patience
from budwood.server.store.root import GC_INTERVAL_SECONDS
from budwood.testing.clock import ManualClock
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.entry import GARBAGE, entry_key, parse_entry, seal_entry
from budwood.volume.envelope import BOUNDARY, ENTRY, START_BYTES, encode, open_head, seal
from budwood.volume.errors import BudwoodError, Corrupt, Unavailable, Unsupported
from budwood.volume.rollup import Rollup, parse_rollup, rollup_key, seal_rollup

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

LOG = "main"


class Following:
    """A reader, and what it has told."""

    def __init__(self, scene: Scene, *, from_rollup: bool = True) -> None:
        self.slots: list[int] = []
        self.begun: list[tuple[str, Rollup]] = []
        self.named: list[tuple[str, int]] = []
        """With the slot that was handed on last."""
        self.reader = LogReader(
            scene.store,
            LOG,
            self.sink,
            patience=scene.patience,
            on_rollup=self.begin if from_rollup else None,
            on_named=lambda name: self.named.append((name, self.slots[-1])),
        )

    def sink(self, entry: Canonical) -> None:
        self.slots.append(entry.slot)

    def begin(self, name: str, rollup: Rollup) -> None:
        assert not self.slots
        self.begun.append((name, rollup))


@dataclass
class Scene:
    """A shared log, and whoever writes it."""

    chain: Chain = field(default_factory=lambda: Chain(log=LOG))
    inner: MemoryStore = field(default_factory=MemoryStore)
    clock: ManualClock = field(default_factory=lambda: ManualClock(1000.0, jumps=True))

    def __post_init__(self) -> None:
        self.store = RiggedStore(self.inner)
        self.patience = Patience(deadline_seconds=0.1, now=self.clock.now, boot=self.clock.now, sleep=self.clock.sleep)

    async def append(self, count: int = 1, *, epoch: int = 1, rollup: str = "", **changes: Any) -> None:
        for _ in range(count):
            anchor, fence = not self.chain.next, self.chain.epoch < epoch
            kind = "anchor" if anchor else "fence" if fence else "data"
            header = self.chain.header(epoch=0 if anchor else epoch, writer=b"w", kind=kind, rollup=rollup)
            data = seal_entry(msgspec.structs.replace(header, **changes))
            entry = parse_entry(entry_key(LOG, header.i), data)
            canonical = self.chain.judge(entry) is Verdict.CANONICAL
            await self.inner.create(entry.key, data)
            self.chain = self.chain.past(entry) if canonical else self.chain.past_void(entry)

    async def roll(self) -> str:
        """A rollup of all that stands; nothing names it yet."""
        chain = self.chain
        rollup = Rollup(
            log=LOG,
            slot=chain.next - 1,
            epoch=chain.epoch,
            n=chain.n,
            writer=chain.writer,
            canonical=chain.slot,
            digest=chain.digest,
            named=chain.rollup,
        )
        name, data = seal_rollup(rollup)
        await self.inner.create(rollup_key(LOG, name), data)
        return name

    async def rolled(self, covered: int = 40, behind: int = 3) -> str:
        """A log with so many slots under a rollup, and so many behind it, all of which name it."""
        await self.append(covered)
        name = await self.roll()
        await self.append(behind, rollup=name)
        return name

    async def collect(self, first: int) -> None:
        boundary = seal(BOUNDARY, encode(Boundary(log=LOG, slot=first)))
        await self.inner.create(boundary_key(LOG, first), boundary)
        for slot in range(1, first):
            await self.inner.delete(entry_key(LOG, slot))

    def damage(self, key: str) -> bytes:
        """Flip a bit; the bytes as they were."""
        data = self.inner.objects[key]
        self.inner.objects[key] = data[:-1] + bytes([data[-1] ^ 1])
        return data

    @property
    def newest(self) -> str:
        return entry_key(LOG, self.chain.next - 1)


async def test_opening_a_log_costs_its_newest_entry_its_rollup_and_the_tail() -> None:
    """DESIGN §4, rule 9: whatever the history."""
    scene = Scene()
    name = await scene.rolled(100, 5)
    await scene.append(3)
    following = Following(scene)
    await following.reader.open()
    assert following.reader.chain == scene.chain
    assert following.slots == list(range(100, 108))
    assert [begun for begun, _ in following.begun] == [name]
    assert (following.reader.rollup, following.named) == (name, [])
    first, newest, rollup, *tail = scene.store.requests
    assert (first.op, first.key) == ("list", f"logs/{LOG}/")
    assert (newest.op, newest.key) == ("get", scene.newest)
    assert (rollup.op, rollup.key) == ("get", rollup_key(LOG, name))
    # The newest is not fetched again, and behind it nothing stands.
    assert sorted(request.key for request in tail) == sorted(entry_key(LOG, slot) for slot in [*range(100, 107), 108])
    assert {request.op for request in tail} == {"get"}


@pytest.mark.parametrize("count", [0, 1, 2, 40])
async def test_a_log_that_names_no_rollup_is_read_from_its_anchor(count: int) -> None:
    scene = Scene()
    await scene.append(count)
    following = Following(scene)
    await following.reader.open()
    assert following.reader.chain == scene.chain
    assert following.slots == list(range(count))
    assert not following.begun
    gets = [request.key for request in scene.store.matching("get")]
    assert sorted(gets) == sorted(entry_key(LOG, slot) for slot in range(count + 1))
    assert scene.store.count("list") == 1


async def test_whoever_has_no_use_for_a_rollup_is_given_the_whole_log() -> None:
    scene = Scene()
    name = await scene.rolled()
    following = Following(scene, from_rollup=False)
    await following.reader.open()
    assert following.reader.chain == scene.chain
    assert following.slots == list(range(43))
    assert not scene.store.count("get", "*/rollups/*")
    assert following.named == [(name, 40)]


async def test_a_rollup_that_a_void_entry_names_is_right_all_the_same() -> None:
    """It was read, and rolled up, by one who was deposed then."""
    scene = Scene()
    await scene.append(40)
    name = await scene.roll()
    await scene.append(epoch=2)
    await scene.append(epoch=1, n=39, rollup=name)
    following = Following(scene)
    await following.reader.open()
    assert following.reader.chain == scene.chain
    assert following.reader.chain.rollup == "", "no entry that counts has named it"
    assert following.reader.rollup == name, "and whoever appends may name it"
    assert following.slots == [40]


@pytest.mark.parametrize("what", ["missing", "damaged", "another"])
async def test_a_rollup_that_was_named_and_is_not_there_is_damage_and_names_it(what: str) -> None:
    scene = Scene()
    name = await scene.rolled()
    key = rollup_key(LOG, name)
    if what == "damaged":
        data = scene.damage(key)
    else:
        data = scene.inner.objects[key]
        await scene.inner.delete(key)
        if what == "another":
            rollup = parse_rollup(LOG, name, data)
            _, other = seal_rollup(msgspec.structs.replace(rollup, slot=rollup.slot - 1))
            await scene.inner.create(key, other)
    following = Following(scene)
    with pytest.raises(Corrupt) as found:
        await following.reader.open()
    assert found.value.key == key
    assert ("is missing, though an entry names it" in str(found.value)) is (what == "missing")
    assert not following.slots
    with pytest.raises(Corrupt):
        await read_rollup(scene.store, LOG, name, scene.patience)
    await scene.inner.delete(key)
    await scene.inner.create(key, data)
    await following.reader.open()
    assert following.slots == [40, 41, 42]
    assert (await read_rollup(scene.store, LOG, name, scene.patience)) == following.begun[0][1]


async def test_an_entry_that_goes_back_to_another_rollup_is_damage() -> None:
    scene = Scene()
    await scene.append(20)
    old = await scene.roll()
    await scene.append(10)
    name = await scene.roll()
    await scene.append(3, rollup=name)
    header = scene.chain.header(epoch=1, writer=b"w", kind="data")
    await scene.inner.create(entry_key(LOG, header.i), seal_entry(msgspec.structs.replace(header, rollup=old)))
    for from_rollup in (True, False):
        following = Following(scene, from_rollup=from_rollup)
        with pytest.raises(Corrupt, match="goes back behind") as found:
            await following.reader.open()
        assert found.value.key == entry_key(LOG, header.i)
        assert following.slots == list(range(20 if from_rollup else 0, 33)), "it begins where the newest says"


def misnamed(data: bytes, rollup: str) -> bytes:
    header = parse_entry(entry_key(LOG, 42), data).header
    return seal_entry(msgspec.structs.replace(header, rollup=rollup))


def newer(data: bytes) -> bytes:
    return seal(ENTRY, open_head("entry", ENTRY, data).header, features=GARBAGE << 5)


@pytest.mark.parametrize("what", ["damaged", "a newer one", "gone astray", "of the future"])
async def test_where_the_newest_entry_is_damaged_all_before_it_is_handed_on_from_the_rollup(what: str) -> None:
    scene = Scene()
    name = await scene.rolled()
    key = scene.newest
    data = scene.inner.objects[key]
    scene.inner.objects[key] = {
        "damaged": data[:-1],
        "a newer one": newer(data),
        "gone astray": misnamed(data, "../../root"),
        "of the future": misnamed(data, f"{42:016x}/{'0' * 64}"),
    }[what]
    following = Following(scene)
    for _ in range(2):
        with pytest.raises((Corrupt, Unsupported)) as found:
            await following.reader.open()
        assert key in str(found.value)
    assert [begun for begun, _ in following.begun] == [name]
    assert following.slots[:1] == ([40] if what in {"gone astray", "of the future"} else [])
    scene.inner.objects[key] = data
    await following.reader.open()
    assert following.slots == [40, 41, 42]
    assert following.reader.chain == scene.chain


async def test_where_no_entry_says_where_to_begin_the_log_is_read_from_its_anchor() -> None:
    scene = Scene()
    await scene.rolled()
    for slot in (41, 42):
        scene.damage(entry_key(LOG, slot))
    following = Following(scene)
    with pytest.raises(Corrupt) as found:
        await following.reader.open()
    # Those of a span are fetched together.
    assert found.value.key in {entry_key(LOG, 41), entry_key(LOG, 42)}
    assert following.slots == list(range(32)), "as far as the spans that are whole reach"
    assert not following.begun


@pytest.mark.parametrize("first", [1, 20, 40, 41])
async def test_a_log_that_was_collected_is_opened_from_a_rollup_that_covers_what_is_gone(first: int) -> None:
    scene = Scene()
    await scene.rolled(40)
    await scene.collect(first)
    following = Following(scene)
    if first <= 40:
        await following.reader.open()
        assert following.reader.chain == scene.chain
        assert [request.key for request in scene.store.matching("list")] == [f"logs/{LOG}/", f"logs/{LOG}/entries/"]
        assert following.slots == [40, 41, 42]
    else:
        with pytest.raises(Unsupported, match=r"begins at slot 41, .* name no rollup that covers that"):
            await following.reader.open()
        assert not following.slots
    with pytest.raises(Unsupported, match="name no rollup"):
        await Following(scene, from_rollup=False).reader.open()


async def test_a_collected_log_whose_newest_entry_is_damaged_is_read_up_to_it() -> None:
    scene = Scene()
    await scene.rolled(40)
    await scene.collect(30)
    scene.damage(scene.newest)
    following = Following(scene)
    with pytest.raises(Corrupt) as found:
        await following.reader.open()
    assert found.value.key == scene.newest
    scene.damage(entry_key(LOG, 41))
    with pytest.raises(Unsupported, match="name no rollup"):
        await Following(scene).reader.open()


async def test_an_opening_that_was_cut_off_goes_on_behind_the_rollup() -> None:
    scene = Scene()
    await scene.rolled(40, 30)
    away = Unavailable("away")
    for rule in (
        Rule(op="list", times=None, before=away),
        Rule(op="get", key=scene.newest, times=None, before=away),
        Rule(op="get", key="*/rollups/*", times=None, before=away),
        Rule(op="get", key=entry_key(LOG, 60), times=None, before=away),
    ):
        following = Following(scene)
        scene.store.add(rule)
        with pytest.raises(Unavailable, match="away"):
            await following.reader.open()
        scene.store.rules.clear()
        scene.store.forget()
        await following.reader.open()
        assert following.slots == list(range(40, 70))
        assert len(following.begun) == 1
        assert following.reader.chain == scene.chain
    assert not scene.store.count("get", "*/rollups/*"), "the last of them had it already"
    await following.reader.refresh()
    await following.reader.check_tip()


async def test_an_opening_that_was_cut_off_and_overtaken_by_the_collector_ends() -> None:
    scene = Scene()
    await scene.rolled(40, 30)
    scene.store.add(Rule(op="get", key=entry_key(LOG, 60), times=None, before=Unavailable("away")))
    following = Following(scene)
    with pytest.raises(Unavailable, match="away"):
        await following.reader.open()
    scene.store.rules.clear()
    name = await scene.roll()
    await scene.append(rollup=name)
    await scene.collect(70)
    scene.clock.advance(GC_INTERVAL_SECONDS)
    with pytest.raises(Unavailable, match="collected up to slot 70, and was read here up to slot 56"):
        await following.reader.open()
    assert following.reader.ended is not None
    anew = Following(scene)
    await anew.reader.open()
    assert anew.slots == [70]


async def test_a_reading_that_could_not_begin_has_ended() -> None:
    scene = Scene()
    await scene.rolled()

    def fail(_name: str, _rollup: Rollup) -> None:
        raise RuntimeError("nobody foresaw this")

    following = Following(scene)
    reader = LogReader(scene.store, LOG, following.sink, patience=scene.patience, on_rollup=fail)
    with pytest.raises(RuntimeError):
        await reader.open()
    assert reader.ended is not None
    with pytest.raises(Unavailable, match="opened anew"):
        await reader.refresh()
    assert not following.slots


async def test_who_follows_is_told_of_each_newer_rollup_behind_the_entry_that_names_it() -> None:
    scene = Scene()
    first = await scene.rolled(40)
    following = Following(scene)
    await following.reader.open()
    await scene.append()
    second = await scene.roll()
    await scene.append(rollup=first)
    assert not following.named
    await scene.append(2, rollup=second)
    third = await scene.roll()
    await scene.append(rollup=third)
    await following.reader.refresh()
    assert following.named == [(second, 45), (third, 47)]
    assert following.reader.rollup == following.reader.chain.rollup == third


async def test_a_tip_that_was_read_before_its_turn_was_seen_then_and_no_later() -> None:
    scene = Scene()
    await scene.rolled()
    following = Following(scene)

    def slow(data: bytes) -> bytes:
        scene.clock.advance(60)
        return data

    rule = scene.store.add(Rule(op="get", key=entry_key(LOG, 40), mangle=slow))
    await following.reader.open()
    assert rule.fired == 1
    scene.store.forget()
    await following.reader.check_tip(10)
    assert [(request.key, request.received_bytes) for request in scene.store.requests] == [(scene.newest, START_BYTES)]
    await following.reader.check_tip(10)
    assert scene.store.count() == 1


async def test_what_was_read_ahead_is_not_kept() -> None:
    """A log that was opened half, and long ago, is looked at as it stands."""
    scene = Scene()
    await scene.rolled()
    rule = scene.store.add(Rule(op="get", key=entry_key(LOG, 40), times=None, before=Unavailable("away")))
    following = Following(scene)
    with pytest.raises(Unavailable):
        await following.reader.open()
    scene.store.rules.remove(rule)
    scene.damage(scene.newest)
    with pytest.raises(BudwoodError) as found:
        await following.reader.open()
    assert isinstance(found.value, Corrupt)
    assert found.value.key == scene.newest

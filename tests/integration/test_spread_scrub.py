"""A scrub in parts that are done apart, in any order, finds what one after another does: object by object, word by
word. Without Spark; test_spark_upkeep.py has it."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from functools import partial

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budwood.server.upkeep import scrub as scrub_module
from budwood.server.upkeep.covered_scrub import CoveredScrub, Link
from budwood.server.upkeep.findings import Finding, Findings
from budwood.server.upkeep.log_outline import outline_of
from budwood.server.upkeep.moves import Unmet
from budwood.server.upkeep.objects import Objects as Reader
from budwood.server.upkeep.position import Position
from budwood.server.upkeep.scrub import open_scrub
from budwood.server.upkeep.scrub_part import CoveredPart, LogPart, NodesPart, Outcome, Part, VolumesPart
from budwood.server.upkeep.spread_scrub import SpreadScrub, do_part
from budwood.testing.stores import MemoryStore
from budwood.volume.entry import parse_entry, seal_entry
from budwood.volume.envelope import encode
from budwood.volume.errors import BudwoodError, NotFound, Unavailable
from budwood.volume.rollup import nodes_folder, parse_rollup, rollup_key, seal_rollup
from budwood.volume.tree_node import node_key, parse_node

from ..damage import Heard, Objects, Old, copy_of, drawn, flip, grow, hasty, of_kind, scrubbed, without
from ..estate import build_store
from .test_scrub import DAMAGES, KINDS, chosen, damaged
from .test_scrub_collected import Collected, collect

pytestmark = pytest.mark.anyio

Answer = Outcome | BudwoodError


@pytest.fixture(scope="module")
def old() -> Old:
    return anyio.run(grow)


@pytest.fixture(scope="module", params=["waiting", "half", "held"])
def collected(request: pytest.FixtureRequest) -> Collected:
    return anyio.run(collect, request.param)


@pytest.fixture(autouse=True, scope="module")
def few_volumes_a_part() -> object:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(scrub_module, "VOLUMES", 2)
        yield


class Elsewhere:
    """Does parts as other processes would: each by itself, from its bytes, in an order of its own."""

    def __init__(self, store: MemoryStore, store_id: str) -> None:
        self._store = store
        self._store_id = store_id
        self._order = random.Random(1)
        self.parts: list[Part] = []

    async def __call__(self, parts: Sequence[Part]) -> list[Answer]:
        answers: dict[int, Answer] = {}
        for at in self._order.sample(range(len(parts)), len(parts)):
            self.parts.append(parts[at])
            part: Part = pickle.loads(pickle.dumps(parts[at]))
            try:
                answer: Answer = await do_part(self._store, self._store_id, part, hasty())
            except BudwoodError as error:
                answer = error
            answers[at] = pickle.loads(pickle.dumps(answer))
        return [answers[at] for at in range(len(parts))]


async def spread(
    objects: Objects, *, slots: int = 1, wave: int = 3, start: Position | None = None
) -> tuple[list[Finding], list[Part], list[Position]]:
    heard, store = Heard(), await copy_of(objects)
    async with open_scrub(store, heard, patience=hasty()) as scrub:
        elsewhere = Elsewhere(store, scrub.store_id)
        job = SpreadScrub(scrub, heard, elsewhere, wave=wave)
        await job.run(start=start, slots=slots)
        assert job.objects >= len(heard.findings)
    return heard.findings, elsewhere.parts, heard.positions


async def check(objects: Objects, *, slots: int = 1) -> list[Part]:
    found, parts, _ = await spread(objects, slots=slots)
    assert len({finding.key for finding in found}) == len(found)
    assert {finding.key: str(finding) for finding in found} == {
        key: str(finding) for key, finding in (await scrubbed(objects)).items()
    }
    return parts


async def test_a_store_that_is_whole(old: Old) -> None:
    parts = await check(old.objects)
    volumes = [vid for part in parts if isinstance(part, VolumesPart) for vid in part.vids]
    assert sorted(volumes) == sorted({key.split("/")[1] for key in old.objects if key.startswith("volumes/")})
    assert sum(isinstance(part, LogPart) and part.log == "main" for part in parts) > 2
    assert not any(isinstance(part, NodesPart) for part in parts)
    async with open_scrub(await copy_of(old.objects), Heard()) as scrub:
        assert len(parts) == len([part async for part in scrub.parts(slots=1)]), "a part was done again"


async def test_every_slot_is_in_one_part(old: Old) -> None:
    async with open_scrub(await copy_of(old.objects), Heard()) as scrub:
        parts = [part async for part in scrub.parts(slots=2)]
    of_main = [part for part in parts if isinstance(part, LogPart) and part.log == "main"]
    assert len(of_main) > 2
    assert (of_main[0].first, of_main[0].behind, of_main[-1].upto) == (0, "", None)
    assert [part.first for part in of_main[1:]] == [part.upto for part in of_main[:-1]]
    assert all(part.outline is of_main[0].outline for part in of_main)
    whole = [part async for part in scrub.parts()]
    assert [part for part in whole if isinstance(part, LogPart)] == [
        LogPart(part.log) for part in whole if isinstance(part, LogPart)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
async def test_one_damaged_object(old: Old, kind: str, how: str) -> None:
    await check(damaged(old.objects, chosen(of_kind(old.objects, kind), how), how))


@pytest.mark.slow
@given(st.integers(0, 1 << 62), st.integers(2, 6), st.integers(1, 3))
@settings(max_examples=8)
def test_much_damage_at_once(old: Old, seed: int, count: int, slots: int) -> None:
    rng = random.Random(seed)
    after: Objects = old.objects
    for _ in range(count):
        after = drawn(rng, after, rng.choice([key for key in sorted(after) if key != "root"]))[1]
    anyio.run(partial(check, after, slots=slots))


@pytest.mark.slow
@given(st.integers(0, 1 << 62), st.integers(0, 4), st.integers(1, 3))
@settings(max_examples=8)
def test_a_store_that_was_collected(collected: Collected, seed: int, count: int, slots: int) -> None:
    rng = random.Random(seed)
    after: Objects = collected.objects
    for _ in range(count):
        after = drawn(rng, after, rng.choice([key for key in sorted(after) if key != "root"]))[1]
    anyio.run(partial(check, after, slots=slots))


@pytest.mark.slow
async def test_behind_rollups_that_are_wrong_it_is_done_again(old: Old) -> None:
    """One, two in a row, and the first."""
    keys = of_kind(old.objects, "rollups")
    main = [key for key in keys if "/main/" in key]
    assert len(main) > 3
    for wrong in (main[:1], main[1:2], main[1:3], main[:3], main):
        flipped, gone = dict(old.objects), dict(old.objects)
        for key in wrong:
            flipped, gone = flip(flipped, key, 800), without(gone, key)
        await check(flipped)
        await check(gone)


@pytest.mark.slow
async def test_what_was_found_behind_a_rollup_that_says_otherwise_is_dropped(old: Old) -> None:
    """It can be read, and stands beside the right one, or in its place."""
    for key in [key for key in of_kind(old.objects, "rollups") if "/main/" in key][:3]:
        rollup = parse_rollup("main", key.partition("/rollups/")[2], old.objects[key])
        name, data = seal_rollup(msgspec.structs.replace(rollup, n=rollup.n + 1))
        for before in (old.objects, without(old.objects, key)):
            after = {**before, rollup_key("main", name): data}
            assert rollup_key("main", name) in await scrubbed(after)
            await check(after)


async def test_every_covered_entry_is_in_one_part(collected: Collected) -> None:
    """And what counts among them follows from those behind, whatever was guessed."""
    parts = await check(collected.objects)
    covered = [part for part in parts if isinstance(part, CoveredPart)]
    assert len(covered) > 3
    for log in {part.log for part in covered}:
        (head,) = (part for part in parts if isinstance(part, LogPart) and part.log == log and part.covered_by)
        rollup, slots = await covering(collected.objects, log)
        assert {part.rollup for part in covered if part.log == log} == {head.covered_by} == {rollup}
        apart = [slot for part in set(covered) if part.log == log for slot in part.slots]
        assert sorted([*apart, *range(head.covered_from, slots.stop)]) == list(slots)


async def covering(objects: Objects, log: str) -> tuple[str, range]:
    reader = Reader(await copy_of(objects), hasty())
    outline = await outline_of(reader, log, Findings(Heard()))
    return await outline.covering(reader, 0)


async def test_a_wrong_guess_at_what_counts_is_made_good(collected: Collected, monkeypatch: pytest.MonkeyPatch) -> None:
    async def astray(*_: object) -> Link:
        return Link(0, bytes(32))

    monkeypatch.setattr(CoveredScrub, "guess", astray)
    parts = await check(collected.objects)
    assert any(isinstance(part, CoveredPart) and not part.guessed for part in parts)


async def test_a_damaged_node_that_leads_to_another_hides_none(old: Old) -> None:
    key = of_kind(old.objects, "rollups")[-1]
    log, _, name = key.removeprefix("logs/").partition("/rollups/")
    tree = parse_rollup(log, name, old.objects[key]).tree
    assert tree is not None
    root = node_key(nodes_folder(log), tree)
    below = node_key(nodes_folder(log), parse_node(root, old.objects[root], tree).children[-1])
    parts = await check(flip(flip(old.objects, root, 99), below, 99))
    assert any(isinstance(part, NodesPart) for part in parts)


async def test_a_stream_that_goes_on_otherwise_than_it_was_closed() -> None:
    """What says so lies in two logs."""
    store = MemoryStore()
    child = list((await build_store(store)).history)[2]
    key = min(key for key in store.objects if key.startswith(f"logs/{child}/entries/"))
    entry = parse_entry(key, store.objects[key])
    (record,) = entry.header.streams[str(child)].decode(key)
    part = msgspec.structs.replace(
        entry.header.streams[str(child)], records=(encode(msgspec.structs.replace(record, since=1)),)
    )
    header = msgspec.structs.replace(entry.header, streams={str(child): part})
    after = {**store.objects, key: seal_entry(header)}
    await check(after)
    assert key in {finding.key for finding in (await spread(after))[0]}


@pytest.mark.parametrize("opened_first", [False, True])
async def test_the_sides_of_a_move_that_was_closed_otherwise_meet_in_any_order(old: Old, opened_first: bool) -> None:
    vid = str(next(iter(old.history)))
    for state, keys in ((b"same", []), (b"other", ["logs/main/entries/x"])):
        heard = Heard()
        closed = Unmet(closed={(vid, "main", 3): b"same"})
        opened = Unmet(opened={(vid, "main", 3): (state, "logs/main/entries/x", 2)})
        async with open_scrub(await copy_of(old.objects), heard) as scrub:
            for unmet in (opened, closed) if opened_first else (closed, opened):
                await scrub.meet(unmet)
            assert scrub.unmet == Unmet()
        assert [finding.key for finding in heard.findings] == keys


async def test_what_has_no_answer_ends_it_behind_what_is_told(old: Old) -> None:
    birth, entry = of_kind(old.objects, "birth")[0], of_kind(old.objects, "private entries")[-1]
    after = flip(flip(old.objects, birth, 99), entry, 99)
    whole = (await scrubbed(after)).keys()
    assert whole >= {birth, entry}
    for lost in range(2, 20, 4):
        heard = Heard()
        with pytest.raises(ExceptionGroup) as stop:
            await losing(after, heard, lost)
        assert stop.group_contains(Unavailable)
        start = heard.positions[-1] if heard.positions else None
        rest, _, _ = await spread(after, start=start)
        assert {finding.key for finding in (*heard.findings, *rest)} == whole


async def losing(objects: Objects, heard: Heard, lost: int) -> None:
    """Behind so many parts one has no answer."""
    store = await copy_of(objects)
    async with open_scrub(store, heard, patience=hasty()) as scrub:
        elsewhere = Elsewhere(store, scrub.store_id)

        async def do(parts: Sequence[Part]) -> list[Answer]:
            answers = await elsewhere(parts)
            if len(elsewhere.parts) > lost:
                answers[-1] = Unavailable("an executor has no way to the store")
            return answers

        await SpreadScrub(scrub, heard, do, wave=3).run(slots=1)


async def test_another_store_is_not_taken_for_it(old: Old) -> None:
    with pytest.raises(NotFound, match="another store"):
        await do_part(await copy_of(old.objects), "another", VolumesPart(()), hasty())

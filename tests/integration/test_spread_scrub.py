"""A scrub in parts that are done apart, in any order, finds what one after another does: object by object, word by
word. Without Spark; test_spark_upkeep.py has it."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budwood.server.upkeep import scrub as scrub_module
from budwood.server.upkeep.findings import Finding
from budwood.server.upkeep.position import Position
from budwood.server.upkeep.scrub import open_scrub
from budwood.server.upkeep.scrub_part import LogPart, NodesPart, Outcome, Part, VolumesPart
from budwood.server.upkeep.spread_scrub import SpreadScrub, do_part
from budwood.testing.stores import MemoryStore
from budwood.volume.errors import BudwoodError

from ..damage import Heard, Objects, Old, copy_of, drawn, flip, grow, hasty, of_kind, scrubbed, without
from .test_scrub import DAMAGES, KINDS, damaged, some
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

    def __init__(self, store: MemoryStore, store_id: bytes) -> None:
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
    assert len(set(parts)) == len(parts), "a part was done again"


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
    for key in some(of_kind(old.objects, kind)):
        await check(damaged(old.objects, key, how))


@pytest.mark.slow
@given(st.integers(0, 1 << 62), st.integers(2, 6), st.integers(1, 3))
@settings(max_examples=20)
def test_much_damage_at_once(old: Old, seed: int, count: int, slots: int) -> None:
    rng = random.Random(seed)
    after: Objects = old.objects
    for _ in range(count):
        after = drawn(rng, after, rng.choice([key for key in sorted(after) if key != "root"]))[1]
    anyio.run(lambda: check(after, slots=slots))


@pytest.mark.slow
@given(st.integers(0, 1 << 62), st.integers(0, 4), st.integers(1, 3))
@settings(max_examples=20)
def test_a_store_that_was_collected(collected: Collected, seed: int, count: int, slots: int) -> None:
    rng = random.Random(seed)
    after: Objects = collected.objects
    for _ in range(count):
        after = drawn(rng, after, rng.choice([key for key in sorted(after) if key != "root"]))[1]
    anyio.run(lambda: check(after, slots=slots))


async def test_behind_rollups_that_are_wrong_it_is_done_again(old: Old) -> None:
    """One, two in a row, and the first."""
    keys = of_kind(old.objects, "rollups")
    main = [key for key in keys if "/main/" in key]
    assert len(main) > 3
    for wrong in (main[:1], main[1:2], main[1:3], main[:3], main):
        for change in (lambda key, after: flip(after, key, 800), lambda key, after: without(after, key)):
            after: Objects = old.objects
            for key in wrong:
                after = change(key, after)
            await check(after)

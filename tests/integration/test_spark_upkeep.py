"""Scrub and gc as jobs of Spark: what they find, plan and delete is what they do without, whatever Spark does twice or
loses on the way. test_spread_scrub.py has the parts of a scrub, and how they are put together."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import msgspec
import pytest

from budwood.server.log.chain import slot_covered_by
from budwood.server.node import Node
from budwood.server.store.directory_store import FileStore
from budwood.server.upkeep.garbage_check import Refused
from budwood.server.upkeep.plan_parts import parts_of
from budwood.server.upkeep.rounds import Rounds
from budwood.server.upkeep.scrub import open_scrub
from budwood.server.upkeep.scrub_part import Outcome, Part
from budwood.server.upkeep.spread_scrub import SpreadScrub
from budwood.server.upkeep.upkeep import HASTY, Extent, Turn
from budwood.spark_export.export.job import run_job
from budwood.spark_export.upkeep import cluster as cluster_module
from budwood.spark_export.upkeep.cluster import Cluster
from budwood.spark_export.upkeep.garbage import SpreadGarbage, spread_verifier
from budwood.spark_export.upkeep.tasks import Turned
from budwood.testing.commits import pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.errors import BudwoodError, Conflict, NotFound, NotOwner, Unavailable
from budwood.volume.garbage import GarbagePlan, PlannedFold, PlannedFragments, PlannedPin, plan_key
from budwood.volume.ids import VolumeId

from ..damage import Heard, Objects, Old, flip, grow, of_kind, scrubbed, without
from ..rolling import memory
from ..second_reader import Store as SecondReader
from ..second_reader import directory
from .cli import Command
from .test_collection import INTERVAL_MS, Filled, Scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.anyio

COMMITS = 60
CRASHES = ["gc: plan written, not acknowledged", "gc: acknowledged, boundary not published", "gc: some of it deleted"]


async def put(objects: Objects, folder: Path) -> str:
    """The URL of a store that has them."""
    store = await FileStore.open(str(folder), create=True)
    for key, data in objects.items():
        await store.create(key, data)
    await store.aclose()
    return folder.as_uri()


def objects(folder: Path) -> set[str]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".tmp" not in path.parts)
    return {path.relative_to(folder).as_posix() for path in files if path.relative_to(folder).parts[0] != "probe"}


@pytest.fixture(scope="module")
def old() -> Old:
    return anyio.run(grow)


@pytest.fixture(scope="module")
def damaged(old: Old) -> dict[str, bytes]:
    rng, after = random.Random(7), dict(old.objects)
    for kind in ("birth", "pins", "entries", "private entries", "t", "nodes"):
        after = flip(after, rng.choice(of_kind(after, kind)), rng.randrange(1 << 20))
    main = [key for key in of_kind(after, "rollups") if "/main/" in key]
    return without(flip(after, main[1], 800), main[3])


@dataclass
class Left:
    """A store that was written to long ago, with a shared log and two of volumes' own."""

    objects: dict[str, bytes]
    logs: list[str]
    contents: dict[VolumeId, tuple[int, dict[int, bytes]]]

    async def check(self, folder: Path) -> None:
        """Every volume reads as it did."""
        store = await FileStore.open(str(folder))
        async with Node.open(store, create=False) as node:
            for vid, (lsn, pages) in self.contents.items():
                assert await pages_at(node, vid, lsn) == pages
        await store.aclose()


async def leave(*, planned: bool) -> Left:
    """Of most LSNs nothing is left to be read; with `planned` plans are acknowledged, and due by any clock of today."""
    scene, volumes = Scene(RiggedStore(MemoryStore())), list[Filled]()
    for name in ("main", None, None):
        async with scene.node(name) as node:
            volumes.append(await Filled.born(node))
            await volumes[-1].write(COMMITS)
            await volumes[-1].forget()
            await volumes[-1].write(5)
            log = (await node.volumes.get(volumes[-1].vid)).log
            if planned:
                await node.collector.collect(log)
    logs = sorted({key.split("/")[1] for key in memory(scene.store).objects if key.startswith("logs/")})
    contents = {volume.vid: (volume.head, volume.pages) for volume in volumes}
    scene.now_ms += INTERVAL_MS
    return Left(dict(memory(scene.store).objects), logs, contents)


@pytest.fixture(scope="module")
def unplanned() -> Left:
    return anyio.run(partial(leave, planned=False))


@pytest.fixture(scope="module")
def planned() -> Left:
    return anyio.run(partial(leave, planned=True))


class Told:
    """See server.upkeep.rounds.Watcher."""

    def __init__(self) -> None:
        self.turns: dict[str, Turn] = {}
        self.others: list[tuple[str, BudwoodError]] = []

    def turned(self, log: str, turn: Turn) -> None:
        assert log not in self.turns
        self.turns[log] = turn

    def left(self, log: str, why: NotOwner | Conflict) -> None:
        self.others.append((log, why))

    def failed(self, log: str, error: BudwoodError) -> None:
        self.others.append((log, error))

    def deleted(self, log: str, objects: int) -> None:
        pass


async def collect(cluster: Cluster, folder: Path) -> dict[str, Turn]:
    told, store = Told(), await FileStore.open(str(folder))
    await SpreadGarbage(cluster, store).collect(told, [])
    await store.aclose()
    assert told.others == []
    return told.turns


async def collect_plainly(folder: Path) -> dict[str, Turn]:
    told, store = Told(), await FileStore.open(str(folder))
    async with Node.open(store, create=False, pace=HASTY) as node:
        await Rounds(node.logs, node.upkeep, told, Extent.NONE).once()
    await store.aclose()
    assert told.others == []
    return told.turns


def plans_in(folder: Path) -> dict[str, list[str]]:
    found = dict[str, list[str]]()
    for key in sorted(objects(folder)):
        if "/gc/" in key and key.endswith("/plan"):
            found.setdefault(key.split("/")[1], []).append(key)
    return found


@pytest.fixture
def command(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Whose jobs run in the tests' session."""

    def start(name: str, *, master: str) -> SparkSession:
        assert name in {"budwood scrub", "budwood gc"}
        assert master in {"local[*]", "local[2]"}
        return spark

    def end(session: SparkSession) -> None:
        assert session is spark

    monkeypatch.setattr(cluster_module, "start_quietly", start)
    monkeypatch.setattr(cluster_module, "end", end)
    return Command(capsys, tmp_path / "nobody")


def test_the_command_finds_what_it_finds_without_spark(
    command: Command, damaged: dict[str, bytes], tmp_path: Path
) -> None:
    url = anyio.run(put, damaged, tmp_path / "store")
    plain, spread = command("scrub", "--store", url), command("scrub", "--store", url, "--spark")
    assert (plain.code, spread.code) == (1, 1)
    *lines, last = spread.out.splitlines()
    assert len(lines) == len(set(lines)) > 6
    assert sorted(lines) == sorted(plain.out.splitlines()[:-1])
    assert last.endswith(f": {len(lines)} objects wrong")
    rows = [json.loads(command("scrub", "--store", url, "--json", *more).out) for more in ([], ["--spark"])]
    assert rows[0]
    assert sorted(rows[1], key=lambda row: row["key"]) == sorted(rows[0], key=lambda row: row["key"])


def test_a_whole_store_and_a_volume_of_it(command: Command, old: Old, tmp_path: Path) -> None:
    url = anyio.run(put, old.objects, tmp_path / "store")
    for names in ([], ["private"]):
        said = command.ok("scrub", "--store", url, "--spark", "--master", "local[2]", *names)
        assert said.startswith("read ")
        assert said.endswith(": nothing is wrong\n")
    assert command.ok("scrub", "--store", url, "--spark", "--json", "--from", "log:main:9") == "[]\n"
    assert "there is no 'nobody' in this store" in command("scrub", "--store", url, "--spark", "nobody").line()


async def test_logs_are_spread_slots_by_slots_and_every_task_may_come_twice(
    spark: SparkSession, damaged: dict[str, bytes], tmp_path: Path
) -> None:
    cluster = Cluster(spark.sparkContext, await put(damaged, tmp_path / "store"))
    heard, store = Heard(), await FileStore.open(str(tmp_path / "store"))
    pieces, order = list[int](), random.Random(3)

    async def twice(store_id: str, parts: Sequence[Part]) -> list[Outcome | BudwoodError]:
        pieces.append(len(parts))
        answers = await cluster.scrub(store_id, [*parts, *parts[::-1]])
        return [order.choice(both) for both in zip(answers, answers[::-1], strict=True)][: len(parts)]

    async with open_scrub(store, heard) as scrub:
        await SpreadScrub(scrub, heard, partial(twice, scrub.store_id), wave=cluster.wave).run(slots=2)
    await store.aclose()
    assert max(pieces) > 10
    assert {finding.key: str(finding) for finding in heard.findings} == {
        key: str(finding) for key, finding in (await scrubbed(damaged)).items()
    }


async def test_another_store_in_its_place_is_told(spark: SparkSession, old: Old, tmp_path: Path) -> None:
    cluster = Cluster(spark.sparkContext, await put(old.objects, tmp_path / "store"))
    store = await FileStore.open(str(tmp_path / "store"))
    async with open_scrub(store, Heard()) as scrub:
        parts = [part async for part in scrub.parts()]
    await store.aclose()
    (answer,) = await cluster.scrub("another", parts[:1])
    assert isinstance(answer, NotFound)
    gone = replace(cluster, url=(tmp_path / "nothing").as_uri())
    assert isinstance((await gone.scrub("another", parts[:1]))[0], NotFound)


@pytest.mark.parametrize("stage", ["unplanned", "planned"])
def test_a_dry_run_prints_what_it_prints_without_spark(
    stage: str, command: Command, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    left: Left = request.getfixturevalue(stage)
    url = anyio.run(put, left.objects, tmp_path / "store")
    plain = command.ok("gc", "--store", url, "--dry-run").splitlines()
    assert len(plain) > (COMMITS if stage == "planned" else 2)
    assert command.ok("gc", "--store", url, "--dry-run", "--spark").splitlines() == plain
    assert objects(tmp_path / "store") == set(left.objects)
    one = command.ok("gc", "--store", url, "--dry-run", "--spark", left.logs[0]).splitlines()
    assert one == command.ok("gc", "--store", url, "--dry-run", left.logs[0]).splitlines() != plain


@pytest.mark.parametrize("entries", [8192, 16])
async def test_what_was_planned_goes_and_what_was_not_is_planned(
    spark: SparkSession, planned: Left, entries: int, tmp_path: Path
) -> None:
    """In executors' turns, and with plans that are large."""
    folder, other = tmp_path / "store", tmp_path / "other"
    cluster = Cluster(spark.sparkContext, await put(planned.objects, folder), entries)
    await put(planned.objects, other)
    turns, plainly = await collect(cluster, folder), await collect_plainly(other)
    assert {log: turn.deleted for log, turn in turns.items()} == {log: turn.deleted for log, turn in plainly.items()}
    assert min(turn.deleted for turn in turns.values()) >= COMMITS
    kept = objects(other) & set(planned.objects)
    assert len(kept) < len(planned.objects) - COMMITS
    assert objects(folder) & set(planned.objects) == kept
    await planned.check(folder)
    assert await scrubbed_in(folder) == []


@pytest.mark.parametrize("entries", [8192, 16])
async def test_a_plan_waits_its_interval_and_only_one_stands(
    spark: SparkSession, unplanned: Left, entries: int, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    cluster = Cluster(spark.sparkContext, await put(unplanned.objects, folder), entries)
    if entries < COMMITS:
        for turned in await cluster.turn(unplanned.logs):
            assert isinstance(turned, Turned)
            assert turned.is_large
        assert plans_in(folder) == {}, "whoever can't verify a plan has none acknowledged"
    turns = await collect(cluster, folder)
    assert all(turn.due_ms and not turn.deleted for turn in turns.values())
    plans = plans_in(folder)
    assert sorted(plans) == unplanned.logs
    assert [turn.deleted for turn in (await collect(cluster, folder)).values()] == [0, 0, 0]
    assert plans_in(folder) == plans
    assert all(len(each) == 1 for each in plans.values())
    assert set(unplanned.objects) <= objects(folder)
    await unplanned.check(folder)
    assert await scrubbed_in(folder) == []


@pytest.mark.parametrize("stage", ["unplanned", "planned"])
async def test_turns_that_come_twice_at_once_do_no_harm(
    stage: str, spark: SparkSession, planned: Left, unplanned: Left, tmp_path: Path
) -> None:
    left = planned if stage == "planned" else unplanned
    folder = tmp_path / "store"
    cluster = Cluster(spark.sparkContext, await put(left.objects, folder))
    for turned in await cluster.turn([log for log in left.logs for _ in range(4)]):
        assert isinstance(turned, Turned)
        assert [error for _, error in turned.failures if not isinstance(error, Conflict)] == []
    await collect(cluster, folder)
    # One whose log was taken from it in the midst may leave a plan that no entry acknowledges: that says nothing.
    for log, plans in plans_in(folder).items():
        assert plan_key(log, SecondReader(directory(folder)).log(log).garbage) in plans
    await left.check(folder)
    assert await scrubbed_in(folder) == []
    if stage == "unplanned":
        assert set(left.objects) <= objects(folder), "something went before its time"


@pytest.mark.parametrize("point", CRASHES)
async def test_a_task_that_is_lost_halfway_does_no_harm(
    point: str, spark: SparkSession, planned: Left, unplanned: Left, tmp_path: Path
) -> None:
    left, folder = planned if "deleted" in point else unplanned, tmp_path / "store"
    cluster = Cluster(spark.sparkContext, await put(left.objects, folder))

    # Its workers can't import this file.
    def killed(url: str, point: str) -> Callable[[str], None]:
        def turn(log: str) -> None:
            from budwood.spark_export.upkeep import tasks
            from budwood.volume import faults

            faults.arm(point, lambda: os.kill(os.getpid(), signal.SIGKILL))
            tasks.turn(url, 8192, log)

        return turn

    for log in left.logs:
        with pytest.raises(Unavailable, match="Spark could not do it"):
            await anyio.to_thread.run_sync(
                partial(run_job, spark.sparkContext, "killed", [log], [1], killed(cluster.url, point))
            )
    assert objects(folder) != set(left.objects)
    await left.check(folder)
    turns = await collect(cluster, folder)
    # One that was never acknowledged goes with the next turn.
    assert all(len(plans) <= 1 + ("written" in point) for plans in plans_in(folder).values())
    assert bool(sum(turn.deleted for turn in turns.values())) == (left is planned)
    await left.check(folder)
    assert await scrubbed_in(folder) == []


async def test_one_word_against_a_part_refuses_the_plan(spark: SparkSession, planned: Left, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    cluster = Cluster(spark.sparkContext, await put(planned.objects, folder), 16)
    store = await FileStore.open(str(folder))
    log = planned.logs[0]
    async with Node.open(store, create=False) as node:
        plan = await node.collector.planned(log)
        assert plan is not None
        right = await cluster.verify(parts_of(plan, entries=16))
        # Up to an entry that the newest pages lie in.
        wrong = msgspec.structs.replace(plan, slot=slot_covered_by(plan.rollup) + 1)
        answers = await cluster.verify(parts_of(wrong, entries=16))
        assert len(answers) > 3
        with pytest.raises(Refused, match=plan_key(log, f"{plan.number:016x}")):
            await spread_verifier(cluster)(node.collector, wrong)
    await store.aclose()
    assert set(right) == {None}
    assert any(isinstance(answer, Refused) for answer in answers)
    assert objects(folder) == set(planned.objects)


def test_the_parts_of_a_plan_are_all_of_it() -> None:
    folds = tuple(PlannedFold(vid=bytes([at]), checkpoint=f"c{at}", deadlist=b"d") for at in range(7))
    bare = GarbagePlan(log="main", number=5, rollup="r", first=10, slot=55, settled=(1,))
    plan = msgspec.structs.replace(bare, folds=folds, rejected=(3, 4, 9))
    left = {
        "fragments": (PlannedFragments(vid=b"v", epoch=1, ids=bytes(16)),),
        "pins": (PlannedPin(vid=b"v", pin=b"p", upto=3),),
    }
    whole = parts_of(msgspec.structs.replace(plan, **left), entries=20)
    assert [(part.fragments, part.pins) for part in whole if part.fragments or part.pins] == [tuple(left.values())]
    parts = parts_of(plan, entries=20, folds=3, rejected=2)
    assert [slot for part in parts for slot in range(part.first, part.slot)] == list(range(10, 55))
    assert [fold for part in parts for fold in part.folds] == list(folds)
    assert [number for part in parts for number in part.rejected] == [3, 4, 9]
    assert {(part.log, part.number, part.rollup) for part in parts} == {("main", 5, "r")}
    assert parts_of(plan) == [plan], "it is small"
    assert len(parts_of(plan, entries=44)) == 4
    assert len(parts_of(plan, folds=6)) == 4
    assert len(parts_of(plan, rejected=2)) == 4


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["scrub", "--store", "memory://x", "--spark"], 2, "a memory:// store is of one process alone"),
        (["gc", "--store", "memory://x", "--spark"], 2, "a memory:// store is of one process alone"),
        (["scrub", "--store", "STORE", "--master", "local[1]"], 2, "--master says where Spark runs: add --spark"),
        (["gc", "--store", "STORE", "--master", "local[1]"], 2, "--master says where Spark runs: add --spark"),
        (["gc", "--store", "STORE", "--spark", "--explain", "root"], 2, "leave out --spark"),
        (["gc", "--store", "STORE", "--spark", "nowhere"], 1, "there is no log 'nowhere' in this store"),
        (["scrub", "--store", "STORE", "--spark", "--from", "x"], 2, "'x' is no position"),
        (["scrub", "--store", "NOTHING", "--spark"], 1, "there is no store"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    arguments: list[str], code: int, words: str, command: Command, old: Old, tmp_path: Path
) -> None:
    url = anyio.run(put, old.objects, tmp_path / "store")
    urls = {"STORE": url, "NOTHING": (tmp_path / "nothing").as_uri()}
    assert words in command(*(urls.get(each, each) for each in arguments)).line(code)


@pytest.mark.slow
def test_the_command_starts_java_and_java_says_nothing(
    spark: SparkSession, old: Old, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a process of its own. (The session is asked for so that this is skipped where there is no Java.)"""
    url = anyio.run(put, old.objects, tmp_path / "store")
    said = Command(capsys, tmp_path / "nobody").process("scrub", "--store", url, "--spark", "--master", "local[1]")
    assert (said.code, said.err) == (0, "")
    assert said.out.endswith(": nothing is wrong\n")


async def scrubbed_in(folder: Path) -> list[str]:
    heard, store = Heard(), await FileStore.open(str(folder))
    async with open_scrub(store, heard) as scrub:
        await scrub.run()
    await store.aclose()
    return [str(finding) for finding in heard.findings]

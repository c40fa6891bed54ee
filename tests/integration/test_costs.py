"""Costs: what a store holds and what was written to it, as one finds it who adds up its objects one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import anyio
import pytest

from budwood.server.node import Node
from budwood.server.upkeep import stored_bytes, written
from budwood.server.upkeep.costs import Costs, Usage, Wanted, days_of, survey, total_of
from budwood.server.upkeep.retention_schedule import schedule
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import CREATE, CreateRequest
from budwood.volume.entry import entry_key, parse_entry, slot_of
from budwood.volume.errors import NotFound
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.pageset import decode_pages, page_count
from budwood.volume.records import Commit, Fold
from budwood.volume.retention_policy import RetentionPolicy

from ..damage import copy_of
from ..grown import DAY_MS, HOUR_MS, Grown, grow_old
from ..rolling import hasty, memory
from ..second_reader import Store, base58
from ..second_reader.volume_streams import Commit as Stands
from ..second_reader.volume_streams import Volume

pytestmark = pytest.mark.anyio

PAGE = 512
ANN = ClientId.new()


@pytest.fixture(scope="module")
def grown() -> Grown:
    return anyio.run(grow_old, MemoryStore())


def objects_of(grown: Grown) -> dict[str, bytes]:
    return memory(grown.store).objects


async def costs_of(
    grown: Grown, *, days: float = 7.0, window_ms: int = 0, policy: RetentionPolicy | None = None
) -> Costs:
    store = RiggedStore(await copy_of(objects_of(grown)))
    costs = await survey(store, Wanted(grown.now_ms, days, window_ms, policy), patience=hasty())
    assert not store.count("create")
    assert not store.count("delete")
    assert not costs.unread
    return costs


def by_volume(costs: Costs) -> dict[str, Usage]:
    return {usage.volume: usage for usage in costs.usages if usage.volume}


def by_log(costs: Costs) -> dict[str, Usage]:
    return {usage.log: usage for usage in costs.usages if usage.log}


class Plain:
    """The same, by the second reader and one object after another."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.store = Store(objects)
        self.volumes = {base58(vid): self.store.volume(vid) for vid in self.store.volumes}
        self.inside: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
        """By entry: the volume, the LSN, and the bytes of its pages there."""
        for name, volume in self.volumes.items():
            for lsn, commit in self._unfolded(volume):
                for place in commit.record.maps("locations"):
                    if not place.text("object"):
                        held = place.data("pages", b"") or commit.record.data("pages")
                        size = len(decode_pages("", held)) * volume.page_size
                        self.inside[entry_key(commit.log, commit.slot)].append((name, lsn, size))

    @staticmethod
    def _unfolded(volume: Volume) -> Iterable[tuple[int, Stands]]:
        return ((lsn, volume.commits[lsn]) for lsn in range(volume.folded_to + 1, volume.head + 1))

    def needed(self, name: str) -> set[str]:
        """Under t/."""
        volume = self.volumes[name]
        keys = {key for _, commit in self._unfolded(volume) for key in commit.objects}
        if volume.checkpoint is not None:
            keys |= volume.checkpoint.nodes | volume.checkpoint.segments
        return keys

    def share(self, name: str, key: str) -> float:
        """Of an entry's bytes, in page bytes."""
        inside = self.inside[key]
        return (
            len(self.objects[key])
            * sum(size for whose, _, size in inside if whose == name)
            / sum(size for *_, size in inside)
        )

    def size(self, keys: Iterable[str]) -> int:
        return sum(len(self.objects[key]) for key in keys)


async def test_every_byte_that_stands_is_somebodys(grown: Grown) -> None:
    costs, objects = await costs_of(grown), objects_of(grown)
    total = total_of(costs.usages)
    assert costs.objects == len(objects)
    assert total.bytes == pytest.approx(sum(map(len, objects.values())), abs=0.01)
    assert {usage.volume for usage in costs.usages if usage.volume} == {str(vid) for vid in grown.volumes.values()}


async def test_a_volume_has_what_it_needs_and_its_part_of_what_it_shares(grown: Grown) -> None:
    costs, plain = by_volume(await costs_of(grown)), Plain(objects_of(grown))
    for name, usage in costs.items():
        own = [key for key in plain.objects if key.startswith(f"logs/{name}/")]
        assert usage.pages == plain.size(plain.needed(name))
        parts = sum(plain.share(name, key) for key in plain.inside)
        empty = [key for key in own if "/entries/" in key and key not in plain.inside]
        below = [key for key in empty if 0 < slot_of(key) < first_needed(plain, name)]
        assert usage.entries == pytest.approx(parts + plain.size(set(empty) - set(below)), abs=0.01)
        told = [key for key in own if key.split("/")[2] not in {"entries", "t"} or key.endswith("/deadlist")]
        born = [key for key in plain.objects if key.startswith(f"volumes/{name}/")]
        assert usage.records == plain.size([*told, *born])
        under = [key for key in own if key.split("/")[2] == "t" and not key.endswith("/deadlist")]
        elsewhere = set[str]().union(*(plain.needed(other) for other in plain.volumes))
        assert usage.waiting == plain.size(below) + plain.size(set(under) - elsewhere)


def first_needed(plain: Plain, log: str) -> int:
    covered = plain.store.log(log).rollup
    slots = [slot_of(key) for key in plain.inside if key.startswith(f"logs/{log}/")]
    return min([int(covered.partition("/")[0], 16) + 1 if covered else 0, *slots])


async def test_an_entry_is_divided_among_all_whose_pages_lie_in_it() -> None:
    store = MemoryStore()
    async with Node.open(store, name="main", patience=hasty()) as node:
        vids = [VolumeId.new() for _ in range(3)]
        for vid in vids:
            await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        rigged = [commit_of(vid, 0, {at: bytes([7]) * PAGE for at in range(1, at + 2)}, client=ANN, page_size=PAGE)
                  for at, vid in enumerate(vids)]  # fmt: skip
        async with anyio.create_task_group() as tasks:
            for request in rigged:
                tasks.start_soon(node.commit, *request)
    plain, costs = Plain(store.objects), by_volume(await survey(store, Wanted(0), patience=hasty()))
    assert any(len(inside) > 1 for inside in plain.inside.values())
    headers = [parse_entry(key, data).header for key, data in store.objects.items() if "/entries/" in key]
    for name in map(str, vids):
        parts = sum(1 / len(header.streams) for header in headers if name in header.streams)
        assert sum(creates.entries for creates in costs[name].days.values()) == pytest.approx(parts)
        assert costs[name].entries == pytest.approx(sum(plain.share(name, key) for key in plain.inside), abs=0.01)


async def test_what_waits_to_be_collected_is_what_a_collection_takes(grown: Grown) -> None:
    plan = by_log(await costs_of(grown))["main"]
    garbage = Store(objects_of(grown)).liveness().garbage
    entries_and_pages = [
        key
        for key in garbage
        if key.startswith("logs/main/") and key.split("/")[2] in {"entries", "t"} and not key.endswith("/deadlist")
    ]
    assert entries_and_pages
    assert plan.waiting >= sum(len(objects_of(grown)[key]) for key in entries_and_pages)


@pytest.mark.parametrize("days", [0.02, 0.5, 100])
async def test_what_was_written_is_counted_by_volume_and_day(grown: Grown, days: float) -> None:
    costs, objects = await costs_of(grown, days=days), objects_of(grown)
    expected: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0, 0, 0])
    logs, until = {key.split("/")[1] for key in objects if key.startswith("logs/")}, grown.now_ms - days * DAY_MS
    for log in logs:
        slot = max(slot_of(key) for key in objects if key.startswith(f"logs/{log}/entries/"))
        while (data := objects.get(entry_key(log, slot))) is not None:
            header = parse_entry(entry_key(log, slot), data).header
            if header.time <= until:
                break
            for stream, carried in header.streams.items():
                counted = expected[stream, header.time // DAY_MS]
                commits = [record for record in carried.decode("") if isinstance(record, Commit)]
                counted[0] += len(commits)
                counted[1] += 1 / len(header.streams)
                counted[2] += sum(bool(place.object) for commit in commits for place in commit.locations)
            if not header.streams:
                # An anchor, or a rollup's name: its log's own.
                expected[log, header.time // DAY_MS][1] += 1
            slot -= 1
    assert expected
    told = {
        (usage.volume or usage.log, day): [creates.commits, creates.entries, creates.fragments]
        for usage in costs.usages
        for day, creates in usage.days.items()
    }
    for at, counted in expected.items():
        assert told[at] == pytest.approx(counted)
    all_commits = sum(creates.commits for _, creates in days_of(costs.usages))
    assert all_commits == sum(counted[0] for counted in expected.values())


async def test_what_upkeep_wrote_is_counted_too(grown: Grown) -> None:
    costs, objects = by_volume(await costs_of(grown, days=100)), objects_of(grown)
    vid = str(grown.volumes["accounts"])
    folds = set[str]()
    for key in objects:
        if key.startswith("logs/main/entries/"):
            carried = parse_entry(key, objects[key]).header.streams.get(vid)
            found = () if carried is None else carried.decode(key)
            folds |= {record.checkpoint for record in found if isinstance(record, Fold)}
    assert len(folds) > 1
    made = sum(1 + sum(key.startswith(f"{fold}/") for key in objects) for fold in folds)
    assert sum(creates.upkeep for creates in costs[vid].days.values()) == made


async def test_rates_go_by_the_time_that_is_left_behind_a_collection(grown: Grown) -> None:
    """And by no less than an hour."""
    costs = await costs_of(grown, days=100)
    objects, oldest = objects_of(grown), 2**64
    newest = max(slot_of(key) for key in objects if key.startswith("logs/main/entries/"))
    while (data := objects.get(entry_key("main", newest))) is not None:
        oldest = parse_entry(entry_key("main", newest), data).header.time
        newest -= 1
    assert newest > 0, "nothing was collected"
    assert costs.covers_days == pytest.approx((grown.now_ms - oldest) / DAY_MS)
    just_now = await costs_of(grown, days=0.0001)
    assert just_now.covers_days == pytest.approx(1 / 24)


async def test_no_more_entries_are_read_than_said(grown: Grown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written.Written.survey, "__kwdefaults__", {"most": 5})
    costs = await costs_of(grown, days=100)
    assert sum(creates.entries for _, creates in days_of(costs.usages)) <= 5 * 4
    assert costs.covers_days < 100


@pytest.mark.parametrize("window_ms", [90_000, HOUR_MS, 10 * DAY_MS])
async def test_another_batch_window_comes_to_as_few_entries_as_hold_them_all(grown: Grown, window_ms: int) -> None:
    costs, objects = await costs_of(grown, days=2, window_ms=window_ms), objects_of(grown)
    fewer = 0.0
    for log in {key.split("/")[1] for key in objects if key.startswith("logs/")}:
        times, whole, oldest, slot = (
            list[int](),
            True,
            0,
            max(slot_of(k) for k in objects if k.startswith(f"logs/{log}/entries/")),
        )
        while (data := objects.get(entry_key(log, slot))) is not None:
            header = parse_entry(entry_key(log, slot), data).header
            if header.time <= grown.now_ms - 2 * DAY_MS:
                break
            times += [header.time] if header.streams else []
            oldest = header.time
            slot -= 1
        else:
            whole = slot < 0
        times.sort()
        covered = 2.0 if whole else max((grown.now_ms - oldest) / DAY_MS, 1 / 24)
        batches, end = 0, -1
        for time in times:
            if time >= end:
                batches, end = batches + 1, time + window_ms
        fewer += (len(times) - batches) / covered
    assert costs.spared_a_day == pytest.approx(fewer)
    assert costs.spared_a_day > 0


POLICIES = [
    RetentionPolicy(all_ms=HOUR_MS),
    RetentionPolicy(all_ms=HOUR_MS, hourly_ms=DAY_MS),
    RetentionPolicy(all_ms=12 * HOUR_MS, daily_ms=5 * DAY_MS),
    RetentionPolicy(all_ms=300 * DAY_MS),
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("at_once", [3, 256])
async def test_another_retention_lets_go_of_what_nobody_could_read_then(
    grown: Grown, policy: RetentionPolicy, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_bytes, "AT_ONCE", at_once)
    monkeypatch.setattr("budwood.server.upkeep.forgettable.AT_ONCE", at_once)
    costs, plain = by_volume(await costs_of(grown, policy=policy)), Plain(objects_of(grown))
    for name, volume in plain.volumes.items():
        assert costs[name].let_go == pytest.approx(going(plain, name, volume, policy, grown.now_ms), abs=0.01)
    total = sum(usage.let_go for usage in costs.values())
    assert (total > 0) == (policy.all_ms < DAY_MS)


def going(plain: Plain, name: str, volume: Volume, policy: RetentionPolicy, now_ms: int) -> float:
    """By asking of each version of each page who could read it."""
    oldest = max(volume.since, volume.start + 1)
    due = schedule(policy, volume.time_at, oldest, volume.head, now_ms) if volume.head >= oldest else None
    if due is None:
        return 0.0
    assert due.whole
    held = {pin.lsn for pin in plain.store.pins(volume.vid) if pin.state in {"live", "asked"}}
    stays = sorted({hold.lsn for hold in due.holds} | held | set(volume.forks.values()) | {due.since})
    gone = 0.0
    for lsn in range(volume.folded_to + 1, due.since + 1):
        commit = volume.commits[lsn]
        pages = set(decode_pages("", commit.record.data("pages")))
        lost = {page for page in pages if not read_at(volume, stays, lsn, page)}
        key = entry_key(commit.log, commit.slot)
        whole = plain.size(commit.objects) if commit.objects else in_entry(plain, key, name, lsn)
        gone += whole * len(lost) / max(1, len(pages))
    if volume.checkpoint is not None and volume.folded_to not in stays:
        gone += of_region(plain, volume, stays)
    return gone


def in_entry(plain: Plain, key: str, name: str, lsn: int) -> float:
    inside = plain.inside[key]
    own = sum(size for whose, at, size in inside if (whose, at) == (name, lsn))
    return len(plain.objects[key]) * own / sum(size for *_, size in inside)


def read_at(volume: Volume, stays: list[int], lsn: int, page: int) -> bool:
    """Whether at the next LSN that stays the page still reads as it did at that one, and is no hole."""
    until = next(stay for stay in stays if stay >= lsn)
    for later in range(lsn + 1, until + 1):
        commit = volume.commits[later]
        if page in set(decode_pages("", commit.record.data("pages"))):
            return False
        if page > page_count(commit.floor, volume.page_size):
            return False
    return True


def of_region(plain: Plain, volume: Volume, stays: list[int]) -> float:
    assert volume.checkpoint is not None
    gone = 0.0
    for segment, fields, pages in volume.checkpoint.newest_parts():
        lost = [page for page in pages if not read_at(volume, stays, volume.folded_to, page)]
        assert segment in plain.objects
        gone += len(plain.objects[segment]) * len(lost) / fields.number("pages")
    return gone


async def test_where_there_is_no_store_it_says_so() -> None:
    with pytest.raises(NotFound, match="no Budwood store"):
        await survey(MemoryStore(), Wanted(0), patience=hasty())


async def test_a_volume_that_can_t_be_opened_is_told_and_the_others_are_counted(grown: Grown) -> None:
    objects = dict(objects_of(grown))
    key = f"volumes/{grown.volumes['own']}/birth"
    objects[key] = objects[key][:-1] + bytes([objects[key][-1] ^ 1])
    costs = await survey(await copy_of(objects), Wanted(grown.now_ms), patience=hasty())
    (unread,) = costs.unread
    assert unread.what == f"volume {grown.volumes['own']}"
    assert total_of(costs.usages).bytes == pytest.approx(sum(map(len, objects.values())), abs=0.01)

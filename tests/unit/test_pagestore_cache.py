"""The chunk cache (S2.19): what it asks the store for, what it believes, what it throws away."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from budwood.server.pagestore.chunk_cache import ChunkCache
from budwood.server.pagestore.chunks import DiskChunks, MemoryChunks
from budwood.server.store.retrying import Patience
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.errors import Corrupt, Unavailable

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

CHUNK = 1000
SIZE = 9500
KEY = "logs/main/t/01/object"
DATA = (bytes(range(256)) * 38)[:SIZE]
assert len(DATA) == SIZE


async def rigged() -> RiggedStore:
    store = MemoryStore()
    await store.create(KEY, DATA)
    return RiggedStore(store)


def on_disk(folder: Path, limit: int = 1 << 20) -> DiskChunks:
    return DiskChunks(folder, limit, chunk_bytes=CHUNK)


def in_memory(_: Path) -> MemoryChunks:
    return MemoryChunks(1 << 20, chunk_bytes=CHUNK)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("make", [in_memory, on_disk])
async def test_every_range_is_the_objects_and_is_asked_for_once(
    tmp_path: Path, make: Callable[[Path], MemoryChunks | DiskChunks]
) -> None:
    store = await rigged()
    cache = ChunkCache(store, make(tmp_path))
    for start in (0, 1, 999, 1000, 4321, 9499):
        for length in (0, 1, 999, 1000, 1001, 5179):
            end = min(SIZE, start + length)
            assert bytes(await cache.read(KEY, SIZE, start, end)) == DATA[start:end]
    assert store.received_bytes("get") == SIZE, "some chunk was fetched twice"


async def test_adjacent_missing_chunks_are_one_request(tmp_path: Path) -> None:
    store = await rigged()
    cache = ChunkCache(store, on_disk(tmp_path))
    await cache.read(KEY, SIZE, 4000, 5000)
    store.forget()
    await cache.read(KEY, SIZE, 1500, 8500)
    assert store.count("get") == 2, "one before and one after the chunk that was there"


async def test_concurrent_misses_share_one_request(tmp_path: Path) -> None:
    store = await rigged()
    gate = anyio.Event()
    rule = store.add(Rule(op="get", gate=gate))
    cache = ChunkCache(store, on_disk(tmp_path))
    answers: list[bytes] = []

    async def read(start: int, end: int) -> None:
        answers.append(bytes(await cache.read(KEY, SIZE, start, end)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, 0, 3000)
        await rule.reached.wait()
        tasks.start_soon(read, 500, 600)
        tasks.start_soon(read, 2000, 4000)
        await anyio.wait_all_tasks_blocked()
        gate.set()
    assert sorted(answers) == sorted([DATA[:3000], DATA[500:600], DATA[2000:4000]])
    assert store.received_bytes("get") == 4000


async def test_when_the_one_who_asks_is_cancelled_another_goes(tmp_path: Path) -> None:
    store = await rigged()
    rule = store.add(Rule(op="get", gate=anyio.Event()))
    cache = ChunkCache(store, on_disk(tmp_path))
    answers: list[bytes] = []

    async def wait_for_it() -> None:
        answers.append(bytes(await cache.read(KEY, SIZE, 0, 10)))

    async with anyio.create_task_group() as tasks, anyio.create_task_group() as first:
        first.start_soon(cache.read, KEY, SIZE, 0, 10)
        await rule.reached.wait()
        tasks.start_soon(wait_for_it)
        await anyio.wait_all_tasks_blocked()
        assert store.count("get") == 1
        first.cancel_scope.cancel()
    assert answers == [DATA[:10]]
    assert store.count("get") == 2


async def test_a_failure_reaches_all_who_wait_and_the_next_one_asks_again(tmp_path: Path) -> None:
    store = await rigged()
    gate = anyio.Event()
    rule = store.add(Rule(op="get", gate=gate, before=Unavailable("no answer")))
    cache = ChunkCache(store, on_disk(tmp_path), patience=Patience(deadline_seconds=0))
    failures: list[str] = []

    async def read() -> None:
        try:
            await cache.read(KEY, SIZE, 0, 10)
        except Unavailable as error:
            failures.append(str(error))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        await rule.reached.wait()
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        gate.set()
    assert failures == ["no answer", "no answer"]
    assert bytes(await cache.read(KEY, SIZE, 0, 10)) == DATA[:10]


async def test_a_missing_and_a_short_object_are_damage_that_names_it(tmp_path: Path) -> None:
    store = await rigged()
    cache = ChunkCache(store, on_disk(tmp_path))
    with pytest.raises(Corrupt, match=r"t/01/gone is damaged: the object is missing"):
        await cache.read("logs/main/t/01/gone", 5, 0, 5)
    with pytest.raises(Corrupt, match="ends at byte 9500 where 9600 belong"):
        await cache.read(KEY, 9600, 9000, 9600)
    assert bytes(await cache.read(KEY, SIZE, 9000, SIZE)) == DATA[9000:], "the wrong size left something behind"


@pytest.mark.parametrize("damage", ["flip", "cut", "swap", "empty"])
async def test_a_damaged_file_is_dropped_and_fetched_again(tmp_path: Path, damage: str) -> None:
    store = await rigged()
    cache = ChunkCache(store, on_disk(tmp_path))
    await cache.read(KEY, SIZE, 0, 2000)
    one, other = files(tmp_path)
    stored = bytearray(one.read_bytes())
    if damage == "flip":
        stored[500] ^= 1
    elif damage == "cut":
        del stored[700:]
    elif damage == "swap":
        stored[:] = other.read_bytes()
    else:
        stored.clear()
    one.write_bytes(stored)
    store.forget()
    assert bytes(await cache.read(KEY, SIZE, 0, 2000)) == DATA[:2000]
    assert store.received_bytes("get") == 1000
    assert bytes(await cache.read(KEY, SIZE, 0, 2000)) == DATA[:2000]
    assert store.received_bytes("get") == 1000


async def test_a_vanished_file_is_a_miss_and_a_fresh_process_finds_the_rest(tmp_path: Path) -> None:
    store = await rigged()
    await ChunkCache(store, on_disk(tmp_path)).read(KEY, SIZE, 0, 3000)
    files(tmp_path)[0].unlink()
    store.forget()
    assert bytes(await ChunkCache(store, on_disk(tmp_path)).read(KEY, SIZE, 0, 3000)) == DATA[:3000]
    assert store.received_bytes("get") == 1000


async def test_two_stores_in_one_folder_do_not_mix(tmp_path: Path) -> None:
    store, other = await rigged(), MemoryStore()
    await other.create(KEY, DATA[::-1])
    assert bytes(await ChunkCache(store, on_disk(tmp_path), salt="a").read(KEY, SIZE, 0, 100)) == DATA[:100]
    assert bytes(await ChunkCache(other, on_disk(tmp_path), salt="b").read(KEY, SIZE, 0, 100)) == DATA[::-1][:100]


async def test_the_least_recently_used_goes_and_the_limit_holds(tmp_path: Path) -> None:
    store = await rigged()
    chunks = on_disk(tmp_path, limit=4100)
    cache = ChunkCache(store, chunks)
    for number in range(4):
        await cache.read(KEY, SIZE, number * CHUNK, number * CHUNK + 1)
    await cache.read(KEY, SIZE, 0, 1)
    await cache.read(KEY, SIZE, 4 * CHUNK, 4 * CHUNK + 1)
    assert sum(path.stat().st_size for path in files(tmp_path)) == chunks.held_bytes <= 4100
    store.forget()
    await cache.read(KEY, SIZE, 0, 1)
    assert store.count() == 0, "the one used last was dropped"
    await cache.read(KEY, SIZE, CHUNK, CHUNK + 1)
    assert store.count() == 1


async def test_two_processes_share_a_folder_within_the_limit(tmp_path: Path) -> None:
    """Each sees the other's files when it next scans, so that neither grows without bound on its own."""
    store = await rigged()
    one, two = (ChunkCache(store, on_disk(tmp_path, limit=8 * 1016)) for _ in range(2))
    for number in range(5):
        await one.read(KEY, SIZE, number * CHUNK, number * CHUNK + 1)
    for number in range(5, 10):
        await two.read(KEY, SIZE, number * CHUNK, number * CHUNK + 1)
    held = sum(path.stat().st_size for path in files(tmp_path))
    assert held <= (8 + 2) * 1016
    for number in range(10):
        end = min(SIZE, number * CHUNK + 7)
        assert bytes(await one.read(KEY, SIZE, number * CHUNK, end)) == DATA[number * CHUNK : end]


async def test_a_cache_that_cannot_be_written_still_reads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = await rigged()
    (tmp_path / "file").write_bytes(b"")
    cache = ChunkCache(store, on_disk(tmp_path / "file"))
    assert bytes(await cache.read(KEY, SIZE, 0, 100)) == DATA[:100]
    assert "the cache can't" in caplog.text


async def test_what_others_keep_in_its_folder_is_left_alone_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is a file system's root holds `lost+found`, which only root may list."""
    old = time.time() - 7200
    strange = [
        tmp_path / name for name in ("notes.tmp", "lost+found/0", "ab/notes", "ab/" + "ab" * 15, "abc/" + "ab" * 16)
    ]
    for path in strange:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(100_000))
        os.utime(path, (old, old))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "ab" / ("ab" * 16)).symlink_to(tmp_path / "loop")
    (tmp_path / "cd").mkdir()
    (tmp_path / "cd" / ("cd" * 16)).mkdir()
    real = os.scandir

    def scandir(path: str) -> Any:
        if os.path.basename(path) in {"lost+found", "ee"}:
            raise PermissionError(errno.EACCES, "not permitted", path)
        return real(path)

    (tmp_path / "ee").mkdir()
    monkeypatch.setattr(os, "scandir", scandir)
    store = await rigged()
    chunks = on_disk(tmp_path, 5000)
    cache = ChunkCache(store, chunks)
    for _ in range(3):
        assert bytes(await cache.read(KEY, SIZE, 0, SIZE)) == DATA
    assert 0 < chunks.held_bytes <= 5000
    assert all(path.read_bytes() == bytes(100_000) for path in strange)


async def test_a_file_that_can_be_read_and_not_touched_is_a_hit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's, or on a file system that is read-only."""
    store = await rigged()
    await ChunkCache(store, on_disk(tmp_path)).read(KEY, SIZE, 0, SIZE)

    def utime(path: str) -> None:
        raise PermissionError(errno.EPERM, "not permitted", path)

    monkeypatch.setattr(os, "utime", utime)
    assert bytes(await ChunkCache(store, on_disk(tmp_path)).read(KEY, SIZE, 0, SIZE)) == DATA
    assert store.count("get") == 1


async def test_leftovers_of_a_crash_are_cleared_and_not_counted(tmp_path: Path) -> None:
    store = await rigged()
    (tmp_path / ".77-0.tmp").write_bytes(bytes(5000))
    os.utime(tmp_path / ".77-0.tmp", (1, 1))
    chunks = on_disk(tmp_path)
    await ChunkCache(store, chunks).read(KEY, SIZE, 0, 1)
    assert not (tmp_path / ".77-0.tmp").exists()
    assert chunks.held_bytes == sum(path.stat().st_size for path in files(tmp_path))


async def test_memory_holds_no_more_than_its_limit() -> None:
    store = await rigged()
    chunks = MemoryChunks(3500, chunk_bytes=CHUNK)
    cache = ChunkCache(store, chunks)
    assert bytes(await cache.read(KEY, SIZE, 0, SIZE)) == DATA
    assert chunks.held_bytes <= 3500


async def test_what_was_seeded_costs_no_request(tmp_path: Path) -> None:
    store = await rigged()
    cache = ChunkCache(store, on_disk(tmp_path))
    await cache.seed(KEY, DATA)
    assert bytes(await cache.read(KEY, SIZE, 0, SIZE)) == DATA
    assert store.count() == 0

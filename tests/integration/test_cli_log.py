"""`budwood repair-log --dry-run`: a log's index, made anew from names alone; and what else a store's upkeep makes of a
plain log."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

import budwood
from budwood.server.log.reader import LogReader
from budwood.server.node import Node
from budwood.server.upkeep.log_names import names_of
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.calls import CREATE, CreateRequest
from budwood.volume.entry import entry_key, epoch_key
from budwood.volume.errors import Corrupt
from budwood.volume.ids import ClientId, VolumeId

from .cli import Command


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """With a log of six entries behind its anchor and its fence, by two writers."""
    folder = tmp_path / "store"

    async def fill() -> None:
        for at in range(2):
            async with budwood.log.open_log(folder.as_uri(), "events") as log:
                for n in range(3):
                    await log.append({"a": [b"%d" % n], f"b{at}": [b"x"]})

    asyncio.run(fill())
    return folder


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    return Command(capsys, tmp_path / "home")


def repair(command: Command, store: Path, *more: str) -> str:
    return command.ok("repair-log", "--dry-run", "--store", store.as_uri(), "events", *more)


def objects(store: Path) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def test_a_logs_index_is_made_anew_from_names_alone(command: Command, store: Path) -> None:
    """S4.7."""
    before = objects(store)
    for path in (store / "logs/events").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(b"")
    assert json.loads(repair(command, store, "--json")) == [
        {"what": "entries", "first": 0, "last": 8, "objects": 9},
        {"what": "epoch or transaction", "number": 1, "objects": 0},
        {"what": "epoch or transaction", "number": 2, "objects": 0},
    ]
    assert repair(command, store).splitlines()[-1] == "whole"
    assert objects(store).keys() == before.keys()


def test_what_is_missing_is_told(command: Command, store: Path) -> None:
    """S4.7."""
    for slot in (0, 4, 5):
        (store / entry_key("events", slot)).unlink()
    (store / epoch_key("events", 1)).unlink()
    stray = store / "logs/events/t/0000000000000007"
    stray.mkdir(parents=True)
    (stray / "deadlist").write_bytes(b"")
    (store / "logs/events/entries/what").write_bytes(b"")
    *table, unknown, last = repair(command, store).splitlines()
    assert [line.split() for line in table] == [
        ["what", "number", "first", "last", "objects"],
        ["missing", "0", "0", "0"],
        ["entries", "1", "3", "3"],
        ["missing", "4", "5", "0"],
        ["entries", "6", "8", "3"],
        ["epoch", "or", "transaction", "2", "0"],
        ["orphans", "7", "1"],
    ]
    assert unknown == "logs/events/entries/what is of no kind that a log has"
    assert last == "3 missing: scrub says which were acknowledged, and those are put back"


def test_a_call_that_would_write_and_a_log_that_is_not_there_are_refused(command: Command, store: Path) -> None:
    url = store.as_uri()
    words = command("repair-log", "--store", url, "events").line(2)
    assert "say budwood repair-log --dry-run" in words
    assert "no log 'other'" in command("repair-log", "--dry-run", "--store", url, "other").line()
    nothing = (store.parent / "nothing").as_uri()
    assert "nothing" in command("repair-log", "--dry-run", "--store", nothing, "events").line()


def test_a_stores_upkeep_deletes_nothing_of_a_plain_log(command: Command, store: Path) -> None:
    before = objects(store)
    command.ok("upkeep", "--once", "--store", store.as_uri())
    command.ok("gc", "--store", store.as_uri())
    assert objects(store) == before


def test_a_scrub_knows_a_plain_log_and_tells_its_damage_alone(command: Command, store: Path) -> None:
    command.ok("scrub", "--store", store.as_uri())
    path = store / entry_key("events", 6)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o600)
    path.write_bytes(bytes(data))
    told = str(command("scrub", "--store", store.as_uri()).out)
    assert entry_key("events", 6) in told
    assert "is not the one that was appended" in told
    assert re.search(r"spoils stream '(a|b1)' position \d+\n", told)
    assert entry_key("events", 7) not in told


@pytest.mark.anyio
async def test_names_say_what_a_reader_finds_and_no_object_is_read() -> None:
    """S4.7."""
    inner, vid, client = MemoryStore(), VolumeId.new(), ClientId.new()
    async with Node.open(inner, name="main") as node:
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=512))
        for base in range(4):
            page = {1: base.to_bytes(2, "little") * 256}
            await node.commit(*commit_of(vid, base, page, client=client, page_size=512))
    store = RiggedStore(inner)
    names = await names_of(store, "main")
    assert store.count("get") == 0
    reader = LogReader(inner, "main", lambda _: None)
    await reader.open()
    assert names.runs == [range(reader.chain.next)]
    assert (names.missing, names.unknown) == ([], [])
    assert [number for number, under in names.numbers.items() if under.taken] == [reader.chain.epoch]
    del inner.objects[entry_key("main", 3)]
    assert (await names_of(copy_of(inner), "main")).missing == [range(3, 4)]
    with pytest.raises(Corrupt, match="the entry is missing"):
        await LogReader(copy_of(inner), "main", lambda _: None).open()


def copy_of(store: MemoryStore) -> MemoryStore:
    copy = MemoryStore()
    for key, data in store.objects.items():
        copy.create_now(key, data)
    return copy

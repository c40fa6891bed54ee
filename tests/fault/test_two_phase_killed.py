"""Two-phase creates killed at each step, over SQLite's and PostgreSQL's records: a fresh process sees the whole object
or none, and anyone finishes it. PostgreSQL is killed in the middle; and a node serves such a store, killed at each step
of what it writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from anyio.to_thread import run_sync

from budwood.server.store.retrying import Patience, create_settled
from budwood.server.store.two_phase_upkeep import tidy
from budwood.testing.stores import MemoryStore
from budwood.volume.errors import Unsupported

from ..postgres import PostgresServer
from ..record_stores import KINDS, RecordPlace
from ..second_reader.basics import TooNew
from ..second_reader.store import Store, directory, recorded
from ..waits import LIMIT_SECONDS
from .crash_harness import SERVE, Place, Serving, cut, finish, look, rows_of
from .test_edge_killed import append, check
from .test_node_killed import push_until_it_dies

STEPS = {
    "two-phase: temporary written, no record": False,
    "two-phase: recorded, not copied": True,
    "two-phase: copied, not marked": True,
    "two-phase: marked, temporary not deleted": True,
    "two-phase: temporary deleted, not acknowledged": True,
}
"""Each step of a create, and whether the object stands after a kill behind it."""
DELETES = ("two-phase: buried, not deleted", "two-phase: deleted, record still there")
SWITCHES = ("native: said in the records, not in the root",)
CUTS = (STEPS, DELETES, SWITCHES)

_CLIENTS = 8
_KEYS = 60

CREATE = """
import sys, anyio
from budwood.server.store.open_store import open_store

async def main(url):
    store = await open_store(url)
    for number in range(1, 4):
        await store.create(f"logs/x/{number}", b"%d" % number * 5000)
        print(f"logs/x/{number}", flush=True)

anyio.run(main, sys.argv[1])
"""
DELETE = """
import sys, anyio
from budwood.server.store.open_store import open_store

async def main(url):
    store = await open_store(url)
    for number in range(1, 4):
        await store.delete(f"logs/x/{number}")
        print(f"logs/x/{number}", flush=True)

anyio.run(main, sys.argv[1])
"""
LOOK = """
import json, sys, anyio
from budwood.server.store.open_store import open_store

async def main(url):
    store = await open_store(url)
    keys = await store.list("")
    print(json.dumps({key: [len(await store.get(key)), (await store.get(key))[:1].decode()] for key in keys}))

anyio.run(main, sys.argv[1])
"""
TIDY = """
import sys, anyio
from budwood.server.store.open_store import open_store
from budwood.server.store.two_phase_upkeep import tidy

async def main(url):
    store = await open_store(url)
    await tidy(store)
    await store.aclose()

anyio.run(main, sys.argv[1])
"""


@pytest.fixture(params=KINDS)
def records(request: pytest.FixtureRequest, tmp_path: Path) -> RecordPlace:
    return RecordPlace.new(tmp_path, request.getfixturevalue("postgres") if request.param == "postgresql" else None)


@pytest.fixture
def url(records: RecordPlace, tmp_path: Path) -> str:
    return f"{(tmp_path / 'store').as_uri()}?records={records.url}"


def found(url: str) -> dict[str, list[object]]:
    """What a fresh process reads."""
    shown: dict[str, list[object]] = json.loads(finish(LOOK, url)[-1])
    return shown


@pytest.mark.parametrize(("point", "stands"), STEPS.items())
def test_a_create_killed_at_a_step_is_whole_or_nothing(url: str, point: str, stands: bool) -> None:
    """S0.12: any process finishes it, also one that is killed itself while it does."""
    assert cut(f"{point}#2", CREATE, url) == ["logs/x/1"]
    expected = {"logs/x/1": [5000, "1"]} | ({"logs/x/2": [5000, "2"]} if stands else {})
    assert found(url) == expected
    if point == "two-phase: recorded, not copied":
        for step in ("two-phase: copied, not marked", "two-phase: marked, temporary not deleted"):
            assert cut(step, TIDY, url) == []
            assert found(url) == expected
    finish(TIDY, url)
    finish(TIDY, url)
    assert found(url) == expected
    assert cut("two-phase: recorded, not copied#1", CREATE.replace("range(1", "range(3"), url) == []
    assert found(url) == expected | {"logs/x/3": [5000, "3"]}


@pytest.mark.parametrize("point", DELETES)
def test_a_delete_killed_at_a_step_is_done_again(url: str, point: str) -> None:
    finish(CREATE, url)
    assert cut(f"{point}#2", DELETE, url) == ["logs/x/1"]
    assert "logs/x/1" not in found(url)
    assert "logs/x/3" in found(url)
    assert finish(DELETE, url) == ["logs/x/1", "logs/x/2", "logs/x/3"]
    assert found(url) == {}


@pytest.mark.parametrize("point", SWITCHES)
def test_a_switch_that_is_killed_is_brought_to_its_end(place: RecordedPlace, point: str) -> None:
    """S0.13: in between nobody writes; behind it the store is the same without its records."""
    place.execute("create table ledger(entry); insert into ledger values('base')")
    with place.edge() as edge:
        assert edge.volume("ledger").push() == "1"
    assert look(place, mark="before").local == ["base", "before"]
    check_by_the_document(place)
    assert cut(point, SERVE, "to-native", "--store", place.store) == []
    check_by_the_document(place)
    append(place, "row 1")
    with pytest.raises(Unsupported, match="switched to native create"), place.edge() as edge:
        edge.volume("ledger").push()
    (said,) = finish(SERVE, "to-native", "--store", place.store)
    native = Place(place.folder)
    Store(directory(place.folder / "store")).check()
    assert said == f"{native.store} honours creates itself from now on (generation 2): leave out ?records="
    with native.edge() as edge:
        assert edge.volume("ledger").push() == "3"
    check(look(native, home="new"), ["base", "before", "row 1"])


def check_by_the_document(place: RecordedPlace) -> None:
    """The second reader finds all of it whole, and refuses it without its records."""
    objects, database = directory(place.folder / "store"), RecordPlace(place.records).database()
    rows = database.transact(lambda execute: execute("SELECT dest, source, state FROM budwood_records", ()))
    database.close()
    Store(
        recorded(objects, [(str(dest), str(source), int(state)) for dest, source, state in rows]), with_records=True
    ).check()
    with pytest.raises(TooNew, match="two-phase"):
        Store(objects)


@pytest.mark.parametrize(("point", "stands"), STEPS.items())
def test_a_node_serves_such_a_store_and_loses_nothing(place: RecordedPlace, point: str, stands: bool) -> None:
    """S0.6: pushes and pulls of two edges; the node is killed at a step of what it writes, and started again."""
    place.execute("create table ledger(entry); insert into ledger values('base')")
    node = Serving(place)
    try:
        node.start()
        with place.edge(remote=node.url) as edge:
            assert edge.volume("ledger").push() == "1"
        assert node.stop() == ""
        node.start(fault=f"{point}#11")
        acknowledged, lost, who = push_until_it_dies(place, node)
        assert acknowledged
        node.died()
        node.start()
        if stands:
            with place.edge("observer", node.url) as edge:
                assert edge.volume("ledger").status()["remote_lsn"] == 2 + len(acknowledged)
        with place.edge(who, node.url) as edge:
            assert edge.volume("ledger").push() == str(2 + len(acknowledged))
        rows = ["base", *acknowledged, lost]
        for home in ("home", "other"):
            with place.edge(home, node.url) as edge:
                edge.volume("ledger").pull()
            assert rows_of(place, home=home, remote=node.url) == rows
        check(look(place, remote=node.url), rows)
    finally:
        node.stop()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_postgresql_is_killed_in_the_middle_and_no_create_is_lost_or_made_twice(tmp_path: Path) -> None:
    """S0.12: twice, by SIGKILL of all its processes, while eight clients create the same keys, each with bytes of its
    own. Of each key everybody who got an answer got the same one."""
    plain, patience = MemoryStore(), Patience(deadline_seconds=LIMIT_SECONDS)
    won, answers, reached = dict[str, bytes](), 0, {part: anyio.Event() for part in (1, 2)}
    with PostgresServer() as server:
        place = RecordPlace(server.url("records"))

        async def create_all(client: int) -> None:
            nonlocal answers
            async with place.store(plain) as store:
                for number in range(_KEYS):
                    key, ours = f"slots/{number:03}", b"%d of %d" % (number, client)
                    theirs = await create_settled(store, key, ours, patience)
                    assert won.setdefault(key, theirs or ours) == (theirs or ours)
                    answers += 1
                    for part in (1, 2):
                        if answers == part * _KEYS * _CLIENTS // 3:
                            reached[part].set()

        async with anyio.create_task_group() as tasks:
            for client in range(_CLIENTS):
                tasks.start_soon(create_all, client)
            for part in (1, 2):
                await reached[part].wait()
                await run_sync(server.kill)
                await run_sync(server.start)
        async with place.store(plain) as store:
            await tidy(store)
            assert await store.list("") == sorted(won)
            for key, data in won.items():
                assert await store.get(key) == plain.objects[key] == data
    assert len(won) == _KEYS
    assert answers == _KEYS * _CLIENTS


@dataclass(frozen=True, slots=True)
class RecordedPlace(Place):
    """Whose store has no creates of its own."""

    records: str

    @property
    def store(self) -> str:
        return f"file://{self.folder / 'store'}?records={self.records}"


@pytest.fixture
def place(records: RecordPlace, tmp_path: Path) -> RecordedPlace:
    return RecordedPlace(tmp_path, records.url)

"""Who changes what of a store: writers, holders of pins, folds and collectors, each their own part and no other's."""

from __future__ import annotations

import ast
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from budwood.server.node import Node
from budwood.server.upkeep.collector import Stage
from budwood.testing.stores import MemoryStore, Request, RiggedStore
from budwood.volume.calls import ADVANCE, PIN, UNPIN, PinRequest, SinceRequest, UnpinRequest
from budwood.volume.ids import PinId

from ..rolling import only_when_told, roll_up
from .test_collection import INTERVAL_MS, Filled, Scene

ROOT: Final = Path(__file__).parents[2]

CREATORS: Final = {
    "server/store/root.py": "the store's first comer",
    "server/store/examine.py": "whoever opens a store, of what nobody reads",
    "server/store/probe.py": "whoever opens a store, of what nobody reads",
    "server/store/store_clock.py": "whoever forgets by the clock, of what nobody reads",
    "server/metastore/births.py": "writer: a volume's birth",
    "server/metastore/retirement.py": "whoever takes a node out: the mark that it owns nothing any more",
    "server/metastore/organisations.py": "whoever makes an organisation's first key: the organisation",
    "server/access/registry.py": "whoever makes or revokes a key: what says so",
    "server/log/term.py": "writer, fold, collector: a number that is theirs alone",
    "server/log/log_writer.py": "writer: entries; whatever else is to be decided goes through it",
    "server/log/in_flight.py": "writer: entries, several at once",
    "server/pagestore/write_segment.py": "writer: fragments under its epoch",
    "server/metastore/rollups.py": "writer: rollups",
    "server/store/tree_nodes.py": "writer, fold: nodes of a rollup's or a checkpoint's tree",
    "server/metastore/pin_store.py": "holder: pins",
    "server/upkeep/fold.py": "fold: segments and a deadlist under its number",
    "server/upkeep/collector.py": "collector: plans, boundaries, due marks",
    "server/upkeep/over.py": "collector: the boundary behind every slot",
}
DELETERS: Final = {
    "server/upkeep/collector.py",
    "server/upkeep/deletion.py",
    "server/store/examine.py",
    "server/store/probe.py",
    "server/store/store_clock.py",
}


def calls_in(path: Path) -> Iterator[str]:
    """What of a store's is called there, by whatever name the store goes."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Name(id="create_settled"):
                yield "create"
            case ast.Attribute(attr="create" | "delete" as what, value=ast.Name(id=name) | ast.Attribute(attr=name)):
                if name.strip("_") in {"store", "inner"}:
                    yield what
            case _:
                pass


def test_who_creates_and_who_deletes_is_listed_here() -> None:
    """S0.23: nobody but a collector deletes; what anybody creates has one maker."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "server").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        calls = set(calls_in(path))
        # Makes of stores, and what stands before one.
        if calls and name not in {
            f"server/store/{each}.py" for each in ("counted", "hedge", "observed", "rates", "retrying")
        }:
            found[name] = calls
    assert {name for name, calls in found.items() if "create" in calls} == CREATORS.keys()
    assert {name for name, calls in found.items() if "delete" in calls} == DELETERS


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    only_when_told(monkeypatch)
    return Scene(RiggedStore(MemoryStore()))


@pytest.fixture
async def node(scene: Scene) -> AsyncIterator[Node]:
    async with scene.node() as node:
        yield node


class Changes:
    """What was changed since the last look, by kind."""

    def __init__(self, store: RiggedStore) -> None:
        self._store = store

    def __call__(self) -> tuple[set[str], set[str]]:
        created, deleted = (set(map(_kind, self._store.matching(op))) for op in ("create", "delete"))
        self._store.forget()
        return created, deleted


def _kind(request: Request) -> str:
    match request.key.split("/"):
        case ["logs", _, kind, *_]:
            return kind
        case [kind, _, what, *_]:
            return f"{kind}/{what}"
        case [kind, *_]:
            return kind
        case _:
            raise AssertionError(request.key)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_each_role_changes_its_own_part(scene: Scene, node: Node) -> None:
    """S0.23: a writer appends, a holder pins, a fold writes beside and appends one record, a collector takes away."""
    changes = Changes(scene.store)
    volume = await Filled.born(node)
    log = str(volume.vid)
    assert changes()[0] >= {"volumes/birth", "entries"}
    await volume.write(30)
    assert changes() == ({"entries"}, set())
    await volume.write(2, apart=True)
    assert changes() == ({"entries", "t"}, set())
    await roll_up(node, log)
    assert changes() == ({"entries", "rollups", "nodes"}, set())
    pin = PinId.new()
    await node.ask(PIN, PinRequest(volume.vid.raw, lsn=20, pin=pin.raw, seconds=0.0))
    await node.ask(UNPIN, UnpinRequest(volume.vid.raw, pin=pin.raw))
    assert changes() == ({"volumes/pins"}, set())
    await node.ask(ADVANCE, SinceRequest(volume.vid.raw, since=volume.head))
    assert changes() == ({"entries"}, set())
    await node.folder.fold(volume.vid)
    assert changes() == ({"epochs", "t", "entries"}, set())
    assert (await node.collector.collect(log)).stage is Stage.WAITING
    created, deleted = changes()
    assert created == {"rollups", "nodes", "epochs", "gc", "entries", "boundary"}
    assert not deleted
    scene.now_ms += INTERVAL_MS
    assert (await node.collector.collect(log)).stage is Stage.DONE
    # The mark of a pin that has ended is all that it leaves.
    assert changes() == ({"volumes/ended"}, {"volumes/pins", "entries", "rollups", "nodes", "epochs", "gc"})
    await volume.check()

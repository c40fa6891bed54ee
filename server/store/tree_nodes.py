"""Tree nodes in memory: what was last used stays, up to a number of bytes, for any number of trees of one store.

- Nodes are write-once and named by their digest, so one that was read and checked is right for ever.
- Reading from memory is synchronous, and any thread may. Whoever misses a node is told which one (`NotLoaded`), has it
  loaded and begins anew. What it loaded is kept for it meanwhile, however little room there is (`keeping`): otherwise
  two nodes that don't fit in together would drive each other out without end.
- Single flight: of all who miss a node at once, one asks the store, and the others take its answer. If that one is
  cancelled, another goes.
- A node is parsed before it is written, so that nothing is written that can't be read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Lock
from typing import Final, NamedTuple, TypeVar

import anyio

from ...volume.errors import Corrupt, NotFound
from ...volume.lru_cache import LruCache
from ...volume.tree_node import Node, Pointer, node_key, parse_node
from ..in_thread import in_thread
from .protocol import Store
from .retrying import PATIENT, Patience, create_settled, get_retried

AT_ONCE: Final = 16
"""Requests of one call that are under way together."""

T = TypeVar("T")

_PATH: Final = 16
_MOST_AHEAD: Final = 64
"""Nodes: how many are loaded ahead at most, and how many times one goes by without, doubled each time."""

_WEIGHT: Final = 2
"""Bytes of memory that a byte of an object takes once it is parsed, about."""


class NotLoaded(Exception):
    """A node that is needed is not in memory of `nodes`."""

    def __init__(self, nodes: Nodes, folder: str, pointer: Pointer, neighbours: Sequence[Pointer] = ()) -> None:
        super().__init__(f"{node_key(folder, pointer)} is not in memory: load it, and ask again")
        self.nodes = nodes
        self.folder = folder
        self.pointer = pointer
        self.neighbours = neighbours
        """Its neighbours that are likely wanted next, the nearest last: who walks down from the newest wants those that
        come before it, and who walks on those that follow."""


class _Held(NamedTuple):
    node: Node
    weight: int


class _Flight:
    """A GET under way. Once `landed` is set, there is a node, or an error; neither means that it was cancelled."""

    __slots__ = ("error", "landed", "node")

    def __init__(self) -> None:
        self.landed = anyio.Event()
        self.node: Node | None = None
        self.error: Exception | None = None


class Nodes:
    """Nodes of trees in `store`. What is async belongs to one event loop."""

    def __init__(self, store: Store, *, limit_bytes: int, patience: Patience = PATIENT) -> None:
        self._store = store
        self._patience = patience
        self._lock = Lock()
        """Guards the next two."""
        self._cache = LruCache[str, _Held](limit_bytes, lambda held: held.weight)
        self._kept: dict[str, tuple[Node, int]] = {}
        """Those that someone needs just now, and how many do."""
        self._flights: dict[str, _Flight] = {}

    def get(self, folder: str, pointer: Pointer, neighbours: Sequence[Pointer] = ()) -> Node:
        """The node, if it is in memory; raises NotLoaded, with its neighbours that may be wanted next."""
        node = self._held(node_key(folder, pointer))
        if node is None:
            raise NotLoaded(self, folder, pointer, neighbours)
        return node

    async def load(self, folder: str, pointer: Pointer) -> Node:
        """The node, wherever it is. Raises Corrupt (it is missing, too, since a pointer leads there), Unavailable,
        Unsupported."""
        key = node_key(folder, pointer)
        while (node := self._held(key)) is None:
            # No await between looking for a flight and registering our own: so no node is asked for twice.
            flight = self._flights.get(key)
            if flight is None:
                return await self._fly(key, pointer)
            await flight.landed.wait()
            if flight.error is not None:
                # One error may be told to many, and its traceback would grow with each.
                raise flight.error.with_traceback(None)
            if flight.node is not None:
                return flight.node
        return node

    async def load_all(self, folder: str, pointers: Sequence[Pointer]) -> list[Node]:
        """The nodes in the order of their pointers; those that are missing several at a time. Raises as `load`."""
        found = {at: self._held(node_key(folder, pointer)) for at, pointer in enumerate(pointers)}

        async def load(at: int) -> Node:
            found[at] = node = await self.load(folder, pointers[at])
            return node

        await several_at_once([partial(load, at) for at, node in found.items() if node is None])
        return [node for node in found.values() if node is not None]

    async def save(self, folder: str, made: Iterable[tuple[Pointer, bytes]]) -> None:
        """Write nodes, several at a time, and hold them in memory; one that stands already is as good. All of them are
        durable when this returns; if it raises, any of them may be.

        Raises Corrupt if anything else stands under a node's name, and as `create_settled`.
        """
        await several_at_once([partial(self._save, node_key(folder, pointer), pointer, data) for pointer, data in made])

    @contextmanager
    def keeping(self) -> Generator[Callable[[str, Pointer, Node], None]]:
        """What it gives keeps a node in memory, whatever the limit, until the context ends."""
        keys: list[str] = []

        def keep(folder: str, pointer: Pointer, node: Node) -> None:
            key = node_key(folder, pointer)
            with self._lock:
                _, users = self._kept.get(key, (node, 0))
                self._kept[key] = (node, users + 1)
            keys.append(key)

        try:
            yield keep
        finally:
            self._let_go(keys)

    def _let_go(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in keys:
                node, users = self._kept.pop(key)
                if users > 1:
                    self._kept[key] = (node, users - 1)

    def _held(self, key: str) -> Node | None:
        with self._lock:
            held = self._cache.get(key)
            if held is not None:
                return held.node
            return self._kept[key][0] if key in self._kept else None

    def _hold(self, key: str, pointer: Pointer, node: Node) -> None:
        with self._lock:
            self._cache.put(key, _Held(node, _WEIGHT * pointer.size))

    async def _fly(self, key: str, pointer: Pointer) -> Node:
        flight = self._flights[key] = _Flight()
        try:
            flight.node = await self._read(key, pointer)
        except Exception as error:
            flight.error = error
            raise
        finally:
            del self._flights[key]
            flight.landed.set()
        self._hold(key, pointer, flight.node)
        return flight.node

    async def _read(self, key: str, pointer: Pointer) -> Node:
        try:
            data = await get_retried(self._store, key, patience=self._patience)
        except NotFound as error:
            raise Corrupt(key, "the object is missing, though its tree leads to it") from error
        return parse_node(key, data, pointer)

    async def _save(self, key: str, pointer: Pointer, data: bytes) -> None:
        node = parse_node(key, data, pointer)
        if await create_settled(self._store, key, data, self._patience) is not None:
            raise Corrupt(key, "the bytes that stand there are not those that its digest was made of")
        self._hold(key, pointer, node)


async def loading(ask: Callable[[], T], kept: ExitStack | None = None) -> T:
    """What `ask` comes to, which reads from memory, of any trees: whenever it misses a node, that is loaded, and `ask`
    called anew. So it may run often, and changes nothing. Nodes come one after another: `Tree.between` is faster where
    there are many. Nothing is awaited between the last call of `ask` and its answer; what was loaded stays in memory
    that long, or until `kept` is closed.

    Raises Corrupt, Unavailable, Unsupported, and whatever `ask` does.
    """

    async def here() -> T:
        return ask()

    if kept is not None:
        return await _loading(here, kept)
    with ExitStack() as own:
        return await _loading(here, own)


async def loading_in_thread(ask: Callable[[], T]) -> T:
    """As `loading`, with `ask` in a worker thread."""
    return await loading_in_turns(partial(in_thread, ask))


async def loading_in_turns(ask: Callable[[], Awaitable[T]]) -> T:
    """As `loading`, of what gives way to others meanwhile, and goes on where it was when it is called anew."""
    with ExitStack() as own:
        return await _loading(ask, own)


async def _loading(ask: Callable[[], Awaitable[T]], kept: ExitStack) -> T:
    ahead = 1
    while True:
        try:
            return await ask()
        except NotLoaded as error:
            # Its traceback has this frame, which has the error: what was asked of would stay for as long.
            missing = error.with_traceback(None)
        # Whoever has missed a few misses many: each time as many again, so that `ask` runs seldom.
        wanted = [*missing.neighbours[max(0, len(missing.neighbours) + _PATH - ahead) :], missing.pointer]
        ahead = min(2 * ahead, _PATH + _MOST_AHEAD)
        keep = kept.enter_context(missing.nodes.keeping())
        for pointer, node in zip(wanted, await missing.nodes.load_all(missing.folder, wanted), strict=True):
            keep(missing.folder, pointer, node)


async def several_at_once(calls: Sequence[Callable[[], Awaitable[object]]]) -> None:
    """The first error stops the others and is raised as it is, not in a group."""
    errors: list[Exception] = []
    left = iter(calls)

    async def work() -> None:
        try:
            for call in left:
                await call()
        except Exception as error:
            errors.append(error)
            tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        for _ in calls[:AT_ONCE]:
            tasks.start_soon(work)
    if errors:
        raise errors[0]

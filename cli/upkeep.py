"""Upkeep of a store that no node serves, or as a process of its own: upkeep, gc; and to-native.

Each log that anything was done for is a line on standard output; a shared log that is left to its node is one, too.
What fails is told on standard error and doesn't stop the rest; then the exit status is 1.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..volume.errors import BudwoodError
from .cluster import Master, Spark, cluster
from .common_options import Context, argument, flag, option
from .exit_status import Call
from .output import count_of, printable, say, time_of
from .progress import Line, progress_line

if TYPE_CHECKING:
    from ..server.node import Node
    from ..server.store.root import Root
    from ..server.upkeep.rounds import Rounds
    from ..server.upkeep.upkeep import Extent, Pace, Turn
    from ..spark_export.upkeep.cluster import Cluster
    from ..volume.errors import Conflict, NotOwner
    from ..volume.garbage import GarbagePlan

StoreUrl = Annotated[str, option("--store", "URL", "file:///dir, s3://bucket/prefix, gs://…, az://…")]


def to_native(context: Context, store: StoreUrl) -> None:
    """Switch a store with records (?records=) to its own create-if-absent, for good; no key changes its name."""
    with server_packages():
        import anyio

        from ..server.store.open_store import without_records

        url, records = without_records(store)
        if not records:
            raise Call("say with which records the store is opened until now: --store 'URL?records=…'")
        shown, root = anyio.run(_to_native, store, url, backend="asyncio")
    say(printable(f"{shown} honours creates itself from now on (generation {root.generation}): leave out ?records="))


async def _to_native(store: str, url: str) -> tuple[str, Root]:
    from ..server.store.native import to_native
    from ..server.store.open_store import open_store
    from ..server.store.two_phase_store import two_phase

    async with (
        aclosing(await open_store(url, create=False)) as new,
        aclosing(await open_store(store, create=False)) as old,
    ):
        opened = two_phase(old)
        assert opened is not None
        return new.url, await to_native(opened, new)


def upkeep(
    context: Context,
    store: StoreUrl,
    once: Annotated[bool, flag("--once", "Go round once, as fast as can be, and end.")] = False,
) -> None:
    """Look after a store's volumes: enforce policies, fold what was forgotten, delete what nobody needs."""
    with server_packages():
        from ..server.upkeep.upkeep import CALM, HASTY, Extent

        if once:
            _go_round(store, HASTY, Extent.ALL, lambda rounds: rounds.once())
        else:
            _go_round(store, CALM, Extent.FREED, lambda rounds: rounds.for_ever())


def gc(
    context: Context,
    store: StoreUrl,
    logs: Annotated[list[str] | None, argument("[LOG]...", "These logs; all of them where none is given.")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Print what would be deleted, and why; delete nothing.")] = False,
    explain: Annotated[str | None, option("--explain", "KEY", "Say who holds this object; delete nothing.")] = None,
    spark: Spark = False,
    master: Master = None,
) -> None:
    """Delete what nobody can reach any more: plan it, or carry out what was planned long enough ago."""
    if explain is not None and (dry_run or logs):
        raise Call(f"--explain is about one object: leave out {'--dry-run' if dry_run else 'the logs'}")
    if explain is not None and spark:
        raise Call("--explain is about one object: leave out --spark")
    with server_packages(), cluster("gc", store, spark=spark, master=master) as spread_over:
        from ..server.upkeep.upkeep import HASTY, Extent

        if explain is not None:
            _explain(store, explain)
        elif dry_run:
            _dry_run(store, logs or [], spread_over)
        elif spread_over is not None:
            _collect_spread(store, logs or [], spread_over)
        else:
            _go_round(store, HASTY, Extent.NONE, lambda rounds: rounds.once(logs))


VERBS: Final[dict[str, Callable[..., None]]] = {"upkeep": upkeep, "gc": gc, "to-native": to_native}


@contextmanager
def server_packages() -> Generator[None]:
    # What goes wrong is told here, and by nobody else.
    logging.getLogger(__name__.partition(".")[0]).addHandler(logging.NullHandler())
    try:
        yield
    except ModuleNotFoundError as error:
        raise BudwoodError(f"upkeep needs the package {error.name!r}: pip install 'budwood[server]'") from error


@asynccontextmanager
async def opened(store: str, pace: Pace | None = None) -> AsyncGenerator[Node]:
    """A node that owns no log."""
    from ..remote.owner_liveness import liveness_probe
    from ..server.node import Node
    from ..server.store.open_store import open_store
    from ..server.upkeep.upkeep import CALM

    opened_store = await open_store(store, create=False)
    try:
        async with Node.open(opened_store, probe_owner=liveness_probe(), create=False, pace=pace or CALM) as node:
            yield node
    finally:
        await opened_store.aclose()


def _go_round(store: str, pace: Pace, extent: Extent, go: Callable[[Rounds], Awaitable[None]]) -> None:
    import anyio

    async def main(watcher: _Watcher) -> None:
        from ..server.upkeep.rounds import Rounds

        async with opened(store, pace) as node:
            await go(Rounds(node.logs, node.upkeep, watcher, extent))

    with progress_line() as line:
        watcher = _Watcher(line)
        anyio.run(main, watcher, backend="asyncio")
    watcher.done()


def _collect_spread(store: str, logs: list[str], spread_over: Cluster) -> None:
    import anyio

    async def main(watcher: _Watcher) -> None:
        from ..server.store.two_phase_upkeep import tidy
        from ..spark_export.upkeep.garbage import SpreadGarbage

        async with opened(store) as node:
            if not logs:
                await tidy(node.store)
            await SpreadGarbage(spread_over, node.store).collect(watcher, logs)

    with progress_line() as line:
        watcher = _Watcher(line)
        anyio.run(main, watcher, backend="asyncio")
    watcher.done()


class _Watcher:
    """See server.upkeep.rounds.Watcher."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._logs = 0
        self._folded = 0
        self._deleted = 0
        self._failed = 0
        self._now = 0
        """Objects that were deleted in this turn."""

    def turned(self, log: str, turn: Turn) -> None:
        self._logs += 1
        self._folded += turn.folded
        self._deleted += turn.deleted
        self._now = 0
        done = [f"{count_of(turn.folded, 'volume')} folded"] if turn.folded else []
        done += [f"{count_of(turn.deleted, 'object')} deleted"] if turn.deleted else []
        done += [f"what was planned may go from {time_of(turn.due_ms)} on"] if turn.due_ms else []
        if done:
            self._say(f"{log}: {', '.join(done)}")
        for vid, error in turn.failures:
            self.failed(f"volume {vid}", error)

    def left(self, log: str, why: NotOwner | Conflict) -> None:
        owner = getattr(why, "owner", "")
        self._say(f"{log}: its node looks after it, at {owner}" if owner else f"{log}: left for now: {why}")

    def failed(self, log: str, error: BudwoodError) -> None:
        self._failed += 1
        of = f"{log}: " if log else ""
        print(f"budwood: {of}{printable(str(error))}", file=sys.stderr, flush=True)

    def deleted(self, log: str, objects: int) -> None:
        self._now += objects
        self._line(f"{log}: {count_of(self._now, 'object')} deleted")

    def done(self) -> None:
        """Raises Exit if anything failed."""
        say(
            f"looked after {count_of(self._logs, 'log')}: {count_of(self._folded, 'volume')} folded, "
            f"{count_of(self._deleted, 'object')} deleted"
        )
        if self._failed:
            raise typer.Exit(1)

    def _say(self, words: str) -> None:
        say(printable(words))
        sys.stdout.flush()


def _dry_run(store: str, names: list[str], spread_over: Cluster | None) -> None:
    import anyio

    async def main(line: Line) -> tuple[int, int]:
        from ..server.store.two_phase_upkeep import cut_off

        async with opened(store) as node:
            logs, objects = 0, 0

            async def tell(keys: list[str], why: str) -> None:
                nonlocal objects
                for key in keys:
                    # The plan's own are made with it.
                    if "/gc/" not in key:
                        objects += 1
                        say(printable(f"{key}  {why}"))
                line(f"{count_of(objects, 'object')} of {count_of(logs, 'log')}")

            if not names:
                left = [key async for key in cut_off(node.store)]
                await tell(left, "of a create that was cut off")
            async with aclosing(_plans(node, names, spread_over)) as plans:
                async for plan in plans:
                    logs += 1
                    if plan is not None:
                        await node.collector.garbage.each(plan, tell)
            return logs, objects

    with progress_line() as line:
        logs, objects = anyio.run(main, line, backend="asyncio")
    say(f"{count_of(objects, 'object')} of {count_of(logs, 'log')} would be deleted; nothing was")


async def _plans(node: Node, names: list[str], spread_over: Cluster | None) -> AsyncGenerator[GarbagePlan | None]:
    """Of each log."""
    from ..server.log.listing import check_log, next_log

    if spread_over is not None:
        from ..spark_export.upkeep.garbage import SpreadGarbage

        async with aclosing(SpreadGarbage(spread_over, node.store).plans(names)) as plans:
            async for plan in plans:
                yield plan
        return
    for name in names:
        await check_log(node.store, name, node.logs.patience)
    waiting, name = iter(names), ""
    while name := next(waiting, "") if names else await next_log(node.store, name, node.logs.patience):
        yield await node.collector.planned(name)


def _explain(store: str, key: str) -> None:
    import anyio

    async def main() -> None:
        from ..server.upkeep.holders import Holders

        async with opened(store) as node:
            held = await Holders(node.logs, node.volumes, node.retention, node.collector).of(key)
        say(printable(f"{key}: {held.what}"))
        for each in held.by:
            say(printable(f"held by {each}"))
        if not held.by:
            say(printable(f"nobody needs it: {held.otherwise}"))

    anyio.run(main, backend="asyncio")

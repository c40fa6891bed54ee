"""Orphans at the command line: volumes of a store that no name leads to, listed or removed.

Each is a line on standard output, as soon as it is found; with --json all of them are one array, at the end. What can't
be read is told on standard error; then the exit status is 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..volume.byte_sizes import bytes_of
from ..volume.errors import NotFound
from .common_options import Context, Json, flag, option
from .durations import seconds_of
from .output import count_of, printable, say, time_of, write_json
from .upkeep import StoreUrl, opened, server_packages

if TYPE_CHECKING:
    from ..server.upkeep.orphans import Orphan, Orphans, Unread
    from ..volume.ids import VolumeId


def orphans(
    context: Context,
    store: StoreUrl,
    older_than: Annotated[
        str, option("--older-than", "TIME", "Those that nothing was committed to for so long; 30d unless said.")
    ] = "30d",
    remove: Annotated[bool, flag("--remove", "Remove them, for everybody; their forks live on.")] = False,
    as_json: Json = False,
) -> None:
    """List the volumes that no name leads to, as `rm` in a mount leaves them behind; or remove them.

    What a lease or a named snapshot holds is left out: somebody wants it. A home that has one keeps what it has.
    """
    before_ms = time.time_ns() // 1_000_000 - round(1000 * seconds_of(older_than))
    told = _Told(as_json=as_json)
    with server_packages():
        import anyio

        from ..server.in_thread import in_thread
        from ..server.upkeep.orphans import Orphan

        async def main() -> None:
            async with _orphans(store) as found, aclosing(found.until(before_ms)) as each:
                async for orphan in each:
                    if not isinstance(orphan, Orphan):
                        told.left_out(orphan)
                        continue
                    if remove:
                        await in_thread(take, orphan.vid)
                    told.found(orphan)

        with closing(_Remover(context, store)) as take:
            anyio.run(main, backend="asyncio")
    told.all(older_than, removed=remove)
    if told.unread:
        raise typer.Exit(1)


VERBS: Final[dict[str, Callable[..., None]]] = {"orphans": orphans}


@dataclass
class _Told:
    as_json: bool
    rows: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    count: int = 0
    length: int = 0
    unread: int = 0

    def found(self, orphan: Orphan) -> None:
        self.count += 1
        self.length += orphan.length
        if self.as_json:
            about = {"log": orphan.log, "lsn": orphan.lsn, "length": orphan.length, "time": orphan.time_ms}
            self.rows.append({"volume": str(orphan.vid), **about})
        else:
            say(f"{orphan.vid}  {time_of(orphan.time_ms)}  LSN {orphan.lsn}, {bytes_of(orphan.length)}")

    def left_out(self, unread: Unread) -> None:
        self.unread += 1
        print(f"budwood: {printable(f'volume {unread.vid} was left out: {unread.error}')}", file=sys.stderr)

    def all(self, older_than: str, *, removed: bool) -> None:
        if self.as_json:
            write_json(self.rows)
        elif self.count:
            did = "removed: upkeep deletes what only they had" if removed else "without a name: --remove removes them"
            say(f"{count_of(self.count, 'volume')} of {bytes_of(self.length)} {did}")
        else:
            say(f"no volume is left over: each has a name, is held, or was committed to in the last {older_than}")


class _Remover:
    """By whoever owns a volume's log; a node that does is asked with the token."""

    def __init__(self, context: Context, store: str) -> None:
        from ..remote.portal import open_remote

        self._remote = open_remote(store, token=context.token, create=lambda: False)

    def __call__(self, vid: VolumeId) -> None:
        from ..volume.calls import REMOVE, VolumeRequest

        try:
            self._remote.ask(REMOVE, VolumeRequest(vid.raw))
        except NotFound:
            # Another was quicker.
            return

    def close(self) -> None:
        self._remote.close()


@asynccontextmanager
async def _orphans(store: str) -> AsyncGenerator[Orphans]:
    from ..server.metastore.organisations import Organisations
    from ..server.upkeep.orphans import Orphans

    async with opened(store) as node:
        organisations = Organisations(node.store, node.logs.patience)
        yield Orphans(node, node.volumes, node.retention.pins, organisations)

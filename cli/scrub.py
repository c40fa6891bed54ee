"""Scrub: a store verified from its bytes, object by object; encrypted pages are opened by the keys at hand.

Each object that is wrong is a line on standard output, as soon as it is met; with --json all of them are one array, at
the end. Positions to go on from are told on standard error: after every part, and where the scrub is interrupted or the
store stays away. The exit status is 1 when anything is wrong.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..volume.byte_sizes import bytes_of
from ..volume.errors import BudwoodError
from .cluster import Master, Spark, cluster
from .common_options import Context, Json, argument, option
from .output import count_of, printable, say, write_json
from .progress import Line, progress_line

if TYPE_CHECKING:
    from ..server.upkeep.findings import Finding
    from ..server.upkeep.position import Position
    from ..spark_export.upkeep.cluster import Cluster

PART_OBJECTS: Final = 10_000
PART_BYTES: Final = 4 << 30
"""After so many objects, or so many bytes, a position is told."""


def scrub(
    context: Context,
    store: Annotated[str, option("--store", "URL", "file:///dir, s3://bucket/prefix, gs://…, az://…")],
    names: Annotated[
        list[str] | None, argument("[NAME]...", "Volumes, by name or id; the whole store where none is given.")
    ] = None,
    start: Annotated[str | None, option("--from", "POSITION", "Go on where an earlier scrub stopped.")] = None,
    as_json: Json = False,
    spark: Spark = False,
    master: Master = None,
) -> None:
    """Verify a store from its bytes, and name each object that is wrong."""
    try:
        import anyio

        from ..remote.keyring import keyring, unlocked
        from ..server.store.open_store import open_store
        from ..server.upkeep.position import Position
        from ..server.upkeep.scrub import open_scrub
        from ..server.upkeep.spread_scrub import SpreadScrub
    except ModuleNotFoundError as error:
        raise BudwoodError(f"scrubbing needs the package {error.name!r}: pip install 'budwood[server]'") from error
    # What is wrong is told here, and by nobody else.
    logging.getLogger(__name__.partition(".")[0]).addHandler(logging.NullHandler())
    first = None if start is None else Position.parse(start)
    # A key that can't be had is told now, and not taken for none.
    keyring()

    async def main(watcher: _Watcher, spread_over: Cluster | None) -> None:
        opened = await open_store(store, create=False)
        try:
            async with open_scrub(opened, watcher, unlock=unlocked) as scrub:
                vids = await scrub.find(names or ())
                if spread_over is not None:
                    do = partial(spread_over.scrub, scrub.store_id)
                    spread = SpreadScrub(scrub, watcher, do, wave=spread_over.wave)
                    await spread.run(vids, first)
                    watcher.objects, watcher.bytes, watcher.locked = spread.objects, spread.bytes, spread.locked
                    return
                await (scrub.of_volumes(vids, first) if names else scrub.run(first))
                watcher.objects, watcher.bytes, watcher.locked = scrub.objects, scrub.bytes, scrub.locked
        finally:
            await opened.aclose()

    with cluster("scrub", store, spark=spark, master=master) as spread_over, progress_line() as line:
        watcher = _Watcher(line, start or "", as_json=as_json)
        try:
            anyio.run(main, watcher, spread_over, backend="asyncio")
        except BaseException:
            watcher.stopped()
            raise
    watcher.done()


VERBS: Final[dict[str, Callable[..., None]]] = {"scrub": scrub}


class _Watcher:
    """See server.upkeep.scrub.Watcher."""

    def __init__(self, line: Line, position: str, *, as_json: bool) -> None:
        self.objects = 0
        self.bytes = 0
        self.locked = frozenset[str]()
        """Encrypted volumes whose pages were not opened."""
        self._line = line
        self._position = position
        self._as_json = as_json
        self._rows: list[dict[str, object]] = []
        self._found = 0
        self._part = (0, 0)
        """What had been read when a position was told last."""

    def found(self, finding: Finding) -> None:
        self._found += 1
        if self._as_json:
            self._rows.append(_row(finding))
        else:
            say(printable(str(finding)))
            sys.stdout.flush()

    def passed(self, position: Position, objects: int, size_bytes: int) -> None:
        self._position = str(position)
        self._line(f"scrubbing {position}: {count_of(objects, 'object')}, {bytes_of(size_bytes)}")
        if objects - self._part[0] >= PART_OBJECTS or size_bytes - self._part[1] >= PART_BYTES:
            self._part = objects, size_bytes
            self._tell(f"position {position}")

    def stopped(self) -> None:
        """Before its end."""
        if self._as_json:
            write_json(self._rows)
        if self._position:
            self._tell(f"scrub stopped: go on with --from {self._position}")

    def done(self) -> None:
        """Raises Exit if anything was wrong."""
        if self._as_json:
            write_json(self._rows)
        else:
            wrong = "nothing is wrong" if not self._found else f"{count_of(self._found, 'object')} wrong"
            say(f"read {count_of(self.objects, 'object')}, {bytes_of(self.bytes)}: {wrong}")
        if self.locked:
            words = (
                f"no key at hand opens {count_of(len(self.locked), 'encrypted volume')}, whose pages were not opened"
            )
            self._tell(f"{words}: name their keys with BUDWOOD_KEY_FILE to have them looked at, too")
        if self._found:
            raise typer.Exit(1)

    def _tell(self, words: str) -> None:
        print(f"budwood: {words}", file=sys.stderr, flush=True)


def _row(finding: Finding) -> dict[str, object]:
    spoils = [
        {"names" if span.names else "volume": span.stream, "first": span.first, "last": span.last}
        for span in finding.spoils
    ]
    return {"key": finding.key, "what": finding.what, "spoils": spoils, "stops": finding.stops or None}

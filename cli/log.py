"""Log: what the names of a log's objects say of it by themselves: `budwood repair-log --dry-run`.

A log has no index that could be lost: what a reader goes by is in the names. So nothing is ever written here; what is
missing is told, and is put back from a copy of the store.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any, Final

from .common_options import Context, Json, argument, flag
from .exit_status import Call
from .output import Column, say, write_json, write_table
from .upkeep import StoreUrl, server_packages

if TYPE_CHECKING:
    from ..server.upkeep.log_names import LogNames


def repair_log(
    context: Context,
    store: StoreUrl,
    name: Annotated[str, argument("LOG", "The log's name.")],
    dry_run: Annotated[bool, flag("--dry-run", "Print it; write nothing. There is nothing that could be.")] = False,
    as_json: Json = False,
) -> None:
    """Make a log's index anew from the names of its objects alone, and print it."""
    if not dry_run:
        raise Call(
            "say budwood repair-log --dry-run --store URL LOG: a log has no index but its names, so nothing is written"
        )
    with server_packages():
        names = _names_of(store, name)
    rows = _rows(names)
    if as_json:
        write_json(rows)
        return
    columns = [Column("what"), Column("number", "right"), Column("first", "right"), Column("last", "right")]
    write_table([*columns, Column("objects", "right")], [_cells(row) for row in rows], empty="no objects")
    for key in names.unknown:
        say(f"{key} is of no kind that a log has")
    missing = sum(map(len, names.missing))
    say(f"{missing:,} missing: scrub says which were acknowledged, and those are put back" if missing else "whole")


VERBS: Final[dict[str, Callable[..., None]]] = {"repair-log": repair_log}


def _names_of(url: str, name: str) -> LogNames:
    import anyio

    async def main() -> LogNames:
        from ..server.log.listing import check_log
        from ..server.store.open_store import open_store
        from ..server.store.retrying import PATIENT
        from ..server.store.root import open_root
        from ..server.upkeep.log_names import names_of

        async with aclosing(await open_store(url, create=False)) as store:
            await open_root(store, create=False)
            await check_log(store, name, PATIENT)
            return await names_of(store, name)

    return anyio.run(main, backend="asyncio")


def _rows(names: LogNames) -> list[dict[str, Any]]:
    """In the order of slots, and then of numbers."""
    slots = [("entries", run) for run in names.runs] + [("missing", gap) for gap in names.missing]
    rows: list[dict[str, Any]] = [
        {"what": what, "first": run.start, "last": run.stop - 1, "objects": len(run) if what == "entries" else 0}
        for what, run in sorted(slots, key=lambda each: each[1].start)
    ]
    if names.is_over:
        rows.append({"what": "boundary of a log that is over"})
    elif names.boundary:
        rows.append({"what": "boundary", "first": names.boundary})
    rows += [{"what": "rollup", "last": slot} for slot in sorted(names.rollups)]
    for number, under in sorted(names.numbers.items()):
        what = "epoch or transaction" if under.taken else "orphans"
        rows.append({"what": what, "number": number, "objects": under.segments + under.others})
    return rows


def _cells(row: dict[str, Any]) -> list[str]:
    return [row["what"], *(f"{row[name]:,}" if name in row else "" for name in ("number", "first", "last", "objects"))]

"""Transactions of folds: list them, and have a log reject one.

A fold is a transaction of its volume's log. Most are over in seconds, and the numbers of those that are settled go with
the next collection; so what is listed is what is being done, and what somebody has left, who was cut off or hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..volume.byte_sizes import bytes_of
from .common_options import Context, Json, argument, flag
from .exit_status import Call
from .output import Column, say, time_of, write_json, write_table
from .upkeep import StoreUrl, opened, server_packages

if TYPE_CHECKING:
    from ..server.node import Node

_SECONDS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def transactions(
    context: Context,
    store: StoreUrl,
    logs: Annotated[list[str] | None, argument("[LOG]...", "Of these logs; of all where none is given.")] = None,
    sizes: Annotated[bool, flag("--sizes", "Count what each has written, by a LIST for each.")] = False,
    reject: Annotated[
        int | None,
        typer.Option("--reject", metavar="N", min=1, help="Have LOG reject transaction N now.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the transactions of folds, and how they stand; or have a log reject one, whoever holds it."""
    if reject is not None and (len(logs or ()) != 1 or sizes or as_json):
        raise Call("--reject takes one LOG and nothing else: budwood transactions --store URL LOG --reject N")
    with server_packages():
        if reject is not None:
            assert logs
            _reject(store, logs[0], reject)
        else:
            _list(store, logs or [], sizes=sizes, as_json=as_json)


VERBS: Final[dict[str, Callable[..., None]]] = {"transactions": transactions}


def _reject(store: str, log: str, number: int) -> None:
    import anyio

    async def main() -> int:
        from ..server.log.listing import check_log

        async with opened(store) as node:
            await check_log(node.store, log, node.logs.patience)
            return (await node.transactions.reject(log, number)).due_ms

    due_ms = anyio.run(main, backend="asyncio")
    if due_ms:
        say(f"log {log} has rejected transaction {number}: what it wrote may go from {time_of(due_ms)} on")
    else:
        say(f"log {log} had rejected transaction {number} before")


def _list(store: str, names: list[str], *, sizes: bool, as_json: bool) -> None:
    import anyio

    async def main() -> list[dict[str, Any]]:
        from ..server.log.listing import check_log, next_log

        rows = list[dict[str, Any]]()
        async with opened(store) as node:
            for name in names:
                await check_log(node.store, name, node.logs.patience)
            waiting, name = iter(names), ""
            while name := next(waiting, "") if names else await next_log(node.store, name, node.logs.patience):
                rows += await _rows(node, name, sizes=sizes)
            if rows:
                called = await _names(node)
                for row in rows:
                    row["names"] = called.get(row["volume"], [])
        return rows

    rows = anyio.run(main, backend="asyncio")
    if as_json:
        write_json(rows)
        return
    columns = [Column("log"), Column("number", "right"), Column("volume"), Column("state")]
    columns += [Column("began"), Column("age", "right")]
    columns += [Column("objects", "right"), Column("bytes", "right")] if sizes else []
    write_table(columns, [_cells(row, sizes=sizes) for row in rows], empty="no transactions")


async def _rows(node: Node, log: str, *, sizes: bool) -> list[dict[str, Any]]:
    rows = list[dict[str, Any]]()
    for each in await node.transactions.of(log):
        row: dict[str, Any] = {
            "log": log,
            "number": each.number,
            "volume": str(each.vid),
            "names": [],
            "state": each.state.value,
            "began": each.began_ms,
            "age_ms": max(node.logs.now_ms() - each.began_ms, 0),
        }
        if sizes:
            room = await node.transactions.room(log, each.number)
            row |= {"objects": room.objects, "bytes": room.bytes}
        rows.append(row)
    return rows


async def _names(node: Node) -> dict[str, list[str]]:
    """What each volume is called."""
    from ..volume.calls import LIST_NAMES, NamesRequest
    from ..volume.ids import VolumeId

    called, after = dict[str, list[str]](), ""
    while True:
        listed = await node.ask(LIST_NAMES, NamesRequest(prefix="", after=after))
        for entry in listed.entries:
            if entry.target:
                called.setdefault(str(VolumeId(entry.target)), []).append(entry.name)
        if not listed.next:
            return called
        after = listed.next


def _cells(row: dict[str, Any], *, sizes: bool) -> list[str]:
    cells = [row["log"], str(row["number"]), row["names"][0] if row["names"] else row["volume"], row["state"]]
    cells += [time_of(row["began"]), _age(row["age_ms"] // 1000)]
    return cells + ([f"{row['objects']:,}", bytes_of(row["bytes"])] if sizes else [])


def _age(seconds: int) -> str:
    for each, unit in _SECONDS:
        if seconds >= each:
            return f"{seconds // each} {unit}"
    return "0 s"

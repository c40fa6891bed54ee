"""Nodes: who owns which shared log, and giving one to another node.

A log's owner is whoever took its newest epoch; the store says so, and there is no other registry. Taking a log over is
safe whoever lives: its owner is fenced, and sends its callers to the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, Final

from ..volume.ids import check_node
from .common_options import Context, Json, argument
from .output import Column, say, time_of, write_json, write_table
from .upkeep import StoreUrl, opened, server_packages

if TYPE_CHECKING:
    from ..server.node import Node


def nodes(context: Context, store: StoreUrl, as_json: Json = False) -> None:
    """List the shared logs of a store, who owns each, and whether that node answers."""
    import anyio

    async def main() -> list[dict[str, Any]]:
        from ..server.log.listing import shared_logs

        async with opened(store) as node:
            return [await _row(node, log) for log in await shared_logs(node.store, node.logs.patience)]

    with server_packages():
        rows = anyio.run(main, backend="asyncio")
    if as_json:
        write_json(rows)
        return
    columns = [Column("log"), Column("owner"), Column("epoch", "right"), Column("since"), Column("address")]
    write_table([*columns, Column("state")], [_cells(row) for row in rows], empty="no shared logs")


def takeover(
    context: Context,
    log: Annotated[str, argument("LOG", "Its name, as `budwood nodes` shows it.")],
) -> None:
    """Have the node at --remote own another node's log from now on, whether that one lives or not."""
    from ..volume.calls import TAKE_LOG, LogName

    check_node(log)
    with closing(context.edge()) as edge:
        remote = edge.connection().remote
        taken = remote.ask(TAKE_LOG, LogName(log=log))
        say(f"log {log} is owned by {remote.url} now, under epoch {taken.epoch}")


VERBS: Final[dict[str, Callable[..., None]]] = {"nodes": nodes, "takeover": takeover}


async def _row(node: Node, name: str) -> dict[str, Any]:
    log = await node.logs.get(name)
    owner = await node.logs.owner(log)
    if owner is None:
        return {"log": name, "owner": "", "epoch": 0, "since": 0, "address": "", "state": "nobody's"}
    life = await node.logs.liveness(owner)
    return {
        "log": name,
        "owner": owner.node,
        "epoch": owner.n,
        "since": owner.time,
        "address": owner.address,
        "state": life.value,
    }


def _cells(row: dict[str, Any]) -> list[str]:
    since = time_of(row["since"]) if row["since"] else ""
    return [row["log"], row["owner"], str(row["epoch"]), since, row["address"], row["state"]]

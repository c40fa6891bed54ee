"""Nodes: who owns which shared log, and giving one to another node.

A log's owner is whoever took its newest epoch; the store says so, and there is no other registry. Taking a log over is
safe whoever lives: its owner is fenced, and sends its callers to the new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, Final

from ..volume.errors import Unavailable
from ..volume.ids import check_node
from .common_options import Context, Json, argument, flag, option
from .durations import seconds_of
from .output import Column, say, time_of, write_json, write_table
from .upkeep import StoreUrl, opened, server_packages

if TYPE_CHECKING:
    from ..server.node import Node


_AGAIN_SECONDS: Final = 1.0


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
    columns = [
        Column("log"),
        Column("owner"),
        Column("epoch", "right"),
        Column("since"),
        Column("region"),
        Column("address"),
    ]
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


def decommission(
    context: Context,
    node: Annotated[str, argument("NODE", "Its name, as `budwood nodes` shows it.")],
    force: Annotated[bool, flag("--force", "Though it doesn't answer: it is gone for good, or hangs.")] = False,
    here: Annotated[bool, flag("--here", "The node at --remote, though another is in the region of NODE.")] = False,
    wait: Annotated[str, option("--wait", "TIME", "For a node that lives to notice.")] = "60s",
    as_json: Json = False,
) -> None:
    """Take a node out of the store for good: the node at --remote, or one in its region, owns its logs from now on.

    Cut off anywhere, it is done by the same command again. The exit status is 0 once the store shows that nothing of
    the node can come to stand in a shared log any more, and 1 until then.
    """
    from ..volume.calls import DECOMMISSION, DecommissionRequest

    check_node(node)
    end = time.monotonic() + seconds_of(wait)
    taken = dict[str, int]()
    rejected = dict[str, None]()
    with closing(context.edge()) as edge:
        remote = edge.connection().remote
        while True:
            done = remote.ask(DECOMMISSION, DecommissionRequest(node=node, force=force, here=here))
            taken |= {own.log: own.epoch for own in done.taken}
            rejected |= dict.fromkeys(f"{number} of log {log}" for log, number in done.rejected)
            if not (done.left or done.says) or time.monotonic() > end:
                break
            time.sleep(_AGAIN_SECONDS)
    if as_json:
        write_json(
            [
                {"node": node, "by": done.by, "since": done.time, "taken": taken, "rejected": [*rejected]}
                | {"left": done.left, "says": done.says}
            ]
        )
    else:
        say(f"node {node} is taken out of the store since {time_of(done.time)}, for good")
        for log, epoch in taken.items():
            say(f"log {log} is owned by the node at {done.heir} now, under epoch {epoch}, with all volumes in it")
        for each in rejected:
            say(f"fold {each} is rejected: what it wrote goes with a later collection")
    if done.left:
        raise Unavailable(f"node {node} has a number in {', '.join(done.left)} all the same: give this command again")
    if done.says:
        words = f"node {node} still says that it owns {', '.join(done.says)}: it writes nothing more there"
        raise Unavailable(f"{words}, and is best stopped; then give this command again")
    if not as_json:
        say(f"no log names {node} as its owner, or can any more; pins and leases are their volumes', and stay")
        say("what it could still append to is private logs, like any client: revoke its credentials for the store")


VERBS: Final[dict[str, Callable[..., None]]] = {
    "nodes": nodes,
    "takeover": takeover,
    "decommission": decommission,
}


async def _row(node: Node, name: str) -> dict[str, Any]:
    log = await node.logs.get(name)
    owner = await node.logs.owner(log)
    if owner is None:
        return {"log": name, "owner": "", "epoch": 0, "since": 0, "region": "", "address": "", "state": "nobody's"}
    life = await node.logs.liveness(owner)
    return {
        "log": name,
        "owner": owner.node,
        "epoch": owner.n,
        "since": owner.time,
        "region": owner.region,
        "address": owner.address,
        "state": life.value,
    }


def _cells(row: dict[str, Any]) -> list[str]:
    since = time_of(row["since"]) if row["since"] else ""
    return [row["log"], row["owner"], str(row["epoch"]), since, row["region"], row["address"], row["state"]]

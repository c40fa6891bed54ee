"""What an edge does when it is killed: run as `work.py VERB HOME REMOTE …`; prints a line for everything that it was
told is done. Nothing here knows where the cut will be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio

import budwood
import budwood.sync.push
from budwood.server.node import Node
from budwood.server.store.open_store import open_store
from budwood.sync.namespace import Namespace
from budwood.sync.rebuild import rebuild
from budwood.volume.calls import ADVANCE, MOVE_LOG, SNAPSHOT, MoveRequest, SinceRequest, SnapshotRequest


def say(what: object) -> None:
    print(what, flush=True)


def commit(home: str, _remote: str, first: str, count: str) -> None:
    """Rows, one a transaction, each durable."""
    with closing(budwood.connect("ledger", home=home, remote="")) as db:
        for number in range(int(first), int(first) + int(count)):
            db.execute("insert into ledger values(?)", (f"row {number}",))
            say(f"row {number}")


def rewrite(home: str, _remote: str) -> None:
    """Every page of a volume of 36 MiB in one transaction: more than the local store writes at once."""
    with closing(budwood.connect("wide", home=home, remote="")) as db:
        db.execute("update wide set version = version + 1")
        say("rewritten")


def import_(home: str, _remote: str, file: str, name: str) -> None:
    with budwood.open(home=home, remote="") as edge:
        edge.import_(file, name)
        say("imported")


def compact(home: str, _remote: str) -> None:
    """While another process has the home open, or not."""
    with budwood.open(home=home, remote="") as edge:
        edge.compact()
    say("compacted")


def push(home: str, remote: str, name: str = "ledger") -> None:
    # Each segment: the pushes of these tests have few.
    budwood.sync.push.NOTED_BYTES = 1
    with budwood.open(home=home, remote=remote) as edge:
        say(edge.volume(name).push())


def pull(home: str, remote: str, name: str = "ledger") -> None:
    with budwood.open(home=home, remote=remote) as edge:
        say(edge.volume(name).pull())


def read(home: str, remote: str, name: str, page: str) -> None:
    """The first byte of a page."""
    with budwood.open(home=home, remote=remote) as edge, closing(edge.volume(name).snapshot()) as snapshot:
        say(snapshot.read(int(page))[0])


def reset(home: str, remote: str, keep_as: str) -> None:
    with budwood.open(home=home, remote=remote) as edge:
        volume = edge.volume("ledger")
        say(volume.reset(keep_as=keep_as) if keep_as else volume.reset(discard=True))


def fork(home: str, remote: str, new: str) -> None:
    with budwood.open(home=home, remote=remote) as edge:
        edge.fork("ledger", new)
        say("forked")


def fork_past(home: str, remote: str, new: str, lsn: str) -> None:
    with budwood.open(home=home, remote=remote) as edge:
        edge.fork("ledger", new, lsn=int(lsn))
        say("forked")


def remove(home: str, remote: str, name: str) -> None:
    with budwood.open(home=home, remote=remote) as edge:
        edge.rm(name)
        say("removed")


def remove_for_everybody(home: str, remote: str, name: str) -> None:
    with budwood.open(home=home, remote=remote) as edge:
        edge.rm(name, remote=True)
        say("removed")


def names(home: str, remote: str, way: str) -> None:
    """As a mount syncs: names, contents, names."""
    with budwood.open(home=home, remote=remote) as edge:
        namespace = Namespace(edge)
        if way in ("push", "both"):
            namespace.push()
            for entry in list(namespace.entries()):
                if entry.unpushed or (entry.kind == "file" and entry.here):
                    edge.volume(entry.name).push()
            namespace.push()
        if way in ("pull", "both"):
            namespace.pull()
        say("synced")


def takeover(home: str, remote: str, name: str) -> None:
    with budwood.open(home=home, remote=remote) as edge:
        volume = edge.volume(name)
        assert edge.connection().remote.ask(
            MOVE_LOG, MoveRequest(volume.id.raw, to="private", takeover=True)
        ).log == str(volume.id)
        say("moved")


def collect(home: str, remote: str, name: str) -> None:
    """As upkeep does, without a node: what is below the head is forgotten, and its collection announced."""
    with budwood.open(home=home, remote=remote) as edge:
        vid = edge.volume(name).id

    async def run() -> None:
        async with Node.open(await open_store(remote)) as node:
            head = (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn
            await node.ask(ADVANCE, SinceRequest(vid.raw, since=head))
            since, held = await node.retention.begin_collect(vid)
            say(sorted(held))
            await node.retention.end_collect(vid, since)

    anyio.run(run)


def restore(home: str, remote: str, lsn: str) -> None:
    with budwood.open(home=home, remote=remote) as edge:
        say(edge.volume("ledger").restore(lsn=int(lsn)).label)


def open_home(home: str, _remote: str) -> None:
    with budwood.open(home=home, remote="") as edge:
        say(edge.environment.format.version)


def rebuild_home(home: str, _remote: str) -> None:
    say(rebuild(Path(home)).aside)


VERBS: dict[str, Callable[..., Any]] = {
    "commit": commit,
    "rewrite": rewrite,
    "import": import_,
    "compact": compact,
    "push": push,
    "pull": pull,
    "read": read,
    "reset": reset,
    "fork": fork,
    "fork-past": fork_past,
    "remove": remove,
    "remove for everybody": remove_for_everybody,
    "names": names,
    "takeover": takeover,
    "collect": collect,
    "restore": restore,
    "open_home": open_home,
    "rebuild": rebuild_home,
}

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])

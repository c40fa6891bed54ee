"""In an event loop: one home writes and pushes, another waits for it, and a query that takes too long is given up.

.venv/bin/python examples/event_loop.py            # in asyncio
.venv/bin/python examples/event_loop.py trio

A directory stands in for a node or a bucket.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

import anyio

from budwood import aio

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


async def write(home: Path, remote: str) -> None:
    async with aio.connect("inventory", home=home, remote=remote) as db:
        async with db.transaction():
            await db.executemany("INSERT INTO parts VALUES (?, ?)", [("washer", 7), ("screw", 9)])
        await db.push()


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        remote = (folder / "store").as_uri()
        async with aio.connect("inventory", home=folder / "here", remote=remote) as db:
            await db.execute("CREATE TABLE parts (name TEXT PRIMARY KEY, count INT)")
            print("pushed, LSN", (await db.push())["lsn"])

        async with aio.connect("inventory", home=folder / "there", remote=remote) as db:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(write, folder / "here", remote))
                print("heard of LSN", await db.wait())
            await db.pull()
            async for part, count in db.execute("SELECT * FROM parts ORDER BY name"):
                print("there: ", part, count)

            with anyio.move_on_after(0.05) as limit:
                await db.execute(ENDLESS)
            print("given up:", limit.cancelled_caught)
            print("goes on:", await db.fetchone("SELECT count(*) FROM parts"))


if __name__ == "__main__":
    anyio.run(main, backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")

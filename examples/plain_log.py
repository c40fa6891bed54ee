"""The log by itself: several streams in one order, one of them read from where a reader left off.

    BUDWOOD_STORE=s3://bucket/prefix .venv/bin/python examples/plain_log.py

Without BUDWOOD_STORE it makes a store of its own, for the occasion.

Orders and what was audited of them are appended together: both stand, or neither does. A worker keeps the position of
the last order that it has seen, and asks for those behind it, a few at a time. Nothing of other streams is fetched.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path

import budwood

ORDERS = [{"item": "apple", "count": 5}, {"item": "pear", "count": 1}, {"item": "plum", "count": 9}]


async def take_orders(store: str) -> None:
    """The one who appends. Whoever opens the log next deposes it, and its appends raise NotOwner."""
    async with budwood.log.open_log(store, "shop") as log:
        await log.describe("orders", b"application/json")
        for order in ORDERS:
            audit = f"an order of {order['count']}".encode()
            position = await log.append({"orders": [json.dumps(order).encode()], "audit": [audit]})
            print(f"appended up to {position}")


async def work(store: str) -> None:
    """Anybody, at any time, as many as like."""
    async with budwood.log.open_reader(store, "shop") as reader:
        for name, stream in (await reader.streams()).items():
            print(f"{name}: {stream.count} records, the last at {stream.last}, {stream.metadata.decode() or 'plain'}")
        seen, last = 0, (await reader.streams())["orders"].last
        while seen < last:
            async for record in reader.read("orders", after=seen, most=2):
                print(f"{record.position}: {json.loads(record.data)['item']}")
                seen = record.position


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = os.environ.get("BUDWOOD_STORE") or (Path(folder) / "store").as_uri()
        asyncio.run(take_orders(store))
        asyncio.run(work(store))


if __name__ == "__main__":
    main()

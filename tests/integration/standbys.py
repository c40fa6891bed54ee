"""Stand-bys in one process."""

from __future__ import annotations

import anyio

from budwood.server.metastore.standby import Standby


async def look(standby: Standby) -> None:
    """Once at each log of another's, and hear what the owners say."""
    async with anyio.create_task_group() as tasks:
        await standby.look(tasks)

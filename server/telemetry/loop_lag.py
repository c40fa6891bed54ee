"""Loop lag: how late the event loop comes to what is due. Whatever keeps it, all callers wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

LOOK_SECONDS: Final = 0.25


async def watch_lag(note: Callable[[float], None], every_seconds: float = LOOK_SECONDS) -> None:
    """Tell it, in seconds, so often; until cancelled."""
    while True:
        due = anyio.current_time() + every_seconds
        await anyio.sleep(every_seconds)
        note(max(0.0, anyio.current_time() - due))

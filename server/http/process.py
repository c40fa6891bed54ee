"""Process: how one that does nothing but serve is run.

- Nearly all that a node makes it keeps, and of the rest little is in circles. So what it loaded is never looked through
  again, and what is new only after `YOUNG` objects: Python's 700 cost a sixth of the node's CPU (docs/design/0093).
- The loop is uvloop's: each request crosses from granian's threads to Python's, and each entry to a worker's and back.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
from uvloop import new_event_loop

YOUNG: Final = 20_000


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Until it ends. This process's garbage is collected more rarely from now on."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])
    anyio.run(main, backend="asyncio", backend_options={"loop_factory": new_event_loop})

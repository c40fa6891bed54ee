"""Sweep: the content of files that have lost their names goes as soon as it can.

What is being pushed, or finds no room on a full disk, is left, and tried again.
"""

from __future__ import annotations

from typing import Final

import trio

from ...sync.namespace import Namespace
from ...volume.errors import StoreError
from ..requests.background import Background
from ..requests.guarded import log
from ..requests.in_thread import in_thread

_AGAIN_SECONDS: Final = 5.0


class Sweep:
    """Of one mount. For its event loop."""

    def __init__(self, namespace: Namespace, background: Background) -> None:
        self._namespace = namespace
        self._background = background
        self._left: set[bytes] = set()
        """Volumes whose content couldn't be dropped yet."""

    async def drop(self, vid: bytes) -> None:
        """The content of a file that has no name any more, and that nobody has open."""
        if await self._is_done(vid):
            return
        if not self._left:
            self._background.start_soon(self._drop_later)
        self._left.add(vid)

    async def _drop_later(self) -> None:
        while self._left:
            await trio.sleep(_AGAIN_SECONDS)
            for vid in list(self._left):
                if await self._is_done(vid):
                    self._left.discard(vid)

    async def _is_done(self, vid: bytes) -> bool:
        try:
            return await in_thread(self._namespace.sweep, vid)
        except StoreError as error:
            if vid not in self._left:
                # For programs it is gone.
                log.error("what was removed takes up room until this is mended: %s", error)
            return False

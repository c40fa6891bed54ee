"""Verbs: what a mount can be told, over its socket and through `.budwood/control`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pyfuse3
import trio

from ..volume.errors import BadInput
from .file import File

if TYPE_CHECKING:
    from .mount import Mount

__all__ = ["Verbs"]


class Verbs:
    """For the mount's event loop."""

    def __init__(self, mount: Mount) -> None:
        self._mount = mount
        self._verbs: dict[str, Callable[..., Awaitable[Any]]] = {
            "status": self.status,
            "settle": self.settle,
            "unmount": self.unmount,
        }

    def begin(self, nursery: trio.Nursery) -> None:
        """Start what goes on in the background."""

    def opened(self, file: File) -> None:
        """Someone will want to see what changes."""

    def committed(self, file: File) -> None:
        """There is something to push."""

    async def answer(self, verb: str, arguments: list[str]) -> Any:
        if verb not in self._verbs:
            raise BadInput(f"a mount knows no verb {verb!r}: take one of {', '.join(self._verbs)}")
        return await self._verbs[verb](*arguments)

    async def settle(self) -> None:
        """Every commit is in its volume."""
        for file in self._mount.tree.files():
            if file.wal is not None:
                await file.wal.drain()

    async def status(self, name: str = "") -> Any:
        await self.settle()
        rows = await trio.to_thread.run_sync(self._mount.edge.ls)
        return [row for row in rows if name in ("", row["name"])]

    async def unmount(self) -> None:
        pyfuse3.terminate()

"""Embedded: a node of this process over a store, which owns no log (DESIGN §2).

The node's own tasks need a task to live in, so a host task opens it, waits until it is to be closed, and closes it: a
caller who is cancelled, or opens it in one task and closes it in another, can't tear it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

import anyio

if TYPE_CHECKING:
    from ..server.node import Node


class Host:
    """One embedded node and the task that it lives in."""

    def __init__(self, url: str, cache_dir: Path | None, create: bool) -> None:
        self.url = url
        self._create = create
        # What a disk holds needs no copy on a disk.
        self.cache_dir = None if urlsplit(url).scheme in {"file", "memory"} else cache_dir
        self._opened = anyio.Event()
        self._closing = anyio.Event()
        self._ended = anyio.Event()
        self._node: Node | None = None
        self._failure: Exception | None = None

    @classmethod
    async def open(cls, url: str, *, cache_dir: Path | None = None, create: bool = True) -> Self:
        """Raises what opening a store or a node raises."""
        host = cls(url, cache_dir, create)
        _spawn(host)
        try:
            await host._opened.wait()
        except BaseException:
            host._closing.set()
            raise
        if host._failure is not None:
            raise host._failure
        return host

    @property
    def node(self) -> Node:
        assert self._node is not None
        return self._node

    async def aclose(self) -> None:
        """Close the node; what it has in flight is finished first. Raises what ended it before."""
        self._closing.set()
        await self._ended.wait()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def run(self) -> None:
        """What the host task does."""
        # The server's code is loaded by those alone who open a store themselves.
        from ..server.node import Node
        from ..server.store.open_store import open_store
        from .owner_liveness import liveness_probe

        try:
            store = await open_store(self.url, create=self._create)
            try:
                async with Node.open(
                    store, cache_dir=self.cache_dir, probe_owner=liveness_probe(), create=self._create
                ) as self._node:
                    self._opened.set()
                    await self._closing.wait()
                    await self._node.aclose()
            finally:
                await store.aclose()
        except Exception as error:
            self._failure = _alone(error)
        finally:
            self._opened.set()
            self._ended.set()


def _alone(error: Exception) -> Exception:
    """The one error in a group of one: the node's task group wraps what befalls it while it opens."""
    inner: tuple[Exception, ...] = getattr(error, "exceptions", ())
    return _alone(inner[0]) if len(inner) == 1 else error


def _spawn(host: Host) -> None:
    """Start the host task, on whichever loop this is."""
    import asyncio

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        trio.lowlevel.spawn_system_task(host.run)
        return
    task = loop.create_task(host.run(), name=f"budwood node on {host.url}")
    # The loop itself keeps only a weak reference.
    _HOSTS.add(task)
    task.add_done_callback(_HOSTS.discard)


_HOSTS: Final[set[object]] = set()

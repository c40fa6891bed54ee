"""Services: what the files of a mount need of it, and nothing more."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pyfuse3
import trio

from .background import Background
from .fetch import Fetcher
from .pace import Pace

if TYPE_CHECKING:
    from .file import File
    from .nodes import Node, Sidecar

__all__ = ["Services", "entry_forgotten", "forget_attributes", "forget_entry", "forget_pages"]


class Services(Protocol):
    @property
    def read_only(self) -> bool: ...

    @property
    def background(self) -> Background: ...

    @property
    def fetcher(self) -> Fetcher: ...

    @property
    def commits(self) -> Pace:
        """How long commits take."""
        ...

    @property
    def spill(self) -> Path:
        """Where what is too large for memory goes."""
        ...

    @property
    def sidecars(self) -> Path:
        """Where those lie that survive a crash."""
        ...

    def committed(self, file: File) -> None:
        """There is something to push."""
        ...

    def touched(self, file: File) -> None:
        """Its length and time have changed, and the names don't tell so yet."""
        ...

    async def opening(self, file: File) -> None:
        """A program is about to open what nobody has open."""
        ...

    def opened(self, file: File) -> None:
        """A program has opened it."""
        ...

    async def released(self, file: File) -> None:
        """Nobody has it open any more."""
        ...

    async def invalidate(self, file: File) -> None:
        """The kernel forgets the file's pages and attributes."""
        ...

    def remove_sidecar(self, sidecar: Sidecar) -> None:
        """It goes without a program's doing: nobody has its database open."""
        ...


async def forget_pages(node: Node) -> None:
    """The kernel drops what it has of the node's content and attributes."""
    await _invalidate(node, attributes_only=False)


async def forget_attributes(node: Node) -> None:
    await _invalidate(node, attributes_only=True)


async def _invalidate(node: Node, *, attributes_only: bool) -> None:
    def work() -> None:
        try:
            pyfuse3.invalidate_inode(pyfuse3.InodeT(node.ino), attr_only=attributes_only)
        except OSError as error:
            # The kernel doesn't know the inode (any more).
            if error.errno != errno.ENOENT:
                raise

    # In a thread: the kernel waits for pages that are being read, and reading them is this loop's work.
    await trio.to_thread.run_sync(work)


async def entry_forgotten(parent: Node, name: str) -> None:
    """As `forget_entry`, and returns when it is done."""

    def work() -> None:
        try:
            pyfuse3.invalidate_entry(pyfuse3.InodeT(parent.ino), pyfuse3.FileNameT(name.encode()))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise

    await trio.to_thread.run_sync(work)


def forget_entry(parent: Node, name: str) -> None:
    """The kernel looks a name up again; pyfuse3 tells it from a thread of its own."""
    pyfuse3.invalidate_entry_async(pyfuse3.InodeT(parent.ino), pyfuse3.FileNameT(name.encode()), ignore_enoent=True)

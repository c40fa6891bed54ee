"""Invalidate: what the kernel is told to forget, since it changed without the kernel's doing.

In a thread: the kernel waits for pages that are being read, and for names that are looked up, and both are answered by
the mount's event loop.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable

import pyfuse3

from ...volume.errors import Unavailable
from ..requests.background import Background
from ..requests.in_thread import in_thread
from .inodes import Directory, Node


class NameInvalidation:
    """The names that the mount's tree tells the kernel to look up anew. A directory in which others changed names
    shows its new time only once the kernel has forgotten those: who watches directories by their times finds what was
    changed.

    One batch after the other, as the kernel holds a batch up while names of its directories are being looked up.
    """

    def __init__(self, background: Background) -> None:
        self._background = background
        self._names: list[tuple[Node, str]] = []
        self._directories: set[Directory] = set()
        self._is_running = False

    def forget(self, parent: Node, name: str) -> None:
        self._names.append((parent, name))
        self._start()

    def hold(self, directory: Directory, shown_mtime: int) -> None:
        """Until the names that were given before this are forgotten, it shows the time that it showed before."""
        directory.held_mtime = shown_mtime
        self._directories.add(directory)
        self._start()

    def _start(self) -> None:
        if not self._is_running:
            self._is_running = True
            self._background.start_soon(self.run)

    async def run(self) -> None:
        """Until nothing is left to tell. Raises OSError if the kernel refuses to be told."""
        try:
            while self._names or self._directories:
                await self._tell_batch()
        finally:
            self._is_running = False

    async def _tell_batch(self) -> None:
        names, self._names = self._names, []
        directories, self._directories = self._directories, set()
        try:
            await _notify_kernel(_forgetting_entry(parent, name) for parent, name in names)
        except Unavailable:
            # There is no thread to be had.
            for parent, name in names:
                forget_entry(parent, name)
        finally:
            shown = directories - self._directories
            for directory in shown:
                directory.held_mtime = None
        await _notify_kernel(_forgetting_attributes(directory) for directory in shown)


async def forget_pages(node: Node) -> None:
    """What it has of the node's content and attributes."""
    await _notify_kernel([lambda: pyfuse3.invalidate_inode(pyfuse3.InodeT(node.ino), attr_only=False)])


async def forget_attributes(node: Node) -> None:
    await _notify_kernel([_forgetting_attributes(node)])


async def entry_forgotten(parent: Node, name: str) -> None:
    """As `forget_entry`, and returns when it is done."""
    await _notify_kernel([_forgetting_entry(parent, name)])


def forget_entry(parent: Node, name: str) -> None:
    """A name, which it looks up again; pyfuse3 tells it from a thread of its own."""
    pyfuse3.invalidate_entry_async(pyfuse3.InodeT(parent.ino), pyfuse3.FileNameT(name.encode()), ignore_enoent=True)


def _forgetting_entry(parent: Node, name: str) -> Callable[[], None]:
    return lambda: pyfuse3.invalidate_entry(pyfuse3.InodeT(parent.ino), pyfuse3.FileNameT(name.encode()))


def _forgetting_attributes(node: Node) -> Callable[[], None]:
    return lambda: pyfuse3.invalidate_inode(pyfuse3.InodeT(node.ino), attr_only=True)


async def _notify_kernel(notices: Iterable[Callable[[], None]]) -> None:
    """All of them in one thread. Raises the OSError of the last one that the kernel refused."""

    def work() -> None:
        refused: OSError | None = None
        for notify in notices:
            try:
                notify()
            except OSError as error:
                # Else the kernel doesn't know the inode (any more).
                if error.errno != errno.ENOENT:
                    refused = error
        if refused is not None:
            raise refused

    await in_thread(work)

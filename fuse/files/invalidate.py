"""Invalidate: what the kernel is told to forget, since it changed without the kernel's doing.

In a thread: the kernel waits for pages that are being read, and for names that are looked up, and both are answered by
the mount's event loop.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import pyfuse3

from ..requests.in_thread import in_thread
from .inodes import Node


async def forget_pages(node: Node) -> None:
    """What it has of the node's content and attributes."""
    await _notify_kernel(lambda: pyfuse3.invalidate_inode(pyfuse3.InodeT(node.ino), attr_only=False))


async def forget_attributes(node: Node) -> None:
    await _notify_kernel(lambda: pyfuse3.invalidate_inode(pyfuse3.InodeT(node.ino), attr_only=True))


async def entry_forgotten(parent: Node, name: str) -> None:
    """As `forget_entry`, and returns when it is done."""
    await _notify_kernel(lambda: pyfuse3.invalidate_entry(pyfuse3.InodeT(parent.ino), pyfuse3.FileNameT(name.encode())))


def forget_entry(parent: Node, name: str) -> None:
    """A name, which it looks up again; pyfuse3 tells it from a thread of its own."""
    pyfuse3.invalidate_entry_async(pyfuse3.InodeT(parent.ino), pyfuse3.FileNameT(name.encode()), ignore_enoent=True)


async def _notify_kernel(tell: Callable[[], None]) -> None:
    def work() -> None:
        try:
            tell()
        except OSError as error:
            # The kernel doesn't know the inode (any more).
            if error.errno != errno.ENOENT:
                raise

    await in_thread(work)

"""Opening: a volume by its name in one request, where the remote's node knows that call (`open`).

One that doesn't answers NotFound, as it does of any path that it has nothing at. Then, and where the name leads to
nothing that can be read, whoever asks makes the calls by themselves, which say in words what is wrong.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from ..volume.calls import OPEN, OpenRequest
from ..volume.errors import Corrupt, NotFound
from ..volume.frame import Frame
from ..volume.page import zeros
from ..volume.pageset import PageSet
from ..volume.wire import NameEntry, SnapshotInfo
from .page_answers import FrameCheck, PagesRequested
from .page_fetch import unpack_valid

if TYPE_CHECKING:
    from .portal import BlockingRemote

SKELETON_BYTES: Final = 256 * 1024
"""Stored bytes that page 1 may bring along: the skeleton of a database of some gigabytes."""


class Unopened(Enum):
    """Why nothing was opened."""

    FREE = "free"
    """There is no such name."""
    UNTOLD = "untold"
    """The calls by themselves tell."""


class Opening(msgspec.Struct, frozen=True):
    """What came."""

    where: str
    """Who sent it, for an error's words."""
    store: str
    entry: NameEntry
    view: SnapshotInfo
    page1: dict[int, bytes]
    """And what else is in its frame; nothing where no pages were asked for."""
    frames: list[Frame]
    """The others, as they came."""

    def pages(self) -> dict[int, bytes]:
        """All of them. Raises Corrupt."""
        found: dict[int, bytes] = {}
        for frame in self.frames:
            found.update(unpack_valid(self.where, frame, self.view.page_size, self.view.encryption))
        return found | self.page1


def open_by_name(
    remote: BlockingRemote, name: str, *, lsn: int | None = None, pages: bool = True
) -> Opening | Unopened:
    """The newest snapshot, or the one at `lsn`. Raises Corrupt, Forgotten, Unavailable."""
    extra_bytes = SKELETON_BYTES if pages else 0
    try:
        request = OpenRequest(name=name, lsn=lsn, pages=pages, extra_bytes=extra_bytes, encrypted=True)
        answer = remote.ask(OPEN, request)
    except NotFound:
        return Unopened.UNTOLD
    view = answer.snapshot
    if answer.entry is None:
        return Unopened.FREE
    if view is None:
        return Unopened.UNTOLD
    where = f"the answer of {remote.url}"
    if answer.entry.name != name or view.lsn != (lsn or view.lsn):
        raise Corrupt(where, f"it speaks of another view than that of {name!r}")
    wanted = PageSet([1] if pages else [])
    check = FrameCheck(where, PagesRequested(wanted, extra_bytes))
    page1: dict[int, bytes] = {1: zeros(view.page_size)} if pages and answer.is_zeros else {}
    frames: list[Frame] = []
    for part in answer.frames:
        frame = check.frame(part.info, part.valid, part.stored)
        if frame.valid.intersect(wanted):
            page1.update(unpack_valid(where, frame, view.page_size, view.encryption))
        else:
            frames.append(frame)
    if pages and 1 not in page1:
        raise Corrupt(where, f"page 1 of {name!r} was asked for and is not in it")
    return Opening(where, answer.store, answer.entry, view, page1, frames)

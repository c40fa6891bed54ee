"""Slices: frames cut down to the pages that were asked for, where a reader wants no neighbours (wire.ALONE).

A frame holds up to 64 pages, and whoever looks rows up at random wants one of them. What is cut out is packed anew, so
that it is a frame like any other; one of which half or more is wanted goes as it is.
"""

from __future__ import annotations

from ...volume.frame import Frame, pack_frame, unpack_frame
from ...volume.pageset import PageSet


def sliced(frame: Frame, wanted: PageSet, page_size: int) -> Frame:
    """Raises Corrupt."""
    kept = frame.valid & wanted
    if not kept or 2 * len(kept) >= len(frame.info.pages):
        return frame
    unpacked = unpack_frame("the store", frame.info, frame.stored, page_size)
    pages = dict(zip(frame.info.pages, unpacked, strict=True))
    info, stored = pack_frame(list(kept), [pages[page] for page in kept])
    return Frame(info, kept, stored)

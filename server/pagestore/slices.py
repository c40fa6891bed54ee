"""Slices: frames cut down to the pages that were asked for, where a reader wants no neighbours (wire.ALONE).

A frame holds up to 64 pages, and whoever looks rows up at random wants one of them. What is cut out is packed anew, so
that it is a frame like any other; one of which half or more is wanted goes as it is.
"""

from __future__ import annotations

from ...volume.frame import Encoding, Frame, join_frame, split_frame
from ...volume.pageset import PageSet


def sliced(frame: Frame, wanted: PageSet, page_size: int) -> Frame:
    """Raises Corrupt."""
    kept = frame.valid & wanted
    if not kept or 2 * len(kept) >= len(frame.info.pages):
        return frame
    unpacked = split_frame("the store", frame.info, frame.stored, page_size)
    pages = dict(zip(frame.info.pages, unpacked, strict=True))
    encrypted = frame.info.encoding == Encoding.ENCRYPTED
    info, stored = join_frame(list(kept), [pages[page] for page in kept], encrypted=encrypted)
    return Frame(info, kept, stored)

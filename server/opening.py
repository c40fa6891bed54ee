"""Opening: the answer to `open`: what a reader who knows a name and nothing else asks for first, in one.

It is what `hello`, `lookup` and a read of page 1 at the snapshot tell, in a message: the frame with page 1, and behind
it those that lie beside it in its object, which hold the B-tree's interior pages (DESIGN §4).
"""

from __future__ import annotations

from ..volume.calls import LOOKUP, SNAPSHOT, LookupRequest, Opened, OpenRequest, SnapshotRequest
from ..volume.encryption import check_reader
from ..volume.errors import NotFound
from ..volume.ids import VolumeId
from ..volume.pageset import PageSet, encode_pages
from ..volume.protocols import Remote
from ..volume.wire import PackedFrame


async def opened(node: Remote, store: str, request: OpenRequest) -> Opened:
    """Raises NotFound and Forgotten of the LSN that was asked for."""
    entry = (await node.ask(LOOKUP, LookupRequest(request.name, org=request.org))).entry
    if entry is None:
        return Opened(store=store)
    vid = VolumeId(entry.target)
    try:
        if not request.pages:
            snapshot = await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=request.lsn))
            return Opened(store=store, entry=entry, snapshot=snapshot)
        async with node.read_pages(vid, request.lsn or 0, PageSet([1]), extra_bytes=request.extra_bytes) as answer:
            check_reader(answer.snapshot.encryption, knows=request.encrypted)
            frames = [
                PackedFrame(info=frame.info, valid=encode_pages(frame.valid), stored=frame.stored)
                async for frame in answer.frames()
            ]
            return Opened(
                store=store,
                entry=entry,
                snapshot=answer.snapshot,
                is_zeros=1 in answer.zeros,
                frames=tuple(frames),
            )
    except NotFound:
        if request.lsn:
            raise
        # A directory, a link, or a volume that was removed and left its name behind.
        return Opened(store=store, entry=entry)

"""Relocation check: a relocated segment, whose every row is the pages of a commit that is still there
(volume/checkpoint.py)."""

from __future__ import annotations

from functools import partial

from anyio.lowlevel import checkpoint as let_others

from ...volume.checkpoint import Relocated
from ...volume.errors import Corrupt
from ...volume.pageset import PageSet
from ...volume.setsum import log_sum
from ..metastore.open_volume import Volume
from ..store.tree_nodes import loading
from .findings import Findings, Wrong
from .objects import Objects
from .reach import Reach
from .segment_check import CheckedPart, read_segment


async def check_relocated(
    objects: Objects, reach: Reach, findings: Findings, volume: Volume, relocated: Relocated
) -> None:
    """Each row, by its commit's pages, sum and LSN. Raises Unavailable, Unauthorized."""
    wrong = Wrong(relocated.object)
    checked = await read_segment(objects, reach, relocated.size, wrong, "a checkpoint leads to it")
    lsns = relocated.lsns
    if checked.parts and len(checked.parts) != len(lsns):
        wrong.add("it has other commits than its checkpoint says")
    for slot, lsn in enumerate(lsns):
        await let_others()
        if not volume.history.folded_to < lsn <= volume.history.head:
            # It was folded since, and is read elsewhere.
            continue
        try:
            landed = await loading(partial(volume.history.at, lsn))
        except Corrupt:
            # Of the rollup, or of the tree: it is told there.
            continue
        part = checked.part(slot, volume.vid.raw)
        bad = landed.pages - PageSet(part.hashes if part is not None else ())
        if bad:
            wrong.add(f"it lacks pages of LSN {lsn} of volume {volume.id}")
            wrong.spoils += await reach.of_pages(volume.id, lsn, bad)
        elif part is not None and not _is_of(part, landed.pages, volume.vid.raw, lsn, landed.setsum):
            wrong.add(f"its pages of LSN {lsn} are not those of the commit")
            wrong.spoils += await reach.of_pages(volume.id, lsn, landed.pages)
    findings.tell(wrong)


def _is_of(part: CheckedPart, pages: PageSet, vid: bytes, lsn: int, setsum: bytes) -> bool:
    hashes = b"".join(part.hashes[page] for page in pages)
    return log_sum(vid, lsn, pages, hashes).digest == setsum and {part.lsns[page] for page in pages} == {lsn}

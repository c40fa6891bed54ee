"""Leftovers: what a mount that was killed left in its sidecars, before the next one serves.

-wal of a volume                  its commits are taken over (wal.py), and it goes
-wal that is parted from its file it stands beside its file again, unless the volume has moved since
anything else                     it goes: what it was for went with the process that had it open
"""

from __future__ import annotations

from pathlib import Path

from ..sync.edge import Edge
from ..sync.local import list_volumes
from ..sync.volume import Volume
from ..volume.ids import VolumeId
from .aside import set_aside
from .guard import log
from .mark import forget, load
from .sidecar import Kind
from .wal import recover

__all__ = ["take_over"]


def take_over(edge: Edge, folder: Path) -> dict[bytes, Path]:
    """The -wal files that stand beside their files, by volume. Nobody has any of the home's volumes open."""
    with edge.environment.view() as txn:
        names = {str(VolumeId(record.vid)): record.name for record in list_volumes(edge.environment, txn)}
    standing: dict[bytes, Path] = {}
    for path in folder.iterdir():
        vid, _, kind = path.name.rpartition("-")
        if f"-{kind}" != Kind.WAL.value or vid not in names:
            path.unlink()
            continue
        volume = edge.volume_here(names[vid])
        if _is_parted(volume, path):
            if _is_where_it_was(volume):
                standing[volume.id.raw] = path
                continue
            kept = set_aside(path)
            log.warning("%s was changed beside its -wal, which is no longer part of it: kept as %s", volume.name, kept)
        else:
            taken = recover(volume, path)
            if taken:
                log.warning("%s: %d commits of its -wal were taken over", volume.name, taken)
            path.unlink()
        forget(volume.local, folder)
    return standing


def _is_parted(volume: Volume, path: Path) -> bool:
    mark = load(volume.local)
    with path.open("rb") as file:
        salts = file.read(24)[16:]
    return mark is not None and mark.parted is not None and mark.salts == salts


def _is_where_it_was(volume: Volume) -> bool:
    """Whether the volume still is what the file's own bytes were when they were parted."""
    mark, head = load(volume.local), volume.local.peek()
    return mark is not None and mark.parted == (head.lsn, head.generation)

"""Aside: where the bytes of a -wal go that no database may have any more, and that may be wanted all the same."""

from __future__ import annotations

import time
from pathlib import Path

from .sidecar import sync_folder

__all__ = ["set_aside"]


def set_aside(wal: Path) -> Path:
    """Move it from among the sidecars to <home>/mount/kept/, where nothing is removed; its new path."""
    kept = wal.parent.parent / "kept"
    kept.mkdir(mode=0o700, exist_ok=True)
    stem = f"{wal.name}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    target, number = kept / stem, 1
    while target.exists():
        number += 1
        target = kept / f"{stem}-{number}"
    wal.rename(target)
    for folder in (kept, wal.parent):
        sync_folder(folder)
    return target

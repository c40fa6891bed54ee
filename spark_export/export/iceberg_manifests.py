"""Manifests: which of them a snapshot hands on to the next.

A commit that takes files out writes a manifest that says so, for that snapshot's own readers. pyiceberg hands it on to
every later snapshot; each commit then reads all there ever were. As other writers of Iceberg do, a snapshot keeps those
that hold a file, and its own; and many small ones become one.
"""

from __future__ import annotations

from typing import Any, Final

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table.update.snapshot import (
    _ManifestMergeManager,  # pyright: ignore[reportPrivateUsage]  # An overwrite merges none.
)

_TARGET_BYTES: Final = 8 * 1024 * 1024
_LEAST_MERGED: Final = 100
"""Manifests. Both are what Iceberg's own writers take unless a table says otherwise."""


def keep_live_manifests(update: Any) -> None:
    """`update`: pyiceberg's, of a snapshot that is about to be committed."""

    def process(manifests: list[ManifestFile]) -> list[ManifestFile]:
        live = [each for each in manifests if _is_live(each) or each.added_snapshot_id == update.snapshot_id]
        data = [each for each in live if each.content == ManifestContent.DATA]
        merging: Any = _ManifestMergeManager(_TARGET_BYTES, _LEAST_MERGED, True, update)
        return [*merging.merge_manifests(data), *(each for each in live if each.content != ManifestContent.DATA)]

    update._process_manifests = process


def _is_live(manifest: ManifestFile) -> bool:
    """Whether it holds a file, or doesn't tell."""
    return manifest.added_files_count != 0 or manifest.existing_files_count != 0

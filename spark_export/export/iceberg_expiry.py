"""Expiry: snapshots of an Iceberg table that were replaced long ago go, with the files that only they have.

pyiceberg takes snapshots out of a table's metadata, and leaves their files. Here the files that no other snapshot has
are listed first, in `_budwood/expired.json`; then the snapshots go, in one commit; then the files, and the list.
Whoever comes next and finds a list goes on with it, with what no snapshot has by then: if the commit never came about,
that is nothing.

A snapshot that a branch or a tag names stays, and so does the current one. One goes when it was replaced so long ago,
not when it was made: what was true at any moment since can be read.

Crash windows (each a fault point, each cut by tests/fault/test_export_killed.py):
  iceberg: files listed, snapshots not expired · iceberg: snapshots expired, files not removed
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ...volume import faults
from ...volume.errors import Corrupt
from .files import get, join, names_in, put, remove
from .target import METADATA_FOLDER

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

LISTED: Final = faults.point("iceberg: files listed, snapshots not expired")
EXPIRED: Final = faults.point("iceberg: snapshots expired, files not removed")

_LIST: Final = "expired.json"
_PATIENCE: Final = 1.1
"""Nothing is done before something is overdue by a tenth: a run each hour doesn't expire something each hour."""


class Expiry:
    """Of the table in the folder `url`, which the catalog calls `place`."""

    def __init__(self, url: str, place: str) -> None:
        self._url = url
        self._place = place
        self._list = join(url, METADATA_FOLDER, _LIST)

    def unfinished(self) -> bool:
        return get(self._list) is not None

    def expire(self, table: Table, age_ms: float, now_ms: int) -> None:
        """Of what was replaced longer ago than `age_ms`."""
        replaced = _replaced(table.metadata)
        if not any(at < now_ms - _PATIENCE * age_ms for at in replaced.values()):
            return
        old = {snapshot for snapshot, at in replaced.items() if at < now_ms - age_ms}
        snapshots = table.metadata.snapshots
        gone = _files_of(table, (each for each in snapshots if each.snapshot_id in old))
        gone -= _files_of(table, (each for each in snapshots if each.snapshot_id not in old))
        put(self._list, json.dumps(sorted(gone)).encode())
        LISTED()
        table.maintenance.expire_snapshots().by_ids(sorted(old)).commit()
        EXPIRED()
        self.remove_files(table.refresh())

    def remove_files(self, table: Table) -> None:
        """Those that are listed, and that no snapshot has. Raises Corrupt for another list."""
        listed = get(self._list)
        if listed is None:
            return
        try:
            gone = {str(path) for path in json.loads(listed)}
        except (ValueError, TypeError) as error:
            raise Corrupt(
                self._list, "it isn't what an export wrote there: remove it, and run the export again"
            ) from error
        gone -= _files_of(table, table.metadata.snapshots)
        folders: set[str] = set()
        for path in sorted(gone):
            within = path.removeprefix(f"{self._place}/")
            if within != path:
                remove(join(self._url, *within.split("/")))
                folders.add(join(self._url, *within.split("/")[:-1]))
        for folder in folders:
            if not names_in(folder):
                remove(folder)
        remove(self._list)


def _replaced(metadata: TableMetadata) -> dict[int, int]:
    """When each snapshot that came before the current one, and that nothing names, was replaced: by its id, in ms."""
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    found: dict[int, int] = {}
    snapshot = metadata.current_snapshot()
    while snapshot is not None and snapshot.parent_snapshot_id is not None:
        parent = metadata.snapshot_by_id(snapshot.parent_snapshot_id)
        if parent is not None and parent.snapshot_id not in named:
            found[parent.snapshot_id] = snapshot.timestamp_ms
        snapshot = parent
    return found


def _files_of(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """The paths of all that they are made of: data files, manifests, their lists."""
    found: set[str] = set()
    for snapshot in snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in found:
                found.add(manifest.manifest_path)
                found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return found

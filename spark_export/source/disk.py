"""Disk: pages of snapshots that the workers of one executor share, so that what one has fetched no other asks for.

It pays where a page comes over the network; a store in a directory is as near as this is, and an embedded node keeps
what it reads of a bucket itself (server/pagestore). It lies in the folder that Spark gives an executor and removes with
it, and takes at most `limit_bytes`.

Each snapshot has two files, sparse and as long as the volume asks for:

    {volume}-{LSN}.pages    page i at (i - 1) * page size
    {volume}-{LSN}.sums     8 bytes a page: the xxh3-64 of its bytes, mixed with its index; 0: it isn't here

There are no locks: whoever writes a page writes the same bytes, and one that is torn, or whose sum is, doesn't match
and counts as absent. Nothing is fsynced: it is a cache, and goes with the executor.

Snapshots go whole, the longest unused first; a process that still has the files open goes on reading them and sees by
the number of links that it must make new ones to write. A full disk ends the writing, never a read.
"""

from __future__ import annotations

import os
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from ...volume.envelope import checksum
from ...volume.ids import VolumeId
from ...volume.pageset import PageSet
from ...volume.wire import SnapshotInfo

_SUM: Final = struct.Struct("<Q")
_MIX: Final = 0x9E3779B97F4A7C15
_U64: Final = (1 << 64) - 1
_OPEN: Final = 8
"""Snapshots whose files are kept open."""


class _Files(NamedTuple):
    pages: int
    sums: int


class DiskPages:
    """For any thread and many processes; not across forks."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self._files: OrderedDict[tuple[bytes, int], _Files] = OrderedDict()
        self._written_bytes = limit_bytes
        self._full = False
        self._lock = threading.Lock()

    def get(self, view: SnapshotInfo, pages: PageSet) -> dict[int, bytes]:
        """Those of the pages that are here and whole."""
        with self._lock:
            return self._get(view, pages)

    def put(self, view: SnapshotInfo, pages: Mapping[int, bytes]) -> None:
        with self._lock:
            self._put(view, pages)

    def close(self) -> None:
        with self._lock:
            while self._files:
                self._close(next(iter(self._files)))

    def _get(self, view: SnapshotInfo, pages: PageSet) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        size = view.page_size
        try:
            files = self._opened(view, create=False)
            if files is None:
                return found
            for first, count in _runs(pages):
                sums = os.pread(files.sums, count * _SUM.size, (first - 1) * _SUM.size)
                if not any(sums):
                    continue
                data = os.pread(files.pages, count * size, (first - 1) * size)
                for place, (expected,) in enumerate(_SUM.iter_unpack(sums[: len(sums) // 8 * 8])):
                    page = data[place * size : (place + 1) * size]
                    if expected and len(page) == size and _sum(first + place, page) == expected:
                        found[first + place] = page
            if found:
                os.utime(files.sums)
        except OSError:
            return {}
        return found

    def _put(self, view: SnapshotInfo, pages: Mapping[int, bytes]) -> None:
        size = view.page_size
        if self._full or len(pages) * size > self.limit_bytes // 8:
            return
        try:
            self._make_room(len(pages) * size)
            files = self._opened(view, create=True)
            assert files is not None
            for first, count in _runs(PageSet(pages)):
                run = [pages[index] for index in range(first, first + count)]
                os.pwrite(files.pages, b"".join(run), (first - 1) * size)
                sums = b"".join(_SUM.pack(_sum(first + place, page)) for place, page in enumerate(run))
                os.pwrite(files.sums, sums, (first - 1) * _SUM.size)
        except OSError:
            self._full = True

    def _opened(self, view: SnapshotInfo, *, create: bool) -> _Files | None:
        key = (view.vid, view.lsn)
        files = self._files.get(key)
        if files is not None and os.fstat(files.sums).st_nlink and os.fstat(files.pages).st_nlink:
            self._files.move_to_end(key)
            return files
        if files is not None:
            self._close(key)
        name = f"{VolumeId(view.vid)}-{view.lsn:016x}"
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        if create:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            sums = os.open(self.folder / f"{name}.sums", flags, 0o600)
        except FileNotFoundError:
            return None
        try:
            self._files[key] = _Files(os.open(self.folder / f"{name}.pages", flags | os.O_CREAT, 0o600), sums)
        except BaseException:
            os.close(sums)
            raise
        while len(self._files) > _OPEN:
            self._close(next(iter(self._files)))
        return self._files[key]

    def _close(self, key: tuple[bytes, int]) -> None:
        for file in self._files.pop(key):
            os.close(file)

    def _make_room(self, size_bytes: int) -> None:
        """Look at what all processes have written, after each eighth of the limit that this one has."""
        self._written_bytes += size_bytes
        if self._written_bytes < self.limit_bytes // 8:
            return
        self._written_bytes = 0
        snapshots: list[tuple[float, int, Path]] = []
        for sums in self.folder.glob("*.sums"):
            with suppress(FileNotFoundError):
                taken = (sums.stat().st_blocks + sums.with_suffix(".pages").stat().st_blocks) * 512
                snapshots.append((sums.stat().st_mtime, taken, sums))
        total = sum(taken for _, taken, _ in snapshots)
        for _, taken, sums in sorted(snapshots):
            if total + size_bytes <= self.limit_bytes * 7 // 8:
                return
            # The sums first: without them no page counts.
            sums.unlink(missing_ok=True)
            sums.with_suffix(".pages").unlink(missing_ok=True)
            total -= taken


def _sum(index: int, page: bytes) -> int:
    return (checksum(page) ^ (index * _MIX & _U64)) or 1


def _runs(pages: PageSet) -> Iterator[tuple[int, int]]:
    """Pages that follow one another: the first, and how many."""
    first, last = 0, -1
    for page in pages:
        if page != last + 1:
            if first:
                yield first, last - first + 1
            first = page
        last = page
    if first:
        yield first, last - first + 1

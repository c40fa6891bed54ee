"""Pagestore: what a node does with pages, over one store.

`write_fragment` makes a segment durable, `read` streams frames as they are stored. All reads go through one cache of
immutable chunks (chunk_cache.py) and one of parsed indexes (index.py). One instance belongs to one event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Final

from ...volume.fragments import check_shards
from ...volume.frame import Frame
from ...volume.ids import VolumeId
from ...volume.records import Location
from ..metastore.content import Checked
from ..store.protocol import Store
from ..store.retrying import PATIENT, Patience
from .chunk_cache import ChunkCache
from .chunks import CACHE_BYTES, MEMORY_BYTES, DiskChunks, MemoryChunks
from .index import IndexCache
from .read import Source, read_frames
from .write_segment import write_fragment

INDEX_PAGES: Final = 4_000_000
"""Pages that the parsed indexes may name together: some 80 bytes each."""


class Pagestore:
    """`store_id` keeps the chunks of two stores apart that share one `cache_dir`; None keeps a smaller cache in memory.

    The fragments of a log are spread over so many `shards` (volume/fragments.py).
    For a `file://` store no cache on disk pays: it would be read from the same disk.
    """

    def __init__(
        self,
        store: Store,
        *,
        store_id: str = "",
        cache_dir: Path | None = None,
        cache_bytes: int | None = None,
        index_pages: int = INDEX_PAGES,
        shards: int = 1,
        patience: Patience = PATIENT,
    ) -> None:
        if cache_dir is None:
            chunks: MemoryChunks | DiskChunks = MemoryChunks(MEMORY_BYTES if cache_bytes is None else cache_bytes)
        else:
            chunks = DiskChunks(cache_dir, CACHE_BYTES if cache_bytes is None else cache_bytes)
        self.store = store
        self.patience = patience
        self._shards = check_shards(shards)
        self.cache = ChunkCache(store, chunks, salt=store_id, patience=patience)
        self.indexes = IndexCache(store, self.cache, limit_pages=index_pages)

    async def write_fragment(self, log: str, epoch: int, segment: Checked) -> Location:
        """A segment, durable under the log's epoch; repeating it is harmless. Raises AlreadyExists if its id was given
        to other bytes.
        """
        write = partial(write_fragment, self.store, self.cache, log, epoch, segment, self.patience)
        return await write(shards=self._shards)

    async def seed(self, key: str, data: bytes) -> None:
        """Keep the whole object `key`, which was just written or read, so that its pages cost no request."""
        await self.cache.seed(key, data)

    def read(
        self, vid: VolumeId, sources: Sequence[Source], *, extra_bytes: int = 0
    ) -> AbstractAsyncContextManager[AsyncIterator[Frame]]:
        """Frames that hold the wanted pages of every source, as stored and verified, in the order of the sources.

        Up to `extra_bytes` of further frames follow: those of the same objects that come after the ones asked for.
        Entering the context manager reads no frame; each frame raises what befell it (Corrupt, which
        a missing object is too, or Unavailable).
        """
        return read_frames(self.cache, self.indexes, vid, sources, extra_bytes=extra_bytes)

"""Root: a store's first object, `root`, made by the first comer and read at every open (DESIGN §3, §4, §10).

It never changes. Of two first comers one wins, and both read what the winner wrote. A root that a newer program
wrote, whose creates go through something that this program doesn't offer, or that isn't Budwood's at all, is refused
in words.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec

from ...volume.envelope import ROOT, decode, encode, seal, unseal
from ...volume.errors import BadInput, Corrupt, NotFound, Unsupported
from ...volume.ids import StoreId, VolumeId
from .protocol import Store
from .retrying import PATIENT, Patience, create_settled, get_retried

ROOT_KEY: Final = "root"
GC_INTERVAL_SECONDS: Final = 3600


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """Every field is written out, so that a later default can't change an old store."""

    store: bytes
    """The StoreId: an edge remembers it, and refuses another store in its place."""
    names: bytes
    """The VolumeId of the default namespace."""
    cas: str = "native"
    """How `create` is honoured. native: by the store itself."""
    generation: int = 1
    """Of that: goes up when a store is moved from one way to another; a mixed fleet would create twice."""
    gc_interval_seconds: int = GC_INTERVAL_SECONDS
    """How long a boundary stands before anything below it is deleted (rule 6)."""
    max_alpha: int = 16
    """The most entries that any log's writer may keep in flight."""
    time: int = 0
    """When it was made: milliseconds since the Unix epoch."""

    @property
    def store_id(self) -> StoreId:
        return StoreId(self.store)

    @property
    def names_id(self) -> VolumeId:
        return VolumeId(self.names)


def new_root(now_ms: int, gc_interval_seconds: int = GC_INTERVAL_SECONDS) -> Root:
    """A root with fresh ids."""
    store, names = StoreId.new(at_ms=now_ms), VolumeId.new(at_ms=now_ms)
    return Root(store=store.raw, names=names.raw, gc_interval_seconds=gc_interval_seconds, time=now_ms)


def seal_root(root: Root) -> bytes:
    return seal(ROOT, encode(root))


def parse_root(data: bytes) -> Root:
    """Raises Corrupt on damage, Unsupported on what a newer or foreign program wrote."""
    if sum(a == b for a, b in zip(data, ROOT, strict=False)) < len(ROOT) - 1:
        # One damaged byte of the magic is damage; more of them is someone else's file.
        raise Unsupported("the store's object 'root' is not Budwood's: choose an empty directory or prefix")
    header = unseal(ROOT_KEY, ROOT, data)
    root = decode(ROOT_KEY, header, Root)
    if root.cas != "native":
        raise Unsupported(
            f"the store's creates go through {root.cas!r} (generation {root.generation}), which this Budwood doesn't "
            "offer: upgrade"
        )
    if root.gc_interval_seconds < 1 or root.max_alpha < 1 or root.generation < 1:
        raise Corrupt(ROOT_KEY, "its numbers make no sense")
    try:
        StoreId(root.store)
        VolumeId(root.names)
    except BadInput as error:
        raise Corrupt(ROOT_KEY, str(error)) from error
    return root


async def open_root(
    store: Store,
    *,
    create: bool = True,
    patience: Patience = PATIENT,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    gc_interval_seconds: int = GC_INTERVAL_SECONDS,
) -> Root:
    """The store's root, made where there is none unless `create` is false (then NotFound).

    Whoever makes it has probed the store before (probe.py). Raises Corrupt, Unsupported, and as any request.
    """
    try:
        return parse_root(await get_retried(store, ROOT_KEY, patience=patience))
    except NotFound:
        if not create:
            raise NotFound(f"there is no Budwood store at {store.url}") from None
    ours = new_root(now_ms(), gc_interval_seconds)
    theirs = await create_settled(store, ROOT_KEY, seal_root(ours), patience)
    return ours if theirs is None else parse_root(theirs)

"""Root: a store's first object, `root`, made by the first comer and read at every open (DESIGN §3, §4, §10).

It never changes. Of two first comers one wins, and both read what the winner wrote. A root that a newer program
wrote, whose creates go through something that this program doesn't offer, or that isn't Budwood's at all, is refused
in words.

A store that is made with records (two_phase_store.py) says so, and is opened with them alone, by everybody: of a mixed
fleet two would create one key. Once such a store is switched to native create (native.py), `roots/{2}` says so: the
same root, with the next generation. Only a two-phase root is looked behind, and nothing leads back from native.
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
from .two_phase_store import two_phase
from .two_phase_upkeep import check_records

ROOT_KEY: Final = "root"
NATIVE: Final = "native"
TWO_PHASE: Final = "two-phase"
GC_INTERVAL_SECONDS: Final = 3600


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """Every field is written out, so that a later default can't change an old store."""

    store: bytes
    """The StoreId: an edge remembers it, and refuses another store in its place."""
    names: bytes
    """The VolumeId of the default namespace."""
    cas: str = NATIVE
    """How `create` is honoured. native: by the store itself; two-phase: by records beside it."""
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


def root_key(generation: int) -> str:
    return ROOT_KEY if generation == 1 else f"roots/{generation:016x}"


def new_root(now_ms: int, gc_interval_seconds: int = GC_INTERVAL_SECONDS, cas: str = NATIVE) -> Root:
    """A root with fresh ids."""
    store, names = StoreId.new(at_ms=now_ms), VolumeId.new(at_ms=now_ms)
    return Root(store=store.raw, names=names.raw, cas=cas, gc_interval_seconds=gc_interval_seconds, time=now_ms)


def native_root(root: Root) -> Root:
    """The next generation of a two-phase one: the same bytes, whoever makes it."""
    return msgspec.structs.replace(root, cas=NATIVE, generation=root.generation + 1)


def seal_root(root: Root) -> bytes:
    return seal(ROOT, encode(root))


def parse_root(data: bytes, key: str = ROOT_KEY) -> Root:
    """Raises Corrupt on damage, Unsupported on what a newer or foreign program wrote."""
    if sum(a == b for a, b in zip(data, ROOT, strict=False)) < len(ROOT) - 1:
        # One damaged byte of the magic is damage; more of them is someone else's file.
        raise Unsupported(f"the store's object '{key}' is not Budwood's: choose an empty directory or prefix")
    header = unseal(key, ROOT, data)
    root = decode(key, header, Root)
    if root.cas not in {NATIVE, TWO_PHASE}:
        raise Unsupported(
            f"the store's creates go through {root.cas!r} (generation {root.generation}), which this Budwood doesn't "
            "offer: upgrade"
        )
    if root.gc_interval_seconds < 1 or root.max_alpha < 1 or root.generation < 1:
        raise Corrupt(key, "its numbers make no sense")
    try:
        StoreId(root.store)
        VolumeId(root.names)
    except BadInput as error:
        raise Corrupt(key, str(error)) from error
    return root


async def newest_root(store: Store, data: bytes, patience: Patience = PATIENT) -> Root:
    """What `root` and the generations behind it come to. Raises Corrupt, Unsupported, Unavailable."""
    first = parse_root(data)
    if first.cas == NATIVE:
        return first
    key = root_key(first.generation + 1)
    try:
        newest = parse_root(await get_retried(store, key, patience=patience), key)
    except NotFound:
        return first
    if newest != native_root(first):
        raise Corrupt(key, "it is not the root's next generation")
    return newest


async def check_way(store: Store, root: Root, data: bytes, patience: Patience = PATIENT) -> None:
    """Raises Unsupported unless the store is opened the way that its root says; `data` is what stands at `root`."""
    opened = two_phase(store)
    if opened is None:
        if root.cas == TWO_PHASE:
            raise Unsupported(
                f"creates in {store.url} go through records: open it as {store.url}?records=…, with those that it was "
                "made with"
            )
    elif root.cas == NATIVE:
        raise Unsupported(f"{opened.plain.url} honours creates itself: open it without ?records=")
    else:
        await check_records(opened, ROOT_KEY, data, patience)


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
        data = await get_retried(store, ROOT_KEY, patience=patience)
    except NotFound:
        if not create:
            raise NotFound(f"there is no Budwood store at {store.url}") from None
        ours = new_root(now_ms(), gc_interval_seconds, TWO_PHASE if two_phase(store) else NATIVE)
        theirs = await create_settled(store, ROOT_KEY, seal_root(ours), patience)
        data = seal_root(ours) if theirs is None else theirs
    root = await newest_root(store, data, patience)
    await check_way(store, root, data, patience)
    return root

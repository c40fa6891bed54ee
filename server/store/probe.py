"""Probe: whether a store keeps the rules that everything rests on, asked of the store itself (DESIGN §3; S0.5).

A node probes when it starts, an embedded process when it makes a store's root: seven small requests under `probe/`.
Checked: a second `create` of a key is refused and changes nothing, and `list` is in the order of the whole key's
bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ...volume.errors import NotFound, StoreError, Unsupported
from ...volume.ids import StoreId
from .protocol import Store
from .retrying import PATIENT, Patience, create_settled, retried
from .root import GC_INTERVAL_SECONDS, Root, open_root


async def probe(store: Store, patience: Patience = PATIENT) -> None:
    """Raises Unsupported, naming the way out, if the store breaks a rule; Unavailable, Unauthorized as any request."""
    fresh = f"probe/{StoreId.new()}"
    # By whole keys '-' sorts before '/'; a store that lists directory by directory has them the other way round.
    first, second = f"{fresh}-a", f"{fresh}/a"
    try:
        await _check_create(store, second, patience)
        await create_settled(store, first, b"first", patience)
        listed = await retried(f"list {fresh}", partial(store.list, fresh), patience)
        if listed != [first, second]:
            raise Unsupported(
                f"{store.url} doesn't list its keys at once and in the order of their bytes ({listed}); Budwood "
                "needs it: use a store or gateway that does"
            )
    finally:
        for key in (first, second):
            with suppress(StoreError):  # A few bytes are left then, and the first error is the one to tell.
                await store.delete(key)


async def _check_create(store: Store, key: str, patience: Patience) -> None:
    await create_settled(store, key, b"one", patience)
    # Refused, it reads what stands there; None would say that the second bytes do.
    if await create_settled(store, key, b"two", patience) != b"one":
        raise Unsupported(
            f"{store.url} doesn't honour create-if-absent (a second create of {key} changed it, or was not refused): "
            f"use a store or gateway that does, or keep records beside this one: {store.url}?records=postgresql://…"
        )


async def probed_root(
    store: Store,
    patience: Patience,
    now_ms: Callable[[], int],
    *,
    probing: bool,
    create: bool,
    gc_interval_seconds: int = GC_INTERVAL_SECONDS,
) -> Root:
    """The store's root; where there is none and one shall be made, or a node starts, the store is probed first."""
    if not probing or not create:
        try:
            root = await open_root(store, create=False, patience=patience)
        except NotFound:
            if not create:
                raise
        else:
            if probing:
                await probe(store, patience)
            return root
    await probe(store, patience)
    return await open_root(store, patience=patience, now_ms=now_ms, gc_interval_seconds=gc_interval_seconds)

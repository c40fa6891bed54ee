"""What tests of two-phase creates share: creates that are cut, and what happens behind a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from budwood.server.store.protocol import Data, Keys, Store
from budwood.server.store.temporaries import FOLDER
from budwood.server.store.two_phase_store import OLD_MS, TwoPhaseStore
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume import faults

STEPS = {
    "two-phase: temporary written, no record": False,
    "two-phase: recorded, not copied": True,
    "two-phase: copied, not marked": True,
    "two-phase: marked, temporary not deleted": True,
    "two-phase: temporary deleted, not acknowledged": True,
}
"""Each step that a create may be cut behind, and whether the object stands then."""
LATER = OLD_MS + 1


class Stirred(RiggedStore):
    """Something happens behind each call of one kind."""

    def __init__(self, inner: Store, op: str, then: Callable[[], Awaitable[object]]) -> None:
        super().__init__(inner)
        self._op = op
        self._then = then

    async def put(self, key: str, data: Data) -> None:
        await super().put(key, data)
        await self._stir("put")

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        found = await super().list(prefix, start=start, limit=limit)
        await self._stir("list")
        return found

    async def _stir(self, op: str) -> None:
        if op == self._op:
            await self._then()


def cut() -> None:
    raise faults.Cut


async def cut_at(point: str, store: TwoPhaseStore, key: str, data: bytes) -> None:
    faults.arm(point, cut)
    with pytest.raises(faults.Cut):
        await store.create(key, data)
    faults.disarm()


def temporaries(store: TwoPhaseStore) -> list[str]:
    return [key for key in memory(store).objects if key.startswith(FOLDER)]


def memory(store: TwoPhaseStore) -> MemoryStore:
    assert isinstance(store.plain, MemoryStore)
    return store.plain

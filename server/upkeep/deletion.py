"""Deletion: objects go a few at a time, so that others have the loop and the store for the most part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from ...volume import faults
from ..store.protocol import Store
from ..store.retrying import Patience, retried
from ..store.tree_nodes import several_at_once

_FEW: Final = 8
"""Objects that are deleted at once by whoever has time: others wait for the loop meanwhile, and for the store."""

_SOME_DELETED: Final = faults.point("gc: some of it deleted")


@dataclass(slots=True)
class Deletion:
    store: Store
    patience: Patience
    most_a_second: float
    """0: as many as can be."""
    on_deleted: Callable[[int], None]
    count: int = 0
    """Objects so far, or names of some that were gone already."""

    async def of(self, keys: list[str]) -> None:
        """In any order. Raises Unavailable."""
        few = _FEW if self.most_a_second else max(len(keys), 1)
        for first in range(0, max(len(keys), 1), few):
            some = keys[first : first + few]
            await several_at_once([partial(self._delete, key) for key in some])
            self.count += len(some)
            self.on_deleted(len(some))
            _SOME_DELETED()
            if self.most_a_second:
                await self.patience.sleep(len(some) / self.most_a_second)

    async def _delete(self, key: str) -> None:
        await retried(f"delete {key}", lambda: self.store.delete(key), self.patience)

"""Tidying: once an hour what two-phase creates have left behind is finished or goes (store/two_phase_upkeep.py). Where
the store honours creates itself there is nothing to do."""

from __future__ import annotations

import math
from typing import Final

from ...volume.errors import BudwoodError
from ..store.protocol import Store
from ..store.retrying import Patience
from ..store.two_phase_upkeep import tidy

EVERY_SECONDS: Final = 3600.0


class Tidying:
    def __init__(self, store: Store, patience: Patience) -> None:
        self._store = store
        self._patience = patience
        self._next_at = -math.inf

    async def if_due(self) -> BudwoodError | None:
        """What was in its way, for the log of whoever asks; the rest is done, and it is tried again in an hour."""
        now = self._patience.now()
        if now < self._next_at:
            return None
        self._next_at = now + EVERY_SECONDS
        try:
            await tidy(self._store)
        except BudwoodError as error:
            return error
        return None

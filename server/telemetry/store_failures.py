"""Store failures: that the store fails all that it is asked of a kind, told in the log as it lasts, and by a call that
waited for it in vain.

A request that fails now and then is nothing to tell: it is repeated, and the metrics count it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import anyio

from ...volume.errors import BudwoodError, StoreError, Unauthorized

_logger: Final = logging.getLogger(__name__)

LASTED_SECONDS: Final = 3.0
"""Without an answer, before it is told."""
AGAIN_SECONDS: Final = 60.0
_LATELY_SECONDS: Final = 10.0
_FORGOTTEN_SECONDS: Final = 300.0
"""Without a request: whether the store would have answered isn't known."""


@dataclass(slots=True)
class _Failing:
    since: float
    latest: float
    told: float | None = None


class StoreFailures:
    """Belongs to one event loop; `now` in seconds."""

    def __init__(self, now: Callable[[], float] = anyio.current_time) -> None:
        self._now = now
        self._failing: dict[str, _Failing] = {}
        """By kind of request, those that failed the last time."""

    def note(self, kind: str, error: BaseException | None) -> None:
        """A request has ended so. One that was cut off by its caller tells nothing."""
        if isinstance(error, StoreError | Unauthorized):
            self._failed(kind, error)
        elif (error is None or isinstance(error, BudwoodError)) and self._failing:
            failing = self._failing.pop(kind, None)
            if failing is not None and failing.told is not None:
                _logger.warning("the store answers each %s again, after %.0f s", kind, self._now() - failing.since)

    def is_failing(self) -> bool:
        """Whether requests of some kind have only failed for a while."""
        now = self._now()
        return any(
            now - each.since >= LASTED_SECONDS and now - each.latest < _LATELY_SECONDS
            for each in self._failing.values()
        )

    def _failed(self, kind: str, error: BudwoodError) -> None:
        now = self._now()
        failing = self._failing.get(kind)
        if failing is None or now - failing.latest > _FORGOTTEN_SECONDS:
            failing = self._failing[kind] = _Failing(now, now)
        failing.latest = now
        is_due = now - failing.since >= LASTED_SECONDS if failing.told is None else now - failing.told >= AGAIN_SECONDS
        if is_due:
            failing.told = now
            _logger.warning("the store has failed each %s for %.0f s: %s", kind, now - failing.since, error)

"""Retention policy: how long a volume can be read as it was (DESIGN §5).

    all      every LSN stays readable for so long after another followed it
    hourly   for so long it stays readable as it was at each full hour
    daily    as it was at each midnight

Hours and days are UTC's, and a time means the last LSN that is not later; so what `--at` finds at a full hour is what
was kept for it. The newest LSN always stays. Without `all`, everything stays, for ever.

What follows from one, and when, is in server/upkeep/retention_schedule.py.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Final

import msgspec

from .errors import BadInput

MOST_MS: Final = 100 * 366 * 86_400_000

Milliseconds = Annotated[int, msgspec.Meta(ge=0)]


class RetentionPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """0 stands for what it doesn't name."""

    all_ms: Milliseconds = 0
    hourly_ms: Milliseconds = 0
    daily_ms: Milliseconds = 0

    @property
    def forgets(self) -> bool:
        """Whether anything stays for a while only."""
        return self.all_ms > 0


EVERYTHING: Final = RetentionPolicy()
"""Stays, for ever."""


def check_policy(policy: RetentionPolicy) -> None:
    """Raises BadInput on one that can't be meant."""
    named = {"all": policy.all_ms, "hourly": policy.hourly_ms, "daily": policy.daily_ms}
    terms = [(name, ms) for name, ms in named.items() if ms]
    if terms and not policy.all_ms:
        raise BadInput(f"{terms[0][0]} alone says too little: say for how long all LSNs stay, too (all)")
    for (shorter, least), (longer, most) in pairwise(terms):
        if most <= least:
            raise BadInput(f"{longer} would keep nothing that {shorter} doesn't: make it longer, or leave it out")
    if any(not 0 <= ms <= MOST_MS for _, ms in terms):
        raise BadInput("an LSN stays for 100 years at most, or for ever")

"""Several: the same for many volumes in turn. One that fails is named at once and stops no other; what the others would
meet as well (the remote is away, the disk is full) ends it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from ..volume.errors import BudwoodError, Full, Unavailable
from .output import count_of, printable


def for_each(names: Sequence[str], work: Callable[[str], object]) -> None:
    """Raises what ended it; or, after all of them, an error that says how many failed."""
    failed = 0
    for name in names:
        try:
            work(name)
        except (Unavailable, Full):
            raise
        except BudwoodError as error:
            if len(names) == 1:
                raise
            failed += 1
            print(f"budwood: {printable(f'{name}: {error}')}", file=sys.stderr, flush=True)
    if failed:
        raise BudwoodError(f"{failed} of {count_of(len(names), 'volume')} failed, as said above; the others are done")

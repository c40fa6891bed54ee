"""Write mode: how an export brings one table of its target to the LSN that is exported.

    undecided    nothing is known of its target yet
    unchanged    its target holds this LSN: nothing is done
    advance      nothing of it changed since the LSN that its target holds: the state alone moves on
    merge        what changed since then is read, and files that hold a change are written anew
    overwrite    all of it is written

A table that fails keeps its mode; its error says that no later step touches it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from .results import Action


class WriteMode(StrEnum):
    UNDECIDED = "undecided"
    UNCHANGED = "unchanged"
    ADVANCE = "advance"
    MERGE = "merge"
    OVERWRITE = "overwrite"


NEXT: Final[dict[WriteMode, frozenset[WriteMode]]] = {
    WriteMode.UNDECIDED: frozenset({WriteMode.UNCHANGED, WriteMode.MERGE, WriteMode.OVERWRITE}),
    WriteMode.UNCHANGED: frozenset(),
    WriteMode.ADVANCE: frozenset(),
    WriteMode.MERGE: frozenset({WriteMode.ADVANCE, WriteMode.OVERWRITE}),
    WriteMode.OVERWRITE: frozenset(),
}
"""What each may turn out to be instead."""

ACTIONS: Final[dict[WriteMode, Action]] = {
    WriteMode.UNDECIDED: Action.WRITTEN,
    WriteMode.UNCHANGED: Action.UNCHANGED,
    WriteMode.ADVANCE: Action.UNCHANGED,
    WriteMode.MERGE: Action.MERGED,
    WriteMode.OVERWRITE: Action.WRITTEN,
}

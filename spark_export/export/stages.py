"""Stages: what is to become of one table of an export, from step to step.

    surveyed    nothing is known of its target
    stands      its target holds this LSN: nothing is done
    advances    nothing of it changed since the LSN that its target holds: the state alone moves on
    merges      what changed since then is read, and files that hold a change are written anew
    whole       all of it is written

A table that fails keeps its stage; its error says that no later step touches it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from .results import Action

__all__ = ["ACTIONS", "NEXT", "Stage"]


class Stage(StrEnum):
    SURVEYED = "surveyed"
    STANDS = "stands"
    ADVANCES = "advances"
    MERGES = "merges"
    WHOLE = "whole"


NEXT: Final[dict[Stage, frozenset[Stage]]] = {
    Stage.SURVEYED: frozenset({Stage.STANDS, Stage.MERGES, Stage.WHOLE}),
    Stage.STANDS: frozenset(),
    Stage.ADVANCES: frozenset(),
    Stage.MERGES: frozenset({Stage.ADVANCES, Stage.WHOLE}),
    Stage.WHOLE: frozenset(),
}
"""What each may turn out to be instead."""

ACTIONS: Final[dict[Stage, Action]] = {
    Stage.SURVEYED: Action.WRITTEN,
    Stage.STANDS: Action.UNCHANGED,
    Stage.ADVANCES: Action.UNCHANGED,
    Stage.MERGES: Action.MERGED,
    Stage.WHOLE: Action.WRITTEN,
}

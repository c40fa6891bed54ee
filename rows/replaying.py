"""Replaying: replay (replay.py) as what autosync does about a volume that has diverged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .replay import Choice, Policy, replay

if TYPE_CHECKING:
    from ..sync.divergence import Home, OnDiverged
    from ..sync.volume import Volume


def replaying(on_conflict: Choice | Policy = "abort") -> OnDiverged:
    """For `on_diverged`: the rows that were changed here are applied to the remote's newest. `on_conflict` decides
    about rows that both changed, as `replay` takes it; "abort" leaves the volume as it is, to somebody else.
    """

    def settle(_edge: Home, volume: Volume) -> str:
        report = replay(volume, on_conflict)
        return f"volume {volume.name!r} had diverged: its rows that were changed here stand on LSN {report.onto} now"

    return settle

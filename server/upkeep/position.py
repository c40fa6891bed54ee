"""Position: how far a scrub has come, as a short word to go on from.

    volume:{vid}        behind that volume's own objects
    log:{log}:{slot}    at that slot of that log; what comes before it is done
    log:{log}:{slot}:nodes    and its nodes are to be looked at by their names at the end, since one could not be read

A scrub looks at the root, then at all volumes by their ids, then at all logs by their names, slot by slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from ...volume.errors import BadInput
from ...volume.ids import VolumeId, check_node

_NODES: Final = ":nodes"


@dataclass(frozen=True, slots=True)
class Position:
    vid: str = ""
    log: str = ""
    slot: int = 0
    blind: bool = False
    """See scrub_part.Left."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadInput."""
        kind, _, rest = text.partition(":")
        log, _, slot = rest.removesuffix(_NODES).rpartition(":")
        try:
            if kind == "volume":
                return cls(vid=str(VolumeId.parse(rest)))
            if kind == "log" and slot.isascii() and slot.isdecimal() and int(slot) < 1 << 64:
                return cls(log=_log(log), slot=int(slot), blind=rest.endswith(_NODES))
        except BadInput:
            pass
        raise BadInput(f"{text!r} is no position: take one that a scrub has printed")

    def __str__(self) -> str:
        return f"log:{self.log}:{self.slot}{_NODES if self.blind else ''}" if self.log else f"volume:{self.vid}"


def _log(name: str) -> str:
    try:
        return str(VolumeId.parse(name))
    except BadInput:
        return check_node(name)

"""Divergence: what autosync does about a volume that has diverged. It is given the home and the volume, under no lock,
and answers with a line to tell.

`tell` leaves the volume as it is, `fork` keeps what is unpushed as a volume of its own; merge.py lays pages over the
remote's newest, rows/replaying.py replays rows. Anything else that takes as much may stand there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..volume.errors import AlreadyExists
from .conflict_names import conflict_names

if TYPE_CHECKING:
    from .connection import Connection
    from .environment import Environment
    from .volume import Volume


class Home(Protocol):
    """What autosync needs of an edge."""

    environment: Environment
    home: Path
    remote: str

    def volume_of(self, vid: bytes) -> Volume | None: ...

    def connection(self, recorded: str = "") -> Connection: ...


OnDiverged = Callable[[Home, "Volume"], str]


def tell(_edge: Home, volume: Volume) -> str:
    """Leave it as it is."""
    name = volume.name
    return (
        f"volume {name!r} has diverged and stays as it is: `budwood replay {name}` applies what was changed here to "
        f"the remote's newest, `budwood reset {name} --keep-as NEW` keeps it beside"
    )


def fork(edge: Home, volume: Volume) -> str:
    """Keep what is unpushed as a volume of its own, and take the remote's. Raises what `reset` raises."""
    for name in conflict_names(edge.environment, volume.name):
        try:
            volume.reset(keep_as=name)
        except AlreadyExists:
            continue
        return f"volume {volume.name!r} has diverged: what was unpushed is {name!r} now"
    raise AssertionError("there is always another name")

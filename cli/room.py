"""Room at the command line: compact."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from typing import Final

from ..volume.byte_sizes import bytes_of
from .common_options import Context
from .output import say


def compact(context: Context) -> None:
    """Give the room of what is no longer held back to the disk.

    Other processes may use the home meanwhile. If none does, its file becomes as short as what it holds.
    """
    from ..sync.clean_shutdown import is_in_use
    from ..sync.free_room import room

    with closing(context.edge()) as edge:
        edge.environment.settle()
        before, data = room(edge.environment), edge.environment.data_path
        edge.compact()
    after = os.stat(data)
    on_disk, in_use = after.st_blocks * 512, is_in_use(data)
    said = f"compacted {context.real_home()}: {bytes_of(before.on_disk)} to {bytes_of(on_disk)}"
    if in_use and after.st_size > on_disk:
        said += "; others have it open, so the file stays as long as it was, with holes"
    say(said)


VERBS: Final[dict[str, Callable[..., None]]] = {"compact": compact}

"""Upload: the segments of a commit that is too large to carry them along, sent before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from threading import Event
from typing import Final

from ..volume.errors import Unavailable
from ..volume.ids import VolumeId
from ..volume.pack import Packed
from ..volume.records import Location
from ..volume.thread_pool import ThreadPool
from .connection import Connection

DELAYS_SECONDS = (0.1, 0.4, 1.0, 3.0, 10.0)
"""Before the next try to send one, of which a commit may have thousands behind it."""
_IN_FLIGHT: Final = 2


def upload(
    vid: VolumeId, connection: Connection, segments: Iterator[Packed], landed: Callable[[Location], object]
) -> None:
    """Send segments as they are packed, two on their way at a time, each as often as it takes within reason. `landed`
    is told where each lies, in their order; of those, too, that landed beside one that failed.

    Raises Unavailable, and what else the remote says.
    """
    flying: deque[Future[Location]] = deque()
    given_up = Event()
    with ThreadPool(max_workers=_IN_FLIGHT, thread_name_prefix="budwood-upload") as pool:
        try:
            for packed in segments:
                flying.append(pool.submit(_send, vid, connection, packed.data, given_up))
                if len(flying) >= _IN_FLIGHT:
                    landed(flying.popleft().result())
            while flying:
                landed(flying.popleft().result())
        except BaseException:
            given_up.set()
            for each in flying:
                if each.exception() is None:
                    landed(each.result())
            raise


def _send(vid: VolumeId, connection: Connection, segment: bytes, given_up: Event) -> Location:
    """Nothing is harmed where one is stored twice: the other is collected."""
    for delay in DELAYS_SECONDS:
        try:
            return connection.remote.write_pages(vid, segment)
        except Unavailable as error:
            if error.hopeless or given_up.wait(delay):
                raise
    return connection.remote.write_pages(vid, segment)

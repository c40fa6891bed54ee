"""Share: which logs and volumes of a store are whose, where several processes serve as one node (`serve --workers`).

Each worker owns a log of its own, and every log and volume has exactly one worker of the N, which all of them work out
alike, from names alone:

    log of                     its worker
    the node, NAME             1, so that whoever had one worker before goes on
    worker K: NAME-wK          K; where there are fewer workers by now, one of those: (K - 1) % N + 1
    another node               by a hash of its name: who reads it, and takes it over where that is asked for
    a volume: a private one    by the volume's id

A new volume is made by the worker that its id falls to, whose bits are random: so volumes spread evenly, and whoever
knows an id knows nearly always whom to ask. Where the number of workers has changed, the volume's birth tells.

With one worker, all is its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

from ...volume.errors import BadInput
from ...volume.ids import VolumeId, check_node


@dataclass(frozen=True, slots=True)
class Share:
    """That of worker `number` of `count`."""

    node: str
    number: int = 1
    count: int = 1

    @property
    def log(self) -> str:
        """The worker's own."""
        return log_of_worker(self.node, self.number)

    def of_volume(self, vid: VolumeId) -> int:
        """The worker of a new volume, and of one in a log of its own."""
        return _of_volume(vid, self.count)

    def of_log(self, log: str) -> int:
        """The worker of a log."""
        return 1 if self.count == 1 else _of_log(self.node, self.count, log)

    def number_of(self, log: str) -> int:
        """Of the worker whose own log bears that name, however many there are; 0 for no worker's of this node."""
        return _number_of(self.node, log)

    def is_left_behind(self, log: str) -> bool:
        """Whether it is a worker's log of this node for whom there is no worker any more, and falls to this one."""
        return self.number_of(log) > self.count and self.of_log(log) == self.number

    def watches(self, log: str) -> bool:
        """Whether it is this worker's to take the log over once its owner is gone. A worker's is left to whoever starts
        that again."""
        return self.of_log(log) == self.number and not 0 < self.number_of(log) <= self.count


def log_of_worker(node: str, number: int) -> str:
    """Raises BadInput where the node's name is too long for it."""
    return check_node(node if number == 1 else f"{node}-w{number}")


@lru_cache(maxsize=4096)
def _of_log(node: str, count: int, log: str) -> int:
    number = _number_of(node, log)
    if number:
        return (number - 1) % count + 1
    try:
        return _of_volume(VolumeId.parse(log), count)
    except BadInput:
        return crc32(log.encode()) % count + 1


def _of_volume(vid: VolumeId, count: int) -> int:
    return int.from_bytes(vid.raw[-8:], "big") % count + 1


def _number_of(node: str, log: str) -> int:
    if log == node:
        return 1
    found = re.fullmatch(f"{re.escape(node)}-w([1-9][0-9]*)", log)
    return int(found[1]) if found and int(found[1]) > 1 else 0


def logs_behind(node: str) -> str:
    """What the names of the logs of a node's further workers begin with."""
    return f"{node}-w"

"""Fragment names: where the pages of a large batch lie, and how a log's fragments are spread over prefixes (S4.8).

    logs/{log}/t/{epoch:016x}/{segment}                    one prefix for all, under the epoch
    logs/{log}/shards/{shard:02}/{epoch:016x}/{segment}    spread: shard 1 to MOST_SHARDS, each a prefix of its own

A bucket takes so many requests a second for each range of keys, and the ids of segments sort by time: what is written
now, and read most, all lies at one end of one range, which no split of the bucket's makes two. A shard comes before the
epoch, so that the ranges that a bucket was split into stay when the log's writer is another.

Who writes says over how many it spreads, and the segment's own random bits say into which one of these, so that the
same segment sent again has the same key. Who reads goes by the key that a commit names, whatever the count was and is:
another count needs neither a request nor a rewrite. Only who looks for what nobody names lists all shards.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from .errors import BadInput
from .ids import SegmentId

MOST_SHARDS: Final = 12

_NAME: Final = re.compile(r"logs/[^/]+/(?:t|shards/([0-9]{2}))/([0-9a-f]{16})/([^/]+)")
_TERM: Final = re.compile(r"logs/([^/]+)/(?:t|shards/[0-9]{2})/([0-9a-f]{16})/")


class FragmentName(NamedTuple):
    shard: int
    """0: under the epoch alone."""
    epoch: int
    segment: SegmentId


def shards_prefix(log: str) -> str:
    return f"logs/{log}/shards/"


def fragment_key(log: str, epoch: int, segment: str, shard: int = 0) -> str:
    """Also where the keys begin of those that lie beside it, if `segment` is empty."""
    folder = f"{shards_prefix(log)}{shard:02}" if shard else f"logs/{log}/t"
    return f"{folder}/{epoch:016x}/{segment}"


def fragment_name(log: str, key: str) -> FragmentName:
    """Raises BadInput unless it is the key of a fragment of that log."""
    found = _NAME.fullmatch(key)
    if found is None:
        raise BadInput(f"{key!r} is not the key of a fragment of log {log}")
    shard, epoch, segment = found.groups()
    name = FragmentName(int(shard or 0), int(epoch, 16), SegmentId.parse(segment))
    if name.shard > MOST_SHARDS or key != fragment_key(log, name.epoch, segment, name.shard):
        raise BadInput(f"{key!r} is not the key of a fragment of log {log}")
    return name


def term_of(key: str) -> tuple[str, str]:
    """The log and the epoch that a fragment was written in, which all of a commit's have in common; "" of any other
    key."""
    found = _TERM.match(key)
    return (found[1], found[2]) if found is not None else ("", "")


def shard_in(log: str, key: str) -> int:
    """Where the object of that key lies; 0: in no shard of that log. What follows the shard is not looked at."""
    prefix = shards_prefix(log)
    digits = key[len(prefix) : len(prefix) + 2] if key.startswith(prefix) else ""
    return int(digits) if digits.isascii() and digits.isdecimal() else 0


def shard_for(segment: SegmentId, shards: int) -> int:
    """Into which of so many it goes; with one, under the epoch alone."""
    return 1 + int.from_bytes(segment.raw[-4:]) % shards if shards > 1 else 0


def check_shards(shards: int) -> int:
    """The same. Raises BadInput."""
    if not 1 <= shards <= MOST_SHARDS:
        raise BadInput(f"a log's fragments can't be spread over {shards} shards: say 1 to {MOST_SHARDS}")
    return shards

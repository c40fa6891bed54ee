"""Rollups: each is what its log comes to at its slot, to the last item.

The log is followed from where it is read, and every item of every rollup behind that compared with what it comes to. So
a rollup that is whole, and says something else than its log, is damage too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from .basics import Damaged
from .log import Log
from .read_rollups import Items, Rollup, slot_of_rollup, stream_key
from .rolled_streams import RolledStream
from .trees import check_names


def check_rollups(objects: Mapping[str, bytes], log: Log) -> dict[str, Items]:
    """All of a log that stand, those that no entry names too: what each holds. Of those that are of no use, or older
    than the one that the log is read behind, the names alone are looked at. Raises Damaged, TooNew."""
    prefix = f"logs/{log.name}/rollups/"
    rollups: dict[str, Items] = {}
    streams: dict[str, RolledStream] = {}
    waiting = list(reversed(log.canonical))
    for key in sorted(key for key in objects if key.startswith(prefix)):
        name = key[len(prefix) :]
        slot = slot_of_rollup(key, name)
        rollup = Rollup(objects, log.name, name)
        if slot < log.begin or not log.is_of_use(rollup):
            continue
        if rollup.position != log.positions.get(slot):
            raise Damaged(key, f"its log doesn't stand at slot {slot} as it says")
        while waiting and waiting[-1].slot <= slot:
            entry = waiting.pop()
            for stream in entry.streams:
                if stream not in streams:
                    streams[stream] = RolledStream(objects, log.name, stream, log.base)
                streams[stream].take(entry, len(objects[entry.key]))
        rollups[key] = rollup.items
        _compare(key, rollup.items, streams, log.base)
    check_names(objects, f"logs/{log.name}/nodes")
    return rollups


def _compare(key: str, found: Items, streams: Mapping[str, RolledStream], base: Rollup | None) -> None:
    touched = {stream_key(name) for name in streams}
    expected: Items = {at: value for at, value in (base.items if base else {}).items() if at[:16] not in touched}
    for stream in streams.values():
        expected |= stream.items
    for at in sorted(found.keys() | expected.keys()):
        told, known = cast("Any", found.get(at, "nothing")), cast("Any", expected.get(at, "nothing"))
        if at[16:17] == b"h" and at in found and at in expected and not told[3]:
            # An older release tells what was touched alone.
            known = (*known[:3], 0, ())
        if told != known:
            raise Damaged(key, f"of {at.hex()} it says {told}, and its log {known}")

"""A process that appends to a plain log, killed at every fault point that it passes.

What it was told stands, at the position that it was told, and behind it at most the append that was under way, whole.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from budwood.server.plain.log import open_log, open_reader
from budwood.volume.errors import NotFound

from .crash_harness import Place, cut, finish

APPENDS = """
import anyio, sys
import budwood

async def main():
    async with budwood.log.open_log(sys.argv[1], "events") as log:
        for n in range(1, 7):
            print(n, await log.append({"a": [b"%d" % n], "b": [b"%d" % n, b"more"]}), flush=True)

anyio.run(main)
"""

POINTS = {
    "log: anchor durable, log empty": 0,
    "log: epoch taken, not fenced": 0,
    "log: fence durable, not open": 0,
    "log: entry sealed, not sent": 0,
    "log: entry sealed, not sent#4": 0,
    "log: entry durable, not acknowledged": 1,
    "log: entry durable, not acknowledged#4": 1,
    "store: linked, directory not synced#9": 1,
    "store: temp written, not linked#9": 0,
}
"""And how many appends more stand than were told."""


def records(place: Place) -> list[str]:
    async def read() -> list[str]:
        async with open_reader(place.store, "events") as reader:
            own = [record async for record in reader.read("a")]
            other = [record async for record in reader.read("b")]
        assert [record.position for record in other] == [own.position + n for own in own for n in (1, 2)]
        assert [record.data for record in other[::2]] == [record.data for record in own]
        return [f"{record.data.decode()} {record.position + 2}" for record in own]

    try:
        return asyncio.run(read())
    except NotFound:
        return []


def test_every_append_is_told_its_position(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert finish(APPENDS, place.store) == [f"{n} {3 * n}" for n in range(1, 7)] == records(place)


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_writers_appends_stand_and_the_next_one_goes_on(tmp_path: Path, point: str) -> None:
    """S4.12."""
    place = Place(tmp_path)
    told = cut(point, APPENDS, place.store)
    stand = records(place)
    assert stand[: len(told)] == told
    assert len(stand) == len(told) + POINTS[point]

    async def go_on() -> int:
        async with open_log(place.store, "events") as log:
            return await log.append({"a": [b"next"], "b": [b"next", b"more"]})

    assert asyncio.run(go_on()) == 3 * len(stand) + 3
    assert records(place) == [*stand, f"next {3 * len(stand) + 3}"]

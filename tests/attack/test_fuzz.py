"""A short run of the fuzz of every endpoint (tests/soak/fuzz.py), by requests and not by time."""

from __future__ import annotations

import random
from pathlib import Path

from budwood.volume.calls import CALLS

from ..soak.drawn_requests import UNDRAWN, Drawer
from ..soak.fuzz import fuzz
from ..soak.report import Report
from ..soak.world import World

REQUESTS = 600


def test_no_request_breaks_a_node(tmp_path: Path) -> None:
    report = Report()
    world = World(tmp_path, 7, report)
    try:
        fuzz(world, seconds=3600.0, most=REQUESTS)
    finally:
        world.children.close()
    assert report.violations == []
    assert report.checks.total() > REQUESTS / 2
    assert report.checks["200"] > REQUESTS / 50
    assert report.checks["400"] > REQUESTS / 5


def test_every_call_is_drawn() -> None:
    drawer = Drawer(random.Random(1), [b"\x01" * 16])
    drawn = {drawer.request().path.partition("?")[0] for _ in range(3000)}
    assert {f"/v1/{name}" for name in CALLS if name not in UNDRAWN} <= drawn

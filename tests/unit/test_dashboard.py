"""The Grafana dashboard asks for figures that there are: each query's names stand in docs/operations.md, whose tables
other tests hold against what nodes and edges tell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ..documented import Documented, documented

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana-dashboard.json"
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def known() -> dict[str, Documented]:
    """By the names of their series."""
    rows = documented("Metrics of a node") | documented("Metrics of an edge")
    return {f"{name}{suffix}": row for name, row in rows.items() for suffix in SUFFIXES[row.kind]}


def queries() -> list[tuple[str, str, str]]:
    """Panel, query and legend."""
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [(panel["title"], each["expr"], each["legendFormat"]) for panel in panels for each in panel["targets"]]


def test_each_query_asks_for_what_there_is() -> None:
    series = known()
    asked = set[str]()
    for title, query, legend in queries():
        names = set(re.findall(r"\b(?:budwood|process)_\w+", query))
        assert names, title
        assert names <= series.keys(), f"{title}: {names - series.keys()}"
        asked |= names
        labels = set[str]().union(*(series[name].labels for name in names))
        grouped = {label.strip() for found in re.findall(r"by \(([^)]*)\)", query) for label in found.split(",")}
        assert grouped <= labels | {"le", "instance", "worker"}, title
        assert set(re.findall(r"{{(\w+)}}", legend)) <= labels | {"instance", "worker"}, title
        # What only grows is looked at by how fast; what doesn't isn't.
        for name in names:
            grows = series[name].kind != "gauge"
            assert bool(re.search(rf"(?:rate|increase)\({name}\b", query)) is grows, f"{title}: {name}"
    assert len(asked) > 40


def test_panels_do_not_lie_on_each_other() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    assert len({panel["id"] for panel in panels}) == len(panels)

"""What a node's or an edge's metrics say, read as Prometheus reads them."""

from __future__ import annotations

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families


def families(text: str) -> dict[str, Metric]:
    """By name. Raises ValueError on what is no such text; AssertionError where one is told twice, or says nothing."""
    found: dict[str, Metric] = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in found, family.name
        assert family.type != "unknown", family.name
        found[family.name] = family
    return found


def figure(text: str, name: str, **labels: str) -> float:
    """Of one series, by its whole name and all its labels. Raises KeyError."""
    series = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families(text).values()
        for sample in family.samples
    }
    return float(series[name, frozenset(labels.items())])

"""Exposition: metrics as Prometheus' text format (0.0.4), of one process or of several workers.

Of several workers each has lines of its own, with a label that says which: one that is started again counts anew, which
a sum would hide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
WORKER: Final = "worker"
_BORN: Final = "_created"


class _Families(Collector):
    """What the library is to write."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            # When a series began says nothing that the process's start doesn't, and would be a series more for each.
            family.samples = [sample for sample in family.samples if not sample.name.endswith(_BORN)]
            yield family


def text_of(families: Iterable[Metric]) -> str:
    return generate_latest(_Families(families)).decode()


def text_of_workers(told: Mapping[int, str], workers: int) -> str:
    """Of each that answers, what it told of itself; `budwood_worker_up` says which do."""
    up = GaugeMetricFamily("budwood_worker_up", "Whether this worker of the node answers.", labels=[WORKER])
    for number in range(1, workers + 1):
        up.add_metric([str(number)], float(number in told))
    found: dict[str, Metric] = {up.name: up}
    for number, text in sorted(told.items()):
        for family in text_string_to_metric_families(text):
            whole = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            whole.samples += [_of_worker(sample, number) for sample in family.samples]
    return text_of(found[name] for name in sorted(found))


def _of_worker(sample: Sample, number: int) -> Sample:
    return sample._replace(labels={WORKER: str(number), **sample.labels})

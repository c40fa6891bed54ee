"""Node figures: what a node knows of itself at this moment, as metrics. Nothing is counted twice: what the node's parts
keep count of is read when somebody asks.

Each is one series, or one for each of a few words that stand here. No volume, name or client is ever a label: there is
no end of them (`budwood cost --remote` tells what each volume asks of the store).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

VERSION: Final = version("budwood")

if TYPE_CHECKING:
    from ..node import Node


class Tariff(Protocol):
    """What a store costs."""

    @property
    def currency(self) -> str: ...

    def cost_of(self, figures: Mapping[str, float]) -> float:
        """Of requests so far, by the figures of `RequestCounts`."""
        ...

    def storage_a_month(self, size_bytes: float) -> float: ...
    def puts_a_month(self, a_day: float) -> float: ...


class Budget(NamedTuple):
    """Memory that callers may hold (http/memory_budget.py)."""

    held_bytes: int
    limit_bytes: int


STORE: Final[dict[str, str]] = {
    "gets": "Requests to the store that read an object, or a part of one.",
    "creates": "Requests to the store that make an object.",
    "deletes": "Requests to the store that delete one.",
    "lists": "Listings of the store, one for each 1,000 keys.",
    "received_bytes": "Bytes that were read from the store.",
    "sent_bytes": "Bytes that were sent to the store.",
    "hedges": "Slow requests to a bucket that were sent a second time.",
    "hedges_won": "Of these, those that the second answered first.",
    "hedges_refused": "Slow requests that were not sent again, since 5 % more were sent already.",
    "waited_writes": "Writes that waited, since their prefix had had its share of the second.",
    "waited_reads": "Reads that waited for the same.",
    "waited_writes_seconds": "For how long, all together.",
    "waited_reads_seconds": "For how long, all together.",
}
"""The figures of `RequestCounts` that say something of a whole node, and what."""


def store_figures(figures: Mapping[str, float], tariff: Tariff | None) -> Iterator[Metric]:
    for name in sorted(STORE.keys() & figures.keys()):
        yield CounterMetricFamily(f"budwood_store_{name}", STORE[name], value=figures[name])
    if tariff is not None:
        cost = CounterMetricFamily(
            "budwood_store_cost", "What the requests so far cost, by the prices that were given.", labels=["currency"]
        )
        cost.add_metric([tariff.currency], tariff.cost_of(figures))
        yield cost


def node_figures(node: Node) -> Iterator[Metric]:
    load, cache, upkeep, done = node.logs.load(), node.pagestore.cache, node.upkeep, node.upkeep.done
    gauges: dict[str, tuple[str, float]] = {
        "queue_changes": ("Changes that wait for an entry of their log.", load.waiting),
        "queue_bytes": ("Bytes of pages that wait with them.", load.waiting_bytes),
        "entries_in_flight": ("Entries that were sent to the store, and have no answer yet.", load.entries_in_flight),
        "logs_owned": ("Shared logs that this process owns.", len(node.logs.held())),
        "logs_open": ("Logs that are held in memory.", node.logs.open_count),
        "kept_open_bytes": ("Memory of volumes, logs and names that nobody uses just now.", node.logs.kept.held_bytes),
        "cache_bytes": ("Bytes of objects in the node's cache.", cache.chunks.held_bytes),
        "upkeep_changed_volumes": (
            "Volumes that upkeep has not looked at since they changed.",
            upkeep.changed_volumes,
        ),
        "upkeep_waiting_plans": ("Logs whose garbage plan waits for its time.", upkeep.waiting_plans),
    }
    for name, (words, figure) in gauges.items():
        yield GaugeMetricFamily(f"budwood_{name}", words, value=figure)
    counters: dict[str, tuple[str, float]] = {
        "cache_hits": ("Chunks of objects that were in the node's cache.", cache.hits),
        "cache_misses": ("Chunks that the store was asked for.", cache.misses),
        "upkeep_folds": ("Volumes that were folded or relocated.", done.folds),
        "upkeep_deleted_objects": ("Objects that were collected.", done.objects_deleted),
        "upkeep_failures": ("Volumes or logs that upkeep could not look after, for then.", done.failures),
        "upkeep_seconds": ("How long upkeep has worked.", done.busy_seconds),
    }
    for name, (words, figure) in counters.items():
        yield CounterMetricFamily(f"budwood_{name}", words, value=figure)
    info = GaugeMetricFamily("budwood_node_info", "1, of the node that this is.", labels=["node", "region", "version"])
    info.add_metric([node.logs.claim.node, node.logs.claim.region, VERSION], 1)
    yield info


def face_figures(budgets: Mapping[str, Budget], polls: int, most_polls: int) -> Iterator[Metric]:
    held = GaugeMetricFamily("budwood_memory_held_bytes", "What callers hold, of the room for them.", labels=["room"])
    limit = GaugeMetricFamily("budwood_memory_limit_bytes", "That room.", labels=["room"])
    for room, budget in budgets.items():
        held.add_metric([room], budget.held_bytes)
        limit.add_metric([room], budget.limit_bytes)
    yield held
    yield limit
    yield GaugeMetricFamily("budwood_polls", "Calls that wait for a commit or a name.", value=polls)
    yield GaugeMetricFamily("budwood_polls_limit", "So many may.", value=most_polls)

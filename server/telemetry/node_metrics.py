"""NodeMetrics: what one node, or one worker of it, counts and measures while it works, in a registry of its own.

What is measured on a call's way costs a few microseconds of the hundreds that a commit takes (docs/design/0121); all
else is read off when somebody asks (node_figures.py). How many series there are doesn't depend on what callers do:
calls are the protocol's own, statuses those of HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from ...volume import tracing
from ...volume.errors import BudwoodError
from ..log.in_flight import Landed
from .exposition import text_of
from .node_figures import Tariff, node_figures, store_figures
from .readiness import StoreReach
from .store_failures import StoreFailures

if TYPE_CHECKING:
    from ..node import Node

OTHER: Final = "other"
"""The call of a request that is none."""
KINDS: Final = ("get", "create", "delete", "list")
_CALL_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_STORE_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LAG_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_BYTES: Final = (1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)


class NodeMetrics:
    """Belongs to one event loop. With a `tariff` it tells what the store has cost so far."""

    def __init__(self, tariff: Tariff | None = None) -> None:
        self.tariff = tariff
        self._registry = registry = CollectorRegistry()
        self._node: Node | None = None
        self.reach = StoreReach()
        self.failures = StoreFailures()
        self._sources: list[Callable[[], Iterable[Metric]]] = []
        self._calls = Histogram(
            "budwood_call_seconds",
            "How long calls took, from their head to the end of the answer.",
            ["call"],
            buckets=_CALL_SECONDS,
            registry=registry,
        )
        self._of_call: dict[str, Histogram] = {}
        """Once there was one."""
        self._under_way = 0
        self._refused = Counter(
            "budwood_calls_refused",
            "Calls that were answered with an error, or were cut off (status 0).",
            ["call", "status"],
            registry=registry,
        )
        requests = Histogram(
            "budwood_store_request_seconds",
            "How long requests to the store took, waiting for their turn included.",
            ["kind"],
            buckets=_STORE_SECONDS,
            registry=registry,
        )
        self._requests = {kind: requests.labels(kind) for kind in KINDS}
        self._failures = Counter(
            "budwood_store_failures",
            "Requests to the store that failed, by what they raised; some of these are answers, as NotFound.",
            ["kind", "error"],
            registry=registry,
        )
        self._entry_changes = Histogram(
            "budwood_entry_changes",
            "Commits and other changes in an entry of a log.",
            buckets=_COUNTS,
            registry=registry,
        )
        self._entry_bytes = Histogram("budwood_entry_bytes", "Bytes of an entry.", buckets=_BYTES, registry=registry)
        self._entry_seconds = Histogram(
            "budwood_entry_seconds",
            "How long an entry took, from its being sent to its acknowledgement.",
            buckets=_CALL_SECONDS,
            registry=registry,
        )
        self._lag = Histogram(
            "budwood_loop_lag_seconds",
            "How late the event loop came to what was due.",
            buckets=_LAG_SECONDS,
            registry=registry,
        )
        ProcessCollector(registry=registry)

    def watch(self, node: Node) -> None:
        """Tell of this node, from now on."""
        self._node = node
        node.logs.on_landed = self.landed
        self.reach.ask = lambda: node.store.list("roots/", limit=1)

    def add(self, source: Callable[[], Iterable[Metric]]) -> None:
        """What is read off when somebody asks."""
        self._sources.append(source)

    def call_begun(self) -> None:
        self._under_way += 1

    def call_ended(self, call: str, status: int, seconds: float) -> None:
        """`call` is one of CALLS, or OTHER; `status` is 0 of one that was cut off."""
        self._under_way -= 1
        of_call = self._of_call.get(call)
        if of_call is None:
            of_call = self._of_call[call] = self._calls.labels(call)
        of_call.observe(seconds)
        if not 200 <= status < 300:
            self._refused.labels(call, status).inc()

    def landed(self, entry: Landed) -> None:
        self._entry_changes.observe(entry.changes)
        self._entry_bytes.observe(entry.size_bytes)
        self._entry_seconds.observe(entry.seconds)

    def lagged(self, seconds: float) -> None:
        self._lag.observe(seconds)

    def request(self, kind: str, key: str) -> AbstractContextManager[object]:
        """See store.observed.StoreWatch."""
        return _Timed(self, kind, tracing.span(f"store {kind}", "client", key=key) if tracing.is_on() else None)

    def asked(self, kind: str, seconds: float, error: BaseException | None) -> None:
        self._requests[kind].observe(seconds)
        self.reach.note(error)
        self.failures.note(kind, error)
        if error is not None:
            # A class of ours; whatever else is a bug, or the end of its caller.
            known = isinstance(error, BudwoodError)
            self._failures.labels(kind, type(error).__name__ if known else OTHER).inc()

    def text(self, figures: Mapping[str, float]) -> str:
        """All of it, with the figures of the node's `RequestCounts`."""
        families: list[Metric] = [*self._registry.collect(), *store_figures(figures, self.tariff)]
        if self._node is not None:
            families += node_figures(self._node)
        words = "Calls that are being answered."
        families.append(GaugeMetricFamily("budwood_calls_under_way", words, value=self._under_way))
        for source in self._sources:
            families += source()
        return text_of(sorted(families, key=lambda family: family.name))


class _Timed:
    """One request to the store."""

    __slots__ = ("_begun", "_kind", "_metrics", "_span")

    def __init__(self, metrics: NodeMetrics, kind: str, span: AbstractContextManager[object] | None) -> None:
        self._metrics = metrics
        self._kind = kind
        self._span = span
        self._begun = 0.0

    def __enter__(self) -> None:
        if self._span is not None:
            self._span.__enter__()
        self._begun = perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._metrics.asked(self._kind, perf_counter() - self._begun, error)
        if self._span is not None:
            self._span.__exit__(kind, error, trace)

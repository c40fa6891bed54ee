"""OpenTelemetryTracer: tracing.py's spans as OpenTelemetry's (the extra `otel`).

    tracing.use(OpenTelemetryTracer(provider))

Where spans go is the exporter's affair: `exporting` takes the one that OTEL_TRACES_EXPORTER names, as OpenTelemetry's
own programs do: `console`, which comes with it, or what another package has registered, as `otlp`.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import entry_points
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Link, Span, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from . import tracing
from .errors import BadInput
from .tracing import HEADER, Attributes

EXPORTER: Final = "OTEL_TRACES_EXPORTER"
_GROUP: Final = "opentelemetry_traces_exporter"
_KINDS: Final = {"internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT, "server": SpanKind.SERVER}


class OpenTelemetryTracer:
    """See tracing.Tracer."""

    def __init__(self, provider: trace.TracerProvider) -> None:
        self._tracer = provider.get_tracer("budwood")
        self._headers = TraceContextTextMapPropagator()

    def span(self, name: str, attributes: Attributes, kind: str) -> AbstractContextManager[object]:
        return self._tracer.start_as_current_span(name, kind=_KINDS[kind], attributes=dict(attributes))

    @contextmanager
    def request(self, name: str, attributes: Attributes) -> Generator[str]:
        span = self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=dict(attributes))
        # A stream's ends in another place than it began, so it is made nobody's current one.
        with _ended(span):
            carrier: dict[str, str] = {}
            self._headers.inject(carrier, trace.set_span_in_context(span))
            yield carrier.get(HEADER, "")

    def served(self, name: str, attributes: Attributes, traceparent: str) -> AbstractContextManager[object]:
        # One that isn't well-formed leads nowhere: then the trace begins here.
        above = self._headers.extract({HEADER: traceparent}, Context())
        return self._tracer.start_as_current_span(name, above, kind=SpanKind.SERVER, attributes=dict(attributes))

    def here(self) -> object:
        found = trace.get_current_span()
        return found if found.get_span_context().is_valid else None

    def together(self, name: str, attributes: Attributes, spans: Sequence[object]) -> AbstractContextManager[object]:
        known = [span for span in spans if isinstance(span, Span)]
        above = trace.set_span_in_context(known[0], Context()) if known else Context()
        links = [Link(span.get_span_context()) for span in known[1:]]
        return self._tracer.start_as_current_span(name, above, links=links, attributes=dict(attributes))


@contextmanager
def _ended(span: Span) -> Generator[None]:
    try:
        yield
    except BaseException as error:
        span.record_exception(error)
        span.set_status(trace.StatusCode.ERROR, type(error).__name__)
        raise
    finally:
        span.end()


@contextmanager
def exporting(service: str) -> Generator[None]:
    """Trace this process until the end, for the exporter that OTEL_TRACES_EXPORTER names; what is left is sent then.
    Raises BadInput where there is none of that name."""
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(_exporter(os.environ.get(EXPORTER) or "console")))
    tracing.use(OpenTelemetryTracer(provider))
    try:
        yield
    finally:
        tracing.use(None)
        provider.shutdown()


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter()
    found = next(iter(entry_points(group=_GROUP, name=name)), None)
    if found is None:
        raise BadInput(f"{EXPORTER} names {name!r}, which no installed package exports to: try 'console'")
    made: Any = found.load()
    exporter: SpanExporter = made()
    return exporter

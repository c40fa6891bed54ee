"""Traces: one from the edge over the node to the store, and nothing of it where it is switched off."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.testing.stores import MemoryStore
from budwood.volume import tracing
from budwood.volume.opentelemetry_tracer import OpenTelemetryTracer
from budwood.volume.protocols import Durability

from ..served import serving
from ..waits import LIMIT_SECONDS
from .cli import Command


@pytest.fixture
def spans() -> Generator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing.use(OpenTelemetryTracer(provider))
    yield exporter
    tracing.use(None)
    provider.shutdown()


@contextmanager
def served() -> Generator[str]:
    """A node in a thread of its own, with an event loop of its own."""
    ready, ends, address = threading.Event(), threading.Event(), list[str]()

    async def main() -> None:
        async with serving(MemoryStore()) as at:
            address.append(at)
            ready.set()
            await anyio.to_thread.run_sync(ends.wait)

    thread = threading.Thread(target=lambda: anyio.run(main))
    thread.start()
    try:
        assert ready.wait(LIMIT_SECONDS)
        yield address[0]
    finally:
        ends.set()
        thread.join(LIMIT_SECONDS)


def written(edge: Edge) -> None:
    writer = edge.create("v", page_size=512).writer()
    writer.write(1, b"a" * 512)
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()


def trace_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def above(spans: InMemorySpanExporter, span: ReadableSpan) -> list[str]:
    """The names of a span and of those that it is under, of the same trace."""
    by_id = {span_id(each): each for each in spans.get_finished_spans()}
    names = list[str]()
    at: ReadableSpan | None = span
    while at is not None:
        assert trace_id(at) == trace_id(span)
        names.append(at.name)
        at = by_id[at.parent.span_id] if at.parent else None
    return names


def test_a_push_is_one_trace_down_to_the_store(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    with served() as address, open_edge(home=tmp_path / "ann", remote=address) as edge:
        written(edge)
        spans.clear()
        edge.volume_here("v").push()
        (push,) = named(spans, "push")
        chains = [above(spans, span) for span in spans.get_finished_spans() if span.name == "store create"]
        assert ["store create", "append entry", "answer commit", "call commit", "push"] in chains
        create = next(span for span in named(spans, "store create") if len(above(spans, span)) == 5)
        assert trace_id(create) == trace_id(push)
        assert create.attributes is not None
        assert str(create.attributes["key"]).startswith("logs/main/")
        (call,) = named(spans, "answer commit")
        assert call.attributes is not None
        assert call.attributes["request"]
        spans.clear()
        edge.volume_here("v").pull()
        (pull,) = named(spans, "pull")
        calls = [span for span in spans.get_finished_spans() if span.name.startswith("answer ")]
        assert calls
        assert {trace_id(span) for span in calls} == {trace_id(pull)}


def test_a_traceparent_that_is_none_begins_a_trace(spans: InMemorySpanExporter) -> None:
    with served() as address, httpx.Client(verify=False) as web:
        spans.clear()
        wanted = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        for given in (wanted, "00-xyz", "", "00-" + "0" * 32 + "-b7ad6b7169203331-01"):
            assert web.get(f"{address}/healthz", headers={"traceparent": given}).status_code == 200
        found = [f"{trace_id(span):032x}" for span in named(spans, "answer other")]
        assert found[0] == wanted.split("-")[1]
        assert len({*found}) == 4


def test_what_was_raised_is_the_spans_outcome(spans: InMemorySpanExporter) -> None:
    for begin in (tracing.span, tracing.request):
        with pytest.raises(RuntimeError), begin("mine"):
            raise RuntimeError("broken")
    for mine in named(spans, "mine"):
        assert not mine.status.is_ok
        assert [event.name for event in mine.events] == ["exception"]
    assert len(named(spans, "mine")) == 2


def test_the_command_traces_where_it_is_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ann = Command(capsys, tmp_path / "ann", (tmp_path / "store").as_uri())
    ann.sql_made("v")
    told = ann.process("push", "v", env=os.environ | {"BUDWOOD_TRACES": "1"})
    assert told.code == 0, told.err
    assert '"name": "push"' in told.out
    wrong = ann.process("push", "v", env=os.environ | {"BUDWOOD_TRACES": "1", "OTEL_TRACES_EXPORTER": "nobody"})
    assert "'nobody'" in wrong.line(2)


def test_nothing_of_it_is_loaded_where_it_is_off(tmp_path: Path) -> None:
    program = (
        "import sys; from budwood.sync.edge import open as o; from budwood.server.http import run_node; "
        "e = o(home=sys.argv[1]); e.close(); assert not [m for m in sys.modules if m.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-P", "-c", program, str(tmp_path / "home")], check=True)

"""Metrics: what a node has asked of its store, as text for Prometheus."""

from __future__ import annotations

from typing import Final

from ...volume.calls import RequestCounts

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


def prometheus(counts: RequestCounts) -> str:
    lines: list[str] = []
    for name, figure in sorted(counts.figures.items()):
        full = f"budwood_store_{name}_total"
        lines += [f"# TYPE {full} counter", f"{full} {figure:.15g}"]
    return "\n".join(lines) + "\n"

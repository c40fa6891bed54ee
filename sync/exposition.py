"""Exposition: an edge's figures as Prometheus' text format (0.0.4). An edge has no library for it, and needs little: no
figure is counted twice, and a scrape reads a file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(slots=True)
class Distribution:
    """How long things took. Notes may come from several threads, each under a lock of its caller's."""

    sum_seconds: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))
    """By the first of SECONDS that it didn't exceed; the last is beyond them."""

    def note(self, seconds: float) -> None:
        self.sum_seconds += seconds
        self.counts[bisect_left(SECONDS, seconds)] += 1


Figure: TypeAlias = "float | Mapping[str, Mapping[str, float]] | Distribution"
Figures: TypeAlias = Mapping[str, Figure]
"""By name; one with a label is {label: {value: figure}}. A name that ends in `_total` only ever grows."""


def prometheus(figures: Figures, prefix: str) -> str:
    """As text, by name, each with the prefix."""
    return "".join(f"{line}\n" for name, figure in sorted(figures.items()) for line in _family(prefix + name, figure))


def _family(name: str, figure: Figure) -> Iterator[str]:
    if isinstance(figure, Distribution):
        yield f"# TYPE {name} histogram"
        whole = 0
        for bound, count in zip((*map(str, SECONDS), "+Inf"), figure.counts, strict=True):
            whole += count
            yield f'{name}_bucket{{le="{bound}"}} {whole}'
        yield f"{name}_sum {figure.sum_seconds!r}"
        yield f"{name}_count {whole}"
        return
    yield f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}"
    if isinstance(figure, Mapping):
        for label, values in figure.items():
            for value, each in values.items():
                yield f'{name}{{{label}="{_escaped(value)}"}} {_number(each)}'
    else:
        yield f"{name} {_number(figure)}"


def _number(figure: float) -> str:
    return str(int(figure)) if isinstance(figure, bool) else repr(figure)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

"""Figures: what the stores that stand before a store have counted, each by names of its own."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from .protocol import Store


@runtime_checkable
class Counting(Protocol):
    """A store before another."""

    inner: Store

    def figures(self) -> dict[str, float]: ...


def figures_of(store: Store) -> dict[str, float]:
    """Of all that stand before it."""
    found: dict[str, float] = {}
    while isinstance(store, Counting):
        found |= store.figures()
        store = store.inner
    return found

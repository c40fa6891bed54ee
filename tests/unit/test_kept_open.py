"""What is kept open, least recently used first to go. Whose use it is: tests/integration/test_letting_go.py."""

from __future__ import annotations

from weakref import ref

from budwood.server.metastore.kept_open import KeptOpen


class Thing:
    def __init__(self, weight: int, *, busy: bool = False) -> None:
        self.weight = weight
        self.busy = busy


def test_what_was_used_longest_ago_goes_first() -> None:
    kept, things = KeptOpen(100), [Thing(40) for _ in range(3)]
    kept.use(things[0])
    kept.use(things[1])
    kept.use(things[0])
    gone = ref(things.pop(1))
    kept.use(things[1])
    assert gone() is None
    assert (len(kept), kept.held_bytes) == (2, 80)


def test_what_has_grown_counts_for_what_it_is() -> None:
    kept, things = KeptOpen(100), [Thing(40), Thing(40)]
    for thing in things:
        kept.use(thing)
    things[1].weight = 80
    kept.use(things[1])
    assert (len(kept), kept.held_bytes) == (1, 80)
    things[1].weight = 1000
    kept.use(things[1])
    assert len(kept) == 1, "the newest stays, whatever its weight"


def test_what_is_busy_stays_and_others_go() -> None:
    kept, busy, idle = KeptOpen(0), Thing(40, busy=True), Thing(40)
    kept.use(busy)
    kept.use(idle)
    assert (len(kept), kept.held_bytes) == (1, 40)
    busy.busy = False
    kept.use(busy)
    assert (len(kept), kept.held_bytes) == (0, 0)

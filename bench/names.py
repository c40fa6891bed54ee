"""A namespace's changes, judged and applied as a node does it, among few names and many: what each costs the loop."""

from __future__ import annotations

import statistics
from functools import partial

from budwood.server.metastore.draft import Drafted
from budwood.server.metastore.names import Namespace, judge_change
from budwood.server.metastore.streams import Placed
from budwood.volume.ids import VolumeId
from budwood.volume.wire import NameRequest

from .harness import Figure, report, timed

FEW, MANY = 10_000, 50_000
RENAMES = 200
MOVES = 5


def change(space: Namespace, request: NameRequest) -> None:
    judged = judge_change(space.state, request, 0)
    assert isinstance(judged, Drafted)
    space.apply(space.state, judged.record)
    space.take(Placed(judged.record, "key", 1, 1))


def filled(count: int) -> Namespace:
    """A directory `in` of so many names."""
    space, target = Namespace(VolumeId.new()), VolumeId.new().raw
    for number in range(count):
        change(space, NameRequest(op="bind", name=f"in/{number:06}", target=target))
    return space


def rename(space: Namespace, number: int) -> None:
    name = f"in/{number:06}"
    entry = space.state.lookup(name)
    assert entry is not None
    change(space, NameRequest(op="move", name=name, new=f"{name}~", revision=entry.revision))


def measured(count: int) -> tuple[list[float], list[float]]:
    """Seconds of each rename, and of each move of the directory."""
    space = filled(count)
    renames = [timed(partial(rename, space, number)) for number in range(0, count, count // RENAMES)]
    return renames, [timed(partial(change, space, _all(at))) for at in range(MOVES)]


def main() -> None:
    figures: list[Figure] = []
    fastest: dict[int, float] = {}
    for count in (FEW, MANY):
        renames, moves = ([seconds * 1e6 for seconds in each] for each in measured(count))
        figures.append(Figure(f"one rename among {count:,}", statistics.median(renames), " µs", None, renames))
        each = [microseconds / count for microseconds in moves]
        figures.append(Figure(f"moving {count:,}, each name", statistics.median(each), " µs", None, each))
        fastest[count] = min(moves)
    growth = fastest[MANY] / fastest[FEW]
    figures.append(Figure(f"moving {MANY:,} against {FEW:,}", growth, "×", 3 * MANY / FEW, [growth]))
    report("names: a rename, and the move of a directory", figures)


def _all(at: int) -> NameRequest:
    names = ("in", "out")
    return NameRequest(op="move", name=names[at % 2], new=names[(at + 1) % 2])


if __name__ == "__main__":
    main()

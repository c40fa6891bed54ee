"""Names: a namespace's changes, judged and applied as a node does it, among few names and many, and what each costs the
loop; and ten thousand names at an edge, which a home and a mount list within a second."""

from __future__ import annotations

import os
import statistics
from functools import partial
from pathlib import Path

import budwood
from budwood.fuse.host.checks import check_machine
from budwood.server.metastore.entry_draft import Drafted
from budwood.server.metastore.namespace_state import Namespace, judge_change
from budwood.server.metastore.streams import Placed
from budwood.sync.attributes import Attributes
from budwood.sync.namespace import Namespace as LocalNames
from budwood.volume.errors import UsageError
from budwood.volume.ids import VolumeId
from budwood.volume.wire import NameRequest

from .filesystems import mount
from .harness import ROUNDS, Figure, report, scratch, timed

FEW, MANY = 10_000, 50_000
RENAMES = 200
MOVES = 5
FOLDERS = 100


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


def listed(directory: Path) -> int:
    """As `ls -lR` does it."""
    return sum(1 for at, _, names in os.walk(directory) for name in names if os.stat(os.path.join(at, name)))


def at_an_edge(folder: Path) -> list[Figure]:
    home = folder / "names-files"
    with budwood.open(home=home, remote="") as edge:
        names = LocalNames(edge)
        for number in range(FOLDERS):
            names.make_directory(f"{number:02}", Attributes(mode=0o40755))
        for number in range(FEW):
            names.make_file(f"{number % FOLDERS:02}/{number:05}", Attributes(mode=0o100644))
        seconds = [timed(lambda: list(names.entries())) for _ in range(ROUNDS)]
    figures = [Figure(f"a home lists {FEW:,} names", statistics.median(seconds), " s", 1.0, seconds)]
    try:
        check_machine()
    except UsageError as error:
        print(f"without a mount: {error}")
        return figures
    with mount(folder, "names") as place:
        first = timed(lambda: listed(place.directory))
    return [*figures, Figure(f"a mount lists {FEW:,} files with their lengths, for the first time", first, " s", 1.0)]


def main() -> None:
    figures: list[Figure] = []
    with scratch() as folder:
        figures += at_an_edge(folder)
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

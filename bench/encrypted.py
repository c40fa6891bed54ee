"""Encrypted volumes beside plain ones: bulk push, fetch of everything, cold point query and one-row push through a
node that is a process of its own."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import budwood
from budwood.remote.keyring import KEY_FILE, write_key
from budwood.sync.edge import open as open_edge

from .cold import build
from .harness import Figure, report, scratch, take_turns, timed
from .memory import serve

ROWS = 200_000
BOUND = 1.15


class _Side:
    """Volumes of one kind, in a home of their own. `key` is "" for plain ones."""

    def __init__(self, folder: Path, url: str, source: Path, key: str) -> None:
        self.folder, self.url, self.source, self.key = folder, url, source, key
        self.kind = "encrypted" if key else "plain"
        self.numbers = count()
        self.with_key()
        self.edge = open_edge(home=folder / self.kind, remote=url)
        self.newest = ""
        self.edge.import_(source, self.kind).push()
        self.db = budwood.connect(self.kind, home=folder / self.kind, remote=url)

    def with_key(self) -> None:
        os.environ[KEY_FILE] = self.key

    def push_all(self) -> float:
        self.with_key()
        self.newest = f"{self.kind}{next(self.numbers)}"
        volume = self.edge.import_(self.source, self.newest)
        return timed(volume.push)

    def fetch_all(self) -> float:
        self.with_key()
        with open_edge(home=self.folder / f"{self.kind}-cold{next(self.numbers)}", remote=self.url) as other:
            volume = other.clone(self.kind)
            return timed(volume.fetch)

    def query(self) -> float:
        self.with_key()
        number = next(self.numbers)

        def run() -> None:
            db = budwood.connect(self.kind, home=self.folder / f"{self.kind}-point{number}", remote=self.url)
            db.execute("SELECT v FROM t WHERE id = ?", (number * 20_011 % ROWS,)).fetchall()
            db.close()

        return timed(run)

    def push_one(self) -> float:
        self.with_key()
        number = next(self.numbers)
        self.db.execute("UPDATE t SET v = ? WHERE id = ?", (f"row {number}", number * 389 % ROWS))
        return timed(self.edge.volume(self.kind).push)


def main(rounds: int = 7) -> None:
    figures: list[Figure] = []
    with scratch() as folder:
        megabytes = build(folder / "source.db", ROWS) / 1e6
        node, url = serve(folder / "store", folder / "node")
        try:
            write_key(folder / "key")
            plain = _Side(folder, url, folder / "source.db", "")
            encrypted = _Side(folder, url, folder / "source.db", str(folder / "key"))
            for what, repeated in (("push_all", 1), ("fetch_all", 1), ("query", 5), ("push_one", 20)):
                sides = {side.kind: partial(_repeated, getattr(side, what), repeated) for side in (plain, encrypted)}
                took = take_turns(sides, rounds)
                ratios = [mine / other for mine, other in zip(took["encrypted"], took["plain"], strict=True)]
                milliseconds = statistics.median(took["encrypted"]) * 1e3 / repeated
                note = f"{milliseconds:.1f} ms"
                figures.append(Figure(_NAMES[what], statistics.median(ratios), "×", BOUND, ratios, note))
            plain.db.close()
            encrypted.db.close()
            plain.edge.close()
            encrypted.edge.close()
        finally:
            node.terminate()
            node.wait()
    report(f"encryption: against the same without it, {megabytes:.0f} MB through a node on this machine", figures)


def _repeated(action: Callable[[], float], times: int) -> float:
    return sum(action() for _ in range(times))


_NAMES = {
    "push_all": "push of everything",
    "fetch_all": "fetch of everything",
    "query": "a point query with an empty home",
    "push_one": "push of one row",
}


if __name__ == "__main__":
    main()

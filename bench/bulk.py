"""A file of 64 MB (or of the MB given) imported, pushed to a directory, and pushed to a node: time, and processor time.

Where BUDWOOD_BENCH_BEFORE names another tree (`git worktree add --detach ../before`), the two take turns, and the
figures are this tree's against that one's.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import apsw

from .harness import ROUNDS, Figure, report, scratch, take_turns

MEGABYTES = 64
BOUND = 0.8

CHILD = """
import json, os, resource, subprocess, sys, time
from pathlib import Path
import budwood

def spent():
    return sum(time for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) for time in resource.getrusage(who)[:2])

def timed(name, action):
    start, before = time.perf_counter(), spent()
    result = action()
    figures[name], figures[name + ", processor"] = time.perf_counter() - start, spent() - before
    return result

figures, folder = {}, Path(sys.argv[2])
with budwood.open(home=folder / "home", remote=(folder / "store").as_uri()) as edge:
    edge.import_(sys.argv[3], "first").push()
    volume = timed("import", lambda: edge.import_(sys.argv[1], "bulk"))
    timed("push to a directory", volume.push)
for what in ("", ", processor"):
    figures["import and push" + what] = figures["import" + what] + figures["push to a directory" + what]
main = [sys.executable, "-P", "-c", "from budwood.cli.launch import main; main()", "--home", str(folder / "node")]
serve = ["serve", "--create", "--store", (folder / "served").as_uri(), "--listen", "127.0.0.1:0"]
node = subprocess.Popen(main + serve, stdout=subprocess.PIPE, text=True)
url = next(word for line in node.stdout for word in line.split() if word.startswith("http"))
with budwood.open(home=folder / "other", remote=url) as edge:
    edge.import_(sys.argv[3], "first").push()
    volume = edge.import_(sys.argv[1], "bulk")
    started = Path(f"/proc/{node.pid}/stat").read_text().rsplit(")")[1].split()

    def push():
        volume.push()
        node.terminate()
        node.wait()

    timed("push to a node", push)
    figures["push to a node, processor"] -= sum(map(int, started[11:13])) / os.sysconf("SC_CLK_TCK")
print(json.dumps(figures))
"""


def build(path: Path, megabytes: int) -> None:
    """Text that packs to about half."""
    db = apsw.Connection(str(path))
    db.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off")
    db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
    numbers = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?)"
    db.execute(f"{numbers} INSERT INTO t SELECT i, hex(randomblob(500)) FROM c", (megabytes * 1000,))
    db.close()


def run(tree: Path, folder: Path) -> dict[str, float]:
    """One process of that tree, with a home and stores of its own; everything is loaded before it counts."""
    with TemporaryDirectory(dir=folder) as own:
        environment = {**os.environ, "PYTHONPATH": str(tree / ".namespace")}
        command = [sys.executable, "-P", "-c", CHILD, str(folder / "bulk.db"), own, str(folder / "small.db")]
        told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    figures: dict[str, float] = json.loads(told)
    return figures


def main(megabytes: int = MEGABYTES) -> None:
    here, before = Path(__file__).parents[1], os.environ.get("BUDWOOD_BENCH_BEFORE", "")
    told: dict[str, list[dict[str, float]]] = {}
    with scratch() as folder:
        build(folder / "bulk.db", megabytes)
        build(folder / "small.db", 1)

        def side(name: str, tree: Path) -> Callable[[], float]:
            def turn() -> float:
                told.setdefault(name, []).append(run(tree, folder))
                return 0.0

            return turn

        sides = {"after": side("after", here)} | ({"before": side("before", Path(before))} if before else {})
        take_turns(sides, ROUNDS)
    figures: list[Figure] = []
    for what in told["after"][0]:
        after = [turn[what] for turn in told["after"][1:]]
        note = f"{statistics.median(after):.2f} s, {megabytes / statistics.median(after):.0f} MB/s"
        if before:
            ratios = [mine / turn[what] for mine, turn in zip(after, told["before"][1:], strict=True)]
            # An import alone hashes no page: nothing of it became less.
            bound = BOUND if "push" in what else None
            figures.append(Figure(what, statistics.median(ratios), "× of before", bound, ratios, note))
        else:
            figures.append(Figure(what, megabytes / statistics.median(after), " MB/s", None, note=note))
    report(f"bulk: {megabytes} MB of text", figures)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

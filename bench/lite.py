"""What a serverless process pays before its first answer: CPU of import + open + point query in a fresh process.

CPU is user + system time of the whole process as the kernel tells it at the end, its threads and the interpreter's own
start included; a bare interpreter is measured in turn with the others, so that the difference can be seen. The node
runs as a process of its own and does not count.

Some libraries load what else they find installed (httpx: trio, h2, rich, click). "base" hides what `pip install
budwood` alone does not bring; "all" is everything that is installed here.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

import budwood

from .harness import Figure, report, scratch
from .memory import serve

ROWS = 50_000
ROUNDS = 7

_BASE = "import sys\nfor name in ('trio', 'h2', 'rich', 'click', 'typer', 'outcome'):\n    sys.modules[name] = None\n"
_TELL = (
    "import resource\nused = resource.getrusage(resource.RUSAGE_SELF)\nprint((used.ru_utime + used.ru_stime) * 1e3)\n"
)
_OPEN = "import sys, budwood.lite\ndb = budwood.lite.connect(sys.argv[1], sys.argv[2], {lsn})\n"
_QUERY = "assert db.execute('SELECT id FROM t WHERE id = 31000').fetchall() == [(31000,)]\n"

CASES = {
    "bare interpreter": "",
    "import (base)": _BASE + "import budwood.lite\nbudwood.lite.connect\n",
    "import + open at a known LSN (base)": _BASE + _OPEN.format(lsn=1),
    "import + open at a known LSN + point query (base)": _BASE + _OPEN.format(lsn=1) + _QUERY,
    "import + open at the head + point query (base)": _BASE + _OPEN.format(lsn=None) + _QUERY,
    "import + open by name + point query (base)": _BASE
    + _OPEN.format(lsn=None).replace("sys.argv[2]", "'bench'")
    + _QUERY,
    "import + open at a known LSN + point query (all)": _OPEN.format(lsn=1) + _QUERY,
}


def fill(home: Path, url: str) -> str:
    """A pushed database of some 25 MB; its volume's id."""
    with closing(budwood.connect("bench", home=home, remote=url)) as db:
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT)")
        with db:
            db.executemany("INSERT INTO t VALUES(?, ?)", ((i, f"{i} " * 80) for i in range(ROWS)))
        db.execute("PRAGMA budwood_push").fetchall()
        status = str(db.execute("PRAGMA budwood_status").fetchall()[0][0])
        return str(msgspec.json.decode(status, type=list[dict[str, object]])[0]["id"])


def runner(code: str, url: str, vid: str) -> Callable[[], tuple[float, float]]:
    """One fresh process: its CPU and its time from start to end, in ms."""
    command = [sys.executable, "-P", "-c", code + _TELL, url, vid]

    def run() -> tuple[float, float]:
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return float(done.stdout), (time.perf_counter() - start) * 1e3

    return run


def main() -> None:
    with scratch() as folder:
        node, url = serve(folder / "store", folder / "node")
        try:
            vid = fill(folder / "home", url)
            runs = {name: runner(code, url, vid) for name, code in CASES.items()}
            taken = {name: [run()] for name, run in runs.items()}  # The first of each compiles and is not counted.
            for _ in range(ROUNDS):
                for name, run in runs.items():
                    taken[name].append(run())
        finally:
            node.terminate()
            node.wait(30)
    figures: list[Figure] = []
    for name, pairs in taken.items():
        cpu = [pair[0] for pair in pairs[1:]]
        wall = statistics.median(pair[1] for pair in pairs[1:])
        figures.append(Figure(name, statistics.median(cpu), " ms", None, cpu, f"CPU; {wall:.0f} ms from start to end"))
    report("lite: CPU of a fresh process", figures)


if __name__ == "__main__":
    main()

"""Cores: one session of Spark in a process of its own, which scans a volume whenever it is told to.

    python -m bench.cores CORES PROCESSORS REMOTE VOLUME PARTITIONS FOLDER

A task is two processes that work at the same time, Spark's and the worker in Python: so a session with one core, in
Spark's words, still keeps two processors busy. PROCESSORS says how many of the machine's it may use.

Once it has started, and after each line on its standard input, it prints how long a scan took, in seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from budwood.spark_export.session import end

from .harness import timed
from .sessions import drain, load, session_of


class Child:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def scan(self) -> float:
        """Seconds."""
        self._tell()
        return self.answer()

    def answer(self) -> float:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a session in a process of its own ended with {self._process.wait()}")
        return float(line)

    def _tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()


@contextmanager
def child(
    cores: int, remote: str, volume: str, partitions: int, folder: Path, *, processors: int | None = None
) -> Generator[Child]:
    """All of the machine's processors are the session's, unless told."""
    told = (cores, processors or os.cpu_count() or 1, remote, volume, partitions, folder)
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.cores", *map(str, told)],
        cwd=Path(__file__).parent.parent,
        # This process may have had a session, for whose workers it set this (sessions.py).
        env={name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Child(process)
    finally:
        # It ends by itself at the end of what it is told, and ends its Java.
        process.communicate()


def main(cores: str, processors: str, remote: str, volume: str, partitions: str, folder: str) -> None:
    # Java and the workers inherit it.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(processors)])
    session = session_of(f"local[{cores}]", Path(folder))
    try:
        while True:
            took = timed(lambda: drain(load(session, remote, volume, numPartitions=partitions)))
            print(took, flush=True)
            if not sys.stdin.readline():
                return
    finally:
        end(session)


if __name__ == "__main__":
    main(*sys.argv[1:])

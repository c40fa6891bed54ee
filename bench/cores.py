"""Cores: one session of Spark in a process of its own, which scans a volume whenever it is told to.

    python -m bench.cores CORES REMOTE VOLUME PARTITIONS FOLDER

Once it has started, and after each line on its standard input, it prints how long a scan took, in seconds.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from budwood.spark_export.session import end

from .harness import timed
from .sessions import drain, load, session_of

__all__ = ["Child", "child"]


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
def child(cores: int, remote: str, volume: str, partitions: int, folder: Path) -> Generator[Child]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.cores", str(cores), remote, volume, str(partitions), str(folder)],
        cwd=Path(__file__).parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Child(process)
    finally:
        # It ends by itself at the end of what it is told, and ends its Java.
        process.communicate()


def main(cores: str, remote: str, volume: str, partitions: str, folder: str) -> None:
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

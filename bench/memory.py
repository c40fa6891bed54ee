"""Peak memory of each process while a file of 2 GB (or the MB given) goes round: import, push, clone, full scan,
UPDATE of all rows, push, export.

Every step runs as a `budwood` process of its own, and the node as another; the peak is the kernel's own ru_maxrss,
mapped files included.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

import apsw

from .harness import Figure, report, scratch

BOUND_MB = 400.0
PROGRAM = ["-P", "-c", "from budwood.cli.launch import main; main()"]
CLI = [sys.executable, *PROGRAM]


def build(path: Path, megabytes: int) -> int:
    """A database of about that size; returns its number of rows."""
    db = apsw.Connection(str(path))
    db.execute("PRAGMA journal_mode = off; PRAGMA synchronous = off")
    rows = megabytes * 1024 * 1024 // 1060
    with db:
        db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, n INT, v BLOB)")
        db.execute(
            "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?) "
            "INSERT INTO t SELECT i, i, randomblob(1000) FROM c",
            (rows,),
        )
    db.close()
    return rows


def step(name: str, *arguments: str, home: Path) -> Figure:
    """Run one verb to its end; its peak RSS in MB."""
    start = time.perf_counter()
    command = [*CLI, "--home", str(home), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name} failed with {process.returncode}: {output}")
    return Figure(name, usage.ru_maxrss / 1024, " MB", BOUND_MB, note=f"{time.perf_counter() - start:.1f} s")


def serve(store: Path, home: Path, python: str = sys.executable) -> tuple[subprocess.Popen[str], str]:
    return serve_at(store.as_uri(), home, python)


def serve_at(
    store: str, home: Path, python: str = sys.executable, environment: dict[str, str] | None = None
) -> tuple[subprocess.Popen[str], str]:
    """The node, and its address."""
    command = [python, *PROGRAM, "--home", str(home), "serve", "--create", "--store", store, "--listen", "127.0.0.1:0"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment)
    return node, url_of(node)


def url_of(node: subprocess.Popen[str]) -> str:
    """Where it says that it serves, once it does."""
    assert node.stdout is not None
    for line in node.stdout:
        if found := re.search(r"http://\S+:\d+", line):
            return found.group()
    raise SystemExit("the node did not start")


def peak_of(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found.group(1)) / 1024


def main(megabytes: int = 2048) -> None:
    with scratch() as folder:
        source, first, second = folder / "source.db", folder / "first", folder / "second"
        rows = build(source, megabytes)
        node, url = serve(folder / "store", folder / "node")
        try:
            remote = ("--remote", url)
            figures = [
                step("import", "import", str(source), "big", home=first),
                step("push", "push", "big", *remote, home=first),
                step("clone", "clone", "big", *remote, home=second),
                step("full scan, cold", "sql", "big", "SELECT count(*), sum(n), sum(length(v)) FROM t", home=second),
                step("export", "export", "big", str(folder / "out.db"), home=second),
                step("UPDATE of all rows", "sql", "big", "UPDATE t SET n = n + 1", home=first),
                step("push of all rows", "push", "big", home=first),
                step("pull", "pull", "big", home=second),
                step("fetch after pull", "fetch", "big", home=second),
                step("full scan of what is here", "sql", "big", "SELECT count(*), sum(n) FROM t", home=second),
            ]
            figures.append(Figure("node, over all", peak_of(node.pid), " MB", BOUND_MB))
            assert (folder / "out.db").stat().st_size == source.stat().st_size
        finally:
            node.terminate()
            node.wait(30)
    report(f"memory: {megabytes} MB, {rows:,} rows round the world", figures)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2048)

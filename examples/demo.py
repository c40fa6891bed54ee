"""The demo: one real database, from one edge to another, with the figures.

    make demo            or            .venv/bin/python examples/demo.py [--lines N]

Builds a SQLite database from what every machine has, Python's own standard library: its files, all their lines, and a
full-text index. Imports it at one edge, pushes it through a node that it starts, clones it at a second edge and queries
it there, where each query brings only the pages that it needs. Then one edge writes and the other pulls; both are
mounted, and what the machine's own programs write to the files of one edge comes to the other by itself; the node
stops, the second edge commits all the same, and pushes when the node is back. At last Spark exports two tables to
Parquet, which is read back. Where this machine can't mount, or has no Spark, it says why, and goes on without.

Every answer is compared with what stock sqlite3 says of the same database; a difference ends the demo with exit status
1. What it starts it ends, and what it writes it removes, after a failure or Ctrl-C too.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

import budwood
from budwood.fuse.host.checks import check_machine
from budwood.spark_export import java
from budwood.spark_export.session import check_libraries

NAME = "stdlib"
COMMAND = [sys.executable, "-P", "-c", "from budwood.cli.launch import main; main()"]
NEEDED_BYTES = 1 << 30
NODE_SECONDS = 120.0
"""How long a node or a mount may take to start, or to stop."""
MOUNT_SECONDS = 600.0
"""The longest life of a mount. Whoever waits for one that hangs then gets an error."""
ARRIVAL_SECONDS = 120.0
"""How long a commit may take from one mount to the other."""

TABLES = """
CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, bytes INT, lines INT, note TEXT);
CREATE TABLE lines (id INTEGER PRIMARY KEY, file INT NOT NULL REFERENCES files, number INT, text TEXT NOT NULL);
"""
INDEXES = """
CREATE INDEX lines_by_file ON lines (file, number);
CREATE VIRTUAL TABLE words USING fts5 (text, content = 'lines', content_rowid = 'id');
INSERT INTO words (words) VALUES ('rebuild');
INSERT INTO words (words) VALUES ('optimize');
"""
ONLINE = "UPDATE files SET note = 'read at the first edge' WHERE path LIKE 'a%'"
OFFLINE = "UPDATE files SET note = 'read offline' WHERE lines > 2000"
MOUNTED_A = "UPDATE files SET note = 'by sqlite3 at the first edge' WHERE id % 50 = 1"
MOUNTED_B = "UPDATE files SET note = 'by Python at the second edge' WHERE id % 50 = 2"
FILES = "SELECT * FROM files ORDER BY id"

console = Console(highlight=False)
if not console.is_terminal:
    console = Console(highlight=False, width=100)


class Failed(Exception):
    """Something that the demo shows does not hold."""


class Refused(Exception):
    """This machine lets nothing be mounted, as a container may not."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise Failed(what)


def build(path: Path, most_lines: int) -> tuple[int, int]:
    """Write the database with stock sqlite3; the numbers of its files and lines."""
    library = Path(sysconfig.get_path("stdlib"))
    files = lines = 0
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + TABLES + "BEGIN;")
        for source in sorted(library.rglob("*.py")):
            if lines >= most_lines:
                break
            if not {"site-packages", "dist-packages"}.isdisjoint(source.parts):
                continue
            content = source.read_bytes()
            text = content.decode("utf-8", "replace").splitlines()
            files += 1
            name = source.relative_to(library).as_posix()
            db.execute("INSERT INTO files VALUES (?, ?, ?, ?, NULL)", (files, name, len(content), len(text)))
            db.executemany(
                "INSERT INTO lines VALUES (?, ?, ?, ?)",
                ((lines + number, files, number, line) for number, line in enumerate(text, 1)),
            )
            lines += len(text)
        db.executescript(INDEXES)
    return files, lines


@dataclass(frozen=True, slots=True)
class Query:
    kind: str
    what: str
    sql: str
    values: tuple[str, ...] = ()


def choose_queries(db: sqlite3.Connection) -> list[Query]:
    """One of each kind, about files that are there."""
    (some,) = db.execute("SELECT path FROM files ORDER BY abs(lines - 400), path LIMIT 1").fetchone()
    (long,) = db.execute("SELECT path FROM files WHERE lines < 3000 ORDER BY lines DESC, path LIMIT 1").fetchone()
    line = "SELECT number, text FROM lines WHERE file = (SELECT id FROM files WHERE path = ?)"
    search = (
        "SELECT path, number, lines.text FROM words JOIN lines ON lines.id = words.rowid JOIN files ON files.id = file "
        "WHERE words MATCH ? ORDER BY words.rowid"
    )
    return [
        Query("point", f"line 300 of {some}", f"{line} AND number = 300", (some,)),
        Query("point", "the same again", f"{line} AND number = 300", (some,)),
        Query("range", f"all of {long}", f"{line} ORDER BY number", (long,)),
        Query("full text", "lines that say deadlock", search, ("deadlock",)),
        Query("full text", "how many say async", "SELECT count(*) FROM words WHERE words MATCH ?", ("async",)),
    ]


class Service:
    """A process of our own, which says on a line of its own that it serves."""

    def __init__(self, what: str, log: Path, sign: bytes) -> None:
        self.what = what
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None
        self._sign = sign

    def launch(self, *arguments: str) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.monotonic() + NODE_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            if self._sign in self.log.read_bytes():
                return
            time.sleep(0.02)
        raise Failed(f"{self.what} did not start: {self.log.read_text(errors='replace').strip()}")

    def stop(self) -> None:
        check(self.end() == 0, f"{self.what} did not stop cleanly")

    def end(self) -> int:
        """Its exit status; 0 if it doesn't run."""
        process, self.process = self.process, None
        if process is None:
            return 0
        process.terminate()
        try:
            return process.wait(NODE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


class Node(Service):
    """A `budwood serve`. Its address stays the same when it is started again."""

    def __init__(self, folder: Path) -> None:
        super().__init__("the node", folder / "node.log", b"serves")
        self.store = folder / "store"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def start(self) -> None:
        self.launch("serve", "--create", "--store", self.store.as_uri(), "--listen", self.address)


class Mount(Service):
    """A `budwood mount`. However it ends, nothing is mounted afterwards."""

    def __init__(self, home: Path, directory: Path) -> None:
        super().__init__("the mount", directory.with_suffix(".log"), b" mounted (home ")
        self.home = home
        self.directory = directory
        self._limit: threading.Timer | None = None

    def start(self, url: str) -> None:
        self.directory.mkdir()
        arguments = ("mount", str(self.directory), "--foreground")
        console.print(f"[bold]$ budwood {' '.join(arguments)} &", soft_wrap=True, end="")
        began = time.monotonic()
        try:
            self.launch("--home", str(self.home), "--remote", url, *arguments)
        except Failed:
            console.print()
            said = self.log.read_text(errors="replace").splitlines()
            if said and "can't be mounted" in said[-1]:
                raise Refused("; ".join(said)) from None
            raise
        console.print(f"  [dim]{time.monotonic() - began:.1f} s")
        assert self.process is not None
        self._limit = threading.Timer(MOUNT_SECONDS, self.process.kill)
        self._limit.start()

    def end(self) -> int:
        try:
            return super().end()
        finally:
            if self._limit is not None:
                self._limit.cancel()
            if self.is_mounted:
                subprocess.run(["fusermount3", "-u", "-z", str(self.directory)], check=False)

    @property
    def is_mounted(self) -> bool:
        """By the kernel's table: to ask the directory itself could mean to wait for a mount that hangs."""
        table = Path("/proc/self/mountinfo")
        return table.exists() and f" {self.directory} " in table.read_text().replace("\\040", " ")


class Starting:
    """A process is being started: whoever stops the demo then has to wait until there is something to end."""

    now = False
    stopped = False


def finished(command: list[str]) -> subprocess.CompletedProcess[str]:
    """A command from its start to its end. It doesn't outlive the demo, however early that is stopped."""
    Starting.now = True
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    Starting.now = False
    with process:
        try:
            if Starting.stopped:
                raise KeyboardInterrupt
            output, errors = process.communicate()
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def run(*arguments: str, home: Path, expect: int = 0) -> None:
    """One command, as a user would type it."""
    console.print(f"[bold]$ budwood {' '.join(arguments)}", soft_wrap=True, end="")
    began = time.monotonic()
    done = finished([*COMMAND, "--home", str(home), *arguments])
    console.print(f"  [dim]{time.monotonic() - began:.1f} s")
    console.print(textwrap.indent((done.stdout + done.stderr).rstrip(), "  "), markup=False, soft_wrap=True)
    check(done.returncode == expect, f"budwood {arguments[0]} ended with exit status {done.returncode}, not {expect}")


def shell(command: str, folder: Path, *, quiet: bool = False) -> str:
    """What a command of the shell prints, run in the folder; it is shown, unless it is only to look."""
    if not quiet:
        console.print(f"[bold]$ {command}", soft_wrap=True)
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=MOUNT_SECONDS,
    )
    check(done.returncode == 0, f"{command}: {done.stderr.strip()}")
    return done.stdout


def arrived(what: str, is_there: Callable[[], bool]) -> float:
    """Wait for it; the seconds that it took."""
    began = time.monotonic()
    while not is_there():
        check(time.monotonic() - began < ARRIVAL_SECONDS, f"{what} did not arrive in {ARRIVAL_SECONDS:.0f} s")
        time.sleep(0.05)
    return time.monotonic() - began


def size(count: int) -> str:
    if count < 2**20:
        return f"{count / 2**10:.0f} KiB" if count else "0"
    return f"{count / 2**20:.1f} MiB"


def heading(text: str) -> None:
    console.print()
    console.rule(f"[bold]{text}", align="left", style="dim")


class Demo:
    """The steps, over one folder. Edge A and edge B are two homes: two machines that share nothing but the node."""

    def __init__(self, folder: Path, most_lines: int) -> None:
        self.folder = folder
        self.most_lines = most_lines
        self.file = folder / "stdlib.db"
        self.a, self.b = folder / "edge-a", folder / "edge-b"
        self.node = Node(folder)
        self.mounts = [Mount(self.a, folder / "a"), Mount(self.b, folder / "b")]
        self.results: list[tuple[str, str, float]] = []

    def play(self) -> None:
        self.make_database()
        self.publish()
        self.query()
        self.write_and_pull()
        self.mount()
        self.work_offline()
        self.export()
        self.sum_up()

    @contextmanager
    def timed(self, what: str, result: str = "") -> Generator[list[str]]:
        """Adds a line to the table at the end; the block may put its result into the list."""
        said = [result]
        began = time.monotonic()
        yield said
        self.results.append((what, said[0], time.monotonic() - began))

    def make_database(self) -> None:
        heading("A database of Python's standard library")
        with self.timed("build the database with sqlite3") as result:
            files, lines = build(self.file, self.most_lines)
            result[0] = f"{lines:,} lines, {size(self.file.stat().st_size)}"
        console.print(f"{files:,} files, {lines:,} lines and a full-text index: {size(self.file.stat().st_size)}")

    def publish(self) -> None:
        heading("One edge imports and pushes it, another clones it")
        self.node.start()
        console.print(f"a node serves {self.node.store} at {self.node.url}", soft_wrap=True)
        url = ("--remote", self.node.url)
        with self.timed("import at edge A", "one commit"):
            run("import", str(self.file), NAME, *url, home=self.a)
        with self.timed("push through the node", "all pages, compressed") as result:
            run("push", NAME, home=self.a)
            stored = sum(each.stat().st_size for each in self.node.store.rglob("*") if each.is_file())
            result[0] = f"{size(stored)} in the store"
        with self.timed("clone at edge B", "no page yet"):
            run("clone", NAME, *url, home=self.b)

    def query(self) -> None:
        heading("Edge B queries what it doesn't have")
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for title in ("query", "", "rows", "time", "pages", "fetched"):
            table.add_column(title, justify="right" if title not in ("query", "") else "left")
        total = 0.0
        with budwood.open(home=self.b, remote=self.node.url) as edge, closing(sqlite3.connect(self.file)) as stock:
            volume = edge.volume(NAME)

            def add(kind: str, what: str, rows: str, seconds: float, before: dict[str, Any]) -> dict[str, Any]:
                after = volume.status()
                pages, fetched = (after[key] - before[key] for key in ("held_pages", "held_bytes"))
                table.add_row(kind, what, rows, f"{seconds * 1000:.1f} ms", f"{pages:,}", size(fetched))
                return after

            # Loading the HTTP client is this program's start, not the query's time.
            edge.ls(remote=True)
            status, began = volume.status(), time.monotonic()
            with closing(budwood.connect(NAME, home=self.b)) as db:
                db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
                status = add("open", "schema and inner pages", "", time.monotonic() - began, status)
                for query in choose_queries(stock):
                    began = time.monotonic()
                    rows = db.execute(query.sql, query.values).fetchall()
                    seconds = time.monotonic() - began
                    total += seconds
                    expected = stock.execute(query.sql, query.values).fetchall()
                    check(rows == expected, f"{query.what}: other rows than stock sqlite3's {len(expected)}")
                    status = add(query.kind, query.what, f"{len(rows):,}", seconds, status)
        held, whole = status["held_pages"], status["pages"]
        table.add_section()
        table.add_row("together", "", "", "", f"{held:,}", size(status["held_bytes"]))
        table.add_row("out of", "", "", "", f"{whole:,}", size(status["length"]))
        console.print(table)
        check(held < whole, "edge B fetched the whole volume")
        part = f"{held:,} of {whole:,} pages, {size(status['held_bytes'])} of {size(status['length'])}"
        self.results.append(("five queries at edge B", part, total))

    def write_and_pull(self) -> None:
        heading("Edge A writes, edge B pulls")
        with self.timed("write, push, pull, read") as result:
            rows = self.execute(self.a, ONLINE)
            run("push", NAME, home=self.a)
            run("pull", NAME, home=self.b)
            self.compare(self.b)
            result[0] = f"{rows:,} rows changed"
        console.print(f"{rows:,} rows changed at A are there at B")

    def mount(self) -> None:
        heading("Both are mounted: any program, and nobody pushes or pulls")
        try:
            check_machine()
            for mount in self.mounts:
                mount.start(self.node.url)
        except (budwood.UsageError, Refused) as error:
            console.print(f"skipped: {error}", markup=False, soft_wrap=True)
            for mount in self.mounts:
                mount.end()
            return
        self.edit_the_database()
        self.edit_a_text()
        for mount in self.mounts:
            run("umount", str(mount.directory), home=mount.home)
            mount.stop()
        self.compare(self.a)
        self.compare(self.b)

    def edit_the_database(self) -> None:
        command = 'sqlite3 -cmd ".timeout 5000" a/' + NAME
        has_command = shutil.which("sqlite3") is not None
        if not has_command:
            console.print("this machine has no sqlite3 command: Python's own does its part")
        with closing(sqlite3.connect(self.folder / "b" / NAME)) as db:
            before = db.execute(FILES).fetchall()
            with self.timed("mounts: sqlite3 at A to Python at B") as result:
                if has_command:
                    shell(f'{command} "{MOUNTED_A}"', self.folder)
                else:
                    self.edit("a", MOUNTED_A)
                rows = self.execute_on_stock(MOUNTED_A)
                wanted = self.stock(FILES)
                took = arrived("what sqlite3 wrote", lambda: db.execute(FILES).fetchall() != before)
                check(db.execute(FILES).fetchall() == wanted, "Python at B sees other rows than stock sqlite3")
                result[0] = f"{rows:,} rows changed"
            console.print(f"{rows:,} rows are there for a Python that has b/{NAME} open: {took:.1f} s")
            with db:
                rows = db.execute(MOUNTED_B).rowcount
        check(self.execute_on_stock(MOUNTED_B) == rows > 0, "Python at B changed other rows than stock sqlite3")
        console.print(f"Python's sqlite3 writes to b/{NAME}")
        count = "SELECT count(*) FROM files WHERE note LIKE 'by Python%'"
        with self.timed("mounts: Python at B to sqlite3 at A", f"{rows:,} rows changed"):
            if has_command:
                look = f'{command} "{count}"'
                took = arrived("what Python wrote", lambda: shell(look, self.folder, quiet=True) == f"{rows}\n")
                console.print(f"[bold]$ {look}", soft_wrap=True)
                console.print(f"  {rows}  [dim]after {took:.1f} s")
            else:
                arrived("what Python wrote", lambda: self.rows("a", count) == [(rows,)])

    def edit_a_text(self) -> None:
        with self.timed("mounts: a text at A to B, and back", "two edits"):
            shell("echo 'seen at the first edge' > a/notes.txt", self.folder)
            notes = self.folder / "b" / "notes.txt"
            arrived("a/notes.txt", lambda: notes.exists() and notes.read_text() == "seen at the first edge\n")
            shell("echo 'and at the second' >> b/notes.txt", self.folder)
            both = "seen at the first edge\nand at the second\n"
            arrived("the edit of b/notes.txt", lambda: (self.folder / "a" / "notes.txt").read_text() == both)
            console.print(textwrap.indent(shell("cat a/notes.txt", self.folder).rstrip(), "  "))

    def edit(self, edge: str, sql: str) -> None:
        """By Python's sqlite3, through the mount."""
        with closing(sqlite3.connect(self.folder / edge / NAME)) as db, db:
            db.execute(sql)

    def rows(self, edge: str, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.folder / edge / NAME)) as db:
            return db.execute(sql).fetchall()

    def work_offline(self) -> None:
        heading("The node is gone; edge B commits all the same")
        self.node.stop()
        with self.timed("commit with no node") as result:
            rows = self.execute(self.b, OFFLINE)
            result[0] = f"{rows:,} rows changed"
        console.print(f"{rows:,} rows changed at B, on its own disk")
        run("push", NAME, home=self.b, expect=1)
        run("status", NAME, home=self.b)
        with self.timed("start the node, push, pull") as result:
            self.node.start()
            console.print(f"the node is back at {self.node.url}")
            run("push", NAME, home=self.b)
            run("pull", NAME, home=self.a)
            self.compare(self.a)
            result[0] = "edge A has them"
        with closing(budwood.connect(NAME, home=self.a)) as db:
            check(db.execute("PRAGMA integrity_check").fetchall() == [("ok",)], "edge A fails SQLite's integrity check")

    def export(self) -> None:
        heading("Spark exports two tables, and another program reads them")
        try:
            check_libraries()
            java.find()
        except budwood.UsageError as error:
            console.print(f"skipped: {error}", markup=False, soft_wrap=True)
            return
        import pyarrow.dataset as dataset

        lake = self.folder / "lake"
        tables = {"files": "SELECT * FROM files ORDER BY id", "lines": "SELECT * FROM lines ORDER BY id"}
        named = [word for table in tables for word in ("--table", table)]
        with self.timed("export by Spark, read back by Arrow") as result:
            run("spark-export", NAME, *named, "--to", str(lake), "--format", "parquet", home=self.a)
            rows = 0
            for table, sql in tables.items():
                columns = dataset.dataset(lake / NAME / table, format="parquet").to_table().to_pydict()
                # By the first column, which is the key.
                exported = sorted(zip(*columns.values(), strict=True))
                check(exported == self.stock(sql), f"the export of {table} has other rows")
                rows += len(exported)
            result[0] = f"{rows:,} rows"
        console.print(f"{rows:,} rows in the Parquet files are the ones that stock sqlite3 gives")
        self.node.stop()

    def execute(self, home: Path, sql: str) -> int:
        """The statement at an edge, and on the stock database; how many rows it changed."""
        with closing(budwood.connect(NAME, home=home)) as db:
            db.execute(sql)
            rows = db.changes()
        check(self.execute_on_stock(sql) == rows > 0, f"{sql!r} changed {rows} rows, and others in stock sqlite3")
        return rows

    def execute_on_stock(self, sql: str) -> int:
        with closing(sqlite3.connect(self.file)) as stock, stock:
            return stock.execute(sql).rowcount

    def stock(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.file)) as stock:
            return stock.execute(sql).fetchall()

    def compare(self, home: Path) -> None:
        with closing(budwood.connect(NAME, home=home)) as db:
            check(db.execute(FILES).fetchall() == self.stock(FILES), f"{home.name} has other files")

    def end(self) -> None:
        """Whatever still runs."""
        for service in (*self.mounts, self.node):
            service.end()

    def sum_up(self) -> None:
        heading("In short")
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("step")
        table.add_column("result")
        table.add_column("time", justify="right")
        for what, result, seconds in self.results:
            table.add_row(what, result, f"{seconds:.2f} s")
        console.print(table)
        console.print("Every answer was the one that stock sqlite3 gives.")


@contextmanager
def scratch() -> Generator[Path]:
    """A folder that is gone afterwards, whatever happens."""
    with tempfile.TemporaryDirectory(prefix="budwood-demo-") as name:
        free = shutil.disk_usage(name).free
        check(
            free > NEEDED_BYTES,
            f"{size(NEEDED_BYTES)} of disk are needed and {size(free)} are free: set TMPDIR to elsewhere",
        )
        yield Path(name)


def stop(_signal: int, _frame: object) -> None:
    if Starting.now:
        Starting.stopped = True
    else:
        raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description="One real database, from one edge to another, with the figures.")
    parser.add_argument(
        "--lines", type=int, default=sys.maxsize, metavar="N", help="stop after about N lines of source"
    )
    arguments = parser.parse_args()
    # Ended from outside, it cleans up as after Ctrl-C.
    signal.signal(signal.SIGTERM, stop)
    try:
        with scratch() as folder:
            demo = Demo(folder, arguments.lines)
            try:
                demo.play()
            finally:
                # Cleaning up is not interrupted.
                for number in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(number, signal.SIG_IGN)
                demo.end()
    except Failed as failure:
        console.print(f"demo failed: {failure}", style="bold red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; everything is cleaned up")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The mount as unmodified programs meet it, against the disk and a bare pyfuse3 passthrough (`passthrough.py`).

Every file system works on the same disk and takes turns with the others within one run. Ratios are of speed: 0.8× takes
1.25 times as long. What the kernel caches it may keep; where a line says uncached, it is told to go round its cache.
"""

from __future__ import annotations

import mmap
import os
import random
import sqlite3
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from io import FileIO
from pathlib import Path

import budwood
from budwood.fuse.host.checks import check_machine
from budwood.volume.errors import UsageError

from .counting_proxy import node_on
from .filesystems import FileSystem, bindfs, disk, mount, passthrough
from .harness import ROUNDS, Figure, report, scratch, take_turns, timed

PAGE = 4096
CHUNK = 128 * 1024
FILE_BYTES = 64 << 20
READS = 50_000
UNCACHED_READS = 20_000
UNCACHED_READERS = 4

ROWS = 100_000
QUERIES = 4_000
COMMITS = 40
COMMIT_ROUNDS = 21
"""Many short turns: disks flush now quickly, now slowly."""
PAYLOAD = "x" * 100

COLD_BYTES = 40 << 20
LINK_BYTES_PER_SECOND = 12.5e6
"""100 Mbit/s."""
LATENCY_SECONDS = 0.03
COLD_ROUNDS = 3

OURS = "budwood"
YARDSTICK = "passthrough"

Side = Callable[[], float]
"""One round of a file system's: does the work, and says how long what counts took."""


def content(path: Path, size: int) -> None:
    """A file that doesn't compress, on the disk."""
    noise = random.Random(size)
    with path.open("wb", buffering=0) as file:
        for _ in range(0, size, 1 << 20):
            file.write(noise.randbytes(1 << 20))
        os.fsync(file.fileno())


# Plain files


def random_reads(path: Path) -> Side:
    """4 KiB at random, the file opened anew, all of it in the kernel's cache."""
    places = [place * PAGE for place in random.Random(7).choices(range(FILE_BYTES // PAGE), k=READS)]

    buffer = [bytearray(PAGE)]

    def run() -> float:
        with path.open("rb", buffering=0) as file:
            number = file.fileno()
            return timed(lambda: [os.preadv(number, buffer, place) for place in places])

    # Filled by reading: pages that were written lie less well.
    dropping(path, sequential_reads(path))()
    return run


def sequential_reads(path: Path) -> Side:
    def run() -> float:
        def read() -> None:
            with path.open("rb", buffering=0) as file:
                whole(file)

        return timed(read)

    return run


def whole(file: FileIO) -> None:
    """Read as cat and cp do: into one buffer."""
    buffer, total = bytearray(CHUNK), 0
    while got := file.readinto(buffer):
        total += got
    assert total == os.fstat(file.fileno()).st_size > 0


def dropping(path: Path, read: Side) -> Side:
    """The same when the kernel has forgotten the file."""

    def run() -> float:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return read()

    return run


def uncached_reads(path: Path) -> Side:
    """4 KiB at random by O_DIRECT, so that each is a request to the file system; a few readers, as programs are."""

    def read(seed: int) -> None:
        places = random.Random(seed).choices(range(FILE_BYTES // PAGE), k=UNCACHED_READS // UNCACHED_READERS)
        number = os.open(path, os.O_RDONLY | os.O_DIRECT)
        with mmap.mmap(-1, PAGE) as aligned:
            for place in places:
                assert os.preadv(number, [aligned], place * PAGE) == PAGE
        os.close(number)

    def run() -> float:
        readers = [threading.Thread(target=read, args=(seed,)) for seed in range(UNCACHED_READERS)]
        start = time.perf_counter()
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        return time.perf_counter() - start

    return run


# SQLite: Python's own, unmodified


def database(path: Path, mode: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    assert db.execute(f"PRAGMA journal_mode = {mode}").fetchone() == (mode,)
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, v TEXT, n INT)")
    with db:
        db.execute("BEGIN")
        db.executemany("INSERT INTO t VALUES(?, ?, ?)", ((number, PAYLOAD, 0) for number in range(ROWS)))
    return db


def point_reads(db: sqlite3.Connection) -> Side:
    """Random keys, each read in a transaction of its own."""
    keys = random.Random(7).choices(range(ROWS), k=QUERIES)
    # SQLite's own cache of so few pages leaves the rest to the file system.
    db.execute("PRAGMA cache_size = 10")

    def run() -> float:
        start = time.perf_counter()
        for key in keys:
            assert db.execute("SELECT v FROM t WHERE id = ?", (key,)).fetchone() == (PAYLOAD,)
        return time.perf_counter() - start

    return run


def commits(db: sqlite3.Connection, place: FileSystem) -> Side:
    """One-row transactions, each durable when it returns. What is owed for them is done before another's turn."""
    keys = random.Random(11)

    def run() -> float:
        start = time.perf_counter()
        for _ in range(COMMITS):
            db.execute("UPDATE t SET n = n + 1 WHERE id = ?", (keys.randrange(ROWS),))
        took = time.perf_counter() - start
        place.settle()
        db.execute("PRAGMA wal_checkpoint")
        return took

    return run


# Figures


def against(
    yardstick: str,
    name: str,
    sides: Mapping[str, Side],
    bound: float | None = None,
    *,
    each: int = 1,
    rounds: int = ROUNDS,
    note: str = "",
) -> Figure:
    """The mount's speed against the yardstick's, with everyone's time beside it, and speed against the first's."""
    seconds = take_turns(sides, rounds)
    ratios = [theirs / ours for theirs, ours in zip(seconds[yardstick], seconds[OURS], strict=True)]
    middle = {side: statistics.median(taken) / each for side, taken in seconds.items()}
    unit, factor = ("µs", 1e6) if middle[OURS] < 1e-3 else ("ms", 1e3)
    first = next(iter(middle))
    told = [
        f"{side} {took * factor:.3g}" + (f" ({middle[first] / took:.2f}×)" if side != first else "")
        for side, took in middle.items()
    ]
    detail = f"{unit}: {', '.join(told)}" + (f"; {note}" if note else "")
    return Figure(f"{name}, against {yardstick}", statistics.median(ratios), "×", bound, ratios, detail, least=True)


def files(places: Mapping[str, FileSystem]) -> list[Figure]:
    paths = {name: place.directory / "file" for name, place in places.items()}
    for path in paths.values():
        content(path, FILE_BYTES)
    on_disk = next(iter(places))
    warm = {name: random_reads(path) for name, path in paths.items()}
    through = {name: sequential_reads(path) for name, path in paths.items()}
    why = (
        f"{FILE_BYTES >> 20} MiB; no request is sent: the kernel copies a FUSE file's pages one by one, ext4's by many"
    )
    figures = [
        against(on_disk, "warm 4 KiB read", warm, 0.6, each=READS),
        against(on_disk, "warm sequential read", through, 0.5, note=why),
    ]
    # The disk itself has no place here: without the kernel's cache it is the device that would be measured.
    served = {name: path for name, path in paths.items() if name != on_disk}
    dropped = {name: dropping(path, sequential_reads(path)) for name, path in served.items()}
    figures.append(against(YARDSTICK, "sequential read past the kernel's cache", dropped))
    uncached = take_turns({name: uncached_reads(path) for name, path in served.items()})
    rates = {name: [UNCACHED_READS / taken for taken in each] for name, each in uncached.items()}
    told = ", ".join(f"{name} {statistics.median(rate):,.0f}" for name, rate in rates.items())
    note = f"at random by O_DIRECT, {UNCACHED_READERS} readers: {told}"
    ours = rates[OURS]
    name = "4 KiB reads a second past the kernel's cache"
    figures.append(Figure(name, statistics.median(ours), "", 20_000, ours, note, least=True))
    for path in paths.values():
        path.unlink()
    return figures


def databases(places: Mapping[str, FileSystem]) -> list[Figure]:
    figures: list[Figure] = []
    on_disk = next(iter(places))
    for mode, bound in (("delete", 0.9), ("truncate", None), ("persist", None), ("wal", 0.7)):
        opened = {name: database(place.directory / f"{mode}.db", mode) for name, place in places.items()}
        writers = {name: commits(db, places[name]) for name, db in opened.items()}
        name = f"one-row commit, {mode}/FULL"
        figures.append(against(YARDSTICK, name, writers, bound, each=COMMITS, rounds=COMMIT_ROUNDS))
        if mode == "delete":
            readers = {name: point_reads(db) for name, db in opened.items()}
            figures.insert(0, against(on_disk, "SQLite point read, delete mode", readers, 0.8, each=QUERIES))
        for db in opened.values():
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            db.close()
    return figures


def cold(folder: Path) -> Figure:
    """A file of whose pages nothing is here, read from its start to its end over a link and a store that takes time."""
    with node_on(folder / "store") as (url, _):
        with mount(folder, "source", remote=url) as source:
            content(source.directory / "file", COLD_BYTES)
        assert source.home is not None
        with budwood.open(home=source.home, remote=url) as edge:
            edge.volume("file").push()
    link_seconds = COLD_BYTES / LINK_BYTES_PER_SECOND
    ratios: list[float] = []
    for number in range(COLD_ROUNDS):
        # A node of its own each time: the one before has the pages in memory.
        link = {"latency_seconds": LATENCY_SECONDS, "link_bytes_per_second": LINK_BYTES_PER_SECOND}
        with node_on(folder / "store", **link) as (url, _), ExitStack() as stack:
            name = f"cold{number}"
            with budwood.open(home=folder / f"{name}-files", remote=url) as edge:
                edge.clone("file")
            place = stack.enter_context(mount(folder, name, remote=url))
            ratios.append(sequential_reads(place.directory / "file")() / link_seconds)
    speed = f"{LINK_BYTES_PER_SECOND * 8 / 1e6:.0f} Mbit/s"
    note = f"{COLD_BYTES >> 20} MiB, time; the link alone takes {link_seconds:.1f} s at {speed}"
    name = f"cold sequential read, the store at {LATENCY_SECONDS * 1e3:.0f} ms, against the link"
    return Figure(name, statistics.median(ratios), "×", 1.5, ratios, note)


def main() -> None:
    try:
        check_machine()
    except UsageError as error:
        raise SystemExit(f"mount: {error}") from None
    with scratch() as folder:
        with ExitStack() as stack:
            entered = [stack.enter_context(each(folder)) for each in (disk, passthrough, mount, bindfs)]
            places = {place.name: place for place in entered if place is not None}
            if "bindfs" not in places:
                print(
                    "mount: bindfs is not installed, so no other FUSE file system is measured (apt-get install bindfs)"
                )
            figures = files(places) + databases(places)
        report("mount: against the disk and a bare passthrough; ratios of speed, times beside them", figures)
        report("mount cold: over a link", [cold(folder)])


if __name__ == "__main__":
    main()

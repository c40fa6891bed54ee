"""A home of very many volumes beside one of none: what is done to one volume must cost the same in both, through the
VFS and through a mount, and a mount's memory for each name stays small. BUDWOOD_BENCH_HOME_VOLUMES says how many.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Final

import apsw

import budwood
from budwood.fuse.host.checks import check_machine
from budwood.fuse.host.mount_client import serving
from budwood.sync.attributes import Attributes
from budwood.sync.environment import Environment
from budwood.sync.local_volume import Local
from budwood.sync.name_table import NameTable
from budwood.sync.namespace import Namespace
from budwood.sync.tables import Txn, VolumeRecord
from budwood.sync.volume_lifecycle import first_head
from budwood.volume.errors import UsageError
from budwood.volume.ids import VolumeId

from .filesystems import mount
from .harness import Figure, compare, report, scratch

VOLUMES = int(os.environ.get("BUDWOOD_BENCH_HOME_VOLUMES", "10000"))
TIMES: Final = 40
BOUND: Final = 1.2
BOUND_KB: Final = 2.5

Work = Callable[[], object]


def fill(home: Path, volumes: int) -> None:
    """Volumes of a remote as clones leave them, without a page, all in one directory."""

    def write(environment: Environment, txn: Txn) -> None:
        for number in range(volumes):
            vid, name = VolumeId.new(), f"file {number}"
            record = VolumeRecord(vid=vid.raw, name=name, remote="http://nowhere", store="s", bound=name, created=True)
            NameTable(environment, txn).add(record)
            Local(environment, vid, name).put_head(txn, first_head(4096, 7, 4096))

    with budwood.open(home=home) as edge:
        edge.environment.update(lambda txn: write(edge.environment, txn))


def by_vfs(home: Path, stack: ExitStack) -> dict[str, Work]:
    def connect() -> closing[apsw.Connection]:
        return closing(budwood.connect("measured.db", home=home))

    db = stack.enter_context(connect())
    db.execute("CREATE TABLE t(a)")

    def opened() -> None:
        for _ in range(TIMES):
            with connect() as other:
                other.execute("SELECT count(*) FROM t").fetchall()

    def committed() -> None:
        for _ in range(10 * TIMES):
            db.execute("INSERT INTO t VALUES (1)")

    return {"VFS: open and read": opened, "VFS: commit": committed}


def by_mount(directory: Path, stack: ExitStack) -> dict[str, Work]:
    db = stack.enter_context(closing(sqlite3.connect(directory / "mounted.db", isolation_level=None)))
    db.execute("CREATE TABLE t(a)")
    names = count()

    def committed() -> None:
        for _ in range(TIMES):
            db.execute("INSERT INTO t VALUES (1)")

    def came_and_went() -> None:
        for _ in range(TIMES):
            path = directory / f"new {next(names)}"
            path.write_text("x")
            path.read_text()
            path.unlink()

    return {"mount: SQLite's commit": committed, "mount: make, read and remove a file": came_and_went}


def cpu_ms_of_a_name(home: Path, directory: Path) -> float:
    """What a mount spends on each name that another process makes, until programs see it."""
    with budwood.open(home=home) as edge:
        names, before = Namespace(edge), _cpu_ms(home)
        for number in range(TIMES):
            name = f"of another process {number}"
            names.make_directory(name, Attributes(mode=stat.S_IFDIR | 0o755))
            while not (directory / name).exists():
                time.sleep(0.01)
        return (_cpu_ms(home) - before) / TIMES


def _cpu_ms(home: Path) -> float:
    fields = Path(f"/proc/{serving(home)}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous_kb(home: Path) -> int:
    pid = serving(home)
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon:")).split()[1])


def compared(many: Mapping[str, Work], few: Mapping[str, Work]) -> list[Figure]:
    return [compare(name, work, few[name], BOUND) for name, work in many.items()]


def main() -> None:
    with scratch() as folder, ExitStack() as stack:
        homes = {name: folder / f"{name}-files" for name in ("many", "few")}
        fill(homes["many"], VOLUMES)
        figures = compared(*(by_vfs(home, stack) for home in homes.values()))
        try:
            check_machine()
        except UsageError as error:
            print(f"no mount here: {error}")
        else:
            places = [stack.enter_context(mount(folder, name)) for name in homes]
            more = anonymous_kb(homes["many"]) - anonymous_kb(homes["few"])
            figures += compared(*(by_mount(place.directory, stack) for place in places))
            figures += [
                Figure(f"mount of {name}: a name that another makes", cpu_ms_of_a_name(home, place.directory), " ms")
                for (name, home), place in zip(homes.items(), places, strict=True)
            ]
            figures.append(Figure("mount: memory for each name", more / VOLUMES, " KB", BOUND_KB))
        report(f"large home: {VOLUMES:,} volumes, against none", figures)


if __name__ == "__main__":
    main()

"""What the mount makes of a -wal, fed with the very writes that SQLite makes to one: as many commits as SQLite made,
none twice, whose sum is the database.

SQLite writes to a file of its own through a VFS that notes each write and cut; they are then done again through `Wal`,
as the mount's handlers do them. Steps: transactions that spill, that write a frame twice, that are rolled back wholly
or to a savepoint, and checkpoints after which the log starts over, upon its old frames or cut to nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from budwood.sqlite.wal import WalReader
from budwood.sync.edge import open as open_edge
from budwood.sync.volume import Volume

from ..mounts import needs_fuse

trio = pytest.importorskip("trio")
pytest.importorskip("pyfuse3")

from budwood.fuse.files.localfile import LocalFile  # noqa: E402 - it needs what may be missing
from budwood.fuse.files.wal_tail import Wal  # noqa: E402

pytestmark = needs_fuse

_names = itertools.count()


class Call(NamedTuple):
    offset: int
    data: bytes | None
    """None for a cut."""


class Recorded:
    """A database in WAL mode, and what SQLite did to its -wal."""

    def __init__(self, path: Path) -> None:
        calls: list[Call] = []
        self.calls = calls

        class File(apsw.VFSFile):
            def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's names
                calls.append(Call(offset, bytes(data)))
                super().xWrite(data, offset)

            def xTruncate(self, newsize: int) -> None:  # noqa: N802
                calls.append(Call(newsize, None))
                super().xTruncate(newsize)

        class Files(apsw.VFS):
            def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
                kind = File if flags[0] & apsw.SQLITE_OPEN_WAL else apsw.VFSFile
                return kind("unix", name, flags)

        self.name = f"recording {next(_names)}"
        self.vfs = Files(self.name, base="unix")
        self.db = apsw.Connection(str(path), vfs=self.name)
        self.db.execute("pragma locking_mode = exclusive; pragma journal_mode = wal; pragma cache_size = 4").fetchall()
        self.commits = 0
        self.db.set_wal_hook(self._committed)
        self.db.execute("create table t(id integer primary key, body)")

    def _committed(self, db: apsw.Connection, name: str, pages: int) -> int:
        self.commits += 1
        return apsw.SQLITE_OK

    def taken(self) -> list[Call]:
        calls = list(self.calls)
        self.calls.clear()
        return calls

    def close(self) -> None:
        self.db.close()
        self.vfs.unregister()


def insert(db: apsw.Connection, rows: int) -> None:
    db.execute("begin")
    db.executemany("insert into t(body) values(randomblob(?))", [(500 + row * 37 % 3000,) for row in range(rows)])
    db.execute("commit")


def twice(db: apsw.Connection, rows: int) -> None:
    """Pages are spilled, changed and spilled again: their frames are written twice, and all later headers."""
    db.execute("begin")
    db.executemany("insert into t(body) values(zeroblob(?))", [(900,) for _ in range(rows)])
    for _ in range(3):
        db.execute("update t set body = randomblob(length(body)) where id % 3 = 0")
    db.execute("commit")


def rolled_back(db: apsw.Connection, rows: int) -> None:
    db.execute("begin")
    db.executemany("insert into t(body) values(randomblob(?))", [(2000,) for _ in range(rows)])
    db.execute("rollback")


def to_savepoint(db: apsw.Connection, rows: int) -> None:
    db.execute("begin")
    db.execute("insert into t(body) values('kept')")
    db.execute("savepoint s")
    db.executemany("insert into t(body) values(randomblob(?))", [(2000,) for _ in range(rows)])
    db.execute("rollback to s")
    db.execute("insert into t(body) values('kept, too')")
    db.execute("commit")


def delete(db: apsw.Connection, rows: int) -> None:
    db.execute("delete from t where id % 50 >= ?", (rows,))


def vacuum(db: apsw.Connection, rows: int) -> None:
    db.execute("vacuum")


def restart(db: apsw.Connection, rows: int) -> None:
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)


def truncate(db: apsw.Connection, rows: int) -> None:
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


STEPS = (insert, insert, insert, twice, rolled_back, to_savepoint, delete, vacuum, restart, truncate)
Step = Callable[[apsw.Connection, int], None]

steps = st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from((1, 2, 5, 40))), max_size=14)


async def feed(wal: Wal, calls: list[Call]) -> int:
    """As operations.py does it; how often the log started over."""
    restarts = 0
    for offset, data in calls:
        if wal.overwrites(offset):
            await wal.drain()
            if not wal.spares(offset):
                wal.reset()
                restarts += 1
        if data is None:
            wal.file.truncate(offset)
        else:
            wal.write(offset, data)
    return restarts


def pages(content: bytes, size: int = 4096) -> Iterator[tuple[int, bytes]]:
    return ((start // size + 1, content[start : start + size]) for start in range(0, len(content), size))


def check(volume: Volume, recorded: Recorded, what: str) -> None:
    assert volume.status()["unpushed"] == recorded.commits, f"after {what}"
    image = recorded.db.serialize("main")
    with closing(volume.snapshot()) as view:
        assert view.length == len(image)
        for page, data in pages(image):
            if page not in free_pages(image):
                assert view.read(page) == data, f"page {page} after {what}"


def free_pages(image: bytes) -> set[int]:
    """What lies in them needn't have been written."""
    free: set[int] = set()
    trunk = int.from_bytes(image[32:36])
    while trunk:
        start = (trunk - 1) * 4096
        count = int.from_bytes(image[start + 4 : start + 8])
        free |= {int.from_bytes(image[at : at + 4]) for at in range(start + 8, start + 8 + 4 * count, 4)}
        trunk = int.from_bytes(image[start : start + 4])
    return free


@given(steps=steps, each=st.booleans())
@example(steps=[(rolled_back, 40), (to_savepoint, 40), (insert, 1), (twice, 40), (insert, 1)], each=True)
@example(steps=[(insert, 40), (restart, 0), *[(insert, 1)] * 5, (twice, 40), (insert, 2)], each=True)
@example(steps=[(twice, 40), (restart, 0), (twice, 40), (truncate, 0), (twice, 5)], each=False)
def test_the_writes_of_sqlite_become_its_commits(steps: list[tuple[Step, int]], each: bool) -> None:
    """`each`: after each step; else all at once, so that the thread is behind."""

    async def main(folder: Path, volume: Volume) -> None:
        recorded = Recorded(folder / "one.db")
        checkpoints = restarts = 0
        try:
            async with trio.open_nursery() as nursery:
                wal = Wal(volume, LocalFile(folder, "one.db-followed"), nursery)
                for step, rows in [*steps, (insert, 1)]:
                    step(recorded.db, rows)
                    checkpoints += step in (restart, truncate)
                    restarts += await feed(wal, recorded.taken())
                    if each:
                        await wal.drain()
                        check(volume, recorded, step.__name__)
                await wal.drain()
                count, held = wal.commit_count(), WalReader(wal.file.read)
                assert count is not None
                assert count.commits == len(list(held.commits())), "counted as they came, and as they lie there"
                wal.file.close()
            check(volume, recorded, "all")
            assert restarts <= checkpoints, "nothing but a checkpoint lets a log start over"
        finally:
            recorded.close()

    with TemporaryDirectory() as made, open_edge(home=Path(made) / "home", remote="") as edge:
        trio.run(main, Path(made), edge.create("one"))

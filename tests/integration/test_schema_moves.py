"""A schema that has become another under a connection that is open: by what takes the place of local commits, by a
restore, by a file that is copied over the database. The numbers by which SQLite knows a schema are the same in each
case, and it must not take the one for the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

import budwood
from budwood.rows.replay import replay
from budwood.sync.edge import open as open_edge
from budwood.sync.volume import Volume

from ..mounts import mounted, needs_fuse

BASE = "CREATE TABLE base(a)"
HERE = "CREATE TABLE here(a, b); INSERT INTO here VALUES ('h', 1)"
THERE = "CREATE TABLE there(p); INSERT INTO there VALUES ('t')"


class Homes:
    """Two of one store, both with `shop` open; what the first pushed last, the second hasn't seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.remote = f"file://{folder}/store"

    def connect(self, home: str) -> apsw.Connection:
        return budwood.connect("shop", home=self.folder / home, remote=self.remote)

    def run(self, home: str, change: Callable[[Volume], object]) -> None:
        """By another program."""
        with open_edge(home=self.folder / home, remote=self.remote) as edge:
            change(edge.volume("shop"))


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    return Homes(tmp_path)


def tables(db: apsw.Connection) -> set[str]:
    """Those that it can read, of which it knows."""
    found = set[str]()
    for name in ("base", "here", "there", "later"):
        with suppress(apsw.SQLError):
            db.execute(f"SELECT * FROM {name}").fetchall()
            found.add(name)
    return found


def sound(*connections: apsw.Connection) -> None:
    """Each writes to all of what it knows, and all see the same."""
    for db in connections:
        for name in sorted(tables(db)):
            db.execute(f"INSERT INTO {name}({'p' if name == 'there' else 'a'}) VALUES ('more')")
        db.execute("CREATE TABLE IF NOT EXISTS later(a)")
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert len({frozenset(tables(db)) for db in connections}) == 1


def reset(volume: Volume) -> None:
    volume.reset(discard=True)


def kept(volume: Volume) -> None:
    volume.reset(keep_as="kept")


def replayed(volume: Volume) -> None:
    replay(volume, "abort")


@pytest.mark.parametrize(
    ("change", "left"),
    [(reset, {"base", "there"}), (kept, {"base", "there"}), (replayed, {"base", "here", "there"})],
)
@pytest.mark.parametrize("writes", [False, True])
def test_what_takes_the_place_of_local_commits(
    homes: Homes, change: Callable[[Volume], object], left: set[str], writes: bool
) -> None:
    with closing(homes.connect("one")) as one:
        one.execute(f"{BASE}; PRAGMA budwood_push")
        with closing(homes.connect("two")) as two, closing(homes.connect("two")) as idle:
            assert tables(idle) == tables(two) == {"base"}
            one.execute(f"{THERE}; PRAGMA budwood_push")
            two.execute(HERE)
            assert tables(idle) == {"base", "here"}
            homes.run("two", change)
            if writes:
                two.execute("CREATE TABLE later(a)")
                left = left | {"later"}
            assert tables(two) == tables(idle) == left
            assert two.execute("SELECT p FROM there").fetchall() == [("t",)]
            sound(two, idle, two)
            two.execute("PRAGMA budwood_push")
            one.execute("PRAGMA budwood_pull")
            sound(one)


def test_a_restore_is_seen_by_who_was_idle_meanwhile(homes: Homes) -> None:
    with closing(homes.connect("one")) as one:
        one.execute(f"{BASE}; PRAGMA budwood_push")
        with closing(homes.connect("two")) as two:
            one.execute(f"{HERE}; PRAGMA budwood_push")
            two.execute("PRAGMA budwood_pull")
            assert tables(two) == {"base", "here"}
            homes.run("one", lambda volume: volume.restore(lsn=1))
            one.execute(f"{THERE}; PRAGMA budwood_push")
            two.execute("PRAGMA budwood_pull")
            assert tables(two) == tables(one) == {"base", "there"}
            sound(one)


@needs_fuse
def test_a_file_that_is_copied_over_a_database_in_a_mount_elsewhere(homes: Homes, tmp_path: Path) -> None:
    """A nightly database, made by the same statements each time: the numbers are the same, too."""
    files = list[Path]()
    for name, sql in (("one.db", f"{BASE}; {HERE}"), ("two.db", f"{THERE}; {BASE}")):
        files.append(tmp_path / name)
        with closing(apsw.Connection(str(files[-1]))) as db:
            db.execute(sql)
    with mounted(tmp_path, remote=homes.remote, home="one") as mount:
        (mount.directory / "shop").write_bytes(files[0].read_bytes())
        mount.ask("push")
        with closing(homes.connect("two")) as two:
            assert tables(two) == {"base", "here"}
            (mount.directory / "shop").write_bytes(files[1].read_bytes())
            mount.ask("push")
            two.execute("PRAGMA budwood_pull")
            assert tables(two) == {"base", "there"}

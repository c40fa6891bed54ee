"""A disk that refuses what a node's store writes, now and then: what was acknowledged is there, and the same node goes
on once it takes writes again.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

import budwood
from budwood.volume.errors import BudwoodError, Full

from ..failing_disk import KINDS, WRITE, fail, failing_disk
from ..integration.cli import Command, started_node
from ..mounts import needs_fuse
from ..waits import LIMIT_SECONDS

pytestmark = needs_fuse

STEPS = 80
NAMES = ("a", "b")
REFUSALS = ((errno.EIO, 0.02), (errno.EIO, 0.1), (errno.ENOSPC, 0.2), (errno.ENOSPC, 1))
STORES = {"directory": "file://{disk}/store", "two-phase": "file://{disk}/store?records=sqlite://{disk}/records.db"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    with failing_disk(tmp_path) as made:
        yield made


@contextmanager
def serving(url: str, log: Path) -> Generator[str]:
    """A node, which says in its log what its disk refuses; its URL."""
    with log.open("ab") as stderr, started_node(url, "127.0.0.1:0", stderr=stderr) as (process, remote):
        yield remote
        process.terminate()
        assert process.wait(LIMIT_SECONDS) == 0


def test_a_node_whose_disk_is_full_says_so_to_who_pushes_and_in_its_log(
    disk: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, control = disk
    url, home = STORES["directory"].format(disk=folder), tmp_path / "home"
    with serving(url, tmp_path / "log") as remote, budwood.open(home=home, remote=remote) as edge:
        with closing(budwood.connect("a", home=home, remote=remote)) as db:
            db.execute("CREATE TABLE t(n)")
        fail(control, errno.ENOSPC, WRITE)
        with pytest.raises(Full, match="No space left on device: make room on the disk"):
            edge.volume("a").push()
        control.unlink()
        edge.volume("a").push()
    logged = (tmp_path / "log").read_text().splitlines()
    assert logged
    assert all(" was answered with 507: can't write " in line for line in logged)


@pytest.mark.parametrize("seed", range(int(os.environ.get("FAILING_SEEDS", "2"))))
@pytest.mark.parametrize("kind", STORES)
def test_what_was_acknowledged_is_there_whatever_the_disk_refused(
    disk: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, seed: int
) -> None:
    folder, control = disk
    dice = random.Random(seed)
    told = dict[str, set[int]]()
    url = STORES[kind].format(disk=folder)
    command, homes = Command(capsys, tmp_path / "unused"), 0

    def rows(remote: str, name: str) -> set[int]:
        nonlocal homes
        homes += 1
        with closing(budwood.connect(name, home=tmp_path / f"home-{homes}", remote=remote)) as db:
            assert db.execute("PRAGMA integrity_check").get == "ok"
            return {n for (n,) in db.execute("SELECT n FROM t")}

    log = tmp_path / "log"
    with serving(url, log) as remote, budwood.open(home=tmp_path / "home", remote=remote) as edge:
        for name in NAMES:
            with closing(budwood.connect(name, home=tmp_path / "home", remote=remote)) as db:
                db.execute("CREATE TABLE t(n INTEGER PRIMARY KEY, payload BLOB)")
            edge.volume(name).push()
        here = {name: set[int]() for name in NAMES}
        for n in range(STEPS):
            name, what = dice.choice(list(here)), dice.random()
            if what < 0.15:
                kinds = dice.choice(KINDS)
                # What may pass is tried again for as long as a call has.
                code, chance = dice.choice(REFUSALS)
                fail(control, code, *kinds, chance=chance)
            elif what < 0.35:
                control.unlink(missing_ok=True)
            elif what < 0.8:
                with closing(budwood.connect(name, home=tmp_path / "home", remote=remote)) as db:
                    db.execute("INSERT INTO t VALUES(?, zeroblob(?))", (n, dice.choice((10, 3000, 40_000))))
                here[name].add(n)
                with suppress(BudwoodError):
                    edge.volume(name).push()
                    told[name] = here[name].copy()
            elif what < 0.85:
                # A fork of a fork that goes before this one is pushed has nothing to begin with.
                parent = dice.choice(NAMES)
                edge.fork(parent, f"fork-{n}")
                here[f"fork-{n}"] = here[parent].copy()
            elif what < 0.9:
                command("upkeep", "--once", "--store", url)
            elif what < 0.93 and name not in NAMES:
                del here[name]
                with suppress(BudwoodError):
                    edge.rm(name, discard=True, remote=True)
            elif name in told:
                assert told[name] <= rows(remote, name) <= here[name]
        control.unlink(missing_ok=True)
        for name in here:
            edge.volume(name).push()
            assert rows(remote, name) == here[name]
    command.ok("upkeep", "--once", "--store", url)
    command.ok("scrub", "--store", url)
    with serving(url, log) as remote:
        assert {name: rows(remote, name) for name in here} == here

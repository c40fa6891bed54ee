"""A mixed fleet: edges and nodes of this release beside those of an older one, whose code is kept in tests/stored."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from budwood.remote.keyring import KEY_FILE, write_key
from budwood.sync.edge import open as open_edge
from budwood.sync.namespace import Namespace

from .. import fork_server
from ..stored import unpack_code
from ..waits import LIMIT_SECONDS
from .cli import ENTRY, Said, started_node

RELEASES = ("old", "new")
LATE_MS = 1 << 42
"""A time that is still to come."""


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Python finds the older release first."""
    return unpack_code(tmp_path_factory.mktemp("old"))


@dataclass
class Fleet:
    folder: Path
    old: Path
    said: str = ""
    """By the last node."""

    def environment(self, release: str) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return own | ({"PYTHONPATH": str(self.old)} if release == "old" else {})

    @contextmanager
    def node(self, release: str) -> Generator[str]:
        with pytest.MonkeyPatch.context() as patched:
            for name, value in self.environment(release).items():
                patched.setenv(name, value)
            with started_node(self.folder / "store", "127.0.0.1:0", stderr=subprocess.PIPE) as (process, url):
                yield url
                process.terminate()
                assert process.stderr is not None
                self.said = process.stderr.read()
                assert process.wait(LIMIT_SECONDS) == 0

    def ask(self, release: str, home: str, url: str, *arguments: str) -> Said:
        done = fork_server.run(
            [*ENTRY, "--home", str(self.folder / home), "--remote", url, *arguments],
            env=self.environment(release),
            stdin=subprocess.DEVNULL,
            timeout=LIMIT_SECONDS,
        )
        assert "Traceback" not in done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    def ok(self, release: str, home: str, url: str, *arguments: str) -> str:
        said = self.ask(release, home, url, *arguments)
        assert said.code == 0, said
        return said.out

    def rows(self, release: str, home: str, url: str) -> list[str]:
        return self.ok(release, home, url, "sql", "notes", "SELECT w FROM t ORDER BY w").split()


@pytest.fixture
def fleet(tmp_path: Path, old: Path) -> Fleet:
    return Fleet(tmp_path, old)


@pytest.mark.parametrize(("node", "edge"), [("old", "new"), ("new", "old")])
def test_edges_of_both_releases_share_a_database(fleet: Fleet, node: str, edge: str) -> None:
    """`edge` is the release of the one that makes it."""
    other = "new" if edge == "old" else "old"
    with fleet.node(node) as url:
        fleet.ok(edge, "ann", url, "create", "notes")
        fleet.ok(edge, "ann", url, "sql", "notes", "CREATE TABLE t(w PRIMARY KEY); INSERT INTO t VALUES ('ann')")
        fleet.ok(edge, "ann", url, "push", "notes")
        fleet.ok(other, "bob", url, "clone", "notes")
        assert fleet.rows(other, "bob", url) == ["ann"]
        fleet.ok(other, "bob", url, "sql", "notes", "INSERT INTO t VALUES ('bob')")
        fleet.ok(other, "bob", url, "push", "notes")
        fleet.ok(edge, "ann", url, "sql", "notes", "INSERT INTO t VALUES ('offline')")
        refused = fleet.ask(edge, "ann", url, "push", "notes")
        assert "1 unpushed commit" in refused.line(3)
        fleet.ok(edge, "ann", url, "reset", "notes", "--keep-as", "mine")
        assert fleet.rows(edge, "ann", url) == ["ann", "bob"]
        fleet.ok(edge, "ann", url, "push", "mine")
        fleet.ok(other, "bob", url, "pin", "notes")
        fleet.ok(edge, "ann", url, "retain", "notes", "--all", "7d")
        fleet.ok(edge, "ann", url, "mv", "notes", "kept/notes")
        assert "kept/notes" in fleet.ok(other, "cat", url, "ls", "--remote")
        assert "mine" in fleet.ok(other, "cat", url, "ls", "--remote")
    assert not fleet.said


def test_a_store_goes_on_under_either_release(fleet: Fleet) -> None:
    """Forward and back again: each looks after what the other wrote."""
    store = (fleet.folder / "store").as_uri()
    for number, release in enumerate(("old", "new", "old", "new")):
        with fleet.node(release) as url:
            if number:
                fleet.ok(release, release, url, "clone" if number == 1 else "pull", "notes")
            else:
                fleet.ok(release, release, url, "create", "notes")
            made = "CREATE TABLE IF NOT EXISTS t(w PRIMARY KEY)"
            fleet.ok(release, release, url, "sql", "notes", f"{made}; INSERT INTO t VALUES ('{number}')")
            assert fleet.rows(release, release, url) == [str(each) for each in range(number + 1)]
            fleet.ok(release, release, url, "push", "notes")
        assert not fleet.said
        fleet.ok(release, f"{release} upkeep", store, "upkeep", "--store", store, "--once")
        for other in RELEASES:
            assert "nothing is wrong" in fleet.ok(other, f"{other} scrub", store, "scrub", "--store", store)


def test_of_a_node_of_the_older_release_the_names_of_a_time_are_told_to_be_todays(fleet: Fleet) -> None:
    for release in RELEASES:
        with fleet.node(release) as url:
            fleet.ok("new", release, url, "create", release)
            fleet.ok("new", release, url, "sql", release, "CREATE TABLE t(w)")
            fleet.ok("new", release, url, "push", release)
            with open_edge(home=fleet.folder / release, remote=url) as edge:
                entries, told = Namespace(edge).entries_at(LATE_MS)
            names = sorted(entry.name for entry in entries)
            assert (names, told) == ((["old"], 0) if release == "old" else (["new", "old"], LATE_MS))


def test_a_home_goes_on_under_the_newer_release_and_not_back(fleet: Fleet) -> None:
    store = (fleet.folder / "store").as_uri()
    fleet.ok("old", "ann", store, "create", "notes")
    fleet.ok("old", "ann", store, "sql", "notes", "CREATE TABLE t(w); INSERT INTO t VALUES ('unpushed')")
    assert fleet.rows("new", "ann", store) == ["unpushed"]
    assert "of format 2, and this Budwood knows 1: upgrade it" in fleet.ask("old", "ann", store, "status").line()
    fleet.ok("new", "ann", store, "push", "notes")
    fleet.ok("old", "bob", store, "clone", "notes")
    assert fleet.rows("old", "bob", store) == ["unpushed"]


def test_what_the_older_release_does_not_know_it_refuses_in_words(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_key(tmp_path / "key")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    table = "CREATE TABLE t(w); INSERT INTO t VALUES ('secret')"
    with fleet.node("new") as url:
        fleet.ok("new", "ann", url, "create", "notes")
        fleet.ok("new", "ann", url, "sql", "notes", table)
        fleet.ok("new", "ann", url, "push", "notes")
        said = fleet.ask("old", "bob", url, "export", "notes", str(tmp_path / "out"))
        assert (said.code, "upgrade" in said.line()) == (1, True), said
        assert not (tmp_path / "out").exists()
    (logged,) = fleet.said.splitlines()
    assert logged.startswith("read_pages was answered with 501: ")
    assert "upgrade" in logged
    # A node that would not say that it is encrypted must not get it.
    with fleet.node("old") as url:
        fleet.ok("new", "dan", url, "create", "other")
        fleet.ok("new", "dan", url, "sql", "other", table)
        said = fleet.ask("new", "dan", url, "push", "other")
        assert (said.code, "upgrade" in said.line()) == (1, True), said
        assert b"secret" not in b"".join(
            path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()
        )

"""push, pull and fetch with --all: every volume of a home, several beside one another, with a mount and without."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from budwood.server.node import Node
from budwood.sync.edge import open as open_edge
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import LIST_NAMES, NamesRequest

from ..mounts import mounted, needs_fuse
from ..served import serving
from ..waits import LIMIT_SECONDS
from .cli import Command
from .cli import serving as serving_process

AT_ONCE = 4


@pytest.fixture
def ann(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, tmp_path / "ann", (tmp_path / "store").as_uri())


@pytest.fixture
def bob(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, tmp_path / "bob", (tmp_path / "store").as_uri())


def test_all_of_a_home_goes_there_and_comes_back(ann: Command, bob: Command) -> None:
    assert ann.ok("push", "--all") == "nothing to push\n"
    for name in ("a", "b/c", "d"):
        ann.sql_made(name)
    assert ann.ok("push", "--all") == "pushed 6 commits of 3 volumes\n"
    assert ann.ok("push", "--all") == "nothing to push\n"
    for name in ("a", "b/c"):
        bob.sql(name, "DELETE FROM t WHERE a = 1")
    assert bob.ok("pull", "--all") == "nothing new: each of 2 volumes is as it was\n"
    assert bob.ok("push", "--all") == "pushed 2 commits of 2 volumes\n"
    assert ann.ok("pull", "--all") == "pulled 2 of 3 volumes\n"
    assert ann.sql("b/c", "SELECT a FROM t") == ["2", "3"]


def test_one_that_has_diverged_is_named_and_stops_no_other(ann: Command, bob: Command) -> None:
    for name in ("a", "b", "c"):
        ann.sql_made(name)
    ann.ok("push", "--all")
    bob.sql("b", "DELETE FROM t WHERE a = 1")
    bob.ok("push", "b")
    for name in ("a", "b", "c"):
        ann.sql(name, "DELETE FROM t WHERE a = 3")
    told = ann("push", "--all")
    assert (told.code, told.out) == (1, "pushed 2 commits of 2 volumes\n")
    first, last = told.err.splitlines()
    assert first.startswith("budwood: b: volume 'b' has 1 unpushed commit")
    assert last == "budwood: 1 of 3 volumes failed, as said above; the others are done"
    bob.sql("a", "DELETE FROM t WHERE a = 2")
    bob.ok("push", "a")
    told = ann("pull", "--all")
    assert (told.code, told.out) == (1, "pulled 1 of 3 volumes\n")
    assert told.err.splitlines() == [first, last]


def test_a_remote_that_is_away_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving_process(tmp_path / "store") as address:
        user = Command(capsys, tmp_path / "home", address)
        for number in range(12):
            user.sql_made(f"v{number}")
        user.ok("push", "--all")
    for number in range(12):
        user.sql(f"v{number}", "DELETE FROM t WHERE a = 1")
    for verb in ("push", "pull"):
        assert f"can't reach {address}" in user(verb, "--all").line()
    with serving_process(tmp_path / "store") as address:
        user = Command(capsys, tmp_path / "home", address)
        assert user.ok("push", "--all") == "pushed 12 commits of 12 volumes\n"


def test_a_home_without_a_remote_says_that_one_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user = Command(capsys, tmp_path / "home")
    for name in ("a", "b"):
        user.sql_made(name)
    assert "--remote" in user("push", "--all").line(2)
    assert user.ok("pull", "--all") == "nothing new: no volume here follows a remote\n"


def test_all_or_one_and_not_both(ann: Command) -> None:
    assert ann("push", "a", "--all").line(2).startswith("push takes a volume's name, or --all")
    assert ann("pull", "a", "--all").line(2).startswith("pull takes a volume's name, or --all")
    assert "without --all" in ann("push", "--all", "--as", "b").line(2)


@contextmanager
def meeting(call: str, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """A node that answers none of these calls until so many wait; its address."""
    store, waiting, met = MemoryStore(), 0, anyio.Event()
    answer = getattr(Node, call)

    async def meet(*arguments: object, **options: object) -> object:
        nonlocal waiting
        waiting += 1
        if waiting == AT_ONCE:
            met.set()
        with anyio.fail_after(LIMIT_SECONDS):
            await met.wait()
        return await answer(*arguments, **options)

    monkeypatch.setattr(Node, call, meet)
    with start_blocking_portal("asyncio") as portal, portal.wrap_async_context_manager(serving(store)) as address:
        yield address


@pytest.mark.parametrize("call", ["create", "commit"])
def test_volumes_are_pushed_beside_one_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with meeting(call, monkeypatch) as address:
        user = Command(capsys, tmp_path / "home", address)
        for number in range(AT_ONCE + 2):
            user.sql_made(f"v{number}")
        assert user.ok("push", "--all").endswith(f"of {AT_ONCE + 2} volumes\n")


@needs_fuse
def test_a_new_file_in_the_place_of_one_that_was_renamed_is_pushed_with_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving_process(tmp_path / "store") as address, mounted(tmp_path, "--no-sync", remote=address) as mount:
        (mount.directory / "f").write_bytes(b"first")
        user = Command(capsys, mount.home, address)
        user.ok("push", "--all")
        (mount.directory / "f").rename(mount.directory / "g")
        (mount.directory / "f").write_bytes(b"second")
        assert user.ok("push", "--all") == "pushed 1 commit of 1 volume\n"
        other = Command(capsys, tmp_path / "other", address)
        assert {row["name"] for row in json.loads(other.ok("ls", "--remote", "--json"))} == {"f", "g"}


@needs_fuse
def test_what_a_mount_has_is_pushed_beside_one_another_with_its_directories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with meeting("commit", monkeypatch) as address, mounted(tmp_path, "--no-sync", remote=address) as mount:
        (mount.directory / "d" / "empty").mkdir(parents=True)
        for number in range(AT_ONCE + 2):
            (mount.directory / "d" / f"f{number}").write_bytes(b"text")
        user = Command(capsys, mount.home, address)
        assert user.ok("push", "--all") == "pushed 6 commits of 6 volumes\n"
        assert user.ok("push", "--all") == "nothing to push\n"
        with closing(open_edge(home=tmp_path / "other", remote=address)) as edge:
            listed = edge.connection().remote.ask(LIST_NAMES, NamesRequest()).entries
        assert {"d", "d/empty"} < {entry.name for entry in listed}

"""What commands ask of a mount that runs on their home, and what they say of its answers. No kernel takes part: the
mount's end of the socket is served here, its verbs work on the same home.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from budwood.fuse.host import mount_client
from budwood.fuse.host.control import serve
from budwood.fuse.host.mount_lock import hold_home
from budwood.sync.edge import open as open_edge
from budwood.volume.errors import BadInput

from ..waits import LIMIT_SECONDS
from .cli import Command

Asked = list[tuple[str, ...]]


@pytest.fixture
def make(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Command]:
    remote = (tmp_path / "store").as_uri()
    return lambda name: Command(capsys, tmp_path / name, remote)


@pytest.fixture
def ann(make: Callable[[str], Command]) -> Command:
    return make("ann")


@pytest.fixture
def bob(make: Callable[[str], Command]) -> Command:
    return make("bob")


def do(home: Path, remote: str, verb: str, arguments: tuple[str, ...]) -> Any:
    """The verbs, as far as a local store and a remote do them."""
    with closing(open_edge(home=home, remote=remote)) as edge:
        match verb, arguments:
            case "settle", ():
                return None
            case "push", (name,):
                return edge.volume(name).push()
            case "push", (name, "--as", new):
                return edge.volume(name).push(as_name=new)
            case "pull", (name,):
                return edge.volume(name).pull()
            case "fetch", (name,):
                return edge.volume(name).fetch()
            case "reset", (name, "--discard"):
                return edge.volume(name).reset(discard=True)
            case "reset", (name, "--keep-as", new):
                return edge.volume(name).reset(keep_as=new)
            case "reset", (name,):
                return edge.volume(name).reset()
            case _:
                raise BadInput(f"there is no verb {verb} {arguments}")


@contextmanager
def mount_of(user: Command, **options: object) -> Generator[Asked]:
    """A mount with the user's remote; what it is asked."""
    asked: Asked = []
    remote = str(options.setdefault("remote", user.options[-1]) or "")
    ready, ended = threading.Event(), trio.Event()
    tokens: list[trio.lowlevel.TrioToken] = []

    async def answer(verb: str, arguments: list[str]) -> Any:
        asked.append((verb, *arguments))
        return await trio.to_thread.run_sync(do, user.home, remote, verb, tuple(arguments))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, mount_client.folder(user.home) / mount_client.SOCKET, answer)
            tokens.append(trio.lowlevel.current_trio_token())
            ready.set()
            await ended.wait()
            nursery.cancel_scope.cancel()

    with hold_home(user.home, Path("/mnt"), options):
        server = threading.Thread(target=trio.run, args=(main,))
        server.start()
        try:
            assert ready.wait(LIMIT_SECONDS)
            yield asked
        finally:
            tokens[0].run_sync_soon(ended.set)
            server.join()


def without_settling(asked: Asked) -> Asked:
    return [each for each in asked if each != ("settle",)]


def test_syncing_is_the_mount_s_work_and_is_told_in_the_same_words(ann: Command, bob: Command) -> None:
    ann.sql_made("v")
    with mount_of(ann) as asked:
        assert ann.ok("push", "v") == "pushed 2 commits of v: LSN 1\n"
        assert ann.ok("push", "v") == "nothing to push: v is at LSN 1\n"
        bob.sql("v", "DELETE FROM t WHERE a = 1")
        bob.ok("push", "v")
        assert ann.ok("pull", "v") == "pulled v: LSN 1 to 2\n"
        assert ann.ok("pull", "v") == "nothing new: v is at LSN 2\n"
        assert ann.ok("fetch", "v").startswith("fetched ")
        assert ann.ok("fetch", "v") == "nothing to fetch: all of v is here\n"
        assert without_settling(asked) == [(verb, "v") for verb in ("push", "push", "pull", "pull", "fetch", "fetch")]


def test_a_push_under_another_name_is_the_mount_s_too(ann: Command) -> None:
    ann.sql_made("v")
    with mount_of(ann) as asked:
        assert ann.ok("push", "v", "--as", "w") == "pushed 2 commits of v as w: LSN 1\n"
        assert without_settling(asked) == [("push", "v", "--as", "w")]
        assert [row["name"] for row in json.loads(ann.ok("ls", "--remote", "--json"))] == ["w"]


@pytest.mark.parametrize(
    ("option", "rest"), [(["--discard"], ""), (["--keep-as", "mine"], "; what was unpushed is mine now")]
)
def test_a_reset_is_the_mount_s_work(ann: Command, option: list[str], rest: str) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    ann.sql("v", "DELETE FROM t")
    with mount_of(ann) as asked:
        assert "unpushed" in ann("reset", "v").line(3)
        assert ann.ok("reset", "v", *option) == f"reset v to LSN 1{rest}\n"
        assert without_settling(asked) == [("reset", "v"), ("reset", "v", *option)]


def test_an_error_of_the_mount_has_its_own_status(ann: Command, bob: Command) -> None:
    ann.sql_made("v")
    ann.ok("push", "v")
    bob.sql("v", "DELETE FROM t")
    ann.sql("v", "DELETE FROM t")
    bob.ok("push", "v")
    with mount_of(ann):
        assert "unpushed" in ann("pull", "v").line(3)


def test_every_command_that_reads_settles_first(ann: Command, tmp_path: Path) -> None:
    ann.sql_made("v")
    with mount_of(ann) as asked:
        for arguments in (
            ["status"],
            ["status", "v"],
            ["ls"],
            ["log", "v"],
            ["sql", "v", "SELECT 1"],
            ["export", "v", str(tmp_path / "out")],
            ["fork", "v", "w"],
            ["mv", "w", "x"],
            ["rm", "x", "--discard"],
        ):
            asked.clear()
            ann.ok(*arguments)
            assert asked == [("settle",)], arguments


def test_the_mount_s_remote_is_the_command_s(ann: Command, bob: Command) -> None:
    bob.sql_made("v")
    bob.ok("push", "v")
    bare = Command(ann.capsys, ann.home)
    assert "no remote is given" in bare("pull", "v").line()
    with mount_of(ann) as asked:
        assert bare.ok("pull", "v") == "nothing new: v is at LSN 1\n"
        assert without_settling(asked) == [("pull", "v")]


def test_a_command_for_another_remote_does_the_work_itself(ann: Command, tmp_path: Path) -> None:
    ann.sql_made("v")
    for theirs in (None, (tmp_path / "other").as_uri()):
        with mount_of(ann, remote=theirs) as asked:
            ann.ok("push", "v")
            assert without_settling(asked) == []


def test_a_mount_that_died_is_no_mount(ann: Command) -> None:
    ann.sql_made("v")
    mount_client.folder(ann.home).mkdir()
    with (
        socket.socket(socket.AF_UNIX) as dead,
        mount_client.address(mount_client.folder(ann.home) / mount_client.SOCKET) as address,
    ):
        dead.bind(address)
    assert ann.ok("push", "v") == "pushed 2 commits of v: LSN 1\n"
    assert "nothing to push" in ann.ok("status", "v")

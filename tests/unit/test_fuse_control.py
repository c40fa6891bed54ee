"""The mount's socket: what one end is asked, the other is told, and nothing that a caller does ends it."""

from __future__ import annotations

import json
import logging
import os
import socket
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from budwood.fuse.host import mount_client
from budwood.fuse.host.control import serve
from budwood.volume.errors import BadInput, Corrupt, Diverged, NotFound, StoreError, Unavailable, UsageError

from ..waits import LIMIT_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["trio"])]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    mount_client.folder(tmp_path).mkdir(mode=0o700)
    return tmp_path


async def echo(verb: str, arguments: list[str]) -> Any:
    """Stands for the mount's verbs."""
    match verb:
        case "diverge":
            raise Diverged("two of them")
        case "damage":
            raise Corrupt("logs/x", "torn")
        case "burst":
            raise ZeroDivisionError("no such number")
        case "odd":
            return object()
        case _:
            return {"verb": verb, "arguments": arguments}


@asynccontextmanager
async def serving(home: Path, answer: Callable[[str, list[str]], Any] = echo) -> AsyncGenerator[Path]:
    path = mount_client.folder(home) / mount_client.SOCKET
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, path, answer)
        yield path
        nursery.cancel_scope.cancel()


async def ask(home: Path, verb: str, *arguments: str) -> Any:
    return await trio.to_thread.run_sync(
        lambda: mount_client.ask(home, verb, *arguments, timeout_seconds=LIMIT_SECONDS)
    )


async def test_an_answer_comes_back(home: Path) -> None:
    async with serving(home):
        assert await ask(home, "push", "shop", "ü \n") == {"verb": "push", "arguments": ["shop", "ü \n"]}


async def test_a_long_answer_comes_back_whole(home: Path) -> None:
    rows = [{"name": f"volume {i}", "unpushed": i} for i in range(20_000)]

    async def answer(_verb: str, _arguments: list[str]) -> Any:
        return rows

    async with serving(home, answer):
        assert await ask(home, "status") == rows


async def test_an_error_comes_back_as_what_it_was(home: Path) -> None:
    async with serving(home):
        with pytest.raises(Diverged, match="two of them"):
            await ask(home, "diverge")
        with pytest.raises(Corrupt, match="logs/x is damaged: torn") as damage:
            await ask(home, "damage")
        assert damage.value.key == "logs/x"


@pytest.mark.parametrize("verb", ["burst", "odd"])
async def test_an_unexpected_failure_is_told_and_logged_and_the_next_verb_works(
    home: Path, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(home):
        with caplog.at_level(logging.ERROR), pytest.raises(StoreError, match=f"'{verb}' failed unexpectedly") as told:
            await ask(home, verb)
        assert not told.value.determinate
        assert "Traceback" in caplog.text
        assert await ask(home, "status") == {"verb": "status", "arguments": []}


async def test_a_slow_verb_holds_nobody_else_up(home: Path) -> None:
    begun, release = trio.Event(), trio.Event()

    async def answer(verb: str, arguments: list[str]) -> Any:
        if verb == "slow":
            begun.set()
            await release.wait()
        return verb

    said: list[str] = []

    async def slow() -> None:
        said.append(await ask(home, "slow"))

    async with serving(home, answer), trio.open_nursery() as callers:
        callers.start_soon(slow)
        await begun.wait()
        said.append(await ask(home, "quick"))
        release.set()
    assert said == ["quick", "slow"]


async def test_a_verb_goes_on_when_its_caller_has_gone(home: Path) -> None:
    begun, release, done = trio.Event(), trio.Event(), trio.Event()

    async def answer(_verb: str, _arguments: list[str]) -> Any:
        begun.set()
        await release.wait()
        done.set()

    async with serving(home, answer) as path:
        caller = await trio.open_unix_socket(str(path))
        await caller.send_all(b'{"verb": "push"}\n')
        await begun.wait()
        await caller.aclose()
        release.set()
        with trio.fail_after(LIMIT_SECONDS):
            await done.wait()
        assert await ask(home, "status") is None


@pytest.mark.parametrize(
    "garbage",
    [b"\n", b"status\n", b"[]\n", b'{"verb": 1}\n', b'{"arguments": []}\n', b'{"verb":"a","arguments":"b"}\n'],
)
async def test_garbage_is_refused_and_the_connection_goes_on(home: Path, garbage: bytes) -> None:
    async with serving(home) as path, await trio.open_unix_socket(str(path)) as caller:
        await caller.send_all(garbage + b'{"verb": "status"}\n')
        told = b""
        while told.count(b"\n") < 2:
            told += await caller.receive_some()
        refused, answered = map(json.loads, told.splitlines())
        assert refused["error"]["code"] == "BadInput"
        assert answered == {"ok": {"verb": "status", "arguments": []}}


async def test_a_request_without_an_end_is_cut_off(home: Path) -> None:
    async with serving(home) as path:
        async with await trio.open_unix_socket(str(path)) as caller:
            await caller.send_all(b"x" * (1 << 16) + b"y")
            with trio.fail_after(LIMIT_SECONDS):
                told = b""
                while chunk := await caller.receive_some():
                    told += chunk
        assert json.loads(told)["error"]["code"] == "BadInput"
        assert await ask(home, "status")


async def test_the_socket_is_private_and_goes_with_the_server(home: Path) -> None:
    async with serving(home) as path:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert not path.exists()


async def test_a_socket_left_by_a_dead_process_is_replaced(home: Path) -> None:
    path = mount_client.folder(home) / mount_client.SOCKET
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(NotFound, match="no mount runs on the home"):
        await ask(home, "status")
    async with serving(home):
        assert await ask(home, "status")


async def test_a_home_with_a_path_longer_than_an_address_is_served(tmp_path: Path) -> None:
    home = tmp_path / ("d" * 100) / ("e" * 100)
    mount_client.folder(home).mkdir(parents=True)
    async with serving(home):
        assert await ask(home, "status")
        assert mount_client.serving(home) == os.getpid()
    assert mount_client.serving(home) is None


async def test_a_mount_that_does_not_answer_in_time_may_have_done_it(home: Path) -> None:
    async def answer(_verb: str, _arguments: list[str]) -> Any:
        await trio.sleep_forever()

    async with serving(home, answer):
        with pytest.raises(Unavailable, match="has not answered 'push' within") as late:
            await trio.to_thread.run_sync(lambda: mount_client.ask(home, "push", timeout_seconds=0.05))
    assert not late.value.determinate


async def test_a_mount_that_ends_before_it_answers_may_have_done_it(home: Path) -> None:
    begun = trio.Event()

    async def answer(_verb: str, _arguments: list[str]) -> Any:
        begun.set()
        await trio.sleep_forever()

    async def caller() -> None:
        with pytest.raises(Unavailable, match="ended before it answered 'push'") as cut:
            await ask(home, "push")
        assert not cut.value.determinate

    async with trio.open_nursery() as callers, serving(home, answer):
        callers.start_soon(caller)
        await begun.wait()


async def test_no_mount_is_told_as_that(home: Path) -> None:
    with pytest.raises(NotFound, match=r"no mount runs on the home .*: budwood mount DIR starts one"):
        await ask(home, "status")
    assert mount_client.serving(home) is None
    assert mount_client.serving(home / "nowhere") is None


async def test_what_a_mount_wrote_of_itself_may_be_damaged(home: Path) -> None:
    for content in (b"", b"{", b"[1]", b"\xff"):
        (mount_client.folder(home) / mount_client.STATE).write_bytes(content)
        assert mount_client.stated(home) == {}


async def test_bad_input_is_a_usage_error_at_the_other_end(home: Path) -> None:
    async def answer(verb: str, _arguments: list[str]) -> Any:
        raise BadInput(f"there is no verb {verb!r}")

    async with serving(home, answer):
        with pytest.raises(UsageError, match="there is no verb 'dance'"):
            await ask(home, "dance")

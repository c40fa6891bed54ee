"""A start in the background: what the caller is told, what the log keeps, what the process does not inherit."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from budwood.fuse.daemon import Started, start
from budwood.fuse.host.mount_client import LOG, folder
from budwood.fuse.host.unmount import users

SERVES = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
{before}
print("serving", os.getpid(), flush=True)
os.dup2(2, 1)
{after}
signal.sigwait([signal.SIGTERM])
"""


class Background:
    """Processes started for a home, each ended and waited for."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.pids: list[int] = []

    def start(self, code: str) -> Started:
        return start([sys.executable, "-P", "-c", code], self.home, dict(os.environ))

    def serve(self, after: str = "", *, before: str = "") -> int:
        status, line = self.start(SERVES.format(before=before, after=after))
        assert status == 0, line
        word, pid = line.split()
        assert word == "serving"
        self.pids.append(int(pid))
        return int(pid)

    def end(self) -> None:
        while self.pids:
            pid = self.pids.pop()
            os.kill(pid, signal.SIGTERM)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    def log(self, name: str = LOG) -> str:
        return (folder(self.home) / name).read_text()


@pytest.fixture
def background(tmp_path: Path) -> Generator[Background]:
    made = Background(tmp_path / "home")
    try:
        yield made
    finally:
        made.end()


def test_a_start_returns_with_the_line_that_says_it_serves(background: Background) -> None:
    pid = background.serve()
    assert os.getsid(pid) == pid, "a session of its own, which a terminal that closes doesn't end"


def test_what_a_process_says_before_it_ends_is_handed_on_with_its_status(background: Background) -> None:
    failing = "import sys; print('noise\\nbudwood: no such store', file=sys.stderr); sys.exit(3)"
    assert background.start(failing) == (3, "budwood: no such store")
    assert "noise" in background.log()


def test_what_libfuse_said_is_told_too(background: Background) -> None:
    code = "import sys; sys.exit('fuse: failed to open /dev/fuse\\nfusermount3: no\\nbudwood: /d can\\'t be mounted')"
    assert background.start(code) == (1, "budwood: /d can't be mounted (fusermount3: no)")


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("import os; os._exit(0)", "with status 0"),
        ("import os; os.abort()", "by signal 6"),
        ("print('half a line', end='')", "with status 0"),
    ],
)
def test_a_process_that_ends_without_a_word_is_told_as_that(background: Background, code: str, how: str) -> None:
    status, line = background.start(code)
    assert status == 1
    assert f"ended {how} before it served" in line
    assert str(folder(background.home) / LOG) in line


def test_the_log_is_kept_from_this_start_and_the_one_before(background: Background) -> None:
    for each in ("one", "two", "three"):
        background.serve(f"print('{each}', flush=True); print('{each} too', file=sys.stderr, flush=True)")
        background.end()
    assert background.log() == "three\nthree too\n"
    assert background.log(f"{LOG}.1") == "two\ntwo too\n"
    assert sorted(path.name for path in folder(background.home).iterdir()) == [LOG, f"{LOG}.1"]


def test_no_descriptor_of_the_caller_s_lives_on(background: Background) -> None:
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    try:
        background.serve()
    finally:
        os.close(write_end)
    with open(read_end, "rb") as pipe:
        assert pipe.read() == b"", "the pipe ends, as nobody else has it"


def test_the_processes_that_use_a_directory_are_found(background: Background, tmp_path: Path) -> None:
    directory = tmp_path / "in use"
    directory.mkdir()
    (tmp_path / "in use too").touch()
    assert list(users(directory)) == []
    stands = background.serve(before=f"os.chdir({str(directory)!r})")
    opened = background.serve(before=f"file = open({str(directory / 'f')!r}, 'w')")
    background.serve(before=f"file = open({str(tmp_path / 'in use too')!r})")
    assert {pid for pid, _ in users(directory)} == {stands, opened}
    assert all(f"({pid})" in name for pid, name in users(directory))

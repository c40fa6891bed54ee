"""The kernel's requests: none waits for another one to come, and none is sent for nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from .. import mounts
from ..mounts import Mount, mounted, needs_fuse
from ..waits import LIMIT_SECONDS

pytestmark = needs_fuse

# A mount that kills the program whose number stands in a file, between seeing a request and reading it.
KILLING = """
import os, signal, time
from budwood.fuse.requests import readers
victim, wait_readable = os.environ["VICTIM"], readers._TRIO.lowlevel.wait_readable

async def kill_in_between(fd):
    await wait_readable(fd)
    try:
        kill()
    except OSError:
        pass  # There is no such program, or not any more.

def kill():
    with open(victim) as file:
        pid = int(file.read())
    deadline = time.monotonic() + 10.0
    while "request" not in open(f"/proc/{pid}/wchan").read():
        if time.monotonic() > deadline:
            return  # What was seen is not of its asking.
    os.unlink(victim)
    os.kill(pid, signal.SIGKILL)
    while open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX":
        time.sleep(0.001)

readers._TRIO.lowlevel.wait_readable = kill_in_between
from budwood.cli.launch import main
main()
"""

ASKING = """
import os, sys
sys.stdin.readline()
os.stat(sys.argv[1])
"""


@pytest.fixture
def killing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[Mount, Path]]:
    victim = tmp_path / "victim"
    monkeypatch.setattr(mounts, "ENTRY", [sys.executable, "-P", "-c", KILLING])
    monkeypatch.setenv("VICTIM", str(victim))
    with mounted(tmp_path, "--no-sync") as mount:
        yield mount, victim


def test_a_request_whose_program_is_killed_before_it_is_read_keeps_nobody_waiting(
    killing: tuple[Mount, Path],
) -> None:
    mount, victim = killing
    for turn in range(50):
        with subprocess.Popen(
            [sys.executable, "-I", "-c", ASKING, str(mount.directory / f"nothing-{turn}")],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as asking:
            fresh = victim.with_suffix(".new")
            fresh.write_text(str(asking.pid))
            fresh.replace(victim)
            asking.communicate(b"go\n", timeout=LIMIT_SECONDS)
        victim.unlink(missing_ok=True)
        # Nobody has asked the file system for anything since, unless the kernel itself had something to say meanwhile.
        if mount.ask("metrics")["requests_taken_back_total"] >= 3:
            break
    else:
        pytest.fail("no request was ever taken back")
    (mount.directory / "file").write_bytes(b"one")
    assert (mount.directory / "file").read_bytes() == b"one"


def asked(mount: Mount, request: str) -> int:
    return int(mount.ask("metrics")["requests_total"]["request"].get(request, 0))


def test_reads_after_writes_ask_for_no_attributes(tmp_path: Path) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        path = mount.directory / "file"
        path.write_bytes(bytes(64 * 1024))
        fd = os.open(path, os.O_RDWR)
        try:
            os.pread(fd, 64 * 1024, 0)
            before = asked(mount, "getattr")
            for turn in range(100):
                os.pwrite(fd, bytes([turn]) * 4096, turn % 16 * 4096)
                assert os.pread(fd, 1, turn % 16 * 4096) == bytes([turn])
            assert asked(mount, "getattr") - before < 10
        finally:
            os.close(fd)


def test_sizes_and_times_are_what_the_last_writer_left(tmp_path: Path) -> None:
    """Of a file that several have open; one of them only reads."""
    with mounted(tmp_path, "--no-sync") as mount:
        path = mount.directory / "file"
        path.write_bytes(b"a" * 10_000)
        with path.open("rb", buffering=0) as reader, path.open("r+b", buffering=0) as writer:
            assert reader.read() == b"a" * 10_000
            before = os.fstat(reader.fileno()).st_mtime_ns
            writer.seek(20_000)
            writer.write(b"b" * 5_000)
            assert os.fstat(reader.fileno()).st_size == 25_000
            assert os.pread(reader.fileno(), 30_000, 9_000) == b"a" * 1_000 + bytes(10_000) + b"b" * 5_000
            writer.truncate(5)
            assert os.fstat(reader.fileno()).st_size == 5
            assert os.pread(reader.fileno(), 100, 0) == b"aaaaa"
            writer.truncate(8_000)
            assert os.pread(reader.fileno(), 10_000, 0) == b"aaaaa" + bytes(7_995)
            os.fsync(writer.fileno())
            assert path.stat().st_mtime_ns > before
        with closing(os.scandir(mount.directory)) as entries:
            assert [(each.name, each.stat().st_size) for each in entries] == [("file", 8_000)]

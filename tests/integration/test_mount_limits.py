"""The limits that a process has on the size of its files (RLIMIT_FSIZE) hold on a mount as on a disk; those of the
process that mounted are nobody else's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .. import mounts
from ..mounts import mounted, needs_fuse
from ..waits import LIMIT_SECONDS

pytestmark = needs_fuse

LIMITED = """
import errno, json, os, resource, signal, sys
path, outcomes, told = sys.argv[1], {}, {signal.SIGXFSZ}
# It waits, to be counted.
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_BLOCK, told)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
source = os.open(sys.argv[2], os.O_RDONLY)


def twice(fd):
    return [os.write(fd, bytes(8_000)), os.write(fd, bytes(8_000)), os.write(fd, b"more")]


def append(fd):
    os.write(fd, bytes(10_000))
    other = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        return os.write(other, b"more")
    finally:
        os.close(other)


for name, work in {
    "write": twice,
    "a long write": lambda fd: os.write(fd, bytes(20_000)),
    "up to the limit": lambda fd: os.pwrite(fd, bytes(10), 9_999),
    "at the limit": lambda fd: os.pwrite(fd, bytes(10), 10_000),
    "far beyond": lambda fd: os.pwrite(fd, bytes(10), 1 << 30),
    "append": append,
    "ftruncate": lambda fd: os.ftruncate(fd, 10_000),
    "ftruncate beyond": lambda fd: os.ftruncate(fd, 10_001),
    "truncate beyond": lambda fd: os.truncate(path, 10_001),
    "posix_fallocate": lambda fd: os.posix_fallocate(fd, 0, 10_001),
    "sendfile": lambda fd: os.sendfile(fd, source, 0, 20_000),
}.items():
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        done = work(fd)
    except OSError as error:
        done = errno.errorcode[error.errno]
    outcomes[name] = [done, signal.sigtimedwait(told, 0) is not None, os.fstat(fd).st_size]
    os.close(fd)
print(json.dumps(outcomes))
"""
"""Grows a file in every way that there is; what became of it, whether a signal told of it, and the size."""


def limited(folder: Path, source: Path) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-I", "-c", LIMITED, str(folder / "file"), str(source)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, object] = json.loads(done.stdout)
    return outcomes


def test_a_program_s_limit_on_the_size_of_files_holds_as_on_a_disk(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "source").write_bytes(bytes(30_000))
    expected = limited(tmp_path / "disk", tmp_path / "source")
    assert expected["at the limit"] == ["EFBIG", True, 0]
    with mounted(tmp_path, "--no-sync") as mount:
        assert limited(mount.directory, tmp_path / "source") == expected
        (mount.directory / "file").write_bytes(bytes(20_000))


def test_the_limit_of_who_mounted_limits_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In blocks of 512 or of 1024 bytes, as shells count.
    small = ["sh", "-c", 'ulimit -S -f 2048 && exec "$@"', "sh"]
    monkeypatch.setattr(mounts, "ENTRY", [*small, *mounts.ENTRY])
    content = os.urandom(8 << 20)
    with mounted(tmp_path, "--no-sync") as mount:
        (mount.directory / "file").write_bytes(content)
        mount.remount()
        assert (mount.directory / "file").read_bytes() == content

"""A mount as tests start it: `budwood mount --foreground` on a home, as a process of its own.

    with mounted(tmp_path) as mount:
        (mount.directory / "a").write_bytes(b"one")
        mount.kill()            # SIGKILL, and the dead mount is taken away
        mount.start()           # the same home at the same directory

What a test starts, it ends: leaving `mounted` ends the process (SIGTERM; it must end with 0 and leave no mount) and
takes away what is left, at the last with `fusermount3 -u -z`. Calls into a mount can't be timed out from within, so a
watcher stands by, a process of its own: it kills the daemon when the time is up (every call then fails with ENOTCONN,
and so does the test), or when the test's process is gone.
"""

from __future__ import annotations

import importlib.util
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from budwood.fuse.host import mount_client

from . import fork_server
from .waits import LIMIT_SECONDS

ENTRY = [sys.executable, "-P", "-c", "from budwood.cli.launch import main; main()"]
TEST_SECONDS = 3 * LIMIT_SECONDS
MODULE_SECONDS = 12 * LIMIT_SECONDS
"""How long a mount lives at the most: that of one test, and that of a module's or a state machine's tests."""

WATCH = """
import os, select, subprocess, sys
pid, seconds, directory = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
if not (select.select([0], [], [], seconds)[0] and os.read(0, 1)):
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass
    subprocess.run(["fusermount3", "-u", "-z", directory], stderr=subprocess.DEVNULL)
"""
"""A byte on its standard input says that all is well; the end of it, that the test is gone."""


def why_not() -> str:
    """What this machine lacks for a mount, or nothing."""
    if importlib.util.find_spec("pyfuse3") is None:
        return "pyfuse3 is not installed"
    if shutil.which("fusermount3") is None:
        return "there is no fusermount3 (package fuse3)"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse can't be opened: {error.strerror}"
    return ""


needs_fuse = pytest.mark.skipif(bool(why_not()), reason=why_not() or "FUSE is here")


def is_mounted(directory: Path) -> bool:
    """Whether anything is mounted there, dead or alive; asks the kernel's table, never the mount."""
    wanted = os.fspath(directory).replace(" ", "\\040")
    with open("/proc/self/mountinfo") as table:
        return any(line.split()[4] == wanted for line in table)


class Mount:
    """A home, the directory it is mounted at, and the process that serves it, while there is one."""

    def __init__(self, home: Path, directory: Path, *, remote: str = "", limit_seconds: float = TEST_SECONDS) -> None:
        self.home = home
        self.directory = directory
        self.remote = remote
        self.log = directory.with_name(f"{directory.name}.log")
        """What every daemon of this mount said on standard error."""
        self.process: subprocess.Popen[str] | None = None
        self._limit_seconds = limit_seconds
        self._watcher: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, fault: str = "") -> None:
        """Returns when it serves. `fault` is the point that it dies at ("point", or "point#n")."""
        assert self.process is None, "it runs already"
        self.directory.mkdir(parents=True, exist_ok=True)
        where = ["--home", str(self.home), *(["--remote", self.remote] if self.remote else [])]
        with self.log.open("a") as log:
            self.process = fork_server.Popen(
                [*ENTRY, *where, "mount", str(self.directory), "--foreground", *options],
                env={**os.environ, "BUDWOOD_FAULT": fault},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", WATCH, str(self.process.pid), str(self._limit_seconds), self.directory],
            stdin=subprocess.PIPE,
        )
        line = self._first_line()
        assert line == f"budwood: {self.directory} mounted (home {self.home})\n", f"it said {line!r}: {self.said()}"

    def stop(self) -> None:
        """End it as a user does; it must end well and leave nothing."""
        assert self.process is not None, "it runs no more"
        self.process.send_signal(signal.SIGTERM)
        status = self._ended("did not end on SIGTERM")
        left = is_mounted(self.directory)
        self.end()
        assert status == 0, f"the mount ended with {status}: {self.said()}"
        assert not left, "a mount was left behind"

    def kill(self) -> None:
        """SIGKILL, as a crash; whatever is open on it gets errors from here on."""
        assert self.process is not None, "it runs no more"
        self.process.kill()
        self.end()

    def died(self) -> None:
        """Wait until a fault point has killed it."""
        status = self._ended("was never cut")
        self.end()
        assert status == -signal.SIGKILL, f"the mount was never cut (status {status}): {self.said()}"

    def end(self) -> None:
        """Whatever state it is in: afterwards no process and no mount of it is left."""
        process, self.process = self.process, None
        watcher, self._watcher = self._watcher, None
        if process is not None:
            process.kill()
            try:
                process.wait(LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                # It waits for itself: what ends that is the end of the connection.
                subprocess.run(["umount", "-f", self.directory], capture_output=True, check=False)
                process.wait(LIMIT_SECONDS)
                raise
            finally:
                assert process.stdout is not None
                process.stdout.close()
        self._unmount()
        if watcher is not None:
            with suppress(BrokenPipeError):
                watcher.communicate(b".")

    @property
    def lives(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def remount(self) -> None:
        self.stop()
        self.start()

    def ask(self, verb: str, *arguments: str, timeout_seconds: float = LIMIT_SECONDS) -> Any:
        """What the running mount answers through its socket."""
        return mount_client.ask(self.home, verb, *arguments, timeout_seconds=timeout_seconds)

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def _first_line(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        ready = select.select([self.process.stdout], [], [], LIMIT_SECONDS)[0]
        return self.process.stdout.readline() if ready else ""

    def _ended(self, otherwise: str) -> int:
        assert self.process is not None
        try:
            return self.process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"the mount {otherwise}: {self.said()}") from None

    def _unmount(self) -> None:
        for options in (["-u"], ["-u", "-z"]):
            if is_mounted(self.directory):
                subprocess.run(["fusermount3", *options, self.directory], capture_output=True, check=False)
        assert not is_mounted(self.directory), f"{self.directory} can't be unmounted"


@contextmanager
def mounted(
    folder: Path,
    *options: str,
    remote: str = "",
    home: str = "home",
    directory: str = "mnt",
    fault: str = "",
    limit_seconds: float = TEST_SECONDS,
) -> Generator[Mount]:
    """A mount under `folder` (an absolute path without symbolic links), ended well at the end if it runs then."""
    mount = Mount(folder / home, folder / directory, remote=remote, limit_seconds=limit_seconds)
    try:
        mount.start(*options, fault=fault)
        yield mount
        if mount.process is not None:
            mount.stop()
    except BaseException:
        print(mount.said())  # What pytest shows beside a failure.
        raise
    finally:
        mount.end()

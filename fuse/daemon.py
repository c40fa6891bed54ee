"""Daemon: the mount as a process of its own, from its start to its end.

`serve` is that process's work, in the foreground. `start` runs a command that ends in `serve` in the background, as a
new session, and waits until it says that it serves. It is a fresh interpreter and no fork of this one: trio and libfuse
don't live through a fork.

What the process has to say goes to `<home>/mount/log`, anew at each start and where that has grown large (logfile.py);
what was said before is `log.1`. A process that ends before it serves has said why on its last line: `start` hands that
on, with what fusermount3 or libfuse had said of it before.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ..volume.errors import UsageError
from .host.checks import LIBRARIES, check_directory
from .host.logfile import LogFile
from .host.mount_client import LOG
from .host.mount_lock import hold_home, make_folder
from .host.mount_options import Options

_PREFIX: Final = "budwood: "
_LONGEST_END_BYTES: Final = 1 << 16


class Started(NamedTuple):
    """What became of a start: status 0 and the line that says so, or the status and the reason."""

    status: int
    line: str


def ready_line(directory: Path, home: Path) -> str:
    """One line, whatever the names are: whoever started this process reads no further."""
    return f"budwood: {directory} mounted (home {home})".replace("\n", "\\n")


def serve(options: Options, *, nonempty: bool = False, detached: bool = False) -> None:
    """Mount and serve until unmounted or told to end; says on standard output once programs can use it. The machine has
    been checked (`check_machine`).

    `detached`: the reader of standard output goes then, so that what is printed later belongs in the log.
    """
    run, home = _serving(), options.home
    check_directory(options.directory, home, nonempty=nonempty)
    _log_to_standard_error(options.folder / LOG if detached else None)

    def ready() -> None:
        # In one piece, as the reader of the line is gone after it.
        sys.stdout.write(f"{ready_line(options.directory, home)}\n")
        sys.stdout.flush()
        if detached:
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    with hold_home(home, options.directory, options.public, past=options.past):
        run(options, on_ready=ready)


def _serving() -> Callable[..., None]:
    try:
        from .mount import run
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in LIBRARIES:
            raise
        raise UsageError(f"pyfuse3 can't be loaded ({error}): pip install --force-reinstall 'budwood[fuse]'") from error
    return run


def _log_to_standard_error(path: Path | None) -> None:
    logging.basicConfig(handlers=[LogFile(path)], level=logging.WARNING)
    logging.getLogger(__name__.partition(".")[0]).setLevel(logging.INFO)


def start(command: list[str], home: Path, environment: Mapping[str, str], *, past: Path | None = None) -> Started:
    """Run `command` in the background until it prints a line or ends. `past`: the directory, of a mount that shows the
    past.
    """
    log = _fresh_log(make_folder(home, past))
    with open(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as said:
        # None of our descriptors goes along: a mount that lived on with them would keep pipes and locks from ending.
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        with process.stdout:
            line = os.fsdecode(process.stdout.readline())
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if line.endswith("\n"):
        # It lives on, and isn't ours to wait for.
        process.returncode = 0
        return Started(0, line.rstrip("\n"))
    status = process.wait()
    return Started(status if status > 0 else 1, _last_words(log) or _told_nowhere(status, log))


def _fresh_log(own: Path) -> Path:
    log = own / LOG
    if log.exists():
        log.replace(own / f"{LOG}.1")
    return log


def _told_nowhere(status: int, log: Path) -> str:
    if not os.statvfs(log.parent).f_bavail:
        return f"budwood: no room left on the disk of {log.parent}: make room, then try again"
    how = f"with status {status}" if status >= 0 else f"by signal {-status}"
    return f"budwood: the mount process ended {how} before it served: look at {log}"


def _last_words(log: Path) -> str:
    with open(log, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LONGEST_END_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    ours = [line for line in lines if line.startswith(_PREFIX)]
    libfuse = [line for line in lines if line.startswith("fuse")]
    return f"{ours[-1]} ({libfuse[-1]})" if ours and libfuse else ours[-1] if ours else ""

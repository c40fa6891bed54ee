"""Mount client: what other processes learn of a mount, and what they ask of it.

Standard library alone, plain blocking calls: a command that meets no mount pays one look at a file name.

The mount process of a home keeps its state in `<home>/mount/`:

    lock         held by the process (`mount_lock.py`): a home is mounted once
    mount.json   {pid, dir, options, socket, started}; what a process that was killed leaves behind is out of date
    control      its Unix socket (`control.py`). Whether someone listens there who isn't dying is what tells alive from
                 dead: a process that can't end, as it waits for its own mount, still has it
    log, log.1   what it has to say; from this start, and what was said before (logfile.py)

A mount that shows the past keeps its own in a folder there, named by its directory: any number of them may be beside
the one that serves the home, and commands ask none of them.

Nobody waits for a mount process that is dead or stopped, nor looks at its directory, which would wait for it too.

A socket's path may have 107 bytes. A longer one is reached through a descriptor of its folder.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, cast

from ...volume.errors import BudwoodError, NotFound, Unavailable, UsageError
from .mountinfo import Mountpoint, table
from .process_state import ProcessState, process_state

LOCK: Final = "lock"
LOG: Final = "log"
SOCKET: Final = "control"
STATE: Final = "mount.json"
PAST: Final = "past-"

_LONGEST_PATH: Final = 107
_CHUNK_BYTES: Final = 1 << 16
_LOOK_SECONDS: Final = 5.0
_STEP_SECONDS: Final = 0.5
"""Between two looks whether who is to answer still lives."""
_CREDENTIALS: Final = struct.Struct("3i")
_GONE: Final = (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR)


def folder(home: Path, past: Path | None = None) -> Path:
    """Where the home's mount process keeps its state, or the one that shows the past on that directory."""
    own = home / "mount"
    return own if past is None else own / f"{PAST}{blake2b(os.fsencode(past), digest_size=8).hexdigest()}"


@dataclass(frozen=True, slots=True)
class MountInfo:
    """A mount of ours, alive or dead."""

    directory: Path
    home: Path
    read_only: bool
    alive: bool
    """Another user's, whose state we may not read, is taken for alive."""
    pid: int | None
    """The process that answers, where it is known."""
    device: int
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    """What it was started with: see mount_lock.py."""
    past: bool = False
    """Whether it shows the past. Known of others that are dead, too."""

    @property
    def folder(self) -> Path:
        return folder(self.home, self.directory if self.past else None)

    @property
    def stopped(self) -> bool:
        """Whether its process was stopped (by SIGSTOP, a terminal or a debugger), and so answers nobody for now."""
        return self.pid is not None and process_state(self.pid) is ProcessState.STOPPED

    @property
    def mode(self) -> str:
        """In words: read-write, read-only, at LSN 7, at 2030-01-31."""
        if (lsn := self.options.get("lsn")) is not None:
            return f"at LSN {lsn}"
        if at := self.options.get("at"):
            return f"at {at}"
        return "read-only" if self.read_only else "read-write"


def mounts() -> list[MountInfo]:
    """Every mount of ours that this process sees, whoever started it; by directory."""
    return sorted((info_of(each) for each in table() if each.ours), key=lambda info: info.directory)


def info_of(mount: Mountpoint) -> MountInfo:
    home, read_only = Path(mount.source), "ro" in mount.options
    found = MountInfo(mount.directory, home, read_only, alive=False, pid=None, device=mount.device)
    # The home may have been mounted anew, elsewhere, after this one's process had died; and what died here before may
    # have been of the other kind.
    for past in (None, mount.directory):
        state = stated(home, past)
        if state.get("dir") == str(mount.directory):
            pid, options = serving(home, past), state.get("options", {})
            found = replace(found, alive=pid is not None, pid=pid, options=options, past=past is not None)
        if found.alive:
            return found
    return found if not _is_closed_to_us(home) else replace(found, alive=True)


def _is_closed_to_us(home: Path) -> bool:
    try:
        (folder(home) / STATE).stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return not os.access(folder(home) / STATE, os.R_OK)


def stated(home: Path, past: Path | None = None) -> dict[str, Any]:
    """What that mount process wrote of itself, perhaps before it died; empty if there is nothing to read."""
    return stated_in(folder(home, past))


def stated_in(own: Path) -> dict[str, Any]:
    """The same, of the process whose folder it is."""
    try:
        state = json.loads((own / STATE).read_bytes())
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", state) if isinstance(state, dict) else {}


def serving(home: Path, past: Path | None = None) -> int | None:
    """The process that answers for the home, or for its past on that directory, or will when it goes on; None if there
    is none.
    """
    pid: Any
    try:
        with _connected(home, past) as link:
            pid = _peer(link)
    except NotFound:
        return None
    except BudwoodError:
        # Someone listens, but not to us: another user's, or one that is too busy to take the call.
        pid = stated(home, past).get("pid")
    return pid if isinstance(pid, int) and process_state(pid) is not ProcessState.DEAD else None


def _peer(link: socket.socket) -> int:
    """The process at the other end."""
    told = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(told)[0])


def ask(home: Path, verb: str, *arguments: str, past: Path | None = None, timeout_seconds: float | None = None) -> Any:
    """The answer of the home's mount to a verb (`verbs.py`), or of the one that shows its past on that directory.
    Without a timeout it waits for as long as the mount lives, and isn't stopped.

    Raises the error that was told; NotFound if no mount runs on that home; Unavailable if it doesn't answer in time or
    ends before it answers, after which the verb may or may not have been done.
    """
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    with _connected(home, past) as link:
        pid, log = _peer(link), folder(home, past) / LOG
        try:
            link.sendall(json.dumps({"verb": verb, "arguments": arguments}).encode() + b"\n")
            line = _line(link, pid, deadline)
        except _StoppedError:
            raise Unavailable(
                f"the mount of {home} is stopped, and can't answer {verb!r}: kill -CONT {pid} lets its process go on",
                determinate=False,
            ) from None
        except TimeoutError:
            raise Unavailable(
                f"the mount of {home} has not answered {verb!r} within {timeout_seconds:g} s: try again, or look at"
                f" {log}",
                determinate=False,
            ) from None
        except (ConnectionError, EOFError) as error:
            raise Unavailable(
                f"the mount of {home} ended before it answered {verb!r}: look at {log}",
                determinate=False,
            ) from error
    return _result_of(json.loads(line))


def _result_of(answer: dict[str, Any]) -> Any:
    error = answer.get("error")
    if error is None:
        return answer.get("ok")
    # It loads msgspec, which a verb that succeeds doesn't need.
    from ...volume.wire import from_wire

    raise from_wire(error["code"], error["message"], error.get("details", {}))


class _StoppedError(Exception):
    """Who is to answer was stopped."""


def _line(link: socket.socket, pid: int, deadline: float | None) -> bytes:
    chunks: list[bytes] = []
    while not (chunks and chunks[-1].endswith(b"\n")):
        left = _STEP_SECONDS if deadline is None else min(_STEP_SECONDS, max(0.001, deadline - time.monotonic()))
        link.settimeout(left)
        try:
            chunk = link.recv(_CHUNK_BYTES)
        except TimeoutError:
            if deadline is not None and time.monotonic() >= deadline:
                raise
            _check_it_lives(pid)
            continue
        if not chunk:
            raise EOFError("the connection ended within an answer")
        chunks.append(chunk)
    return b"".join(chunks)


def _check_it_lives(pid: int) -> None:
    """A process that is dying keeps its sockets for as long as it can't end."""
    how = process_state(pid)
    if how is ProcessState.DEAD:
        raise EOFError("its process is dying")
    if how is ProcessState.STOPPED:
        raise _StoppedError


@contextmanager
def _connected(home: Path, past: Path | None = None) -> Generator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as link:
        link.settimeout(_LOOK_SECONDS)
        try:
            with address(folder(home, past) / SOCKET) as path:
                link.connect(path)
        except (TimeoutError, BlockingIOError):
            # As many as it lets wait, wait for it already.
            raise Unavailable(f"the mount of {home} does not take calls: look at {folder(home, past) / LOG}") from None
        except OSError as error:
            if error.errno in _GONE:
                raise NotFound(f"no mount runs on the home {home}: budwood mount DIR starts one") from None
            raise UsageError(f"the mount of {home} can't be reached: {error.strerror}") from error
        yield link


@contextmanager
def address(path: Path) -> Generator[str]:
    """`path` as a socket's address, however long it is; valid within. Its folder must exist."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)

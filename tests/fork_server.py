"""Children that begin in milliseconds: forked from a process that has loaded what most of them load.

    with fork_server.Popen([sys.executable, "-P", "-c", source, ...], stdout=subprocess.PIPE) as child: ...

A test's child spends its time in starting: a node loads for most of a second and answers three requests. `Popen` here
is subprocess's own but for who makes the process. It is a child of the test's process in every respect: waited for,
stopped and killed by its number. What differs is that its modules stand loaded, so how a process loads, and in what
time, isn't to be tested by it.

The server, one for each process of tests, is this file run as a program. It forks twice, and the one between ends at
once; the kernel gives an orphan to the next ancestor that asked for orphans (PR_SET_CHILD_SUBREAPER), and the test's
process asks for as long as one start takes. In the child the program runs to the interpreter's ordinary end.

Whatever can't be begun so (another interpreter or other options, other settings of Python's own, a system other than
Linux) is begun as subprocess does.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
_ENVIRONMENT = dict(os.environ)
"""As it was before any test changed it: the server's."""
MOST_BYTES = 1 << 17
"""Of one request: a program's source, its arguments and environment. A longer one is begun as subprocess does."""

PRELOADED = (
    "anyio._backends._asyncio",
    "budwood.cli.main",
    "budwood.cli.mounting",
    "budwood.cli.query",
    "budwood.cli.serve",
    "budwood.cli.syncing",
    "budwood.cli.volumes",
    "budwood.fuse.daemon",
    "budwood.fuse.host.checks",
    "budwood.fuse.mount",
    "budwood.remote.connect_failure",
    "budwood.remote.loop",
    "budwood.remote.owner_liveness",
    "budwood.rows.replaying",
    "budwood.server.http.process",
    "budwood.server.http.run_node",
    "budwood.server.store.open_store",
    "budwood.server.store.observed",
    "budwood.server.store.sqlite_records",
    "budwood.sync.compaction",
    "budwood.sync.edge",
    "budwood.sync.tail_keeper",
    "budwood.vfs.connect",
    "httpcore",
    "httpx",
)
"""What a node, a mount and the usual commands load. What else a child needs it loads itself."""


class Popen(subprocess.Popen[str]):
    """subprocess's, of text; forked where the command is `[sys.executable, "-P", "-c" and source, or a file, ...]`."""

    def _execute_child(self, args: Sequence[object], executable: Any, *others: Any) -> None:
        (preexec, close_fds, pass_fds, cwd, env, _, _, shell, *pipes) = others
        (stdin, to_stdin, from_stdout, stdout, from_stderr, stderr, restore, *identity, session, group) = pipes
        plain = executable is None and preexec is None and close_fds and not pass_fds and not shell and restore
        request = _request(args, cwd, os.environ if env is None else env, session) if plain else b""
        if not request or group != -1 or any(each not in {None, -1} for each in identity):
            super()._execute_child(args, executable, *others)  # type: ignore[misc]
            return
        streams = [number if each == -1 else each for number, each in enumerate((stdin, stdout, stderr))]
        try:
            self.pid = _start(request, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(stdin, to_stdin, from_stdout, stdout, from_stderr, stderr)  # type: ignore[attr-defined]


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    input: str | None = None,  # noqa: A002 - as subprocess calls it
    timeout: float | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` of text, its output captured; it may end as it likes."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as child:
        try:
            output, errors = child.communicate(input, timeout=timeout)
        except BaseException:
            child.kill()
            raise
    return subprocess.CompletedProcess(command, child.returncode, output, errors)


def _request(command: Sequence[object], folder: Any, environment: Mapping[str, str], session: bool) -> bytes:
    """What the server is told; nothing if it can't do it."""
    line = [str(each) for each in command]
    if sys.platform != "linux" or line[:2] != [sys.executable, "-P"] or len(line) < 3:
        return b""
    if line[2] == "-c":
        program, arguments = {"source": line[3]}, line[4:]
    elif line[2].startswith("-"):
        return b""
    else:
        program, arguments = {"file": line[2]}, line[3:]
    if _of_python(environment) != _of_python(_ENVIRONMENT):
        return b""
    told: dict[str, object] = {
        **program,
        "arguments": arguments,
        "folder": os.fspath(folder) if folder is not None else os.getcwd(),
        "environment": dict(environment),
        "session": session,
    }
    request = json.dumps(told).encode()
    return request if len(request) <= MOST_BYTES else b""


def _of_python(environment: Mapping[str, str]) -> dict[str, str]:
    """What an interpreter reads as it begins: its own settings, and the locale."""
    return {name: environment[name] for name in environment if name.startswith(("PYTHON", "LC_", "LANG", "LD_"))}


class _Server:
    """The process that forks, and the socket on which it is asked."""

    def __init__(self) -> None:
        self._socket, its_own = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.of = os.getpid()
        with its_own:
            command = [sys.executable, "-P", __file__, str(its_own.fileno())]
            null = subprocess.DEVNULL
            self._process = subprocess.Popen(
                command, stdin=null, stdout=null, env=_ENVIRONMENT, pass_fds=[its_own.fileno()]
            )
        atexit.register(self._end)

    def start(self, request: bytes, streams: Sequence[int]) -> int:
        with _adopting():
            socket.send_fds(self._socket, [request], list(streams))
            answer = self._socket.recv(64)
        assert answer, f"the server of forks ended with {self._process.wait()}"
        return int(answer)

    def _end(self) -> None:
        self._socket.close()
        if self.of == os.getpid():
            self._process.wait()


@contextmanager
def _adopting() -> Generator[None]:
    """Orphans among this process's descendants become its children."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


_starting = threading.Lock()
_servers: list[_Server] = []
"""One at the most; a process that was forked from this one makes its own."""


def _start(request: bytes, streams: Sequence[int]) -> int:
    """The number of the process; one begins at a time."""
    with _starting:
        if not _servers or _servers[0].of != os.getpid():
            _servers[:] = [_Server()]
        return _servers[0].start(request, streams)


def _serve(asked: socket.socket) -> dict[str, Any]:
    """Fork once for each request. Returns in a child alone, with what it is to run; its streams are in their places."""
    # An interrupt at the terminal is for whoever waits there; a child takes it as any interpreter does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        request, streams, _, _ = socket.recv_fds(asked, MOST_BYTES, 3)
        if not request:
            os._exit(0)
        (reading, writing), (orphaned, between_lives) = os.pipe(), os.pipe()
        if (between := os.fork()) == 0:
            if child := os.fork():
                os.write(writing, b"%d" % child)
                os._exit(0)
            # It begins once it has the parent that it is to have.
            os.close(between_lives)
            os.read(orphaned, 1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for place, stream in enumerate(streams):
                os.dup2(stream, place)
            for each in (reading, writing, orphaned, asked.detach(), *streams):
                os.close(each)
            told: dict[str, Any] = json.loads(request)
            return told
        os.close(writing)
        os.waitpid(between, 0)
        os.close(between_lives)
        asked.send(os.read(reading, 64))
        for each in (reading, orphaned, *streams):
            os.close(each)


def _run(told: dict[str, Any]) -> None:
    """As the interpreter would, as `__main__`."""
    if told["session"]:
        os.setsid()
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["environment"])
    faults.arm_from_environment()
    file = told.get("file", "<string>")
    sys.argv = [told.get("file", "-c"), *told["arguments"]]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = file
    source = told["source"] if "source" in told else Path(file).read_text()
    exec(compile(source, file, "exec"), vars(main))


if __name__ == "__main__":
    for name in PRELOADED:
        import_module(name)
    from budwood.volume import faults

    threads = os.listdir("/proc/self/task")
    assert len(threads) == 1, f"what is loaded started threads, which no fork has: {threads}"
    gc.freeze()
    _run(_serve(socket.socket(fileno=int(sys.argv[1]))))

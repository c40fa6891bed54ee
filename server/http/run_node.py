"""Run: one node served in one process, until SIGTERM or SIGINT; but a SIGINT that was ignored at the start stays so.

Order, and why: the port is bound BEFORE the node opens, since the node writes its address into the log's epoch, and
since a second node on the same port must fail before it deposes anyone. On a signal the node is no longer ready
(`/readyz`), those that wait are told to ask again, and each answer closes its connection; for the time of the drain it
goes on to answer whoever comes. Then the server takes no more requests and finishes those it has, those that take too
long are ended, and the node closes.

Granian binds with SO_REUSEPORT, by which two servers would share one port and each get half the requests; so it is
handed a socket that was bound here, without.
"""

from __future__ import annotations

import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Final, ParamSpec, cast

import anyio
from granian._granian import SocketHolder
from granian.constants import Interfaces
from granian.http import HTTP1Settings, HTTP2Settings
from granian.server.embed import Server

from ...volume.errors import BadInput, Unavailable
from ...volume.protocols import Remote
from ..access.access import Access
from ..telemetry.loop_lag import watch_lag
from ..telemetry.node_metrics import NodeMetrics
from .app import make_app
from .asgi import ASGIApp
from .caller_limits import CallerLimits
from .certificate import Certificate
from .memory_budget import Pace
from .observed import Observed
from .supervisor import HURRY
from .workers import Worker

DEFAULT_PORT: Final = 7447
BACKLOG: Final = 1024
CONNECTIONS: Final = 16_384
"""At once, if the process may have so many files open; further ones wait, unaccepted. Of four, three may be long
polls'."""
OTHER_FILES: Final = 512
"""That a node opens beside its connections: its store's, its cache's."""
FILES_OF_A_CALL: Final = 3
"""Of one that a worker hands on to another, and takes from another, at the most."""
HEAD_BYTES: Final = 64 * 1024
STREAMS: Final = 128
"""Of one HTTP/2 connection."""
DEFAULT_PACE: Final = Pace()
STOP_SECONDS: Final = 10.0
"""How long requests under way may take once the node is told to stop."""
END_SECONDS: Final = 5.0
"""How long the server may take to end once no request is under way."""

P = ParamSpec("P")


class _Embedded(Server):
    """Granian on a socket that was bound elsewhere."""

    def __init__(
        self, app: Any, listener: socket.socket, pace: Pace, connections: int, certificate: Certificate | None
    ) -> None:
        head_ms = max(1, round(pace.head_seconds * 1000))
        super().__init__(
            app,
            interface=Interfaces.ASGINL,
            websockets=False,
            backlog=BACKLOG,
            backpressure=connections,
            http1_settings=HTTP1Settings(header_read_timeout=head_ms),
            http2_settings=HTTP2Settings(
                keep_alive_interval=head_ms, max_headers_size=HEAD_BYTES, max_concurrent_streams=STREAMS
            ),
            log_enabled=False,
            ssl_cert=certificate and certificate.chain,
            ssl_key=certificate and certificate.key,
        )
        self._listener = listener
        self.started = anyio.Event()

    def _spawn_workers(self, spawn_target: Any, target_loader: Any) -> None:
        spawn: Callable[[Any, Any], None] = cast("Any", super())._spawn_workers
        spawn(spawn_target, target_loader)
        self.started.set()

    def end(self) -> None:
        """Take no more requests, and let `serve` return once those under way are answered."""
        self.interrupt_signal = True
        self.main_loop_interrupt.set()

    def _init_shared_socket(self) -> None:
        # A copy, since granian closes what it is given. Its stubs leave the constructor out.
        reservation: Any = SocketHolder
        self._ssp = None
        self._shd = reservation(self._listener.dup().detach(), False, BACKLOG)


class _UnderWay:
    """The requests that are being answered: each of them can be ended."""

    def __init__(self) -> None:
        self._requests: set[anyio.CancelScope] = set()
        self._ended = anyio.Event()

    def of(self, app: Callable[P, Awaitable[None]]) -> Callable[P, Awaitable[None]]:
        """The same application, whose requests count."""

        async def counted(*args: P.args, **kwargs: P.kwargs) -> None:
            with anyio.CancelScope() as request:
                self._requests.add(request)
                try:
                    await app(*args, **kwargs)
                finally:
                    self._requests.discard(request)
                    self._ended.set()

        return counted

    def end(self) -> None:
        for request in self._requests:
            request.cancel()

    async def ended(self) -> None:
        """Until none is left. The server waits for none whose caller has gone away."""
        while self._requests:
            self._ended = anyio.Event()
            await self._ended.wait()


def raise_file_limit(files_of_a_call: int = 1) -> None:
    """Let this process open as many files as it may: many systems give it 1,024 unless it asks."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS * files_of_a_call + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections(files_of_a_call: int = 1) -> int:
    """How many may stand at once, so that files are left for the node itself: without, it could neither accept nor
    write."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS
    return max(16, min(CONNECTIONS, (soft - OTHER_FILES) // files_of_a_call))


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises BadInput if the address can't be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        raise BadInput(f"can't listen at {host}:{port}: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except (OSError, OverflowError) as error:
        listener.close()
        raise BadInput(f"can't listen at {host}:{port} ({error}): take another with --listen HOST:PORT") from error
    return listener


def address_of(listener: socket.socket, host: str, *, tls: bool = False) -> str:
    """Where others reach it: as it was given, but a name of this machine where it listens everywhere."""
    scheme = "https" if tls else "http"
    port = listener.getsockname()[1]
    if host in {"", "0.0.0.0", "::"}:
        host = socket.gethostname()
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def serve(
    open_node: Callable[[str], AbstractAsyncContextManager[Remote]],
    *,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    token: str = "",
    advertise: str = "",
    allowed_hosts: Sequence[str] = (),
    certificate: Certificate | None = None,
    pace: Pace = DEFAULT_PACE,
    on_ready: Callable[[str, Remote], None] | None = None,
    stop: anyio.Event | None = None,
    listener: socket.socket | None = None,
    worker: Worker | None = None,
    metrics: NodeMetrics | None = None,
    drain_seconds: float = 0.0,
    limits: CallerLimits | None = None,
    access: Callable[[Remote], Awaitable[Access | None]] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or `stop`; must run under asyncio.

    Without a `token` a request's Host must be an address, loopback's name, or a name of this node: `host`, the host of
    `advertise`, this machine's, one of `allowed_hosts` ("*": any); see access_control.py.
    With a `certificate` it speaks TLS, and nothing else.
    `open_node` is given the address that others reach this node at (`advertise`, or what follows from host and port)
    and opens the node; it is left at the end. `on_ready` is called with both once requests are answered. Signals are
    only looked at when no `stop` is given (they belong to the main thread). A `worker` of several serves at a
    `listener` of its own (listeners.py). What is measured goes to the `metrics`, those that the node counts in if there
    are some. Told to stop, it takes requests for `drain_seconds` more, while it says that it isn't ready. `limits` are
    what one caller may take; `access` says, of the node, what each may do. Raises BadInput if the port is taken, or the
    certificate is none.
    """
    if certificate is not None:
        certificate.check()
    listener, counted = listener or bind(host, port), metrics or NodeMetrics()
    stopping = anyio.Event()
    try:
        address = advertise or address_of(listener, host, tls=certificate is not None)
        async with open_node(address) as node:
            hosts = (host, address, *allowed_hosts)
            connections = most_connections(1 if worker is None else FILES_OF_A_CALL)
            polls = connections * 3 // 4
            app = make_app(
                node,
                token=token,
                hosts=hosts,
                pace=pace,
                stopping=stopping,
                most_polls=polls,
                workers=worker,
                metrics=counted,
                limits=limits,
                access=None if access is None else await access(node),
            )

            def ready() -> None:
                if on_ready:
                    on_ready(address, node)

            def embedded(app: ASGIApp) -> _Embedded:
                return _Embedded(app, listener, pace, connections, certificate)

            await _serve(
                Observed(app, counted, stopping), stopping, embedded, stop, ready, worker, counted, drain_seconds
            )
            await node.aclose()
    finally:
        listener.close()


async def _serve(
    app: ASGIApp,
    stopping: anyio.Event,
    embedded: Callable[[ASGIApp], _Embedded],
    stop: anyio.Event | None,
    ready: Callable[[], None],
    worker: Worker | None,
    metrics: NodeMetrics,
    drain_seconds: float,
) -> None:
    under_way, siblings = _UnderWay(), _UnderWay()
    server = embedded(under_way.of(app))

    async def run() -> None:
        await server.serve()
        # What other workers have asked for is finished, too: their callers wait.
        await siblings.ended()
        tasks.cancel_scope.cancel()

    # Signals are caught from before anyone is told that this node is ready until it has stopped.
    with _orders(stop, hurry=None if worker is None else HURRY) as order:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            tasks.start_soon(watch_lag, metrics.lagged)
            await server.started.wait()
            if worker is not None:
                tasks.start_soon(worker.serve, siblings.of)
            ready()
            await order()
            stopping.set()
            # Whoever says it twice does not want to wait.
            hurry = anyio.Event()
            tasks.start_soon(_told, order, hurry)
            with anyio.move_on_after(drain_seconds):
                await hurry.wait()
            server.end()
            with anyio.move_on_after(STOP_SECONDS):
                await hurry.wait()
            # Granian's threads must not need this loop, nor the interpreter, once they have gone.
            under_way.end()
            siblings.end()
            await anyio.sleep(END_SECONDS)
            tasks.cancel_scope.cancel()
        under_way.end()
        with anyio.move_on_after(END_SECONDS):
            await under_way.ended()
    if not stopping.is_set():
        raise Unavailable("the HTTP server ended by itself")


async def _told(order: Callable[[], Awaitable[None]], told: anyio.Event) -> None:
    await order()
    told.set()


@contextmanager
def _orders(
    stop: anyio.Event | None, *, hurry: signal.Signals | None
) -> Generator[Callable[[], Awaitable[None]], None, None]:
    """What waits for the next order to stop. Where `hurry` is a signal, it alone says so again."""
    if stop is not None:
        given = iter((stop.wait, anyio.sleep_forever))
        yield lambda: next(given)()
        return
    # A shell has SIGINT ignored in a script's background jobs: Ctrl-C means what is in front.
    interrupts = [] if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else [signal.SIGINT]
    again = [] if hurry is None else [hurry]
    with anyio.open_signal_receiver(signal.SIGTERM, *interrupts, *again) as signals:
        ordered = False

        async def next_signal() -> None:
            nonlocal ordered
            while await anext(signals) not in again:
                if not (ordered and again):
                    break
            ordered = True

        yield next_signal

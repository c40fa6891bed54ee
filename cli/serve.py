"""Serving: one node over one store, until it is told to stop: in this process, or with --workers in several.

Prints one line on standard output once it answers, and nothing more while all is well. SIGTERM and Ctrl-C end it
cleanly, with exit status 0; in a script's background job, where Ctrl-C is ignored, SIGTERM alone does. Where there is
no store it says so, since a mistyped address would else be a new and empty one; --create makes it. With --token (or
BUDWOOD_TOKEN) every caller has to show that token. Without one a node serves this machine alone: an address that others
reach is refused, unless --insecure says that everyone may.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..volume.errors import NotFound
from ..volume.ids import check_node, check_region
from .common_options import Context, flag, option
from .durations import seconds_of
from .exit_status import Call
from .prices import read_prices
from .traced import traced

if TYPE_CHECKING:
    from ..server.http.workers import Worker
    from ..volume.protocols import Remote

DEFAULT_LISTEN: Final = "127.0.0.1:7447"


def address_of(listen: str) -> tuple[str, int]:
    """HOST:PORT, with an IPv6 host in brackets."""
    host, colon, port = listen.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535 or (":" in host and not bracketed):
        raise Call(f"{listen!r} is no address to listen at: write HOST:PORT, as {DEFAULT_LISTEN}")
    return host.strip("[]"), int(port)


def check_listen(listen: str, host: str, *, token: str, keys: bool, tls: bool, insecure: bool) -> None:
    """Raises Call if others would reach the node, and nothing was said of who may use it, or all that is said could be
    read on the way."""
    if insecure or _is_loopback(host):
        return
    if not (token or keys):
        raise Call(
            f"whoever reaches {listen} could read and write all of the store: ask for keys with --keys, or for a token "
            "with --token or BUDWOOD_TOKEN, or say --insecure"
        )
    if not tls:
        raise Call(
            f"whoever is on the way to {listen} could read keys and tokens, and all else: give --tls-cert and "
            "--tls-key, or say --insecure where something before this node speaks TLS"
        )


def _is_loopback(host: str) -> bool:
    """Whether only this machine reaches it. A name is what it resolves to; one that doesn't is met when it is bound."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM) if host else []
        return bool(found) and all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found)
    except (OSError, UnicodeError, ValueError):
        return False


def serve(
    context: Context,
    store: Annotated[str, option("--store", "URL", "file:///dir, s3://bucket/prefix, gs://…, az://…")],
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")
    ] = DEFAULT_LISTEN,
    node: Annotated[str, typer.Option("--node", metavar="NAME", help="The node's name, and its log's.")] = "main",
    takeover: Annotated[bool, flag("--takeover", "Take the log even from a node that still answers.")] = False,
    advertise: Annotated[str, option("--advertise", "URL", "How others reach this node, if not by --listen.")] = "",
    insecure: Annotated[
        bool, flag("--insecure", "Listen for others with no token and no keys, or without TLS.")
    ] = False,
    keys: Annotated[
        bool, flag("--keys", "Callers need a key (budwood keys); so they do anyhow once the store has one.")
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        option(
            "--allowed-host",
            "NAME",
            "Another name that callers know this node by; once for each. Asked for without a token only.",
        ),
    ] = None,
    create: Annotated[bool, flag("--create", "Make the store if there is none.")] = False,
    gc_interval: Annotated[
        str | None,
        option("--gc-interval", "TIME", "With --create: what nobody needs is deleted so long after.", default="1h"),
    ] = None,
    no_upkeep: Annotated[
        bool, flag("--no-upkeep", "Leave policies, folds and collections to `budwood upkeep`, or to nobody.")
    ] = False,
    standby: Annotated[
        bool, flag("--standby", "Take over the logs of nodes of this store that can't be reached any more.")
    ] = False,
    region: Annotated[
        str, option("--region", "NAME", "Where it runs: clients and other nodes prefer one of their own.")
    ] = "",
    workers: Annotated[
        int,
        typer.Option(
            "--workers", metavar="N", min=1, help="Serve in so many processes, for as many cores. 1 unless told."
        ),
    ] = 1,
    window: Annotated[
        str | None,
        option("--window", "TIME", "While log entries are in flight, the next collects for so long.", default="20ms"),
    ] = None,
    in_flight: Annotated[
        int | None,
        typer.Option("--in-flight", metavar="N", min=1, help="The most log entries in flight at once. 8 unless told."),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards",
            metavar="N",
            min=1,
            max=12,
            help="Spread large pushes over so many prefixes of the bucket. 1 unless told; any other at each start.",
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        option("--tls-cert", "FILE", "Speak TLS: its certificate, then those that vouch for it (PEM).", default="none"),
    ] = None,
    tls_key: Annotated[Path | None, option("--tls-key", "FILE", "The certificate's key (PEM).", default="none")] = None,
    no_hedging: Annotated[
        bool, flag("--no-hedging", "Send no request to a bucket twice, however long its answer takes.")
    ] = False,
    memory: Annotated[
        int | None,
        typer.Option(
            "--memory",
            metavar="MIB",
            min=0,
            help="Keep so much of what nobody uses open: volumes, logs and names; 128 unless told, of all workers.",
        ),
    ] = None,
    drain: Annotated[
        str | None,
        option(
            "--drain",
            "TIME",
            "Told to stop, answer for so long, and say at /readyz that nobody is to come.",
            default="none",
        ),
    ] = None,
    caller_rate: Annotated[
        float,
        typer.Option(
            "--caller-rate", metavar="N", min=0, help="One caller may make so many calls a second. 0: any number."
        ),
    ] = 0.0,
    caller_calls: Annotated[
        int,
        typer.Option("--caller-calls", metavar="N", min=0, help="And have so many under way at once. 0: any number."),
    ] = 0,
    caller_mib: Annotated[
        float,
        typer.Option(
            "--caller-mib", metavar="MIB", min=0, help="And send so much a second; more is read later. 0: any amount."
        ),
    ] = 0.0,
    log_format: Annotated[
        str | None,
        option("--log-format", "NAME", "json or logfmt: what happens, on standard error.", default="warnings as text"),
    ] = None,
    log_level: Annotated[
        str, option("--log-level", "NAME", "With --log-format: error, warning, info or debug (a line for each call).")
    ] = "info",
    audit_log: Annotated[
        Path | None,
        option("--audit-log", "FILE", "Append who removed, named, forked, took over what.", default="none"),
    ] = None,
    prices: Annotated[
        Path | None,
        option("--prices", "FILE", "TOML: what the store asks for, for the metrics.", default="S3's"),
    ] = None,
    cache: Annotated[Path | None, option("--cache", "DIR", "Keep what is read here, too.", default="in memory")] = None,
) -> None:
    """Serve a store to edges, as the owner of one log, or of one for each worker."""
    if gc_interval is not None and not create:
        raise Call("the gc interval is said where a store is made: add --create, or leave out --gc-interval")
    interval = None if gc_interval is None else max(1, round(seconds_of(gc_interval)))
    drain_seconds = 0.0 if drain is None else seconds_of(drain)
    host, port = address_of(listen)
    check_listen(listen, host, token=context.token or "", keys=keys, tls=tls_cert is not None, insecure=insecure)
    check_node(node)
    if (tls_cert is None) != (tls_key is None):
        raise Call("a certificate and its key go together: give both --tls-cert and --tls-key")
    if workers > 1 and store.startswith("memory:"):
        raise Call(f"each worker would have a {store} of its own: serve another store, or leave out --workers")
    try:
        from ..remote.owner_liveness import liveness_probe, local_stack
        from ..server.access.access import Access
        from ..server.access.registry import Registry
        from ..server.http import process
        from ..server.http.caller_limits import CallerLimits
        from ..server.http.certificate import Certificate
        from ..server.http.run_node import FILES_OF_A_CALL, raise_file_limit
        from ..server.http.run_node import serve as run
        from ..server.log.waiting import Batching
        from ..server.metastore.kept_open import MEMORY_BYTES
        from ..server.metastore.share import Share, log_of_worker
        from ..server.node import Node
        from ..server.pagestore.chunks import MEMORY_BYTES as CACHED_BYTES
        from ..server.store.observed import ObservedStore
        from ..server.store.open_store import open_store
        from ..server.store.root import GC_INTERVAL_SECONDS
        from ..server.telemetry.logs import audit_to, log_to_stderr
        from ..server.telemetry.node_metrics import NodeMetrics
    except ModuleNotFoundError as error:
        raise Call(f"serving needs the package {error.name!r}: pip install 'budwood[server]'") from error
    from ..remote.token import Tokens, origin_of
    from ..volume.owner import base_url

    if advertise and not origin_of(base_url(advertise)):
        raise Call(f"nobody can reach a node at {advertise!r}: write --advertise http://HOST:PORT")
    token = Tokens.of(context.token or "").bare
    if token != (context.token or ""):
        raise Call("the token that this node asks for is no ORIGIN=TOKEN: give it with --token")
    if log_format is not None:
        log_to_stderr(log_format, log_level)
    if audit_log is not None:
        audit_to(audit_log)
    batching = Batching(
        Batching().alpha if in_flight is None else in_flight,
        Batching().window_seconds if window is None else seconds_of(window),
    )
    log_of_worker(node, workers)
    # One in memory is always new.
    makes = create or store.startswith("memory:")
    memory_bytes = (MEMORY_BYTES if memory is None else memory << 20) // workers

    # Of each worker its own: they are made of this process once all of it stands.
    metrics = NodeMetrics(read_prices(prices))

    accesses: list[Callable[[Remote], Access]] = []

    async def access(node: Remote) -> Access | None:
        return accesses[-1](node) if accesses else None

    @asynccontextmanager
    async def open_node(address: str, worker: Worker | None = None, *, again: bool = False) -> AsyncGenerator[Remote]:
        probe = liveness_probe(address)
        try:
            opening = await open_store(store, create=makes, hedging=not no_hedging)
        except NotFound as error:
            raise _no_store(error, makes) from error
        async with aclosing(opening) as opened:
            observed = ObservedStore(opened, metrics)
            serving = Node.open(
                observed,
                name=node,
                address=address,
                stack=str(local_stack()),
                cache_dir=cache,
                cache_bytes=None if cache else CACHED_BYTES // workers,
                memory_bytes=memory_bytes,
                probe_owner=probe if worker is None else worker.probe(address, probe),
                # Who has taken the log since is left alone: whoever starts a node again was not told to depose it.
                takeover=takeover and not again,
                yields=again,
                create=makes,
                gc_interval_seconds=interval or GC_INTERVAL_SECONDS,
                upkeep=not no_upkeep,
                batching=batching,
                standby=standby,
                takes_back=True,
                region=check_region(region),
                share=Share(node) if worker is None else worker.share,
                shards=shards or 1,
            )
            async with AsyncExitStack() as stack:
                try:
                    served = await stack.enter_async_context(serving)
                except NotFound as error:
                    raise _no_store(error, makes) from error
                metrics.watch(served)
                registry = Registry(observed, served.logs.now_ms)
                # Whoever has made keys means them.
                if keys or await registry.has_keys():
                    accesses.append(lambda node: Access(node, observed, str(served.root.store_id), registry))
                yield served if worker is None else worker.whole(served)

    def ready(address: str, how: str = "") -> None:
        print(f"budwood: node {node} serves {store}{how} at {address}", flush=True)

    raise_file_limit(1 if workers == 1 else FILES_OF_A_CALL)
    certificate = Certificate(tls_cert, tls_key) if tls_cert and tls_key else None
    serving = partial(
        run,
        host=host,
        port=port,
        token=token,
        advertise=advertise,
        allowed_hosts=allowed_host or (),
        certificate=certificate,
        metrics=metrics,
        drain_seconds=drain_seconds,
        access=access,
        limits=CallerLimits(
            calls_per_second=caller_rate, calls_at_once=caller_calls, bytes_per_second=caller_mib * (1 << 20)
        ),
    )
    if workers == 1:
        with traced("budwood-node"):
            process.run(lambda: serving(open_node, on_ready=lambda address, _: ready(address)))
        return
    from .supervised import serve_workers

    def serves_at(serves: Callable[[], None], _address: str, _node: Remote) -> None:
        serves()

    def work(worker: Worker, listener: socket.socket, again: bool, serves: Callable[[], None]) -> None:
        opened = partial(open_node, worker=worker, again=again)
        # In each worker by itself: what it exports with is a thread, which no fork takes along.
        with traced("budwood-node"):
            process.run(lambda: serving(opened, listener=listener, worker=worker, on_ready=partial(serves_at, serves)))

    if certificate is not None:
        certificate.check()
    serve_workers(
        node,
        workers,
        (host, port),
        work,
        lambda address: ready(advertise or address, f" with {workers} workers"),
        tls=certificate is not None,
        drain_seconds=drain_seconds,
    )


def _no_store(error: NotFound, makes: bool) -> NotFound:
    return error if makes else NotFound(f"{error}: check the address, or say --create to make a new store there")


VERBS: Final[dict[str, Callable[..., None]]] = {"serve": serve}

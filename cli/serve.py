"""Serving: one node over one store, until it is told to stop.

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
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..volume.errors import NotFound
from ..volume.ids import check_node
from .common_options import Context, flag, option
from .durations import seconds_of
from .exit_status import Call

if TYPE_CHECKING:
    from ..volume.protocols import Remote

DEFAULT_LISTEN: Final = "127.0.0.1:7447"


def address_of(listen: str) -> tuple[str, int]:
    """HOST:PORT, with an IPv6 host in brackets."""
    host, colon, port = listen.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535 or (":" in host and not bracketed):
        raise Call(f"{listen!r} is no address to listen at: write HOST:PORT, as {DEFAULT_LISTEN}")
    return host.strip("[]"), int(port)


def check_listen(listen: str, host: str, *, token: str, insecure: bool) -> None:
    """Raises Call if others would reach the node and nothing was said of who may use it."""
    if not (token or insecure or _is_loopback(host)):
        raise Call(
            f"whoever reaches {listen} could read and write all of the store: give a token with --token or "
            "BUDWOOD_TOKEN, or say --insecure"
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
        bool, flag("--insecure", "Without a token, let everyone who reaches it read and write.")
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
    window: Annotated[
        str | None,
        option("--window", "TIME", "While log entries are in flight, the next collects for so long.", default="20ms"),
    ] = None,
    in_flight: Annotated[
        int | None,
        typer.Option("--in-flight", metavar="N", min=1, help="The most log entries in flight at once. 8 unless told."),
    ] = None,
    no_hedging: Annotated[
        bool, flag("--no-hedging", "Send no request to a bucket twice, however long its answer takes.")
    ] = False,
    memory: Annotated[
        int | None,
        typer.Option(
            "--memory",
            metavar="MIB",
            min=0,
            help="Keep so much of what nobody uses open: volumes, logs and names. 64 unless told.",
        ),
    ] = None,
    cache: Annotated[Path | None, option("--cache", "DIR", "Keep what is read here, too.", default="in memory")] = None,
) -> None:
    """Serve a store to edges, as the owner of one log."""
    if gc_interval is not None and not create:
        raise Call("the gc interval is said where a store is made: add --create, or leave out --gc-interval")
    interval = None if gc_interval is None else max(1, round(seconds_of(gc_interval)))
    host, port = address_of(listen)
    check_listen(listen, host, token=context.token or "", insecure=insecure)
    check_node(node)
    try:
        from ..remote.owner_liveness import liveness_probe, local_stack
        from ..server.http import process
        from ..server.http.run_node import raise_file_limit
        from ..server.http.run_node import serve as run
        from ..server.log.waiting import Batching
        from ..server.node import Node
        from ..server.store.open_store import open_store
        from ..server.store.root import GC_INTERVAL_SECONDS
    except ModuleNotFoundError as error:
        raise Call(f"serving needs the package {error.name!r}: pip install 'budwood[server]'") from error
    from ..remote.token import Tokens, origin_of
    from ..volume.owner import base_url

    if advertise and not origin_of(base_url(advertise)):
        raise Call(f"nobody can reach a node at {advertise!r}: write --advertise http://HOST:PORT")
    token = Tokens.of(context.token or "").bare
    if token != (context.token or ""):
        raise Call("the token that this node asks for is no ORIGIN=TOKEN: give it with --token")
    batching = Batching(
        Batching().alpha if in_flight is None else in_flight,
        Batching().window_seconds if window is None else seconds_of(window),
    )
    # One in memory is always new.
    makes = create or store.startswith("memory:")

    @asynccontextmanager
    async def open_node(address: str) -> AsyncGenerator[Remote]:
        try:
            opening = await open_store(store, create=makes, hedging=not no_hedging)
        except NotFound as error:
            raise _no_store(error, makes) from error
        async with aclosing(opening) as opened:
            serving = Node.open(
                opened,
                name=node,
                address=address,
                stack=str(local_stack()),
                cache_dir=cache,
                memory_bytes=None if memory is None else memory << 20,
                probe_owner=liveness_probe(address),
                takeover=takeover,
                create=makes,
                gc_interval_seconds=interval or GC_INTERVAL_SECONDS,
                upkeep=not no_upkeep,
                batching=batching,
                standby=standby,
            )
            async with AsyncExitStack() as stack:
                try:
                    served = await stack.enter_async_context(serving)
                except NotFound as error:
                    raise _no_store(error, makes) from error
                yield served

    def ready(address: str, _node: Remote) -> None:
        print(f"budwood: node {node} serves {store} at {address}", flush=True)

    raise_file_limit()

    async def main() -> None:
        await run(
            open_node,
            host=host,
            port=port,
            token=token,
            advertise=advertise,
            allowed_hosts=allowed_host or (),
            on_ready=ready,
        )

    process.run(main)


def _no_store(error: NotFound, makes: bool) -> NotFound:
    return error if makes else NotFound(f"{error}: check the address, or say --create to make a new store there")


VERBS: Final[dict[str, Callable[..., None]]] = {"serve": serve}

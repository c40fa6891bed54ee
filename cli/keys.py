"""Keys at the command line: made, listed, revoked and rotated in a store, by whoever can write to it; kept and shown to
a node by whoever holds one."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from ..volume.errors import BadInput
from .common_options import Context, Json, argument, flag, option
from .durations import seconds_of
from .exit_status import Call
from .output import Column, say, time_of, write_json, write_table
from .upkeep import StoreUrl, opened, server_packages

if TYPE_CHECKING:
    from ..server.access.credentials import Secret
    from ..server.access.registry import Registry
    from ..volume.access import Grant, Key, Revocation

T = TypeVar("T")

Label = Annotated[str, argument("LABEL", "What it is for, as audits and lists say it.")]
KeyId = Annotated[str, argument("ID", "The key's id, as `budwood keys list` has it.")]
Prefixes = list[str] | None
Read = Annotated[
    Prefixes, option("--read", "PREFIX", "Read volumes whose name starts so; '' for all. May be repeated.")
]
Write = Annotated[Prefixes, option("--write", "PREFIX", "Read and write them.")]
Admin = Annotated[Prefixes, option("--admin", "PREFIX", "And say how long they are kept, remove them, set their mode.")]


def create(
    context: Context,
    store: StoreUrl,
    label: Label,
    org: Annotated[str | None, option("--org", "NAME", "Of this organisation, which is made if there is none.")] = None,
    read: Read = None,
    write: Write = None,
    admin: Admin = None,
    expires: Annotated[
        str | None, option("--expires", "TIME", "Good for so long: 30d, 1y.", default="for ever")
    ] = None,
) -> None:
    """Make a key, and print it, once. Callers of nodes that serve this store need one from their next start on."""
    grants = grants_of(read, write, admin) or grants_of(None, [""], None)
    made = _in_store(store, lambda registry: _made(registry, label, grants, org or "", expires))
    _show(made)


def keys(context: Context, store: StoreUrl, as_json: Json = False) -> None:
    """List the keys of a store, revoked and expired ones among them."""
    rows = [_row(key, revoked) for key, revoked in _in_store(store, lambda registry: registry.keys())]
    if as_json:
        write_json(rows)
        return
    columns = [*map(Column, ("id", "organisation", "label", "may", "made", "until", "state"))]
    table = [[row["id"], row["org"], row["label"], row["may"], row["made"], row["until"], row["state"]] for row in rows]
    write_table(columns, table, empty="this store has no keys")


def revoke(context: Context, store: StoreUrl, key_id: KeyId) -> None:
    """Let a key open nothing any more, ten seconds from now at the latest."""
    _in_store(store, lambda registry: registry.revoke(key_id))
    say(f"revoked {key_id}: no node of this store takes it 10 seconds from now")


def rotate(
    context: Context,
    store: StoreUrl,
    key_id: KeyId,
    keep: Annotated[bool, flag("--keep", "Leave the old one good, until `revoke`.")] = False,
    expires: Annotated[
        str | None, option("--expires", "TIME", "Good for so long: 30d, 1y.", default="as long as the old one")
    ] = None,
) -> None:
    """Make a key that may do what this one may, print it, and revoke this one."""

    async def work(registry: Registry) -> tuple[Key, Secret]:
        old, revoked = await registry.key(key_id) or (None, False)
        if old is None or revoked:
            raise BadInput(f"there is no key {key_id!r} in this store that is good: `budwood keys list` has them")
        if expires is None and old.expires and old.expires <= registry.now_ms():
            raise BadInput(f"the key {key_id!r} has expired, and so would the new one: say for how long, --expires 30d")
        until = old.expires if expires is None else _until(registry, expires)
        made = await registry.make_key(old.label, old.grants, org=old.org, expires_ms=until)
        if not keep:
            await registry.revoke(key_id)
        return made

    _show(_in_store(store, work))


def token(
    context: Context,
    lasts: Annotated[str, option("--for", "TIME", "Good for so long, 24 hours at most.", default="10m")] = "10m",
    read: Read = None,
    write: Write = None,
    admin: Admin = None,
) -> None:
    """Sign a token with the key at hand, for somebody who may do no more with it, and not for long; print it."""
    with server_packages():
        from ..remote.portal import open_remote
        from ..server.access.credentials import Claims, parse_secret, sign
        from ..volume.calls import HELLO, Done

        remote, text = _remote_and_key(context)
        secret = parse_secret(text)
        node = open_remote(remote, token=context.token or "")
        try:
            told = node.ask(HELLO, Done())
        finally:
            node.close()
        now_ms = round(datetime.now(UTC).timestamp() * 1000)
        until = now_ms + round(seconds_of(lasts) * 1000)
        claims = Claims(
            key=secret.id, store=told.store, since=now_ms, until=until, grants=grants_of(read, write, admin)
        )
        print(sign(secret, claims))


def login(context: Context) -> None:
    """Keep a key for the remote, which is read from standard input, once the remote has taken it."""
    from ..remote.logins import keep
    from ..remote.portal import open_remote
    from ..remote.token import origin_of
    from ..volume.calls import LIST_NAMES, NamesRequest

    remote, origin = context.remote or "", origin_of(context.remote or "")
    if not origin:
        raise Call("a key is kept for a node: budwood login --remote https://HOST:PORT")
    if sys.stdin.isatty():
        print("key: ", end="", file=sys.stderr, flush=True)
    key = sys.stdin.readline().strip()
    if not key:
        raise Call("give the key on standard input: budwood login --remote https://HOST:PORT < FILE")
    node = open_remote(remote, token=f"{origin}={key}" if origin.startswith("http://") else key)
    try:
        node.ask(LIST_NAMES, NamesRequest(limit=1))
    finally:
        node.close()
    say(f"{origin} took the key; it is kept in {keep(origin, key)}")


def logout(context: Context) -> None:
    """Keep no key for the remote any more."""
    from ..remote.logins import keep, kept_for
    from ..remote.token import origin_of

    origin = origin_of(context.remote or "")
    if not origin:
        raise Call("say which remote: budwood logout --remote https://HOST:PORT")
    if not kept_for(origin):
        say(f"no key is kept for {origin}")
        return
    keep(origin, "")
    say(f"the key for {origin} is kept no more; it stays good until `budwood keys revoke`")


VERBS: Final[dict[str, Callable[..., None]]] = {"login": login, "logout": logout}
GROUP: Final[dict[str, Callable[..., None]]] = {
    "create": create,
    "list": keys,
    "revoke": revoke,
    "rotate": rotate,
    "token": token,
}


def grants_of(read: Prefixes, write: Prefixes, admin: Prefixes) -> tuple[Grant, ...]:
    from ..volume.access import Grant

    return tuple(
        Grant(right, prefix)
        for right, prefixes in (("read", read), ("write", write), ("admin", admin))
        for prefix in prefixes or ()
    )


async def _made(
    registry: Registry, label: str, grants: tuple[Grant, ...], org: str, expires: str | None
) -> tuple[Key, Secret]:
    return await registry.make_key(label, grants, org=org, expires_ms=_until(registry, expires) if expires else 0)


def _until(registry: Registry, expires: str) -> int:
    return registry.now_ms() + round(seconds_of(expires) * 1000)


def _in_store(store: str, work: Callable[[Registry], Awaitable[T]]) -> T:
    with server_packages():
        import anyio

        async def main() -> T:
            from ..server.access.registry import Registry

            async with opened(store) as node:
                return await work(Registry(node.store, node.logs.now_ms, node.logs.patience))

        return anyio.run(main, backend="asyncio")


def _remote_and_key(context: Context) -> tuple[str, str]:
    from ..remote.token import Tokens

    if not context.remote:
        raise Call("a token is for a node's store: budwood keys token --remote https://HOST:PORT")
    key = Tokens.of(context.token or "").for_remote(context.remote)
    if not key:
        raise Call(f"there is no key at hand for {context.remote}: `budwood login` keeps one, or give it with --token")
    return context.remote, key


def _show(made: tuple[Key, Secret]) -> None:
    key, secret = made
    print(secret.text)
    who = f"{key.org}/{key.label}" if key.org else key.label
    print(f"key {key.id} of {who}: it is shown this once, and the store doesn't have it", file=sys.stderr)


def _row(key: Key, revoked: Revocation | None) -> dict[str, Any]:
    now_ms = round(datetime.now(UTC).timestamp() * 1000)
    state = "revoked" if revoked is not None else "expired" if key.expires and key.expires <= now_ms else "good"
    return {
        "id": key.id,
        "org": key.org,
        "label": key.label,
        "may": ", ".join(f"{grant.right} {grant.prefix or 'all'}" for grant in key.grants),
        "made": time_of(key.time),
        "until": time_of(key.expires) if key.expires else "for ever",
        "state": state,
    }

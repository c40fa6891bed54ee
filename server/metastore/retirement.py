"""Retirement marks, as they are made and looked for (volume/retirement.py)."""

from __future__ import annotations

from datetime import UTC, datetime

from ...volume.envelope import RETIREMENT, decode, encode, seal, unseal
from ...volume.errors import Corrupt, NotFound, NotOwner
from ...volume.retirement import Retirement, retired_key
from ..store.protocol import Store
from ..store.retrying import Patience, create_settled, get_retried


async def retire(store: Store, wanted: Retirement, patience: Patience) -> Retirement:
    """Make the mark; the one that stands. Raises Corrupt, Unavailable."""
    found = await create_settled(store, retired_key(wanted.node), seal(RETIREMENT, encode(wanted)), patience)
    return wanted if found is None else parse_retirement(retired_key(wanted.node), found)


async def retirement_of(store: Store, node: str, patience: Patience) -> Retirement | None:
    """None while the node may own logs. Raises Corrupt, Unavailable."""
    try:
        return parse_retirement(retired_key(node), await get_retried(store, retired_key(node), patience=patience))
    except NotFound:
        return None


def parse_retirement(key: str, data: bytes) -> Retirement:
    mark = decode(key, unseal(key, RETIREMENT, data), Retirement)
    if retired_key(mark.node) != key:
        raise Corrupt(key, f"it says that node {mark.node!r} was taken out")
    return mark


def taken_out(mark: Retirement) -> NotOwner:
    """What that node says from then on, and who to ask instead."""
    when = datetime.fromtimestamp(mark.time / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    message = f"node {mark.node} was taken out of this store for good on {when}, and {mark.by} has its logs"
    return NotOwner(f"{message}: start a node of another name", owner=mark.address, log=mark.node)

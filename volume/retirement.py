"""Retirement: a node was taken out of a store for good (DESIGN §5, failover; S1.22).

    nodes/{node}/retired

Once this stands, the node of that name owns nothing any more: it looks for the mark after it took a number for a log,
and before it fences. Whoever made the mark lists the numbers afterwards. So one of the two sees the other. The mark
stays, and with it the name is used up; the log of that name goes on under whoever took it.
"""

from __future__ import annotations

import msgspec


class Retirement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The object."""

    node: str
    by: str = ""
    """The node that took its logs."""
    address: str = ""
    """Where that one listened."""
    region: str = ""
    """Where the node ran, if it said so."""
    time: int = 0


def retired_key(node: str) -> str:
    return f"nodes/{node}/retired"

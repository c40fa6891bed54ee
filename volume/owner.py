"""Owner: what can be said, without asking, of whoever took a log's newest epoch (DESIGN §5, failover).

A loopback address means something on one network stack alone, so an epoch says which one its address is of. Whoever
wants the log compares it with its own:

    the owner's address   its network stack                          what is known
    none                  any                                        it is gone: nobody listens there
    mine                  mine, or my machine's before it was booted it is gone: I hold that port
    loopback              my machine's before it was booted          it is gone
    loopback              another's                                  nothing, and it can't be asked from here
    any other             any                                        nothing: ask

An epoch that doesn't say where it was taken is as good as taken here.
"""

from __future__ import annotations

import ipaddress
from enum import Enum
from urllib.parse import urlsplit

import msgspec

from .entry import EpochRecord


class Liveness(Enum):
    """What is known of an owner."""

    ANSWERS = "answers"
    """It lives, and holds that very epoch."""
    GONE = "gone"
    """It doesn't answer at its address, or can't be there any more. Silence is no proof, and nothing relies on it: who
    is wrongly taken for gone is fenced, not corrupted."""
    UNKNOWN = "unknown"
    """Its address means nothing here."""


class NetworkStack(msgspec.Struct, frozen=True, gc=False):
    """A network stack: what loopback addresses belong to."""

    machine: str
    """Stays through a reboot."""
    boot: str
    network: str
    """Of the machine's network namespaces, since it was booted."""

    def __str__(self) -> str:
        return f"{self.machine}.{self.boot}.{self.network}"

    @classmethod
    def parse(cls, text: str) -> NetworkStack | None:
        """None unless it is one: an epoch need not say."""
        parts = text.split(".")
        return cls(*parts) if len(parts) == 3 and all(parts) else None

    def outlived(self, other: NetworkStack) -> bool:
        """Whether all that ran there has ended, since the machine was booted again."""
        return self.machine == other.machine and self.boot != other.boot


def base_url(address: str) -> str:
    """The URL of a node's address, which may be given without its scheme."""
    return address.rstrip("/") if "://" in address else f"http://{address}"


def is_loopback(address: str) -> bool:
    """Whether an address, or a URL, names the machine that it is used on."""
    try:
        host = urlsplit(base_url(address)).hostname or ""
        return host == "localhost" or host.endswith(".localhost") or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def known_liveness(owner: EpochRecord, *, own: str, here: NetworkStack) -> Liveness | None:
    """What can be said without asking by a process that listens at `own` ("" for none); None: it must be asked."""
    if not owner.address:
        return Liveness.GONE
    there = NetworkStack.parse(owner.stack) or here
    if there == here or here.outlived(there):
        gone = base_url(owner.address) == base_url(own) if own else False
        return Liveness.GONE if gone or (there != here and is_loopback(owner.address)) else None
    return Liveness.UNKNOWN if is_loopback(owner.address) else None

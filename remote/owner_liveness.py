"""Owner liveness: whether the node that a log names as its owner still lives (DESIGN §5, failover).

What an epoch says of itself is looked at first (volume/owner.py): an address that means something on another machine
alone can't be asked from here, and whoever asked it would hear somebody else, or nobody. Else the owner's address is
asked, and only the very term that the epoch stands for counts as an answer.

An answer proves life; silence proves nothing, and nothing here relies on it: who is wrongly taken for dead is fenced,
not corrupted.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from ..volume.entry import EpochRecord
from ..volume.errors import BudwoodError
from ..volume.owner import Liveness, NetworkStack, base_url, known_liveness
from ..volume.wire import StoreInfo
from .exchange import Timing
from .http import HttpRemote

ALIVE_SECONDS: Final = 2.0


def liveness_probe(own: str = "") -> Callable[[EpochRecord], Awaitable[Liveness]]:
    """What a process asks owners with that listens at `own` itself, if anywhere."""
    here = local_stack()
    return lambda owner: liveness_of(owner, own=own, here=here)


async def liveness_of(owner: EpochRecord, *, own: str = "", here: NetworkStack) -> Liveness:
    """Whether it answers within 2 s that it holds this very epoch."""
    known = known_liveness(owner, own=own, here=here)
    if known is not None:
        return known
    timing = Timing(connect_seconds=ALIVE_SECONDS, read_seconds=ALIVE_SECONDS, retry_seconds=0.0)
    # Whoever holds the epoch knows its writer, which stands in the store alone: no certificate says more.
    remote = HttpRemote(base_url(owner.address), timing=timing, verify=False)
    try:
        answer = await remote.health()
    except BudwoodError:
        return Liveness.GONE
    finally:
        await remote.aclose()
    return Liveness.ANSWERS if _holds(answer, owner) else Liveness.GONE


def local_stack() -> NetworkStack:
    """This process's. Hashed, since an epoch is read by all who read the store."""
    machine = _read("/etc/machine-id") + b"\0" + socket.gethostname().encode()
    boot = _read("/proc/sys/kernel/random/boot_id")
    return NetworkStack(_digest(machine), _digest(boot), _network())


def _holds(answer: StoreInfo, owner: EpochRecord) -> bool:
    return any((own.log, own.epoch, own.writer) == (owner.log, owner.n, owner.writer) for own in answer.logs)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8, person=b"budwood.stack").hexdigest()


def _read(path: str) -> bytes:
    """Empty where the system has no such file: then machines are answer apart by their names."""
    try:
        return Path(path).read_bytes().strip()
    except OSError:
        return b""


def _network() -> str:
    """The number of this process's network namespace; 0 where there are none."""
    try:
        return f"{os.stat('/proc/self/ns/net').st_ino:x}"
    except OSError:
        return "0"

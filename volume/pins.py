"""Pin: a lease on one LSN of a volume, as a chain of objects that are only ever created (DESIGN §5, §10; S0.24, S3.22).

    volumes/{vid}/pins/{pin}/{2^64-1-rev:016x}     revision 0, 1, 2 …; the highest, whose key comes first, says how the
                                                   pin stands

A change is the next revision: whoever creates it first has made it, everyone else reads what stands there and goes on
from that. So no clock decides anything. An expiry is *proposed*, in milliseconds since the Unix epoch, by whoever
makes or renews a pin; it is *enacted* by the create of a revision that says so, and until then the pin holds.

    state      confirm   renew    release    expire
    asked      live      –        released   expired
    live       –         live     released   expired
    released   –         –        –          –
    expired    –         –        –          –

A pin is asked for first, and live only after its maker has read the volume's stream and found that nothing had begun
to collect the LSN (server/metastore/retention.py). One that is merely asked for holds the LSN against collectors, who
can't know how that ended, and lets nobody read it.

This file knows nothing of stores and streams.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final

import msgspec

from .envelope import PIN, decode, encode, seal, unseal
from .errors import BadInput, Corrupt
from .ids import PinId, VolumeId

KINDS: Final = ("lease", "named", "sync")
"""What may be asked for: by whoever reads for a while, by a person, by an edge for its sync point."""
FORK: Final = "fork"
"""What a fork holds at an LSN that its own record can't hold (records.Fork); nobody may release it."""

ASKED_MS: Final = 60_000
"""How long it may take to confirm a pin: one whose maker died must not hold anything for longer."""
MOST_SECONDS: Final = 100 * 365.25 * 86_400
MOST_OWNER_BYTES: Final = 255

_LAST_REVISION: Final = 2**64 - 1


class PinState(Enum):
    ASKED = "asked"
    LIVE = "live"
    RELEASED = "released"
    EXPIRED = "expired"


class PinEvent(Enum):
    CONFIRM = "confirm"
    RENEW = "renew"
    RELEASE = "release"
    EXPIRE = "expire"


TRANSITIONS: Final[dict[tuple[PinState, PinEvent], PinState]] = {
    (PinState.ASKED, PinEvent.CONFIRM): PinState.LIVE,
    (PinState.ASKED, PinEvent.RELEASE): PinState.RELEASED,
    (PinState.ASKED, PinEvent.EXPIRE): PinState.EXPIRED,
    (PinState.LIVE, PinEvent.RENEW): PinState.LIVE,
    (PinState.LIVE, PinEvent.RELEASE): PinState.RELEASED,
    (PinState.LIVE, PinEvent.EXPIRE): PinState.EXPIRED,
}


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """One revision: an object of the store, and what callers are given. Every field is written out."""

    id: bytes
    vid: bytes
    """The volume whose own the LSN is: of those that a fork shares, its parent."""
    lsn: int
    rev: int = 0
    state: PinState = PinState.ASKED
    kind: str = KINDS[0]
    owner: str = ""
    """Whoever asked says who that is; a text for people."""
    expiry: int = 0
    """When it may be ended; 0: never."""
    time: int = 0
    """When this revision was made."""

    @property
    def pin_id(self) -> PinId:
        return PinId(self.id)

    @property
    def holds(self) -> bool:
        """Whether collectors must keep the LSN."""
        return self.state in (PinState.ASKED, PinState.LIVE)


def requested_pin(pin: PinId, vid: VolumeId, lsn: int, *, kind: str, owner: str, now_ms: int) -> Pin:
    """Revision 0."""
    return Pin(id=pin.raw, vid=vid.raw, lsn=lsn, kind=kind, owner=owner, expiry=now_ms + ASKED_MS, time=now_ms)


def next_revision(pin: Pin, event: PinEvent, *, now_ms: int, expiry: int | None = None) -> Pin | None:
    """The pin after the event; None where it can't happen. A new `expiry` is for CONFIRM and RENEW."""
    state = TRANSITIONS.get((pin.state, event))
    if state is None:
        return None
    expiry = pin.expiry if expiry is None else expiry
    return msgspec.structs.replace(pin, rev=pin.rev + 1, state=state, expiry=expiry, time=now_ms)


def expiry_of(seconds: float, now_ms: int) -> int:
    """The expiry that a lease of so many seconds proposes; 0 seconds: never."""
    return now_ms + max(1, round(seconds * 1000)) if seconds else 0


def covers(expiry: int, wanted: int) -> bool:
    """Whether a lease to `expiry` lasts as long as one to `wanted`."""
    return expiry == 0 or 0 < wanted <= expiry


def overdue(pin: Pin, now_ms: int, skew_ms: int) -> bool:
    """Whether it may be ended, by a clock that may be `skew_ms` ahead of the one that proposed the expiry (S0.27)."""
    return pin.holds and 0 < pin.expiry < now_ms - skew_ms


def check_pin(kind: str, owner: str, seconds: float) -> None:
    """Raises BadInput on what can't be asked for."""
    if kind not in KINDS:
        raise BadInput(f"{kind!r} is no kind of pin: take {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    if len(owner.encode("utf-8", "replace")) > MOST_OWNER_BYTES or not owner.isprintable():
        raise BadInput(f"a pin's owner is a line of at most {MOST_OWNER_BYTES} bytes")
    check_seconds(seconds)


def check_seconds(seconds: float) -> None:
    if not (math.isfinite(seconds) and 0 <= seconds <= MOST_SECONDS):
        raise BadInput(f"a pin lasts for 0 (for ever) to {MOST_SECONDS:.0f} seconds, not {seconds}")


def pins_prefix(vid: VolumeId, pin: PinId | None = None) -> str:
    """What the keys of a volume's pins begin with, or of one pin's revisions."""
    return f"volumes/{vid}/pins/" if pin is None else f"volumes/{vid}/pins/{pin}/"


def pin_key(pin: Pin) -> str:
    return f"{pins_prefix(VolumeId(pin.vid), pin.pin_id)}{_LAST_REVISION - pin.rev:016x}"


def seal_pin(pin: Pin) -> bytes:
    return seal(PIN, encode(pin))


def parse_pin(key: str, data: bytes) -> Pin:
    """Raises Corrupt, also if it is not the pin and revision that the key says; Unsupported."""
    header = unseal(key, PIN, data)
    pin = decode(key, header, Pin)
    try:
        stands = pin_key(pin) == key
    except BadInput as error:
        raise Corrupt(key, f"it holds no pin: {error}") from error
    if not stands or pin.lsn < 0 or pin.rev < 0:
        raise Corrupt(key, "it is another pin's, or another revision")
    return pin

"""Pin: a lease on one LSN of a volume, as a chain of objects that are only ever created (DESIGN §5, §10; S0.24, S3.22).

    volumes/{vid}/pins/{pin}/{2^64-1-rev:016x}     revision 0, 1, 2 …; the highest, whose key comes first, says how the
                                                   pin stands
    volumes/{vid}/ended/{pin}                      how it ended, the same once more: from then on all of the chain goes

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

Revisions go (server/upkeep/spent_pins.py), and create-if-absent forgets names that were deleted. So whoever slept may
make a revision that was there before. What that comes to is told by names alone:

- Of a pin that holds, those between revision 0 and the newest go. What is made below the newest is none.
- Of a pin that has ended, revision 0 goes first, behind `ended/{pin}`, which stays for ever: the id is used up. So what
  is made above a revision 0 that isn't there is none.
- Whoever asks for a pin makes revision 0, and then looks for `ended/{pin}` before it is confirmed.

This file knows nothing of stores and streams.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Collection, Iterator
from enum import Enum
from typing import Final

import msgspec

from .envelope import PIN, decode, encode, open_head, seal, unseal
from .errors import BadInput, Corrupt
from .ids import PinId, VolumeId

KINDS: Final = ("lease", "named", "sync")
"""What may be asked for: by whoever reads for a while, by a person, by an edge for its sync point."""
HOURLY: Final = "hourly"
DAILY: Final = "daily"
OF_POLICIES: Final = (HOURLY, DAILY)
"""What a retention policy holds (retention_policy.py): a volume as it was at a full hour, or at midnight. The time in
such a pin's id is the last one that its LSN stands for."""
FORK: Final = "fork"
"""What a fork holds at an LSN that its own record can't hold (records.Fork); nobody may release it."""

ASKED_MS: Final = 60_000
"""How long it may take to confirm a pin: one whose maker died must not hold anything for longer."""
MOST_SECONDS: Final = 100 * 365.25 * 86_400
MOST_OWNER_BYTES: Final = 255
MOST_LABEL_BYTES: Final = 255

LABELLED: Final = 1 << 0
"""Required feature of a pin that has a label: whoever passed over that would make the next revision without it."""

_LAST_REVISION: Final = 2**64 - 1
_MOST_ATTEMPTS: Final = 1 << 20
"""Of a label: further on nobody looks for what stands."""


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
    label: str = ""
    """What its LSN is called in its volume, where one label stands once."""

    @property
    def pin_id(self) -> PinId:
        return PinId(self.id)

    @property
    def holds(self) -> bool:
        """Whether collectors must keep the LSN."""
        return self.state in (PinState.ASKED, PinState.LIVE)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A pin that somebody wants, but for its id and its volume."""

    lsn: int
    kind: str
    owner: str = ""
    label: str = ""
    expiry: int
    """Once it is live."""

    def is_what(self, pin: Pin) -> bool:
        """Whether the pin is that one, however it stands."""
        return (self.lsn, self.kind, self.owner, self.label) == (pin.lsn, pin.kind, pin.owner, pin.label)


def id_for_fork(child: VolumeId) -> PinId:
    """Of the pin that a fork is, or has."""
    return PinId(bytes([PinId.TYPE]) + child.raw[1:])


def requested_pin(pin: PinId, vid: VolumeId, wanted: Wanted, *, now_ms: int) -> Pin:
    """Revision 0."""
    return Pin(
        id=pin.raw,
        vid=vid.raw,
        lsn=wanted.lsn,
        kind=wanted.kind,
        owner=wanted.owner,
        expiry=now_ms + ASKED_MS,
        time=now_ms,
        label=wanted.label,
    )


def ids_of_policy(vid: VolumeId, lsn: int, kind: str, at_ms: int) -> Iterator[PinId]:
    """The ids that a policy's pin may have: the first that isn't used up. Whoever makes the pin comes to the same."""
    for attempt in itertools.count():
        yield PinId.new(at_ms=at_ms, noise=_noise(vid, f"{kind} {lsn} {attempt}"))


def ids_of_label(vid: VolumeId, label: str) -> Iterator[PinId]:
    """The ids that a pin with that label may have, in their order: each is taken once the one before has ended. So
    there is one at most that holds, whoever makes it."""
    for attempt in itertools.count():
        yield PinId.new(at_ms=0, noise=_noise(vid, f"label {attempt} {label}"))


def attempts_of_label(vid: VolumeId, label: str, stand: Collection[bytes]) -> Iterator[PinId]:
    """Those of `ids_of_label` that may be taken, where pins of these ids stand that have the label: the newest of them,
    and those behind. The ones before it have ended, whether or not they stand."""
    left, newest = set(stand), 0
    for attempt, pin in enumerate(itertools.islice(ids_of_label(vid, label), _MOST_ATTEMPTS if left else 0)):
        if pin.raw in left:
            newest = attempt
            left.discard(pin.raw)
        if not left:
            break
    return itertools.islice(ids_of_label(vid, label), newest, None)


def _noise(vid: VolumeId, text: str) -> bytes:
    return hashlib.blake2b(vid.raw + text.encode(), digest_size=9, person=b"budwood.pin").digest()


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


def check_label(label: str) -> None:
    """Raises BadInput on what can't be one."""
    if not label or len(label.encode("utf-8", "replace")) > MOST_LABEL_BYTES or not label.isprintable():
        raise BadInput(f"a label has 1 to {MOST_LABEL_BYTES} bytes, in one line")
    if label != label.strip() or label.startswith("@"):
        raise BadInput(f"{label!r} can't be a label: it begins and ends without blanks, and begins without @")


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
    return revision_key(VolumeId(pin.vid), pin.pin_id, pin.rev)


def revision_key(vid: VolumeId, pin: PinId, rev: int) -> str:
    return f"{pins_prefix(vid, pin)}{_LAST_REVISION - rev:016x}"


def revision_of(key: str) -> int:
    """Of the key of a revision. Raises BadInput."""
    try:
        return _LAST_REVISION - int(key.rpartition("/")[2], 16)
    except ValueError as error:
        raise BadInput(f"{key!r} is no revision of a pin") from error


def ended_prefix(vid: VolumeId) -> str:
    return f"volumes/{vid}/ended/"


def ended_key(vid: VolumeId, pin: PinId) -> str:
    return f"{ended_prefix(vid)}{pin}"


def seal_pin(pin: Pin) -> bytes:
    return seal(PIN, encode(pin), features=_features_of(pin))


def _features_of(pin: Pin) -> int:
    return LABELLED if pin.label else 0


def parse_pin(key: str, data: bytes) -> Pin:
    """Raises Corrupt, also if it is not the pin and revision that the key says; Unsupported."""
    return _parse(key, data, pin_key)


def parse_ended(key: str, data: bytes) -> Pin:
    """The revision that a pin ended with. Raises Corrupt, Unsupported."""
    pin = _parse(key, data, lambda pin: ended_key(VolumeId(pin.vid), pin.pin_id))
    if pin.holds:
        raise Corrupt(key, f"it says that the pin is {pin.state.value}, and not that it has ended")
    return pin


def _parse(key: str, data: bytes, key_of: Callable[[Pin], str]) -> Pin:
    pin = decode(key, unseal(key, PIN, data), Pin)
    if _features_of(pin) & ~open_head(key, PIN, data).features:
        raise Corrupt(key, "it has a label, and does not say that its reader must know that")
    try:
        stands = key_of(pin) == key
    except BadInput as error:
        raise Corrupt(key, f"it holds no pin: {error}") from error
    if not stands or pin.lsn < 0 or pin.rev < 0:
        raise Corrupt(key, "it is another pin's, or another revision")
    return pin

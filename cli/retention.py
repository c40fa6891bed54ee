"""What a volume remembers, at the command line: pins, pin, unpin, retain. All of it happens on the remote; the volume
need not be here."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Final

from ..volume.errors import BadInput
from ..volume.ids import PinId
from .common_options import At, Context, Json, Lsn, Name, argument, option
from .output import Column, say, time_of, write_json, write_table
from .syncing import on_remote

if TYPE_CHECKING:
    from ..remote.portal import BlockingRemote
    from ..volume.ids import VolumeId
    from ..volume.pins import Pin

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhdw])", re.ASCII)


def pins(context: Context, name: Name, as_json: Json = False) -> None:
    """List the pins that hold LSNs of a volume."""
    from ..volume.calls import PINS, VolumeRequest

    with closing(context.edge()) as edge:
        remote, vid = on_remote(edge, name)
        found = remote.ask(PINS, VolumeRequest(vid.raw)).pins
    if as_json:
        write_json([_row(pin) for pin in found])
        return
    write_table(
        [Column("id"), Column("lsn", "right"), Column("kind"), Column("owner"), Column("until"), Column("state")],
        [[str(p.pin_id), str(p.lsn), p.kind, p.owner, time_of(p.expiry) or "for ever", p.state.value] for p in found],
        empty=f"nothing pins {name}",
    )


def pin(
    context: Context,
    name: Name,
    lsn: Lsn = None,
    at: At = None,
    lasting: Annotated[str | None, option("--for", "TIME", "90s, 15m, 12h, 7d, 4w.", default="for ever")] = None,
    owner: Annotated[str, option("--owner", "TEXT", "Whom it is for.")] = "",
) -> None:
    """Hold a volume's newest LSN, or another, so that it can be read whatever is forgotten."""
    from ..volume.calls import PIN, PinRequest

    if lsn is not None and at is not None:
        raise BadInput("give an LSN or a time, not both")
    seconds = 0.0 if lasting is None else _seconds(lasting)
    with closing(context.edge()) as edge:
        remote, vid = on_remote(edge, name)
        if at is not None:
            lsn = _lsn_at(remote, vid, at)
        kind = "lease" if seconds else "named"
        request = PinRequest(vid.raw, pin=PinId.new().raw, lsn=lsn, seconds=seconds, owner=owner, kind=kind)
        made = remote.ask(PIN, request)
    until = f"until {time_of(made.expiry)}" if made.expiry else "for ever"
    say(f"pinned LSN {made.lsn} of {name} {until}: {made.pin_id}")


def unpin(
    context: Context,
    name: Name,
    pin: Annotated[str, argument("ID", "As `budwood pins` lists it.")],
) -> None:
    """Release a pin."""
    from ..volume.calls import UNPIN, UnpinRequest

    one = PinId.parse(pin)
    with closing(context.edge()) as edge:
        remote, vid = on_remote(edge, name)
        remote.ask(UNPIN, UnpinRequest(vid.raw, pin=one.raw))
    say(f"released pin {pin} of {name}")


def retain(
    context: Context,
    name: Name,
    since: Annotated[str, option("--since", "LSN|TIME", "The oldest that stays readable.")],
) -> None:
    """Forget a volume's LSNs below one, but for those that a pin or a fork holds."""
    from ..volume.calls import ADVANCE, SinceRequest

    with closing(context.edge()) as edge:
        remote, vid = on_remote(edge, name)
        # What was the volume at that time stays readable.
        lsn = int(since) if since.isascii() and since.isdecimal() else max(1, _lsn_at(remote, vid, since))
        stands = remote.ask(ADVANCE, SinceRequest(vid.raw, since=lsn)).since
    below = f", as before: it doesn't go back to {lsn}" if stands > lsn else ""
    say(f"{name} is readable from LSN {stands} on{below}")


VERBS: Final[dict[str, Callable[..., None]]] = {"pins": pins, "pin": pin, "unpin": unpin, "retain": retain}


def _lsn_at(remote: BlockingRemote, vid: VolumeId, at: str) -> int:
    from ..sync.volume import time_ms
    from ..volume.calls import SNAPSHOT, SnapshotRequest

    return remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, at_ms=time_ms(at))).lsn


def _seconds(text: str) -> float:
    found = _DURATION.fullmatch(text)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not seconds:
        raise BadInput(f"{text!r} is no time to last: write 90s, 15m, 12h, 7d or 4w")
    return seconds


def _row(pin: Pin) -> dict[str, object]:
    return {
        "id": str(pin.pin_id),
        "lsn": pin.lsn,
        "kind": pin.kind,
        "owner": pin.owner,
        "expiry": pin.expiry or None,
        "state": pin.state.value,
    }

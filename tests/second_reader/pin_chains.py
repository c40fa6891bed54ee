"""Pins: chains of revisions; the highest says how the pin stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .basics import PIN, Damaged, base58, check_id, unbase58
from .envelopes import unseal

STATES = {"asked", "live", "released", "expired"}


class Pin(NamedTuple):
    id: bytes
    lsn: int
    rev: int
    state: str
    kind: str
    owner: str
    expiry: int
    label: str


def pins_of(objects: Mapping[str, bytes], vid: bytes) -> list[Pin]:
    """As each stands, by id."""
    prefix = f"volumes/{base58(vid)}/pins/"
    newest: dict[bytes, Pin] = {}
    for key in (key for key in objects if key.startswith(prefix)):
        text, _, number = key[len(prefix) :].partition("/")
        pin = _parse(key, objects[key], vid)
        if (pin.id, pin.rev) != (unbase58(text), 2**64 - 1 - int(number, 16)):
            raise Damaged(key, "it is another pin's, or another revision")
        if pin.id not in newest or newest[pin.id].rev < pin.rev:
            newest[pin.id] = pin
    return sorted(newest.values())


def _parse(key: str, data: bytes, vid: bytes) -> Pin:
    fields = unseal(key, b"BWPI", data).fields
    state = fields.text("state")
    if state not in STATES or fields.data("vid") != vid:
        raise Damaged(key, "it is no pin of this volume")
    return Pin(
        check_id(key, fields.data("id"), PIN),
        fields.number("lsn"),
        fields.number("rev"),
        state,
        fields.text("kind"),
        fields.text("owner"),
        fields.number("expiry"),
        fields.text("label", ""),
    )

"""Pins: chains of revisions; the highest says how the pin stands, if revision 0 is there."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
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
    """As each stands that can be found, by id."""
    found = {revisions[-1].id: revisions[-1] for revisions in chains_of(objects, vid) if not revisions[0].rev}
    prefix = f"volumes/{base58(vid)}/ended/"
    for key in (key for key in objects if key.startswith(prefix)):
        pin = _parse(key, objects[key], vid)
        if pin.id != unbase58(key[len(prefix) :]) or pin.state not in ("released", "expired"):
            raise Damaged(key, "it is not what that pin has ended with")
        found.setdefault(pin.id, pin)
    return sorted(found.values())


def chains_of(objects: Mapping[str, bytes], vid: bytes) -> list[list[Pin]]:
    """The revisions that stand of each pin, oldest first."""
    prefix = f"volumes/{base58(vid)}/pins/"
    chains: dict[bytes, list[Pin]] = {}
    for key in sorted((key for key in objects if key.startswith(prefix)), reverse=True):
        text, _, number = key[len(prefix) :].partition("/")
        pin = _parse(key, objects[key], vid)
        if (pin.id, pin.rev) != (unbase58(text), 2**64 - 1 - int(number, 16)):
            raise Damaged(key, "it is another pin's, or another revision")
        chains.setdefault(pin.id, []).append(pin)
    return list(chains.values())


def key_of(vid: bytes, pin: Pin) -> str:
    return f"volumes/{base58(vid)}/pins/{base58(pin.id)}/{2**64 - 1 - pin.rev:016x}"


def newest_of_label(vid: bytes, label: str, ids: set[bytes]) -> bytes:
    """Of these, which are all that have the label, the one of the highest count."""
    n, newest = 0, b""
    while ids - {newest}:
        made = blake2b(vid + f"label {n} {label}".encode(), digest_size=9, person=b"budwood.pin").digest()
        raw = bytes([PIN]) + bytes(6) + made
        if raw in ids:
            ids, newest = ids - {newest}, raw
        n += 1
    return newest


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

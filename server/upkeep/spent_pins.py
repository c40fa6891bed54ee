"""Spent pins: the revisions of a volume's pins that say nothing any more (volume/pins.py; S0.24).

    a pin that holds      the revisions between 0 and the newest
    one that has ended    all of them; what it ended with is kept apart, since its id is used up
    one without a 0       what somebody made anew who had slept

Of the pins with one label the newest stays as it is, though it has ended: whoever takes the label next goes on from it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from functools import partial
from typing import NamedTuple

from ...volume.errors import BadInput
from ...volume.garbage import PlannedPin
from ...volume.ids import PinId, VolumeId
from ...volume.pins import Pin, attempts_of_label, pins_prefix, revision_of
from ..metastore.pin_store import PINS_PAGE, Pins
from ..store.protocol import Store
from ..store.retrying import Patience, retried


class Chain(NamedTuple):
    """The revisions of a pin that stand."""

    pin: PinId
    newest: int
    oldest: int
    revisions: int


async def spent(store: Store, pins: Pins, vid: VolumeId, patience: Patience) -> list[PlannedPin]:
    """Raises Corrupt, Unavailable."""
    stand = {pin.id: pin for pin in await pins.all(vid)}
    kept = newest_of_labels(vid, stand.values())
    found = list[PlannedPin]()
    async with aclosing(chains(store, vid, patience)) as every:
        async for chain in every:
            pin = stand.get(chain.pin.raw)
            if chain.oldest or (pin is not None and not pin.holds and pin.rev == chain.newest and pin.id not in kept):
                found.append(PlannedPin(vid=vid.raw, pin=chain.pin.raw, upto=chain.newest, ended=True))
            elif chain.revisions > 2:
                found.append(PlannedPin(vid=vid.raw, pin=chain.pin.raw, upto=chain.newest - 1))
    return found


async def chains(store: Store, vid: VolumeId, patience: Patience) -> AsyncGenerator[Chain]:
    """Of all pins of the volume, whether they count or not."""
    prefix, start = pins_prefix(vid), ""
    chain: Chain | None = None
    while True:
        listed = partial(store.list, prefix, start=start, limit=PINS_PAGE)
        keys = await retried(f"list {prefix}", listed, patience)
        for key in keys:
            try:
                pin, rev = PinId.parse(key.split("/")[3]), revision_of(key)
            except BadInput:
                # None of ours: a scrub tells of it.
                continue
            if chain is not None and chain.pin == pin:
                chain = chain._replace(oldest=rev, revisions=chain.revisions + 1)
                continue
            if chain is not None:
                yield chain
            chain = Chain(pin, rev, rev, 1)
        if len(keys) < PINS_PAGE:
            break
        start = f"{keys[-1]}\0"
    if chain is not None:
        yield chain


def newest_of_labels(vid: VolumeId, pins: Iterable[Pin]) -> set[bytes]:
    """The ids of the pins that somebody who takes a label goes on from."""
    by_label: dict[str, set[bytes]] = {}
    for pin in pins:
        if pin.label:
            by_label.setdefault(pin.label, set()).add(pin.id)
    return {next(attempts_of_label(vid, label, ids)).raw for label, ids in by_label.items()}

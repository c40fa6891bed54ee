"""The chain of a pin as a pure state machine, and its bytes (DESIGN §5, §10)."""

from __future__ import annotations

import math
from itertools import product

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.volume.errors import BadInput, Corrupt
from budwood.volume.ids import PinId, VolumeId
from budwood.volume.pins import (
    ASKED_MS,
    FORK,
    KINDS,
    Pin,
    PinEvent,
    PinState,
    Wanted,
    check_pin,
    covers,
    expiry_of,
    next_revision,
    overdue,
    parse_pin,
    pin_key,
    pins_prefix,
    requested_pin,
    seal_pin,
)

VID = VolumeId.new(at_ms=1, noise=bytes(9))
ID = PinId.new(at_ms=2, noise=bytes(9))
LAST = 2**64 - 1
FIRST = requested_pin(ID, VID, Wanted(lsn=7, kind="lease", owner="a job", expiry=9_000), now_ms=1_000)

AFTER = {
    ("asked", "confirm"): "live",
    ("asked", "release"): "released",
    ("asked", "expire"): "expired",
    ("live", "renew"): "live",
    ("live", "release"): "released",
    ("live", "expire"): "expired",
}


@pytest.mark.parametrize(("state", "event"), list(product(PinState, PinEvent)))
def test_every_event_in_every_state(state: PinState, event: PinEvent) -> None:
    """S3.22: what has ended never comes back."""
    pin = msgspec.structs.replace(FIRST, state=state, rev=4)
    after = next_revision(pin, event, now_ms=5_000, expiry=9_000)
    expected = AFTER.get((state.value, event.value))
    assert (None if after is None else after.state.value) == expected
    if after is not None:
        same = msgspec.structs.replace(after, state=pin.state, rev=4, expiry=pin.expiry, time=pin.time)
        assert same == pin, "an event changes nothing else"
        assert (after.rev, after.expiry, after.time) == (5, 9_000, 5_000)


def test_a_pin_is_asked_for_with_a_short_expiry_of_its_own() -> None:
    """So that a maker that died holds nothing for long, however long the pin was to last."""
    assert (FIRST.state, FIRST.rev, FIRST.expiry) == (PinState.ASKED, 0, 1_000 + ASKED_MS)
    assert FIRST.holds


def test_only_what_is_asked_for_or_live_holds() -> None:
    holding = {state for state in PinState if msgspec.structs.replace(FIRST, state=state).holds}
    assert holding == {PinState.ASKED, PinState.LIVE}


@pytest.mark.parametrize("state", PinState)
@pytest.mark.parametrize(("expiry", "now", "skew", "ended"), [
    (10_000, 10_000, 0, False), (10_000, 10_001, 0, True), (10_000, 10_500, 500, False), (10_000, 10_501, 500, True),
    (0, 1 << 50, 0, False),
])  # fmt: skip
def test_it_is_overdue_after_its_expiry_and_the_skew_of_clocks(
    state: PinState, expiry: int, now: int, skew: int, ended: bool
) -> None:
    """S0.24: 0 is never. S0.27: clocks may lie apart."""
    pin = msgspec.structs.replace(FIRST, state=state, expiry=expiry)
    assert overdue(pin, now, skew) is (ended and pin.holds)


@pytest.mark.parametrize(("stands", "wanted", "enough"), [
    (0, 5, True), (0, 0, True), (5, 0, False), (5, 5, True), (5, 6, False), (6, 5, True),
])  # fmt: skip
def test_a_lease_covers_what_ends_no_later(stands: int, wanted: int, enough: bool) -> None:
    assert covers(stands, wanted) is enough


def test_seconds_become_an_expiry() -> None:
    assert expiry_of(0, 1_000) == 0
    assert expiry_of(1.5, 1_000) == 2_500
    assert expiry_of(1e-9, 1_000) == 1_001, "short is not for ever"


@pytest.mark.parametrize(
    ("kind", "owner", "seconds"),
    [
        ("moor", "", 1), (FORK, "", 1), ("lease", "a\nb", 1), ("lease", "x" * 256, 1), ("lease", "", -1),
        ("lease", "", math.inf), ("lease", "", math.nan), ("lease", "", 1e12),
    ],
)  # fmt: skip
def test_what_can_not_be_asked_for_is_refused(kind: str, owner: str, seconds: float) -> None:
    with pytest.raises(BadInput):
        check_pin(kind, owner, seconds)


@given(
    st.integers(0, 1 << 63),
    st.sampled_from(PinState),
    st.sampled_from([*KINDS, FORK]),
    st.text(max_size=20),
    st.integers(0, 1 << 60),
)
def test_a_pin_comes_back_from_its_bytes_and_revisions_sort(
    lsn: int, state: PinState, kind: str, owner: str, rev: int
) -> None:
    pin = Pin(id=ID.raw, vid=VID.raw, lsn=lsn, rev=rev, state=state, kind=kind, owner=owner, expiry=3, time=4)
    key = pin_key(pin)
    assert parse_pin(key, seal_pin(pin)) == pin
    assert key > pin_key(msgspec.structs.replace(pin, rev=rev + 1)) > pin_key(msgspec.structs.replace(pin, rev=LAST))
    assert pin_key(msgspec.structs.replace(pin, rev=LAST)).endswith("/" + 16 * "0")
    assert key.startswith(pins_prefix(VID, ID))
    assert key.startswith(pins_prefix(VID))


@given(st.data())
def test_a_damaged_or_misplaced_pin_is_corrupt(data: st.DataObject) -> None:
    sealed = bytearray(seal_pin(FIRST))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Corrupt):
        parse_pin(pin_key(FIRST), bytes(sealed))
    for changes in ({"rev": 1}, {"id": PinId.new().raw}, {"vid": VolumeId.new().raw}, {"id": b"short"}):
        other = msgspec.structs.replace(FIRST, **changes)
        with pytest.raises(Corrupt):
            parse_pin(pin_key(FIRST), seal_pin(other))
    before_the_first = msgspec.structs.replace(FIRST, rev=-1)
    with pytest.raises(Corrupt):
        parse_pin(pin_key(before_the_first), seal_pin(before_the_first))

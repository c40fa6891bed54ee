"""What is known of an owner before it is asked: the table of volume/owner.py, row by row."""

from __future__ import annotations

import pytest

from budwood.remote.owner_liveness import local_stack
from budwood.volume.entry import EpochRecord
from budwood.volume.owner import Liveness, NetworkStack, is_loopback, known_liveness

HERE = NetworkStack("machine", "boot", "net")
REBOOTED = NetworkStack("machine", "before", "net")
BESIDE = NetworkStack("machine", "boot", "another")
ELSEWHERE = NetworkStack("other", "boot", "net")
OWN, LOCAL, FAR = "http://127.0.0.1:7447", "http://127.0.0.1:7448", "http://far:7447"


@pytest.mark.parametrize(
    ("address", "stack", "own", "known"),
    [
        ("", HERE, OWN, Liveness.GONE),
        ("", ELSEWHERE, OWN, Liveness.GONE),
        (OWN, HERE, OWN, Liveness.GONE),
        ("127.0.0.1:7447", HERE, OWN, Liveness.GONE),
        (OWN, None, OWN, Liveness.GONE),
        (OWN, REBOOTED, OWN, Liveness.GONE),
        (OWN, BESIDE, OWN, Liveness.UNKNOWN),
        (OWN, ELSEWHERE, OWN, Liveness.UNKNOWN),
        (OWN, ELSEWHERE, "", Liveness.UNKNOWN),
        (LOCAL, HERE, OWN, None),
        (LOCAL, None, OWN, None),
        (LOCAL, HERE, "", None),
        (LOCAL, REBOOTED, OWN, Liveness.GONE),
        (LOCAL, BESIDE, OWN, Liveness.UNKNOWN),
        (LOCAL, ELSEWHERE, OWN, Liveness.UNKNOWN),
        (FAR, HERE, FAR, Liveness.GONE),
        (FAR, REBOOTED, FAR, Liveness.GONE),
        (FAR, ELSEWHERE, FAR, None),
        (FAR, HERE, OWN, None),
        (FAR, REBOOTED, OWN, None),
        (FAR, BESIDE, OWN, None),
        (FAR, ELSEWHERE, OWN, None),
    ],
)
def test_what_is_known_of_an_owner_without_asking(
    address: str, stack: NetworkStack | None, own: str, known: Liveness | None
) -> None:
    owner = EpochRecord(log="main", n=1, writer=bytes(16), address=address, stack=str(stack or ""))
    assert known_liveness(owner, own=own, here=HERE) is known


@pytest.mark.parametrize("address", ["127.0.0.1:1", "http://127.8.9.1", "http://[::1]:7447", "localhost:7447"])
def test_loopback_addresses_are_known(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["", "10.0.0.1:7447", "http://host:7447", "https://[2001:db8::1]:7447", "http://["])
def test_others_are_not(address: str) -> None:
    assert not is_loopback(address)


def test_a_stack_is_written_and_read_back_and_stays_the_same() -> None:
    here = local_stack()
    assert NetworkStack.parse(str(here)) == here == local_stack()
    for text in ("", "a", "a.b", "a..c", "a.b.c.d"):
        assert NetworkStack.parse(text) is None

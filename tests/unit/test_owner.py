"""What is known of an owner before it is asked: the table of volume/owner.py, row by row."""

from __future__ import annotations

import pytest

from budwood.remote.alive import stack_here
from budwood.volume.entry import EpochRecord
from budwood.volume.owner import Life, Stack, is_loopback, known_of

HERE = Stack("machine", "boot", "net")
REBOOTED = Stack("machine", "before", "net")
BESIDE = Stack("machine", "boot", "another")
ELSEWHERE = Stack("other", "boot", "net")
OWN, LOCAL, FAR = "http://127.0.0.1:7447", "http://127.0.0.1:7448", "http://far:7447"


@pytest.mark.parametrize(
    ("address", "stack", "own", "known"),
    [
        ("", HERE, OWN, Life.GONE),
        ("", ELSEWHERE, OWN, Life.GONE),
        (OWN, HERE, OWN, Life.GONE),
        ("127.0.0.1:7447", HERE, OWN, Life.GONE),
        (OWN, None, OWN, Life.GONE),
        (OWN, REBOOTED, OWN, Life.GONE),
        (OWN, BESIDE, OWN, Life.UNKNOWN),
        (OWN, ELSEWHERE, OWN, Life.UNKNOWN),
        (OWN, ELSEWHERE, "", Life.UNKNOWN),
        (LOCAL, HERE, OWN, None),
        (LOCAL, None, OWN, None),
        (LOCAL, HERE, "", None),
        (LOCAL, REBOOTED, OWN, Life.GONE),
        (LOCAL, BESIDE, OWN, Life.UNKNOWN),
        (LOCAL, ELSEWHERE, OWN, Life.UNKNOWN),
        (FAR, HERE, FAR, Life.GONE),
        (FAR, REBOOTED, FAR, Life.GONE),
        (FAR, ELSEWHERE, FAR, None),
        (FAR, HERE, OWN, None),
        (FAR, REBOOTED, OWN, None),
        (FAR, BESIDE, OWN, None),
        (FAR, ELSEWHERE, OWN, None),
    ],
)
def test_what_is_known_of_an_owner_without_asking(
    address: str, stack: Stack | None, own: str, known: Life | None
) -> None:
    owner = EpochRecord(log="main", n=1, writer=bytes(16), address=address, stack=str(stack or ""))
    assert known_of(owner, own=own, here=HERE) is known


@pytest.mark.parametrize("address", ["127.0.0.1:1", "http://127.8.9.1", "http://[::1]:7447", "localhost:7447"])
def test_loopback_addresses_are_known(address: str) -> None:
    assert is_loopback(address)


@pytest.mark.parametrize("address", ["", "10.0.0.1:7447", "http://host:7447", "https://[2001:db8::1]:7447", "http://["])
def test_others_are_not(address: str) -> None:
    assert not is_loopback(address)


def test_a_stack_is_written_and_read_back_and_stays_the_same() -> None:
    here = stack_here()
    assert Stack.parse(str(here)) == here == stack_here()
    for text in ("", "a", "a.b", "a..c", "a.b.c.d"):
        assert Stack.parse(text) is None

"""Routed: which node each call goes to, and what is said where none can be reached (DESIGN §4)."""

from __future__ import annotations

from typing import cast

import pytest

from budwood.remote.routed import REMEMBERED, Routed
from budwood.volume.calls import (
    HELLO,
    MOVE_LOG,
    OUTCOME,
    PIN,
    SNAPSHOT,
    A,
    Call,
    Done,
    LogName,
    MoveRequest,
    OutcomeRequest,
    PinRequest,
    Q,
    SnapshotRequest,
)
from budwood.volume.errors import Conflict, NotOwner, Unavailable
from budwood.volume.ids import VolumeId
from budwood.volume.owner import base_url
from budwood.volume.protocols import Remote
from budwood.volume.wire import CommitRequest, Committed, SnapshotInfo

pytestmark = pytest.mark.anyio

VID = VolumeId.new()
DOWN = Unavailable("can't reach it")


def request_of(vid: VolumeId) -> CommitRequest:
    nothing = b""
    return CommitRequest(
        vid=vid.raw,
        base=0,
        length=0,
        floor=0,
        pages=nothing,
        client=nothing,
        nonce=nothing,
        content=nothing,
        setsum=nothing,
        token=nothing,
    )


def owned_by(address: str) -> NotOwner:
    return NotOwner("not mine", owner=address, log="main")


class Network:
    """Nodes by address ("" is home); what each does with a commit is set by the test."""

    def __init__(self, **commits: Exception | None) -> None:
        self.commits = {address.replace("home", ""): error for address, error in commits.items()}
        self.asked: list[str] = []
        self.closed: list[str] = []

    def node(self, address: str) -> Remote:
        network = self

        class Node:
            url = address

            async def commit(self, request: CommitRequest, segment: bytes = b"") -> Committed:
                network.asked.append(address)
                error = network.commits[address]
                if error is not None:
                    raise error
                return Committed(lsn=1, time=0)

            async def ask(self, call: Call[Q, A], request: Q) -> object:
                if isinstance(request, MoveRequest):
                    return LogName(log=request.to)
                network.asked.append(f"{call.name} {address}")
                return SnapshotInfo(vid=VID.raw, lsn=1, length=0, page_size=512)

            async def aclose(self) -> None:
                network.closed.append(address)

        return cast("Remote", Node())

    def routed(self) -> Routed:
        return Routed(
            self.node(""),
            lambda address: self.node(address.removeprefix("http://")),
            lambda refused: base_url(refused.owner),
        )


async def commit(routed: Routed, vid: VolumeId = VID) -> int:
    return (await routed.commit(request_of(vid))).lsn


async def test_home_is_asked_first_and_then_the_owner_alone() -> None:
    network = Network(home=owned_by("a"), a=None)
    routed = network.routed()
    assert [await commit(routed) for _ in range(3)] == [1, 1, 1]
    assert network.asked == ["", "a", "a", "a"]
    await routed.ask(SNAPSHOT, SnapshotRequest(VID.raw))
    assert network.asked[-1] == "snapshot ", "who may not append may still read for itself"
    await routed.ask(OUTCOME, OutcomeRequest(VID.raw, client=b"", token=b""))
    assert network.asked[-1] == "outcome a", "whoever commits knows first what became of it"
    await routed.ask(PIN, PinRequest(VID.raw, pin=b"", seconds=1))
    assert network.asked[-1] == "pin ", "a pin appends to no log"
    await routed.ask(HELLO, Done())
    assert network.asked[-1] == "hello "
    await routed.aclose()
    assert sorted(network.closed) == ["", "a"]


async def test_each_volume_has_its_own_owner() -> None:
    network = Network(home=owned_by("a"), a=None, b=None)
    routed = network.routed()
    other = VolumeId.new()
    await commit(routed)
    network.commits[""] = owned_by("b")
    await commit(routed, other)
    await commit(routed)
    assert network.asked == ["", "a", "", "b", "a"]


async def test_a_log_that_moved_on_is_followed() -> None:
    network = Network(home=owned_by("a"), a=owned_by("b"), b=None)
    routed = network.routed()
    await commit(routed)
    await commit(routed)
    assert network.asked == ["", "a", "b", "b"]


async def test_an_owner_that_died_is_forgotten_for_whom_home_names_now() -> None:
    network = Network(home=owned_by("a"), a=None, b=None)
    routed = network.routed()
    await commit(routed)
    network.commits |= {"": owned_by("b"), "a": DOWN}
    network.asked.clear()
    await commit(routed)
    await commit(routed)
    assert network.asked == ["a", "", "b", "b"]
    network.commits |= {"": None, "b": DOWN}
    network.asked.clear()
    await commit(routed)
    await commit(routed)
    assert network.asked == ["b", "", ""]


async def test_an_owner_that_cannot_be_reached_is_named_with_the_ways_out() -> None:
    network = Network(home=owned_by("a"), a=DOWN)
    with pytest.raises(
        Unavailable, match=r"log 'main' is owned by .*can't reach it.*--log private --takeover"
    ) as caught:
        await commit(network.routed())
    assert caught.value.determinate
    assert "\n" not in str(caught.value)


async def test_what_may_have_happened_is_tried_nowhere_else() -> None:
    network = Network(home=owned_by("a"), a=Unavailable("no answer", determinate=False))
    with pytest.raises(Unavailable, match="no answer") as caught:
        await commit(network.routed())
    assert not caught.value.determinate
    assert network.asked == ["", "a"]


async def test_whoever_hangs_is_asked_no_more_once_home_names_another() -> None:
    network = Network(home=owned_by("a"), a=Unavailable("no answer", determinate=False))
    routed = network.routed()
    with pytest.raises(Unavailable, match="no answer"):
        await commit(routed)
    network.commits[""] = None
    await commit(routed)
    assert network.asked == ["", "a", ""]


async def test_nodes_that_point_at_each_other_are_not_followed_for_ever() -> None:
    network = Network(home=owned_by("a"), a=owned_by("b"), b=owned_by("a"))
    with pytest.raises(Unavailable, match="from node to node"):
        await commit(network.routed())
    assert len(network.asked) < 10


@pytest.mark.parametrize("error", [NotOwner("whose?", log="main"), Conflict("late", head=3), DOWN])
async def test_what_home_says_otherwise_is_said(error: Exception) -> None:
    network = Network(home=error)
    with pytest.raises(type(error), match=str(error)):
        await commit(network.routed())
    assert network.asked == [""]


async def test_a_move_is_remembered_by_forgetting() -> None:
    network = Network(home=owned_by("a"), a=None)
    routed = network.routed()
    await commit(routed)
    await routed.ask(MOVE_LOG, MoveRequest(VID.raw, to="private"))
    network.commits[""] = None
    await commit(routed)
    assert network.asked == ["", "a", ""]


async def test_what_is_remembered_is_bounded() -> None:
    network = Network(home=owned_by("a"), a=None)
    routed = network.routed()
    for number in range(REMEMBERED + 5):
        await commit(routed, VolumeId.new(at_ms=number))
    assert len(routed._owners) == REMEMBERED  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("address", "url"), [("h:1", "http://h:1"), ("http://h:1/", "http://h:1"), ("https://h", "https://h")]
)
def test_an_address_may_leave_its_scheme_out(address: str, url: str) -> None:
    assert base_url(address) == url

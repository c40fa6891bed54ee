"""When a node's log says that its store fails."""

from __future__ import annotations

import asyncio

import pytest

from budwood.server.telemetry.store_failures import AGAIN_SECONDS, LASTED_SECONDS, StoreFailures
from budwood.volume.errors import AlreadyExists, Full, NotFound, Unauthorized, Unavailable


class Clock:
    seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def failures(clock: Clock) -> StoreFailures:
    return StoreFailures(clock)


@pytest.mark.parametrize("error", [Unavailable("reset"), Full("no room"), Unauthorized("expired")])
def test_what_lasts_is_told_once_then_now_and_then_and_that_it_is_over(
    failures: StoreFailures, clock: Clock, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    for _ in range(50):
        failures.note("create", error)
        clock.seconds += LASTED_SECONDS / 10
    assert failures.is_failing()
    assert caplog.messages == [f"the store has failed each create for 3 s: {error}"]
    clock.seconds += AGAIN_SECONDS
    assert not failures.is_failing(), "nothing has been asked for a long time"
    failures.note("create", error)
    assert failures.is_failing()
    assert len(caplog.messages) == 2
    failures.note("create", None)
    failures.note("create", None)
    assert not failures.is_failing()
    assert caplog.messages[2:] == ["the store answers each create again, after 75 s"]


@pytest.mark.parametrize("answer", [None, AlreadyExists("it stands"), NotFound("no object")])
def test_what_is_answered_now_and_then_is_not_told(
    failures: StoreFailures, clock: Clock, caplog: pytest.LogCaptureFixture, answer: Exception | None
) -> None:
    for _ in range(100):
        failures.note("get", Unavailable("slow down"))
        clock.seconds += LASTED_SECONDS * 0.9
        failures.note("get", answer)
    assert not failures.is_failing()
    assert caplog.messages == []


def test_what_another_kind_is_answered_and_who_left_meanwhile_tell_nothing_of_it(
    failures: StoreFailures, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        failures.note("create", Unavailable("read only"))
        clock.seconds += 1
        failures.note("get", None)
        failures.note("create", asyncio.CancelledError())
    assert failures.is_failing()
    assert len(caplog.messages) == 1


def test_one_that_failed_hours_ago_and_one_that_fails_now_are_no_outage(
    failures: StoreFailures, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        failures.note("get", Unavailable("reset"))
        assert not failures.is_failing()
        clock.seconds += 3600
    failures.note("get", None)
    assert caplog.messages == []

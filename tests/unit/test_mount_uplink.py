"""How a mount spaces out its tries while a remote doesn't answer."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from budwood.volume.errors import Unavailable

pytest.importorskip("pyfuse3")

from budwood.fuse.exchange.uplink import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Uplink


def test_many_who_fail_at_once_are_one_failure() -> None:
    async def fail() -> tuple[float, float, float]:
        link = Uplink("http://nowhere")
        for _ in range(20):
            link.fails(Unavailable("no answer"), since=trio.current_time())
        first = link.pause_seconds
        await trio.sleep(link.pause_seconds)
        link.fails(Unavailable("no answer"), since=trio.current_time())
        second = link.pause_seconds
        for _ in range(20):
            await trio.sleep(link.pause_seconds)
            link.fails(Unavailable("no answer"), since=trio.current_time())
        return first, second, link.pause_seconds

    found = trio.run(fail, clock=MockClock(autojump_threshold=0))
    assert found == (FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)


def test_whoever_waits_hears_once_that_the_remote_answers_again() -> None:
    async def answer() -> tuple[int, float]:
        heard: list[None] = []
        link = Uplink("http://nowhere", lambda: heard.append(None))
        link.works()
        await trio.sleep(1)
        link.fails(Unavailable("no answer"), since=trio.current_time())
        link.works()
        link.works()
        return len(heard), link.pause_seconds

    assert trio.run(answer, clock=MockClock(autojump_threshold=0)) == (1, 0.0)


def test_what_was_begun_before_an_answer_and_fails_after_it_is_no_outage() -> None:
    async def fail() -> tuple[str, str]:
        link = Uplink("http://nowhere")
        since = trio.current_time()
        await trio.sleep(1)
        link.works()
        link.fails(Unavailable("no answer"), since=since)
        late = link.error
        await trio.sleep(1)
        link.fails(Unavailable("no answer"), since=trio.current_time())
        return late, link.error

    assert trio.run(fail, clock=MockClock(autojump_threshold=0)) == ("", "no answer")

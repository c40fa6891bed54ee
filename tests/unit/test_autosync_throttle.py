"""Of how many volumes something is done at once, beside programs and without."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from budwood.sync.autosync_throttle import LOOK_SECONDS, Throttle

from ..waits import LIMIT_SECONDS

MOST = 4


@dataclass
class Machine:
    now: float = 0.0
    cpu: float = 0.0
    served: int = 0

    def throttle(self) -> Throttle:
        return Throttle(MOST, lambda: self.served, clock=lambda: self.now, cpu=lambda: self.cpu)

    def passes(self, *, cpu_share: float, served: int, seconds: float = LOOK_SECONDS) -> None:
        self.now += seconds
        self.cpu += cpu_share * seconds
        self.served += served


@pytest.mark.parametrize(
    ("cpu_share", "served", "allowed"), [(0.9, 100, 1), (0.9, 0, MOST), (0.3, 100, MOST), (1.5, 6, 1), (0.9, 4, MOST)]
)
def test_one_at_a_time_where_programs_wait_for_the_processor(cpu_share: float, served: int, allowed: int) -> None:
    machine = Machine()
    throttle = machine.throttle()
    assert throttle.allowed() == MOST
    machine.passes(cpu_share=cpu_share, served=served)
    assert throttle.allowed() == allowed


def test_what_was_found_stays_until_the_next_look_and_no_longer() -> None:
    machine = Machine()
    throttle = machine.throttle()
    machine.passes(cpu_share=0.9, served=100)
    assert throttle.allowed() == 1
    machine.passes(cpu_share=0.0, served=0, seconds=LOOK_SECONDS / 2)
    assert throttle.allowed() == 1
    machine.passes(cpu_share=0.0, served=0)
    assert throttle.allowed() == MOST


def test_who_has_no_programs_is_never_held_up() -> None:
    assert Throttle(MOST, None, cpu=lambda: 1e9).allowed() == MOST


class Turn(threading.Thread):
    """Takes one, and leaves it when it is told to."""

    def __init__(self, throttle: Throttle) -> None:
        super().__init__(daemon=True)
        self.throttle = throttle
        self.begun, self.told = threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with self.throttle.turn():
            self.begun.set()
            self.told.wait()


def test_a_turn_waits_for_others_to_leave_or_for_programs_to_rest() -> None:
    machine = Machine()
    throttle = machine.throttle()
    machine.passes(cpu_share=0.9, served=100)
    first = Turn(throttle)
    assert first.begun.wait(LIMIT_SECONDS)
    second = Turn(throttle)
    assert not second.begun.wait(2 * LOOK_SECONDS), "one is under way"
    first.told.set()
    assert second.begun.wait(LIMIT_SECONDS), "it has left"
    third = Turn(throttle)
    assert not third.begun.wait(2 * LOOK_SECONDS)
    machine.passes(cpu_share=0.1, served=100)
    assert third.begun.wait(LIMIT_SECONDS), "the processor is free: there may be more"
    for turn in (second, third):
        turn.told.set()
        turn.join()

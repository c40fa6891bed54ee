"""Fault points: off unless armed, certain once armed."""

import subprocess
import sys

import pytest

from budwood.volume import faults

HERE = faults.point("test: a point of this test")


@pytest.fixture(autouse=True)
def clean() -> object:
    yield
    faults.disarm()


def test_an_unarmed_point_does_nothing() -> None:
    HERE()


def test_an_armed_point_acts_until_it_is_disarmed() -> None:
    hits: list[int] = []
    faults.arm(HERE.name, lambda: hits.append(1))
    HERE()
    faults.disarm(HERE.name)
    HERE()
    assert hits == [1]


def test_arming_a_point_that_does_not_exist_fails() -> None:
    with pytest.raises(KeyError):
        faults.arm("test: renamed since", lambda: None)


def test_a_point_is_declared_once() -> None:
    with pytest.raises(AssertionError):
        faults.point(HERE.name)
    assert HERE.name in faults.registered()


def test_the_environment_kills_at_the_nth_time() -> None:
    code = "from budwood.volume import faults\np = faults.point('a: b')\nfor i in range(9): print(i, flush=True); p()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"BUDWOOD_FAULT": "a: b#3"}, stdout=subprocess.PIPE, check=False, text=True
    )
    assert (done.returncode, done.stdout.split()) == (-9, ["0", "1", "2"])

"""What the suite promises of itself: it runs wherever, beside whatever (waits.py, conftest.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..waits import LIMIT_SECONDS, OVERDUE, wait_until

ROOT = Path(__file__).parents[2]

IN_THE_BACKGROUND = 'trap "" INT; ulimit -v 8000000; exec "$@"'
"""What a shell does with `make test &` in a script; and the room that a test may take at the most, in KiB."""


@pytest.mark.parametrize(
    "test",
    [
        "tests/unit/test_export_units.py::test_what_takes_long_ends_when_its_caller_is_interrupted",
        "tests/integration/test_cli.py::test_an_interrupt_ends_a_long_statement_in_silence",
    ],
)
def test_where_interrupts_are_ignored_the_tests_interrupt_all_the_same(test: str) -> None:
    pytest_of = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    done = subprocess.run(
        ["sh", "-c", IN_THE_BACKGROUND, "sh", *pytest_of],
        cwd=ROOT,
        env=os.environ | {"BUDWOOD_TEST_LIMIT_SECONDS": str(LIMIT_SECONDS / 5)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wait_gives_what_came_and_says_that_its_limit_was_reached() -> None:
    came = iter([None, "", "here"])
    assert wait_until(lambda: next(came)) == "here"
    with pytest.raises(AssertionError, match=OVERDUE):
        wait_until(lambda: False, 0)

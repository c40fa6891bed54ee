"""What the suite promises of itself: it runs wherever, beside whatever (waits.py, conftest.py)."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
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


LAST = {"wait", "join", "fail_after", "wait_until"}
"""Their last argument is a number of seconds."""
WAITING = LAST | {"run", "check_output", "communicate", "get"}
CLOCKS = {"monotonic", "perf_counter", "perf_counter_ns", "monotonic_ns"}
MOST = 300
OWN = ("tests/waits.py", "tests/mutants/", "tests/soak/", "tests/tutorial.py", "tests/attack/test_autosync_storms.py")
"""Who looks at a clock: the limit itself, three commands that tell how long they ran, and one that asks for pauses
which no machine makes shorter."""


def limits(path: Path) -> Iterator[str]:
    """What waits for seconds that it chose itself, less than what everybody waits, and what looks at a clock."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in WAITING:
                given = [each.value for each in node.keywords if each.arg in ("timeout", "seconds")]
                for value in [*given, *(node.args[-1:] if name in LAST else [])]:
                    if (
                        isinstance(value, ast.Constant)
                        and isinstance(value.value, int | float)
                        and 1 <= value.value < 300
                    ):
                        yield f"{path.relative_to(ROOT)}:{node.lineno} {name}"
            case ast.Attribute(attr=name) if name in CLOCKS:
                yield f"{path.relative_to(ROOT)}:{node.lineno} {name}"
            case _:
                pass


def test_no_test_has_a_limit_or_a_clock_of_its_own() -> None:
    """One limit, in waits.py: any shorter one fails on a busy machine. Whoever measures is a bench."""
    files = [path for path in (ROOT / "tests").rglob("*.py") if not str(path.relative_to(ROOT)).startswith(OWN)]
    assert len(files) > 100
    assert [found for path in files for found in limits(path)] == []

"""The example of a plain log, run as its text says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ..waits import LIMIT_SECONDS

EXAMPLE = Path(__file__).parents[2] / "examples" / "plain_log.py"


def test_the_example_of_a_plain_log_runs_on_a_store_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-P", str(EXAMPLE)],
        env={name: value for name, value in os.environ.items() if name != "BUDWOOD_STORE"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "appended up to 2",
        "appended up to 4",
        "appended up to 6",
        "audit: 3 records, the last at 6, plain",
        "orders: 3 records, the last at 5, application/json",
        "1: apple",
        "3: pear",
        "5: plum",
    ]

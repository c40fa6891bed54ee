"""The serverless example, run as its text says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ..waits import LIMIT_SECONDS

EXAMPLE = Path(__file__).parents[2] / "examples" / "serverless.py"


def test_the_serverless_example_runs_on_a_store_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-P", str(EXAMPLE)], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    answers = [line.partition("→ ")[2] for line in done.stdout.splitlines()]
    assert answers == [
        "{'item': 'apple', 'count': 12}",
        "{'item': 'apple', 'count': 7}",
        "{'error': 'not enough of them'}",
        "{'error': 'no such item'}",
    ]

"""SQLAlchemy's own compliance suite of dialects over volumes of a home, in a pytest of its own."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from ..waits import LIMIT_SECONDS

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "tests" / "compliance" / "sqlalchemy_suite"
REASONS: dict[str, str] = runpy.run_path(str(SUITE / "budwood_requirements.py"))["LEFT_OUT"]
OTHER_REASONS = {"Backend does not require denormalized names."}
"""What SQLAlchemy itself says of all that have no such names."""
LEAST_PASSED = 1600


@pytest.mark.slow
def test_the_dialect_passes_all_of_it_but_what_is_left_out_with_a_reason(tmp_path: Path) -> None:
    url = f"budwood:///suite?home={tmp_path}/home&remote=file://{tmp_path}/store"
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:xdist", "-c", "setup.cfg", "--rootdir", "."]
    done = subprocess.run(
        [*command, "--confcutdir", ".", "--dburi", url, "suite.py"],
        cwd=SUITE,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
        # What this run's pytest is told besides is not for that one.
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
    closing = re.fullmatch(r"(\d+) passed, (\d+) skipped in .*", done.stdout.splitlines()[-1])
    assert closing, done.stdout.splitlines()[-1]
    assert int(closing[1]) >= LEAST_PASSED
    told = done.stdout.partition("left out")[2].splitlines()[1:-1]
    listed = {reason: int(number) for number, reason in (line.strip().split(" ", 1) for line in told)}
    assert sum(listed.values()) >= int(closing[2])
    known = {f"{name}: {reason}" for name, reason in REASONS.items()} | OTHER_REASONS
    assert listed.keys() <= known


def test_what_is_left_out_stands_in_the_documents() -> None:
    for document in ("docs/python.md", "docs/design/0115-where-people-are.md"):
        text = (ROOT / document).read_text()
        assert not [name for name in REASONS if f"`{name}`" not in text], document

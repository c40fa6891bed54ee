"""A home damaged in any place: never a crash by a signal, never a wrong row, nothing that was acknowledged is gone
without a word. What is told is Corrupt and names the home.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ..waits import LIMIT_SECONDS
from . import damaged_homes

SEEDS = 60
"""Thousands were run; ten take a second."""


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_damage_is_told_or_makes_no_difference(tmp_path: Path, first: int) -> None:
    command = [sys.executable, "-P", damaged_homes.__file__, str(tmp_path), str(first), "20"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS)
    cases = [line.split("\t") for line in ran.stdout.splitlines()]
    assert len(cases) == 20, ran.stderr
    assert [case for case in cases if case[2] not in {"sound", "told"}] == []
    outcomes = Counter(case[2] for case in cases)
    assert outcomes["told"] >= 5, outcomes
    assert outcomes["sound"] >= 1, outcomes

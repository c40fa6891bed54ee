"""The soak itself: seconds of it, so that it runs when it is needed, and tells what breaks (tests/soak)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ..mounts import needs_fuse
from ..soak.machines import why_not
from ..waits import LIMIT_SECONDS

ROOT = Path(__file__).parents[2]


def soaked(folder: Path, module: str, minutes: float, seed: int) -> str:
    """What it said. It has found nothing, and leaves nothing behind. The soak itself tells of a child that hangs, once
    its limit is reached: so there is more time here."""
    done = subprocess.run(
        [sys.executable, "-m", module, "--minutes", str(minutes), "--seed", str(seed)],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=3 * LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9][\d,]* commits acknowledged .* [1-9][\d,]* checks  0 violations\n", done.stdout), (
        done.stdout
    )
    assert list(folder.iterdir()) == []
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("module", "minutes", "seed"), [("tests.soak", 0.1, 7), ("tests.soak.edges", 0.08, 5)])
def test_a_few_seconds_of_edges_hold_and_leave_nothing_behind(
    tmp_path: Path, module: str, minutes: float, seed: int
) -> None:
    said = soaked(tmp_path, module, minutes, seed)
    assert re.search(r"^checks: .*LSN.*bank", said, re.MULTILINE), said


@pytest.mark.slow
@needs_fuse
def test_a_few_seconds_of_a_shared_tree_hold_and_leave_nothing_behind(tmp_path: Path) -> None:
    said = soaked(tmp_path, "tests.soak.shared_tree", 0.05, 3)
    assert re.search(r"^checks: .*tree", said, re.MULTILINE), said


@pytest.mark.slow
@needs_fuse
def test_a_few_seconds_of_a_mirrored_tree_hold_and_leave_nothing_behind(tmp_path: Path) -> None:
    said = soaked(tmp_path, "tests.soak.mirrored_tree", 0.1, 2)
    assert re.search(r"^checks: .*mirror", said, re.MULTILINE), said


@pytest.mark.slow
@needs_fuse
@pytest.mark.skipif(os.getuid() != 0, reason="a small disk takes the right to mount one")
def test_a_few_seconds_of_a_full_disk_hold_and_leave_nothing_behind(tmp_path: Path) -> None:
    said = soaked(tmp_path, "tests.soak.full_disk", 0.05, 1)
    assert re.search(r"^checks: .*tree", said, re.MULTILINE), said


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_a_few_seconds_of_nodes_that_die_hold_and_leave_nothing_behind(tmp_path: Path) -> None:
    said = soaked(tmp_path, "tests.soak.failover", 0.2, 1)
    assert re.search(r"^faults: .*(killed|stopped|cut off)", said, re.MULTILINE), said

"""The soak itself: seconds of it, so that it runs when it is needed, and tells what breaks (tests/soak)."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from ..soak import ledger
from ..soak.children import Children
from ..soak.report import Report
from ..waits import LIMIT_SECONDS, wait_until

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_few_seconds_of_soak_hold_and_leave_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--minutes", "0.1", "--seed", "7"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9]\d* commits acknowledged .* [1-9]\d* checks  0 violations\n", done.stdout), done.stdout
    assert re.search(r"^checks: .*LSN.*bank", done.stdout, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []


def test_what_a_child_dies_of_and_what_hangs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report()
    children = Children(tmp_path, report)
    try:
        children.end(children.start("a crash", [sys.executable, "-c", "import os; os.abort()"]))
        children.end(children.start("a failure", [sys.executable, "-c", "raise ValueError('this')"]))
        monkeypatch.setattr("tests.soak.children.LIMIT_SECONDS", 0.5)
        children.end(children.start("a wait", [sys.executable, "-c", "import time; time.sleep(1e6)"]))
    finally:
        monkeypatch.setattr("tests.soak.children.LIMIT_SECONDS", LIMIT_SECONDS)
        children.close()
    crash, failure, wait = report.violations
    assert crash.startswith("a crash died of SIGABRT")
    assert "a failure ended with 1" in failure
    assert "ValueError: this" in failure
    assert "a wait does not end within 0 s: the stacks are in" in wait


def test_children_end_when_the_soak_is_killed(tmp_path: Path) -> None:
    code = f"""
import sys, time
sys.path.append({str(ROOT)!r})
from pathlib import Path
from tests.soak.children import Children
from tests.soak.report import Report
child = Children(Path({str(tmp_path)!r}), Report()).start("one", [sys.executable, "-c", "import time; time.sleep(1e6)"])
print(child.process.pid, flush=True)
time.sleep(1e6)
"""
    with subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True) as soak:
        assert soak.stdout is not None
        child = int(soak.stdout.readline())
        assert Path(f"/proc/{child}").exists()
        soak.kill()
    wait_until(lambda: not Path(f"/proc/{child}/exe").exists())


@pytest.mark.parametrize(
    ("spoils", "says"),
    [
        ("delete from entry where number = 3", "after entry 2 of ann comes 4"),
        ("update entry set amount = amount + 1 where number = 3", "entry 3 of ann is not what was written"),
        ("update entry set pad = x'00' where number = 3", "entry 3 of ann is not what was written"),
        ("delete from entry where number = 5", "the balances are"),
        ("update account set balance = balance + 1 where id = 7", "the balances are"),
    ],
)
def test_a_bank_tells_a_missing_and_a_changed_row(spoils: str, says: str) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        ledger.make(db)
        for number in range(1, 6):
            ledger.transfer(db, "ann", number)
        assert ledger.audit(db).counts == {"ann": 5}
        db.execute(spoils)
        with pytest.raises(ledger.Wrong, match=says):
            ledger.audit(db)

"""Plant each mutant in a copy of the tree and run the tests that must catch it.

    make mutants                  all of them
    python -m tests.mutants fence  those whose name contains the word

A mutant is *caught* if pytest fails (exit 1), *survives* if it passes; any other exit, and a text that is not found
exactly once, is an error, so that a mutant can't go stale unnoticed. Ends with 1 unless every one was caught.

Time alone catches nothing, as a loaded machine would do the same: where a limit was reached (waits.py), the mutant is
caught only if the same tests pass without it, right afterwards; and tests that don't end are an error.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from ..waits import LIMIT_SECONDS, OVERDUE
from .catalogue import MUTANTS
from .mutant import Mutant

MOST_SECONDS = 6 * LIMIT_SECONDS
ROOT = Path(__file__).parents[2]


def copy_tree(target: Path) -> None:
    """What git tracks or would track, as it is in the work tree, under the name of the package."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        source, copy = ROOT / name, target / name
        if source.is_file() and not source.is_symlink():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())


def plant(mutant: Mutant, tree: Path) -> str:
    """What is wrong with the mutant, or nothing."""
    path = tree / mutant.file
    text = path.read_text() if path.exists() else ""
    found = text.count(mutant.before)
    if found != 1:
        return f"its text stands {found} times in {mutant.file}: mend the catalogue"
    path.write_text(text.replace(mutant.before, mutant.after))
    return ""


class Ran(NamedTuple):
    status: int
    said: str

    @property
    def late(self) -> bool:
        """Whether it failed, if it did, of a limit that was reached."""
        return any(words in self.said for words in (OVERDUE, "TimeoutExpired", "Timeout (", "TimeoutError"))


def run_tests(tests: tuple[str, ...], folder: Path) -> Ran:
    """pytest in the copy, which is importable as `budwood` before anything that is installed. What doesn't end in time
    is ended, with its children."""
    environment = {
        "PYTHONPATH": str(folder),
        "HYPOTHESIS_PROFILE": "mutant",
        "TEST_INTERRUPTED": "yes",
        "REFUSALS": "1",
        "BUDWOOD_TEST_LIMIT_SECONDS": str(LIMIT_SECONDS / 5),
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]
    with subprocess.Popen(
        command,
        cwd=folder / "budwood",
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return Ran(-signal.SIGKILL, f"{said}\nThe tests did not end within {MOST_SECONDS:.0f} s.")
    return Ran(process.returncode, said)


class Tried(NamedTuple):
    outcome: str
    by: str
    seconds: float


def try_one(mutant: Mutant) -> Tried:
    start = time.monotonic()
    outcome, by = _try(mutant)
    return Tried(outcome, by, time.monotonic() - start)


def _try(mutant: Mutant) -> tuple[str, str]:
    with tempfile.TemporaryDirectory(prefix="mutant-") as made:
        tree = Path(made) / "budwood"
        copy_tree(tree)
        wrong = plant(mutant, tree)
        if wrong:
            return "error", wrong
        ran = run_tests(mutant.tests, Path(made))
        if ran.status == 1 and ran.late:
            (tree / mutant.file).write_bytes((ROOT / mutant.file).read_bytes())
            without = run_tests(mutant.tests, Path(made))
            if without.status != 0:
                return "error", "a limit was reached, and without the mutant its tests fail as well: try it alone"
    if ran.status == 1:
        found = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.said, re.M)
        return "caught", found.group(1).rpartition("::")[2] if found else ""
    if ran.status == 0:
        return "survives", ""
    return "error", ran.said.strip()[-400:]


def main(words: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if all(word in mutant.name for word in words)]
    table = Table("mutant", "file", "outcome", "by", "s", title=f"{len(chosen)} mutants", title_justify="left")
    outcomes: list[str] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, tried in zip(chosen, pool.map(try_one, chosen), strict=True):
            outcomes.append(tried.outcome)
            print(f"{tried.outcome:9} {mutant.name}", flush=True)
            table.add_row(mutant.name, mutant.file, tried.outcome, tried.by, f"{tried.seconds:.0f}")
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    print(f"{outcomes.count('caught')} passed, {len(outcomes) - outcomes.count('caught')} failed")
    return 0 if outcomes and set(outcomes) == {"caught"} else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

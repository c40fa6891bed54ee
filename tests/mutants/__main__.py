"""Plant each mutant in a copy of the tree and run the tests that must catch it.

    make mutants                  all of them
    python -m tests.mutants fence  those whose name contains the word

A mutant is *caught* if pytest fails (exit 1), *survives* if it passes; any other exit, and a text that is not found
exactly once, is an error, so that a mutant can't go stale unnoticed. Ends with 1 unless every one was caught.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from .catalogue import MUTANTS, Mutant

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


def run_tests(tests: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    """pytest in the copy, which is importable as `budwood` before anything that is installed."""
    environment = os.environ | {"PYTHONPATH": str(folder), "HYPOTHESIS_PROFILE": "mutant"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests]
    return subprocess.run(
        command,
        cwd=folder / "budwood",
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=600,
        check=False,
    )


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
        done = run_tests(mutant.tests, Path(made))
    if done.returncode == 1:
        found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
        return "caught", found.group(1).rpartition("::")[2] if found else ""
    if done.returncode == 0:
        return "survives", ""
    return "error", (done.stdout + done.stderr).strip()[-400:]


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

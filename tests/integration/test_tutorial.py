"""The tutorial does what it says, block by block, but for the first (`python -m tests.tutorial` installs, too)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ..tutorial import check, run

PROGRAMS = {
    "python": f'exec {sys.executable} -P "$@"\n',
    "budwood": f'exec {sys.executable} -P -c "from budwood.cli.launch import main; main()" "$@"\n',
}


def test_every_block_prints_what_the_tutorial_says(tmp_path: Path) -> None:
    (programs := tmp_path / "bin").mkdir()
    for name, text in PROGRAMS.items():
        (programs / name).write_text("#!/bin/sh\n" + text)
        (programs / name).chmod(0o755)
    check(run(tmp_path, ":", f"{programs}:{os.defpath}"), tmp_path)

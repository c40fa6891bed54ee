"""Passed through: a folder at a directory, by a file system of a test's own, which is a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .mounts import is_mounted
from .waits import LIMIT_SECONDS

_ROOT: Final = Path(__file__).parents[1]


@contextmanager
def passed_through(module: str, folder: Path, directory: Path, *told: object) -> Generator[None]:
    """By a module that serves a kind of `bench.passthrough.Passthrough`; it is `told` the rest of its arguments."""
    command = [sys.executable, "-m", module, *map(str, (folder, directory, *told))]
    process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"passthrough: {directory} mounted\n"
        yield
        process.terminate()
        assert process.wait(LIMIT_SECONDS) == 0
    finally:
        process.kill()
        process.communicate()
        if is_mounted(directory):
            subprocess.run(["fusermount3", "-u", "-z", directory], check=False)

"""What set-up says the mount lacks, on machines made of stubs: by that it installs, and runs again when it changes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ..waits import LIMIT_SECONDS

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuse.sh"
TOOLS = ("dirname", "grep")

GOOD = {
    "fusermount3": "exit 0",
    "pkg-config": "exit 0",
    "cc": "exit 0",
    # Asked for a header it has it; asked for the package that brings it, it names that.
    "python": 'case "$2" in *print*) echo python3.99-dev ;; esac',
    "ldd": "echo 'libfuse3.so.3 => /lib/libfuse3.so.3'",
}
BAD_PYTHON = 'case "$2" in *print*) echo python3.99-dev ;; *) exit 1 ;; esac'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    return tmp_path


def missing(checkout: Path, **differing: str | None) -> str:
    """What the script says on a machine that has every tool but those given, which behave so or aren't there."""
    tools = checkout / "tools"
    shutil.rmtree(tools, ignore_errors=True)
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    given = {name.replace("_", "-"): behaviour for name, behaviour in differing.items()}
    for name, behaviour in {**GOOD, **given}.items():
        if behaviour is not None:
            (tools / name).write_text(f"#!/bin/sh\n{behaviour}\n")
            (tools / name).chmod(0o755)
    done = subprocess.run(
        [checkout / "scripts" / "fuse.sh"],
        env={"PATH": str(tools), "PYTHON": str(tools / "python")},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=True,
    )
    assert not done.stderr
    return done.stdout.strip()


def build(checkout: Path) -> None:
    library = checkout / ".venv" / "lib" / "python3.99" / "site-packages" / "pyfuse3" / "__init__.cpython-399.so"
    library.parent.mkdir(parents=True)
    library.touch()


def test_what_is_not_there_is_named_by_its_package(checkout: Path) -> None:
    assert missing(checkout) == "pyfuse3"
    assert missing(checkout, fusermount3=None) == "fuse3"
    assert missing(checkout, pkg_config="exit 1") == "libfuse3-dev"
    assert missing(checkout, pkg_config=None) == "libfuse3-dev pkg-config"
    assert missing(checkout, cc=None) == missing(checkout, cc="exit 1") == "gcc libc6-dev"
    assert missing(checkout, python=BAD_PYTHON) == "python3.99-dev"
    everything = missing(checkout, fusermount3=None, pkg_config=None, cc=None, python=BAD_PYTHON)
    assert everything == "fuse3 libfuse3-dev pkg-config gcc libc6-dev python3.99-dev"


def test_once_built_it_lacks_neither_compiler_nor_headers(checkout: Path) -> None:
    build(checkout)
    assert missing(checkout, pkg_config=None, cc=None, python=BAD_PYTHON) == ""
    assert missing(checkout, fusermount3=None) == "fuse3"


def test_what_was_built_for_a_libfuse_that_is_gone_counts_as_not_built(checkout: Path) -> None:
    build(checkout)
    gone = "echo 'libfuse3.so.3 => not found'"
    assert missing(checkout, ldd=gone) == "pyfuse3"
    assert missing(checkout, ldd=gone, pkg_config="exit 1") == "libfuse3-dev"

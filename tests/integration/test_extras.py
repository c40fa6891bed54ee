"""What `pip install "budwood[EXTRA]"` brings: the command, always; and what a command says without its libraries."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ..waits import LIMIT_SECONDS

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def brought(extra: str) -> set[str]:
    """All that an extra asks for, those that it names itself included."""
    found: set[str] = set()
    for requirement in EXTRAS[extra]:
        if requirement.startswith("budwood["):
            names = requirement.removeprefix("budwood[").rstrip("]").split(",")
            found = found.union(*(brought(name) for name in names))
        else:
            found.add(requirement)
    return found


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_each_extra_brings_the_command(extra: str) -> None:
    assert set(EXTRAS["cli"]) <= brought(extra)


def test_all_is_all() -> None:
    assert brought("all") == set().union(*(brought(extra) for extra in EXTRAS))


def test_a_server_brings_what_a_bucket_needs() -> None:
    assert brought("s3") <= brought("server")


@pytest.mark.parametrize(
    ("missing", "extra", "arguments"),
    [
        ("typer", "cli", ["--version"]),
        ("obstore", "s3", ["ls", "--remote", "s3://bucket/x"]),
        ("obstore", "s3", ["serve", "--listen", "127.0.0.1:0", "--store", "gs://bucket/x"]),
        ("granian", "server", ["serve", "--listen", "127.0.0.1:0", "--store", "memory://x"]),
        ("uvloop", "server", ["serve", "--listen", "127.0.0.1:0", "--store", "memory://x"]),
        ("pyfuse3", "fuse", ["mount", "DIR"]),
        ("trio", "fuse", ["mount", "DIR"]),
        ("pyspark", "spark", ["spark-export", "shop", "--to", "DIR", "--remote", "memory://x"]),
        ("pyspark", "spark", ["scrub", "--store", "memory://x", "--spark"]),
        ("pyspark", "spark", ["gc", "--store", "memory://x", "--dry-run", "--spark"]),
        ("pyarrow", "spark", ["spark-export", "shop", "--to", "DIR", "--remote", "memory://x"]),
        ("deltalake", "lake", ["spark-export", "x", "--to", "DIR", "--format", "delta", "--remote", "memory://x"]),
        ("pyiceberg", "lake", ["spark-export", "x", "--to", "DIR", "--format", "iceberg", "--remote", "memory://x"]),
    ],
)
def test_a_command_without_its_extra_says_in_one_line_what_to_install(
    missing: str, extra: str, arguments: list[str], tmp_path: Path
) -> None:
    given = [str(tmp_path) if each == "DIR" else each for each in arguments]
    program = f"""
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] == {missing!r} else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
sys.argv[1:] = {given!r}
from budwood.cli.launch import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "BUDWOOD_HOME": str(tmp_path / "home")},
    )
    assert done.returncode != 0
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("budwood: ")
    assert f"pip install 'budwood[{extra}]'" in done.stderr

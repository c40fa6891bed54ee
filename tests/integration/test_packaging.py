"""What is handed out: the source distribution and the wheel, and that a bare environment runs what it got."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

from ..waits import LIMIT_SECONDS

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

SKIPPED = (".venv", ".git", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "results", "tests")

IMPORTS = """
import importlib, pkgutil, sys
import budwood
skipped = {"budwood.fuse", "budwood.testing"}  # The mount's need libfuse, which a machine may lack.
for found in pkgutil.walk_packages(budwood.__path__, "budwood."):
    if not any(found.name == each or found.name.startswith(each + ".") for each in skipped):
        importlib.import_module(found.name)
ours = {name: module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "budwood"}
assert len(ours) > 200, len(ours)
strangers = [name for name, file in ours.items() if not file.startswith(sys.prefix)]
assert not strangers, strangers
"""


@dataclass(frozen=True, slots=True)
class Built:
    sdist: Path
    wheel: Path
    """Of the checkout."""
    again: Path
    """Of the source distribution, unpacked elsewhere."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Without a network: pip has no index, and this machine's settings are nobody's business."""
    environment = {
        **os.environ,
        "PIP_NO_INDEX": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    for name in ("PYTHONPATH", "PYTHONHOME", "BUDWOOD_HOME", "BUDWOOD_REMOTE", "BUDWOOD_TOKEN"):
        environment.pop(name, None)
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind: str, source: Path, out: Path) -> Path:
    out.mkdir()
    run(
        sys.executable,
        "-P",
        "-c",
        f"from setuptools import build_meta; build_meta.build_{kind}({str(out)!r})",
        cwd=source,
    )
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("built")
    # A copy, since a build leaves folders behind.
    copytree(ROOT, folder / "checkout", symlinks=True, ignore=ignore_patterns(*SKIPPED))
    sdist = build("sdist", folder / "checkout", folder / "sdist")
    with tarfile.open(sdist) as packed:
        packed.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return Built(
        sdist,
        build("wheel", folder / "checkout", folder / "wheel"),
        build("wheel", unpacked, folder / "again"),
    )


@pytest.fixture(scope="module")
def bare(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel in it, and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    run(
        *(sys.executable, "-m", "pip", "--python", folder / "bin" / "python"),
        *("install", "--quiet", "--no-index", "--no-deps", built.wheel),
    )
    return folder / "bin"


@pytest.fixture
def whole(bare: Path) -> Iterator[Path]:
    """The same, once it has what budwood needs: what this environment has, behind its own."""
    (packages,) = (bare.parent / "lib").glob("python3*/site-packages")
    # A path in a .pth file is searched, and no .pth files are read there: the checkout's own link stays unseen.
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    yield bare
    (packages / "needed.pth").unlink()


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def test_the_source_distribution_builds_the_wheel_that_the_checkout_builds(built: Built) -> None:
    assert built.sdist.name == f"budwood-{VERSION}.tar.gz"
    assert built.wheel.name == built.again.name == f"budwood-{VERSION}-py3-none-any.whl"
    assert contents(built.wheel) == contents(built.again)


def test_the_source_distribution_has_what_a_packager_needs(built: Built) -> None:
    with tarfile.open(built.sdist) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    deployed = {str(path.relative_to(ROOT)) for path in (ROOT / "deploy").rglob("*") if path.is_file()}
    assert deployed
    assert {"LICENSE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", *deployed} <= inside


def test_the_wheel_alone_says_what_the_command_needs(bare: Path) -> None:
    done = subprocess.run(
        [bare / "budwood", "--version"], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "budwood: the command needs rich and typer: pip install 'budwood[cli]'\n"


def test_the_installed_command_runs(whole: Path, tmp_path: Path) -> None:
    assert run(whole / "budwood", "--version", cwd=tmp_path) == f"budwood {VERSION}\n"
    at = ("--home", str(tmp_path / "home"))
    run(whole / "budwood", "create", "shop", *at, cwd=tmp_path)
    run(whole / "budwood", "sql", "shop", "create table t (a); insert into t values (7)", *at, cwd=tmp_path)
    assert "7" in run(whole / "budwood", "sql", "shop", "select a from t", *at, cwd=tmp_path)


def test_every_module_of_the_wheel_can_be_imported_from_where_it_was_installed(whole: Path, tmp_path: Path) -> None:
    run(whole / "python", "-W", "error", "-c", IMPORTS, cwd=tmp_path)

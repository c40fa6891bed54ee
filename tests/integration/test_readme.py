"""What the README says one can type works as it stands, one after another, but for where the store and the node are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree, ignore_patterns

import apsw
import pytest

from ..mounts import is_mounted
from ..mounts import why_not as why_no_mount
from ..programs import path_with_sqlite3
from ..spark_session import why_not as why_no_spark
from ..waits import LIMIT_SECONDS
from .cli import serving

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
BUDWOOD = f'budwood() {{ {sys.executable} -P -c "from budwood.cli.launch import main; main()" "$@"; }}\n'
PROGRAMS = {"python": [sys.executable, "-P", "-c"], "sh": ["bash", "-euc"]}
INSTALL, MAKE = "pip install", "make demo"
NODE = "http://127.0.0.1:7447"

Run = Callable[[str, str], str]
"""Runs a block as a program of its own, in the home that all of them share; what it said."""


@contextmanager
def a_machine(folder: Path) -> Generator[Run]:
    """With a node on it, which has another port and keeps its store here; and with no sqlite3 of its own."""
    path = path_with_sqlite3(folder / "bin")
    with serving(folder / "store") as url:
        environment = {
            "HOME": str(folder),
            "XDG_DATA_HOME": str(folder / "data"),
            "PATH": path,
            "BUDWOOD_REMOTE": url,
            "SPARK_CONF_DIR": os.environ["SPARK_CONF_DIR"],
        }

        def run(language: str, text: str) -> str:
            text = re.sub(r"^budwood serve .*\n", "", text, flags=re.MULTILINE)
            text = text.replace(NODE, url).replace("/srv/lake", str(folder / "lake"))
            text = text.replace("file:///srv/budwood", (folder / "store").as_uri())
            if language == "sh":
                text = BUDWOOD + text
            # What follows a first example leaves out what stands there already.
            elif "import budwood" not in text and "spark" not in text:
                text = "import budwood\n" + text
            done = subprocess.run(
                [*PROGRAMS[language], text],
                env=environment,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=LIMIT_SECONDS,
                check=False,
            )
            assert done.returncode == 0, text + done.stdout + done.stderr
            # What Java says as it starts is its own.
            assert not done.stderr or "spark" in text, text + done.stderr
            return done.stdout

        try:
            yield run
        finally:
            if is_mounted(folder / "shared"):
                subprocess.run(["fusermount3", "-u", "-z", str(folder / "shared")], check=False)


def make_files(folder: Path) -> None:
    shop = apsw.Connection(str(folder / "shop.db"))
    shop.execute("CREATE TABLE orders(id INTEGER PRIMARY KEY); INSERT INTO orders VALUES (1), (2)")
    shop.close()
    (folder / "notes.txt").write_text("bolts\n")


@pytest.mark.slow
@pytest.mark.longest
def test_every_block_of_the_readme_runs_after_the_ones_before_it_in_one_home(tmp_path: Path) -> None:
    """By what it prints; one that needs a mount or Spark is passed over where there is none."""
    expected = {
        'connect("inventory", remote="file:': "",
        "budwood import": "\n2\n",
        'connect("inventory", remote="http:': "[(40,)]\n",
        "budwood.lite.connect": "[(3,)]\n",
        "budwood.listen": "2 4096\n",
        "budwood pin": "\nkeeps    every LSN for 7d, one an hour for 30d, one a day for 1y\n",
        "budwood mode": "source  offset  lsn\n",
        "vfs=budwood&lsn=1": "",
        "import dbapi": "[(40,)]\n",
        "create_engine": "[(40,)]\n",
        "budwood mount": "unmounted",
        "read.format": "4\n" if not why_no_mount() else "3\n",
        "spark-export": "written",
    }
    lacking = {"budwood mount": why_no_mount(), "read.format": why_no_spark(), "spark-export": why_no_spark()}
    blocks = [block for block in BLOCKS if not block[1].startswith((INSTALL, MAKE))]
    assert len(blocks) == len(expected)
    make_files(tmp_path)
    with a_machine(tmp_path) as run:
        for (language, text), (mark, says) in zip(blocks, expected.items(), strict=True):
            assert mark in text, "the blocks and what is expected of them are in one order"
            if not lacking.get(mark):
                assert says in run(language, text), text
        if not why_no_mount():
            elsewhere = f"export BUDWOOD_HOME={tmp_path}/elsewhere\n"
            assert run("sh", elsewhere + 'budwood sql shop "SELECT max(id) FROM orders"') == "7\n"
            run("sh", elsewhere + "budwood export notes.txt out")
            assert (tmp_path / "out").read_text() == "bolts\n"
        if not why_no_spark():
            assert (tmp_path / "lake" / "shop" / "orders" / "_delta_log").is_dir()


def test_what_the_readme_says_to_install_and_to_make_is_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (install,) = [text for _, text in BLOCKS if text.startswith(INSTALL)]
    assert BLOCKS[0][1] == install, "it comes first"
    named = {extra for some in re.findall(r"budwood\[([a-z0-9,]+)\]", README) for extra in some.split(",")}
    assert named <= project["optional-dependencies"].keys()
    for extra in project["optional-dependencies"].keys() - {"all"}:
        assert f"`{extra}`" in README or extra in named, f"the README doesn't say what {extra} is for"
    (make,) = [text for _, text in BLOCKS if text.startswith(MAKE)]
    targets = re.findall(r"^make (\w+)", make, re.MULTILINE)
    assert set(targets) <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_readme_leads_nowhere_that_a_package_index_can_not_go(tmp_path: Path) -> None:
    """No link is relative, as nobody could follow it there; what it names is in the source distribution."""
    targets = re.findall(r"\]\(([^)]*)\)", README)
    assert all(target.startswith(("https://", "#")) for target in targets), targets
    named = set(re.findall(r"`((?:docs|examples)/[\w./-]*|[A-Z]+\.md)`", README))
    assert {"docs/architecture.md", "docs/mount.md", "docs/spark.md", "CHANGELOG.md", "examples/"} <= named
    checkout, out = tmp_path / "checkout", tmp_path / "out"
    out.mkdir()
    skipped = ignore_patterns(
        ".venv", ".git", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "results"
    )
    copytree(ROOT, checkout, symlinks=True, ignore=skipped)
    build = f"from setuptools import build_meta; build_meta.build_sdist({str(out)!r})"
    subprocess.run(
        [sys.executable, "-P", "-c", build], cwd=checkout, capture_output=True, timeout=LIMIT_SECONDS, check=True
    )
    (archive,) = out.iterdir()
    with tarfile.open(archive) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    assert {name.rstrip("/") for name in named} <= inside

"""What the README says one can type works as it stands, but for where the store and the node are."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import apsw
import pytest

from ..mounts import is_mounted, needs_fuse
from ..spark import why_not
from ..waits import LIMIT_SECONDS
from .cli import serving

README = Path(__file__).parents[2] / "README.md"
BUDWOOD = f'budwood() {{ {sys.executable} -P -c "from budwood.cli.launch import main; main()" "$@"; }}\n'
PYTHON = [sys.executable, "-P", "-c"]
SHELL = ["bash", "-euc"]


class Say(Protocol):
    def __call__(self, command: list[str], home: str, text: str, *, loud: bool = False) -> str: ...


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


@contextmanager
def a_node(tmp_path: Path) -> Generator[Say]:
    """Runs text by a command, in a home of its own, and gives what it said; all of them share a node."""
    with serving(tmp_path / "store") as url:

        def said(command: list[str], home: str, text: str, *, loud: bool = False) -> str:
            text = text.replace("http://127.0.0.1:7447", url)
            text = text.replace("file:///srv/budwood", (tmp_path / "store").as_uri())
            text = text.replace("/srv/lake", str(tmp_path / "lake"))
            environment = {"BUDWOOD_HOME": str(tmp_path / home), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
            done = subprocess.run(
                [*command, text],
                env=environment,
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=LIMIT_SECONDS,
                check=False,
            )
            assert done.returncode == 0, text + done.stderr
            assert loud or not done.stderr, text + done.stderr
            return done.stdout

        yield said


def make_shop(tmp_path: Path) -> None:
    shop = apsw.Connection(str(tmp_path / "shop.db"))
    shop.execute("CREATE TABLE orders(id INTEGER PRIMARY KEY); INSERT INTO orders VALUES (1), (2)")
    shop.close()


def test_every_example_of_the_readme_runs(tmp_path: Path) -> None:
    make_shop(tmp_path)
    with a_node(tmp_path) as said:
        local, elsewhere, lite, uri, _ = blocks("python")
        assert said(PYTHON, "one", local) == ""
        assert said(PYTHON, "two", "import budwood\n" + elsewhere) == "[(40,)]\n"
        shell = blocks("sh")[1]
        shell = re.sub(r"^budwood serve .*\n", "", shell)
        assert "\n2\n" in said(SHELL, "three", BUDWOOD + shell)
        said(PYTHON, "four", lite + 'assert db.execute("SELECT count(*) FROM orders").fetchall() == [(2,)]')
        said(PYTHON, "five", uri)


@needs_fuse
def test_the_readme_s_mount_takes_what_any_program_writes_to_everyone_else(tmp_path: Path) -> None:
    make_shop(tmp_path)
    (tmp_path / "notes.txt").write_text("bolts\n")
    with a_node(tmp_path) as said:
        remote = "--remote http://127.0.0.1:7447"
        said(SHELL, "one", f"{BUDWOOD} budwood import shop.db shop; budwood push shop {remote}")
        try:
            said(SHELL, "two", BUDWOOD + blocks("sh")[2])
        finally:
            if is_mounted(tmp_path / "shared"):
                subprocess.run(["fusermount3", "-u", "-z", str(tmp_path / "shared")], check=False)
        assert said(SHELL, "three", f'{BUDWOOD} budwood sql shop "SELECT max(id) FROM orders" {remote}') == "7\n"
        said(SHELL, "three", f"{BUDWOOD} budwood export notes.txt out {remote}")
    assert (tmp_path / "out").read_text() == "bolts\n"


@pytest.mark.skipif(why_not() != "", reason=why_not())
def test_the_readme_s_tables_in_spark_are_read_and_exported(tmp_path: Path) -> None:
    make_shop(tmp_path)
    with a_node(tmp_path) as said:
        remote = "--remote http://127.0.0.1:7447"
        said(SHELL, "one", f"{BUDWOOD} budwood import shop.db shop; budwood push shop {remote}")
        # What Java says as it starts is its own.
        assert said(PYTHON, "two", blocks("python")[4], loud=True) == "2\n"
        told = said(SHELL, "three", f"export BUDWOOD_REMOTE=http://127.0.0.1:7447\n{BUDWOOD}{blocks('sh')[3]}")
    assert "written" in told
    assert (tmp_path / "lake" / "shop" / "orders" / "_delta_log").is_dir()

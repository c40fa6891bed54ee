"""What Python prints when a program makes a common mistake: the program's own lines, a few of ours, and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

import budwood
from budwood.sync.edge import open as open_edge

from ..waits import LIMIT_SECONDS
from .cli import serving

FEW: Final = 12
"""Lines of an error that `connect` or a statement raises: the program's own, ours that it called, and what SQLite is in
between; each may be two and a line of marks."""
MORE: Final = 30
"""Of one that the methods of an edge or a volume raise, which show the calls that led there in this thread."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("node") / "store", "--token", "right") as url:
        yield url


@pytest.fixture
def home(tmp_path: Path) -> Path:
    store = (tmp_path / "store").as_uri()
    (tmp_path / "store").mkdir()
    for name in ("theirs", "ours"):
        with closing(budwood.connect("v", home=tmp_path / name, remote=store if name == "theirs" else None)) as db:
            db.execute("create table t(a)")
    with open_edge(home=tmp_path / "theirs", remote=store) as edge:
        edge.volume("v").push()
    with open_edge(home=tmp_path / "diverged", remote=store) as edge:
        edge.volume("v")
    for name in ("theirs", "diverged"):
        with closing(budwood.connect("v", home=tmp_path / name)) as db:
            db.execute("insert into t values(1)")
    with open_edge(home=tmp_path / "theirs", remote=store) as edge:
        edge.volume("v").push()
    return tmp_path


MISTAKES = [
    ("no remote", "db = budwood.connect('v', home=ours); db.execute('pragma budwood_push')", "no remote is known", FEW),
    ("nobody there", "budwood.connect('x', home=ours, remote=nobody)", "can't reach http://127.0.0.1:9", FEW),
    ("missing", "budwood.connect('x', home=ours, mode='rw')", "there is no volume 'x' here", FEW),
    ("missing there", "budwood.connect('x', home=theirs, mode='rw')", "knows none", FEW),
    ("no store", "budwood.connect('x', home=ours, remote=store + 's', mode='rw')", "there is no store", FEW),
    ("another store", "budwood.connect('v', home=theirs, remote=store + 's')", "belongs to store", FEW),
    ("a bad address", "budwood.connect('x', home=ours, remote='htp://x')", "is no remote", FEW),
    ("a wrong token", "budwood.connect('x', home=ours, remote=url, token='wrong')", "not this node's", FEW),
    ("past", "budwood.connect('v', home=theirs, lsn=99)", "its newest is", FEW),
    ("lite, nobody", "budwood.lite.connect(nobody, 'v')", "can't reach http://127.0.0.1:9", FEW),
    ("lite, missing", "budwood.lite.connect(store, 'x')", "knows no volume 'x'", FEW),
    ("pushed by nobody", "budwood.open(home=ours, remote=nobody).volume('v').push()", "can't reach", MORE),
    ("a name that is taken", "budwood.open(home=ours, remote=store).volume('v').push()", "--as NEW", MORE),
    ("diverged", "budwood.open(home=diverged).volume('v').push()", "budwood reset v --keep-as NEW", MORE),
    ("diverged by SQL", "budwood.connect('v', home=diverged).execute('pragma budwood_push')", "--keep-as NEW", FEW),
]


def run(home: Path, url: str, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    names = {name: str(home / name) for name in ("ours", "theirs", "diverged")}
    names |= {"store": (home / "store").as_uri(), "nobody": "http://127.0.0.1:9", "url": url}
    settings = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    script = home / "script.py"
    script.write_text(f"import budwood, budwood.lite\n{settings}{code}\n")
    return subprocess.run(
        [sys.executable, "-P", str(script)],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("BUDWOOD_")} | environment,
    )


@pytest.mark.parametrize(("code", "says", "most"), [each[1:] for each in MISTAKES], ids=[each[0] for each in MISTAKES])
def test_a_mistake_prints_a_few_lines_and_the_last_says_what_to_do(
    home: Path, url: str, code: str, says: str, most: int
) -> None:
    done = run(home, url, code)
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert says in lines[-1], done.stderr
    assert lines[-1].startswith("budwood.volume.errors.")
    assert len(lines) <= most, done.stderr
    assert done.stderr.count("Traceback") == 1


def test_all_of_it_is_there_for_who_asks(home: Path, url: str) -> None:
    done = run(home, url, "budwood.connect('x', home=ours, remote=nobody)", BUDWOOD_DEBUG="1")
    assert "httpx.ConnectError" in done.stderr
    assert done.stderr.count("Traceback") > 1


def test_what_a_program_leaves_open_is_closed_in_peace(home: Path) -> None:
    code = (
        "import budwood, sys\n"
        "db = budwood.connect('v', home=sys.argv[1])\n"
        "rows = db.execute('select 1 union select 2')\n"
        "next(rows)\n"
        "db.execute('begin; insert into t values(7)')\n"
        "other = budwood.connect('w', home=sys.argv[1])\n"
        "try:\n"
        "    other.execute('pragma budwood_push')\n"
        "except budwood.BudwoodError as error:\n"
        "    kept = error\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(home / "theirs")],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    with closing(budwood.connect("v", home=home / "theirs")) as db:
        assert db.execute("select count(*) from t where a = 7").fetchone() == (0,)

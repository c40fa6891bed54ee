"""Many writers, each a process of its own: nobody's increment is lost.

On one home they share the local store, and SQLite's locks order them. With homes of their own they share the remote
volume: whoever is not the first to push has diverged, takes the remote's state (`reset`), and does its work again.
Every commit here is durable (synchronous=FULL).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

import budwood

from .. import fork_server
from ..fault.crash_harness import Place, Serving
from ..waits import LIMIT_SECONDS

pytestmark = pytest.mark.slow

INCREMENTS = 500
PUSHES = 25
WRITERS = 4

INCREMENT = """
import sys, budwood
home, number, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
db = budwood.connect("counter", home=home, remote="", timeout=200)
print("ready", flush=True)
sys.stdin.readline()
for turn in range(times):
    match (turn + number) % 3:
        case 0:
            db.execute("begin immediate; update total set value = value + 1; commit")
        case 1:
            with db:
                db.execute("update total set value = value + 1")
        case _:
            db.execute("update total set value = value + 1")
db.close()
"""

PUSH = """
import sys, budwood
from budwood.volume.errors import Diverged
home, remote, number, times = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with budwood.open(home=home, remote=remote) as edge:
    volume = edge.volume("counter")
    db = budwood.connect("counter", home=home, remote=remote)
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range(times):
        while True:
            with db:
                db.execute("update total set value = value + 1")
                db.execute("insert into done values(?, ?)", (number, turn))
            try:
                print(volume.push(), flush=True)
                break
            except Diverged:
                volume.reset(discard=True)
    db.close()
"""


def run(program: str, arguments: Sequence[Sequence[object]]) -> list[list[str]]:
    """All at once: each begins when the last is ready. What each printed."""
    children: list[subprocess.Popen[str]] = []
    try:
        for own in arguments:
            command = [sys.executable, "-P", "-c", program, *map(str, own)]
            pipe = subprocess.PIPE
            children.append(fork_server.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n", child.communicate()[1]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        printed: list[list[str]] = []
        for child in children:
            output, errors = child.communicate(timeout=LIMIT_SECONDS)
            assert child.returncode == 0, errors
            printed.append(output.split())
        return printed
    finally:
        for child in children:
            child.kill()
            child.communicate()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def node(place: Place) -> Generator[Serving]:
    serving = Serving(place)
    serving.start()
    yield serving
    serving.stop()


def make_counter(place: Place, remote: str) -> None:
    """At LSN 1 of the remote."""
    place.execute(
        "create table total(value); insert into total values(0); create table done(writer, turn)", name="counter"
    )
    if remote:
        with place.edge(remote=remote) as edge:
            assert edge.volume("counter").push() == "1"


def check_pushes(place: Place, remote: str, printed: list[list[str]]) -> None:
    """As a home sees it that has seen nothing before."""
    count = len(printed) * PUSHES
    acknowledged = sorted(int(lsn) for own in printed for lsn in own)
    assert acknowledged == list(range(2, 2 + count)), "every acknowledged push has an LSN of its own, without a gap"
    with closing(budwood.connect("counter", home=place.home("fresh"), remote=remote, mode="rw")) as db:
        assert db.execute("select value from total").fetchall() == [(count,)]
        expected = [(writer, turn) for writer in range(len(printed)) for turn in range(PUSHES)]
        assert db.execute("select writer, turn from done order by 1, 2").fetchall() == expected
        assert db.pragma("integrity_check") == "ok"
    for lsn in (1, 1 + count // 2, 1 + count):
        with closing(budwood.connect("counter", home=place.home("fresh"), remote=remote, lsn=lsn)) as db:
            assert db.execute("select value, (select count(*) from done) from total").fetchall() == [(lsn - 1, lsn - 1)]


def test_2000_increments_by_four_processes_on_one_home_are_2000(place: Place) -> None:
    make_counter(place, "")
    run(INCREMENT, [[place.home(), number, INCREMENTS] for number in range(WRITERS)])
    with closing(budwood.connect("counter", home=place.home(), remote="")) as db:
        assert db.execute("select value from total").fetchall() == [(WRITERS * INCREMENTS,)]
        assert db.pragma("integrity_check") == "ok"


def test_four_edges_of_one_node_lose_no_push(place: Place, node: Serving) -> None:
    make_counter(place, node.url)
    homes = [[place.home(f"edge {number}"), node.url, number, PUSHES] for number in range(WRITERS)]
    check_pushes(place, node.url, run(PUSH, homes))


@pytest.mark.parametrize("born_in", ["its own log", "the node's log"])
def test_four_embedded_processes_and_a_node_on_one_store_lose_no_push(
    place: Place, node: Serving, born_in: str
) -> None:
    """In its own log they all append, and the store's create-if-absent decides; in the node's, they send it there."""
    make_counter(place, place.store if born_in == "its own log" else node.url)
    remotes = [*([place.store] * WRITERS), node.url]
    homes = [[place.home(f"edge {number}"), remote, number, PUSHES] for number, remote in enumerate(remotes)]
    printed = run(PUSH, homes)
    check_pushes(place, place.store, printed)
    with closing(budwood.connect("counter", home=place.home("by the node"), remote=node.url, mode="ro")) as db:
        assert db.execute("select value from total").fetchall() == [(len(remotes) * PUSHES,)]

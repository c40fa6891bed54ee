"""When a home is walked before LMDB is let in, and what the walk finds."""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import budwood.sync.store_file
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.lmdb_tree_check import PAGE_BYTES, check_trees
from budwood.sync.tables import name_key
from budwood.volume.errors import Corrupt
from budwood.volume.protocols import Durability

from ..waits import LIMIT_SECONDS

PAGE = 4096
LEAF_HEAD = struct.Struct("<10xHH2x")
"""Of LMDB: flags, and where the offsets of the entries end, two bytes each."""
LEAF = 2


def write(edge: Edge, name: str, pages: dict[int, bytes]) -> None:
    writer = edge.volume(name).writer(page_size=PAGE)
    for page, data in pages.items():
        writer.write(page, data * PAGE)
    made = writer.commit(Durability.DURABLE)
    assert made is not None
    made.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """With trees of several levels, free pages, and a list of them."""
    with open_edge(home=tmp_path / "home", remote="") as edge:
        for name in ("v", "w"):
            edge.create(name, page_size=PAGE)
            write(edge, name, dict.fromkeys(range(1, 200), b"a"))
        write(edge, "v", dict.fromkeys(range(1, 200, 7), b"b"))
    return tmp_path / "home"


def data_of(home: Path) -> Path:
    return home / "store" / "data.mdb"


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were walked."""
    walked: list[Path] = []

    def walk(path: Path) -> int:
        walked.append(path)
        return check_trees(path)

    monkeypatch.setattr(budwood.sync.store_file, "check_trees", walk)
    return walked


def test_a_home_that_was_closed_is_not_walked_again(home: Path, walks: list[Path]) -> None:
    for _ in range(3):
        with open_edge(home=home, remote="") as edge:
            write(edge, "v", {1: b"c"})
    with open_edge(home=home, remote=""):
        pass
    assert walks == []


def test_a_home_whose_last_process_was_killed_is_walked_once(home: Path, walks: list[Path]) -> None:
    code = (
        "import os, signal, sys, budwood\n"
        "edge = budwood.open(home=sys.argv[1], remote='')\n"
        "edge.volume('v').snapshot().read(1)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(home)], check=False, timeout=LIMIT_SECONDS)
    assert killed.returncode == -signal.SIGKILL
    for _ in range(2):
        with open_edge(home=home, remote=""):
            pass
    assert len(walks) == 1


def test_a_home_that_another_process_has_open_is_not_walked_and_the_last_one_vouches_for_it(
    home: Path, walks: list[Path]
) -> None:
    code = (
        "import sys, budwood\n"
        "with budwood.open(home=sys.argv[1], remote=''):\n"
        "    print('open', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "open\n"
        for _ in range(2):
            with open_edge(home=home, remote="") as edge:
                write(edge, "v", {1: b"c"})
            assert not (home / "store" / "sound").exists()
        other.stdin.close()
        assert other.wait(LIMIT_SECONDS) == 0
    with open_edge(home=home, remote=""):
        pass
    assert walks == []


@pytest.mark.parametrize("how", ["copied", "written", "restamped while open"])
def test_a_home_that_something_else_wrote_to_is_walked(home: Path, walks: list[Path], how: str) -> None:
    data = data_of(home)
    match how:
        case "copied":
            shutil.copytree(home, home.parent / "copy")
            shutil.rmtree(home)
            (home.parent / "copy").rename(home)
        case "written":
            os.utime(data)
        case _:
            with open_edge(home=home, remote=""):
                os.utime(data)
    with open_edge(home=home, remote=""):
        pass
    assert walks == [data]


def put(data: Path, at: int, new: bytes) -> None:
    with data.open("r+b") as file:
        file.seek(at)
        file.write(new)


def swap(data: Path, one: int, other: int) -> None:
    with data.open("r+b") as file:
        pages: dict[int, bytes] = {}
        for number in (one, other):
            file.seek(number * PAGE_BYTES)
            pages[number] = file.read(PAGE_BYTES)
        for number, with_ in ((one, other), (other, one)):
            file.seek(number * PAGE_BYTES)
            file.write(number.to_bytes(8, "little") + pages[with_][8:])


def leaves(data: Path, *, least: int = 0) -> list[int]:
    """Pages of LMDB's that are leaves of so many entries, in use or not."""
    raw = data.read_bytes()
    heads = {at // PAGE_BYTES: LEAF_HEAD.unpack_from(raw, at) for at in range(2 * PAGE_BYTES, len(raw), PAGE_BYTES)}
    return [
        number for number, (flags, lower) in heads.items() if flags == LEAF and (lower - LEAF_HEAD.size) // 2 >= least
    ]


def is_used(data: Path, number: int) -> bool:
    """Some tree leads to this page: it is missed if it has another's number."""
    put(data, number * PAGE_BYTES, bytes(8))
    try:
        check_trees(data)
    except Corrupt:
        return True
    else:
        return False
    finally:
        put(data, number * PAGE_BYTES, number.to_bytes(8, "little"))


def test_two_leaves_in_each_others_place_are_damage(home: Path) -> None:
    data = data_of(home)
    # Tables of as few rows as there are volumes are one leaf each, and what lies in them is judged elsewhere.
    used = [number for number in leaves(data, least=4) if is_used(data, number)]
    check_trees(data)
    pairs = list(combinations(used, 2))
    assert len(pairs) > 50
    for pair in random.Random(3).sample(pairs, 50):
        swap(data, *pair)
        with pytest.raises(Corrupt, match=str(data)):
            check_trees(data)
        swap(data, *pair)
    check_trees(data)


def test_zeros_in_a_leaf_are_damage_wherever_they_lie(home: Path) -> None:
    data = data_of(home)
    sound, told, tried = data.read_bytes(), 0, 0
    for number in leaves(data):
        for part in range(0, PAGE_BYTES, 512):
            at = number * PAGE_BYTES + part
            if sound[at : at + 512] == bytes(512):
                continue
            tried += 1
            put(data, at, bytes(512))
            try:
                check_trees(data)
            except Corrupt:
                told += 1
            put(data, at, sound[at : at + 512])
    # What is told of the others: the room between the offsets and the nodes, values, leaves that are free.
    assert told > tried // 3


def test_a_page_that_is_free_and_in_use_is_damage(home: Path) -> None:
    """LMDB would write over it."""
    data = data_of(home)
    with open_edge(home=home, remote="") as edge, edge.environment.view() as txn:
        root = txn.stat(edge.environment.tables.tails)["leaf_pages"]
        assert root > 4
    raw = data.read_bytes()
    last = leaves(data)[-1]
    # Each list of free pages begins with how many they are, and counts down.
    found = False
    for at in range(2 * PAGE_BYTES, len(raw) - 16, 8):
        count = int.from_bytes(raw[at : at + 8], "little")
        first = int.from_bytes(raw[at + 8 : at + 16], "little")
        if 1 < count < 200 and 2 <= first < len(raw) // PAGE_BYTES:
            put(data, at + 8, last.to_bytes(8, "little"))
            try:
                check_trees(data)
            except Corrupt as error:
                found = found or "free and in use" in str(error)
            put(data, at + 8, raw[at + 8 : at + 16])
    assert found


@pytest.mark.parametrize("last", [1 << 20, 1 << 40])
def test_a_meta_page_that_speaks_of_more_than_there_is_is_damage(home: Path, last: int) -> None:
    """The file isn't made as large as that."""
    data = data_of(home)
    raw = bytearray(data.read_bytes())
    newest = max((0, PAGE_BYTES), key=lambda at: int.from_bytes(raw[at + 144 : at + 152], "little"))
    raw[newest + 136 : newest + 144] = last.to_bytes(8, "little")
    data.write_bytes(raw)
    with pytest.raises(Corrupt, match=str(home)):
        open_edge(home=home, remote="")
    assert data.stat().st_size == len(raw)


def lose_head(edge: Edge) -> None:
    edge.environment.update(lambda txn: txn.delete(edge.volume("v").id.raw, db=edge.environment.tables.heads))


def lose_record(edge: Edge) -> None:
    edge.environment.update(lambda txn: txn.delete(edge.volume("v").id.raw, db=edge.environment.tables.volumes))


def rename_name(edge: Edge) -> None:
    """As a flipped bit does: as many names as before."""

    def change(txn: Any) -> None:
        names, raw = edge.environment.tables.names, edge.volume("v").id.raw
        txn.delete(name_key("v"), db=names)
        txn.put(name_key("u"), raw, db=names)

    edge.environment.update(change)


@pytest.mark.parametrize("lose", [lose_head, lose_record, rename_name])
def test_records_that_do_not_fit_one_another_are_told_when_a_doubtful_home_is_opened(
    home: Path, lose: Callable[[Edge], None]
) -> None:
    with open_edge(home=home, remote="") as edge:
        lose(edge)
    os.utime(data_of(home))
    for _ in range(2):
        with pytest.raises(Corrupt, match=str(home)):
            open_edge(home=home, remote="")


def test_a_volume_one_of_whose_records_is_gone_is_not_taken_for_one_that_was_removed(home: Path) -> None:
    with open_edge(home=home, remote="") as edge:
        volume = edge.volume("v")
        lose_head(edge)
        with pytest.raises(Corrupt, match=str(home)), closing(volume.snapshot()):
            pass

"""`budwood top`: what lies between two looks at a node, and the node looked at as a person or a program would."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from budwood.cli.top import Look, Seen, values_of
from budwood.sync.edge import open as open_edge
from budwood.volume.calls import Requested
from budwood.volume.protocols import Durability

from ..waits import LIMIT_SECONDS
from .cli import Command, serving

BEFORE = """
# TYPE budwood_call_seconds histogram
budwood_call_seconds_bucket{call="commit",le="0.001"} 10
budwood_call_seconds_bucket{call="commit",le="0.1"} 10
budwood_call_seconds_bucket{call="commit",le="+Inf"} 10
budwood_call_seconds_count{call="commit"} 10
budwood_call_seconds_sum{call="commit"} 1
# TYPE budwood_cache_hits counter
budwood_cache_hits_total 100
# TYPE budwood_store_cost counter
budwood_store_cost_total{currency="EUR"} 1.5
"""
AFTER = """
# TYPE budwood_call_seconds histogram
budwood_call_seconds_bucket{call="commit",le="0.001"} 70
budwood_call_seconds_bucket{call="commit",le="0.1"} 109
budwood_call_seconds_bucket{call="commit",le="+Inf"} 110
budwood_call_seconds_count{call="commit"} 110
budwood_call_seconds_sum{call="commit"} 5
budwood_call_seconds_bucket{call="open",le="0.001"} 0
budwood_call_seconds_bucket{call="open",le="0.1"} 4
budwood_call_seconds_bucket{call="open",le="+Inf"} 4
budwood_call_seconds_count{call="open"} 4
budwood_call_seconds_sum{call="open"} 0.2
# TYPE budwood_calls_refused counter
budwood_calls_refused_total{call="commit",status="409"} 6
# TYPE budwood_cache_hits counter
budwood_cache_hits_total 30
# TYPE budwood_store_cost counter
budwood_store_cost_total{currency="EUR"} 1.6
"""


def look(at: float, text: str, **creates: int) -> Look:
    asked = {name: Requested(owner=name, creates=count, sent_bytes=100 * count) for name, count in creates.items()}
    return Look(at, values_of(text), asked)


def test_what_lies_between_two_looks() -> None:
    seen = Seen(look(10.0, BEFORE, busy=5, idle=3), look(12.0, AFTER, busy=25, idle=3, fresh=2))
    commit, opened = seen.calls()
    assert (commit.name, commit.per_second, commit.p50_seconds, commit.p99_seconds) == ("commit", 50, 0.001, 0.1)
    assert commit.refused_per_second == 3
    assert (opened.name, opened.per_second, opened.p50_seconds) == ("open", 2, 0.1)
    assert [(row.owner, row.puts_per_second, row.bytes_per_second) for row in seen.asked()] == [
        ("busy", 10, 1000),
        ("fresh", 1, 100),
    ]
    # A node that began anew has counted from nothing.
    assert seen.rate("budwood_cache_hits_total") == 15
    assert dict(seen.facts())["cost"] == "1.6000 EUR so far"


def test_two_looks_with_nothing_between_them() -> None:
    seen = Seen(look(10.0, AFTER), look(11.0, AFTER))
    assert (seen.calls(), seen.asked()) == ([], [])
    assert seen.figures()["entry_p99_seconds"] == 0
    assert "not used" in dict(seen.facts())["cache"]


@contextmanager
def pushing(home: Path, url: str) -> Generator[None]:
    """Somebody commits to volume `shop` again and again meanwhile."""
    ended = threading.Event()

    def push() -> None:
        with open_edge(home=home, remote=url, token="sesame") as edge:
            volume = edge.create("shop")
            while not ended.is_set():
                writer = volume.writer()
                writer.write(1, os.urandom(4096))
                made = writer.commit(Durability.ORDERED)
                assert made is not None
                made.close()
                volume.push()
                begun.set()

    begun = threading.Event()
    thread = threading.Thread(target=push)
    thread.start()
    try:
        assert begun.wait(LIMIT_SECONDS)
        yield
    finally:
        ended.set()
        thread.join()


def test_a_node_is_watched_by_whoever_may(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path / "store", "--token", "sesame") as url:
        user = Command(capsys, tmp_path / "nobody", url)
        with pytest.MonkeyPatch.context() as patch, pushing(tmp_path / "home", url):
            patch.setenv("BUDWOOD_TOKEN", "sesame")
            told = user.ok("top", "--every", "1s")
            (row,) = json.loads(user.ok("top", "--every", "1s", "--json"))
        assert [line.split()[0] for line in told.splitlines() if line][:4] == ["node", "process", "calls", "log"]
        assert "commit " in told
        assert "shop" in told
        assert row["calls"] > 0
        assert row["creates"] > 0
        assert {each["name"] for each in row["calls_made"]} >= {"commit"}
        assert "token" in user("top", "--every", "1s").line()
        assert not (tmp_path / "nobody").exists(), "a home isn't needed, nor made"


@pytest.mark.parametrize("remote", ["", "file:///somewhere"])
def test_only_a_node_is_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str], remote: str) -> None:
    user = Command(capsys, tmp_path / "home", remote)
    assert "a node is watched" in user("top").line(2)


def test_where_nobody_listens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user = Command(capsys, tmp_path / "home", "http://127.0.0.1:1")
    assert "is a node listening there?" in user("top").line()

"""Orphans: volumes that no name leads to are found and removed when an operator says so, and no others."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from budwood.remote.portal import BlockingRemote, open_remote
from budwood.server.upkeep import births, orphans
from budwood.testing.commits import commit_of
from budwood.volume.calls import (
    CHANGE_NAME,
    CREATE,
    LOOKUP,
    PIN,
    UNPIN,
    CreateRequest,
    LookupRequest,
    PinRequest,
    UnpinRequest,
)
from budwood.volume.errors import NotFound
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.wire import NameRequest

from .cli import Command, serving

OLD = ("--older-than", "1ms")


@pytest.fixture
def ann(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, tmp_path / "ann", (tmp_path / "store").as_uri())


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "store").mkdir()
    return (tmp_path / "store").as_uri()


@pytest.fixture
def remote(store: str) -> Iterator[BlockingRemote]:
    remote = open_remote(store)
    yield remote
    remote.close()


def pushed(ann: Command, name: str) -> VolumeId:
    ann.sql_made(name)
    ann.ok("push", name)
    return VolumeId.parse(json.loads(ann.ok("status", name, "--json"))[0]["id"])


def unnamed(remote: BlockingRemote, name: str) -> None:
    entry = remote.ask(LOOKUP, LookupRequest(name)).entry
    assert entry is not None
    remote.ask(CHANGE_NAME, NameRequest(op="unbind", name=name, revision=entry.revision))


def found(ann: Command, store: str, *more: str) -> list[VolumeId]:
    rows = json.loads(ann.ok("orphans", "--store", store, "--json", *(more or OLD)))
    return [VolumeId.parse(row["volume"]) for row in rows]


def test_volumes_that_no_name_leads_to_are_listed_and_removed_and_no_others(
    ann: Command, store: str, remote: BlockingRemote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(births, "_PAGE", 2)
    monkeypatch.setattr(orphans, "AT_ONCE", 3)
    monkeypatch.setattr(orphans, "_NAMES", 2)
    named = [pushed(ann, f"named{number}") for number in range(3)]
    gone = [pushed(ann, f"gone{number}") for number in range(5)]
    assert found(ann, store) == []
    assert ann.ok("orphans", "--store", store, *OLD) == (
        "no volume is left over: each has a name, is held, or was committed to in the last 1ms\n"
    )
    ann.ok("fork", "gone0", "child")
    ann.ok("sql", "child", "INSERT INTO t VALUES (7, 'seven')")
    ann.ok("push", "child")
    for number in range(5):
        unnamed(remote, f"gone{number}")
    assert found(ann, store) == gone
    assert found(ann, store, "--older-than", "30d") == []
    lines = ann.ok("orphans", "--store", store, *OLD).splitlines()
    assert [line.split()[0] for line in lines[:-1]] == list(map(str, gone))
    assert lines[0].endswith("LSN 1, 8.0 KiB")
    assert lines[-1] == "5 volumes of 40.0 KiB without a name: --remove removes them"
    said = ann.ok("orphans", "--store", store, *OLD, "--remove")
    assert said.endswith("5 volumes of 40.0 KiB removed: upkeep deletes what only they had\n")
    assert found(ann, store) == []
    assert "was removed" in ann("pull", "gone0").line()
    ann.ok("upkeep", "--once", "--store", store)
    assert found(ann, store) == []
    # What is here stays, and so do forks and what has a name.
    assert "one" in ann.ok("sql", "gone1", "SELECT b FROM t")
    assert "seven" in ann.ok("sql", "child", "SELECT b FROM t")
    for number, _ in enumerate(named):
        ann.ok("pull", f"named{number}")
    ann.ok("scrub", "--store", store)


def test_what_somebody_holds_is_no_orphan(ann: Command, store: str, remote: BlockingRemote) -> None:
    held, forked = pushed(ann, "held"), pushed(ann, "forked")
    ann.ok("fork", "forked", "child")
    ann.ok("sql", "child", "DELETE FROM t")
    ann.ok("push", "child")
    pin = PinId.new()
    remote.ask(PIN, PinRequest(held.raw, lsn=1, pin=pin.raw, seconds=0, kind="named"))
    for name in ("held", "forked"):
        unnamed(remote, name)
    assert found(ann, store) == [forked], "a fork lives on without it"
    remote.ask(UNPIN, UnpinRequest(held.raw, pin=pin.raw))
    assert found(ann, store) == [held, forked]


def test_what_was_committed_to_lately_is_no_orphan_however_old_it_is(
    ann: Command, store: str, remote: BlockingRemote
) -> None:
    vid = VolumeId.new(at_ms=time.time_ns() // 1_000_000 - 90 * 86_400_000)
    remote.ask(CREATE, CreateRequest(vid.raw, page_size=512))
    remote.commit(*commit_of(vid, 0, {1: b"a" * 512}, client=ClientId.new(), page_size=512))
    assert found(ann, store, "--older-than", "30d") == []
    assert found(ann, store) == [vid]


def test_a_volume_that_cant_be_read_is_told_of_and_left_alone(
    ann: Command, store: str, remote: BlockingRemote, tmp_path: Path
) -> None:
    broken, gone = pushed(ann, "broken"), pushed(ann, "gone")
    for name in ("broken", "gone"):
        unnamed(remote, name)
    birth = tmp_path / "store" / "volumes" / str(broken) / "birth"
    birth.write_bytes(birth.read_bytes()[:-1] + bytes([birth.read_bytes()[-1] ^ 1]))
    said = ann("orphans", "--store", store, *OLD, "--json", "--remove")
    assert said.line().startswith(f"volume {broken} was left out: ")
    assert [row["volume"] for row in json.loads(said.out)] == [str(gone)]


def test_names_of_organisations_count_and_a_node_that_owns_the_log_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = (tmp_path / "store").as_uri()
    monkeypatch.setenv("BUDWOOD_LOGINS", str(tmp_path / "logins.json"))
    with serving(tmp_path / "store"):
        pass
    operator = Command(capsys, tmp_path / "operator")
    acme = operator("keys", "create", "--store", store, "ci", "--org", "acme").out.strip()
    boss = operator("keys", "create", "--store", store, "boss", "--admin", "").out.strip()
    with serving(tmp_path / "store") as url:
        ann = Command(capsys, tmp_path / "ann", url)
        monkeypatch.setattr("sys.stdin", io.StringIO(acme + "\n"))
        ann.ok("login")
        stays, gone = pushed(ann, "stays"), pushed(ann, "gone")
        assert found(operator, store) == []
        node = open_remote(url, token=acme)
        unnamed(node, "gone")
        assert found(operator, store) == [gone]
        assert "for keys with the right to admin" in operator("orphans", "--store", store, *OLD, "--remove").line()
        operator.ok("--token", f"{url}={boss}", "orphans", "--store", store, *OLD, "--remove")
        assert found(operator, store) == []
        with pytest.raises(NotFound, match="was removed"):
            node.ask(PIN, PinRequest(gone.raw, lsn=1, pin=PinId.new().raw, seconds=1, kind="lease"))
        node.close()
        ann.ok("pull", "stays")
        assert stays != gone


def test_a_store_that_is_not_there_is_said_in_a_line(ann: Command, tmp_path: Path) -> None:
    assert "there is no store at" in ann("orphans", "--store", (tmp_path / "nowhere").as_uri()).line()
    assert "is no time to last" in ann("orphans", "--store", "file:///x", "--older-than", "soon").line(2)

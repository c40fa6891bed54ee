"""Names as they stood at a time, whatever became of them since: of two homes over one store, and of one that is new."""

from __future__ import annotations

import stat
import time
from pathlib import Path
from typing import Any

import pytest

from budwood.server.metastore import recent_changes
from budwood.sync.attributes import Attributes
from budwood.volume.errors import Unavailable

from ...namespaces import DIRECTORY, Side, link, sync


def then(side: Side, at: int) -> dict[str, tuple[str, bytes]]:
    """Kind and target of each name at that time, which is remembered."""
    entries, told = side.names.entries_at(at)
    assert told == at
    return {entry.name: (entry.kind, entry.vid) for entry in entries}


def now_ms(side: Side) -> int:
    """Once all is pushed: a time behind the newest change. Each is a millisecond later than the one before, at least,
    so that a few at once are ahead of the clock.
    """
    side.push()
    time.sleep(0.05)
    return time.time_ns() // 1_000_000


def test_the_names_of_a_time_are_those_that_stood_then(ann: Side, bob: Side) -> None:
    before = now_ms(ann)
    ann.names.make_directory("d", DIRECTORY)
    for name in ("d/kept", "d/removed", "d/saved", "moved"):
        ann.write(name, name.encode())
    ann.names.make_link("link", link("d/kept"))
    at = now_ms(ann)
    stood = {name: (entry.kind, entry.vid) for name in ann.tree() for entry in [ann.entry(name)]}
    attributes = ann.entry("d/kept").attributes
    ann.names.remove("d/removed")
    ann.write("d/saved~", b"anew")
    ann.names.move("d/saved~", "d/saved", replace=True)
    ann.names.move("moved", "elsewhere")
    ann.names.remove("link")
    ann.write("late", b"late")
    later = now_ms(ann)
    ann.names.move("d", "e")
    ann.names.set_attributes("e/kept", Attributes(mode=stat.S_IFREG | 0o600, uid=1, gid=1))
    sync(ann, bob)
    for side in (ann, bob):
        assert then(side, at) == stood
        assert then(side, before) == {}
        assert set(then(side, later)) == {"d", "d/kept", "d/saved", "elsewhere", "late"}
        assert set(then(side, now_ms(side))) == set(bob.tree())
        (kept,) = [entry for entry in side.names.entries_at(at)[0] if entry.name == "d/kept"]
        assert (kept.attributes.mode, kept.attributes.uid) == (attributes.mode, attributes.uid)


def test_what_is_another_stores_is_beside_them_under_the_names_of_today(ann: Side, tmp_path: Path) -> None:
    ann.write("ours", b"ours")
    second = Side(tmp_path / "ann", (tmp_path / "second").as_uri())
    for name in ("gone", "theirs"):
        second.write(name, b"theirs").push()
    second.edge.close()
    at = now_ms(ann)
    ann.names.remove("ours")
    ann.names.remove("gone")
    ann.push()
    entries, _ = ann.names.entries_at(at)
    assert [(entry.name, entry.here) for entry in entries] == [("ours", False), ("theirs", True)]


def test_names_of_before_what_is_remembered_are_the_earliest_that_are(
    ann: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_changes, "MOST_REMEMBERED", 3)
    times: list[int] = []
    for name in ("a", "b", "c", "d", "e"):
        ann.names.make_directory(name, DIRECTORY)
        times.append(now_ms(ann))
    first, at = times[0], times[-1]
    entries, told = ann.names.entries_at(first)
    assert [entry.name for entry in entries] == ["a", "b"]
    assert first < told < at
    assert [entry.name for entry in ann.names.entries_at(told)[0]] == ["a", "b"]
    assert set(then(ann, at)) == {"a", "b", "c", "d", "e"}


def test_a_remote_whose_names_change_all_the_time_is_told_apart(ann: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing of now comes in parts of one revision, or is begun anew; there is an end to that."""
    monkeypatch.setattr("budwood.sync.namespace._LISTED", 1)
    remote = ann.edge.connection().remote
    ask = remote.ask
    made = 0

    def asked(call: Any, request: Any) -> Any:
        nonlocal made
        made += 1
        if made % 2:
            ann.names.make_directory(f"more-{made:04}", DIRECTORY)
            with monkeypatch.context() as plain:
                plain.setattr(remote, "ask", ask)
                ann.names.push()
        return ask(call, request)

    ann.names.make_directory("a", DIRECTORY)
    ann.names.make_directory("b", DIRECTORY)
    ann.push()
    monkeypatch.setattr(remote, "ask", asked)
    with pytest.raises(Unavailable, match="faster than they are told"):
        ann.names.entries_at(time.time_ns() // 1_000_000 + 3_600_000)

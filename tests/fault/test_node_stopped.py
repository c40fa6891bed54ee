"""A push behind a node that was stopped (SIGSTOP) is told of, stays pending, and lands once when the node goes on."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

import budwood.remote.http
from budwood.remote.exchange import Timing
from budwood.sync.edge import open as open_edge
from budwood.sync.volume import Volume
from budwood.volume.errors import Unavailable
from budwood.volume.protocols import Durability

from ..waits import wait_until
from .crash_harness import Place, Serving


def put(volume: Volume, value: int) -> None:
    writer = volume.writer(page_size=4096)
    writer.write(1, bytes([value]) * 4096)
    made = writer.commit(Durability.DURABLE)
    assert made is not None
    made.close()


def test_a_push_behind_a_stopped_node_is_told_of_and_lands_once_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budwood.remote.http, "Timing", lambda: Timing(quiet_seconds=0.1, probe_seconds=0.5))
    node = Serving(Place(tmp_path))
    node.start()
    try:
        assert node.child is not None
        for remote in (node.url, node.place.store):
            # Asked itself, and found by whoever reads the store.
            with open_edge(home=tmp_path / "home", remote=remote) as edge:
                volume = edge.volume("v") if edge.ls() else edge.create("v", page_size=4096)
                put(volume, 1)
                wait_until(partial(pushed, volume))
                before = int(volume.status()["lsn"])
                put(volume, 2)
                os.kill(node.child.pid, signal.SIGSTOP)
                with pytest.raises(Unavailable, match="was stopped, or hangs"):
                    volume.push()
                assert volume.status()["pending"]
                node.go_on()
                wait_until(partial(pushed, volume))
                assert volume.status()["lsn"] == str(before + 1)
    finally:
        node.stop()


def pushed(volume: Volume) -> bool:
    """A machine under load may keep a node from saying in time that it is alive."""
    try:
        volume.push()
    except Unavailable:
        return False
    return True

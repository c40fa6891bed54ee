"""An fsync reaches the disk, whatever has to be committed for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyfuse3")

import trio

import budwood
from budwood.fuse.file import File
from budwood.fuse.journal import Event
from budwood.fuse.pace import Pace
from budwood.sync.attributes import Attributes


async def ignore(*_: object) -> None:
    pass


def services(folder: Path) -> Any:
    """What a file tells the mount, for a file that is in none."""
    quiet: Callable[..., None] = lambda *_: None  # noqa: E731
    return SimpleNamespace(
        read_only=False, commits=Pace(), spill=folder, committed=quiet, touched=quiet, released=ignore, opening=ignore
    )


def test_an_fsync_that_has_nothing_to_commit_flushes_what_a_close_has_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(again: bytes) -> int:
        """How often the home was flushed at the fsync."""
        with budwood.open(home=tmp_path / again.decode(), remote="") as edge:
            volume = edge.create("a")
            file = File(2, Attributes(), services(tmp_path), volume.id.raw, 0)
            file.learn(volume, 0)
            handle = await file.open(writable=True)
            await file.write(handle, 0, b"one")
            await file.act(Event.CLOSE)
            flushed = 0
            flush = edge.environment.flush

            def count() -> None:
                nonlocal flushed
                flush()
                flushed += 1

            with monkeypatch.context() as patch:
                patch.setattr(edge.environment, "flush", count)
                await file.write(handle, 0, again)
                await file.act(Event.FSYNC)
            await file.close(handle)
            return flushed

    for again in (b"one", b"two"):
        assert trio.run(run, again) == 1

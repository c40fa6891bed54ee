"""When what was written to a file becomes a commit: every state and event, a volume that was reset, an fsync."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyfuse3")

import pyfuse3
import trio

import budwood
from budwood.fuse.files.image import Image
from budwood.fuse.files.localfile import LocalFile
from budwood.fuse.files.regular import File
from budwood.fuse.files.transitions import ACTS, Act, Event, State, event_of_write
from budwood.fuse.files.wal_tail import Wal
from budwood.fuse.requests.background import Background
from budwood.fuse.requests.offload import Offload
from budwood.sync.attributes import Attributes
from budwood.sync.volume import Volume

ENDINGS = {Act.COMMIT, Act.ROLL_BACK, Act.PART, Act.REBASE}
"""After these nothing is left over the view."""


def test_every_event_has_an_act_in_every_state() -> None:
    assert ACTS.keys() == {(state, event) for state in State for event in Event}


def test_whatever_was_written_has_an_end_when_nobody_is_left() -> None:
    assert {ACTS[state, Event.ABANDON] for state in State} <= ENDINGS
    assert ACTS[State.JOURNALED, Event.ABANDON] is Act.ROLL_BACK


def test_a_stale_file_never_commits() -> None:
    assert not {ACTS[State.STALE, event] for event in Event} & {Act.COMMIT, Act.PART, Act.REBASE, Act.UNDO}


def test_nothing_is_committed_while_a_journal_would_undo_it_but_by_its_end() -> None:
    commits = {event for event in Event if ACTS[State.JOURNALED, event] is Act.COMMIT}
    assert commits == {Event.END, Event.RESTART}


@pytest.mark.parametrize("event", [event for event in Event if event is not Event.OVERWRITE])
def test_a_checkpoint_is_no_commit(event: Event) -> None:
    assert ACTS[State.BENEATH, event] in (Act.NOTHING, Act.DRAIN, Act.REBASE)


def test_only_the_first_byte_of_a_journal_tells() -> None:
    assert event_of_write(0, b"\xd9\xd5") is Event.HEADER
    assert event_of_write(0, bytes(28)) is Event.END
    assert event_of_write(0, b"") is None
    assert event_of_write(512, b"page") is None


async def ignore(*_: object) -> None:
    pass


def unmounted(folder: Path, volume: Volume, length: int) -> File:
    """The file of a volume, in no mount."""
    quiet: Callable[..., None] = lambda *_: None  # noqa: E731
    services: Any = SimpleNamespace(
        read_only=False,
        commits=Offload(),
        spill=folder,
        committed=quiet,
        touched=quiet,
        released=ignore,
        opening=ignore,
        invalidate=ignore,
    )
    file = File(2, Attributes(), services, volume.id.raw, Image(services, length))
    file.image.learn(volume, volume.local.peek())
    return file


def in_wal_mode(path: Path) -> tuple[bytes, bytes]:
    """A database, and a -wal with commits that are not checkpointed."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("pragma journal_mode = wal")
        db.execute("create table t(a)")
        db.execute("pragma wal_checkpoint(truncate)").fetchall()
        db.execute("insert into t values(1)")
        return path.read_bytes(), path.with_name(path.name + "-wal").read_bytes()


def test_what_was_written_beside_a_wal_never_reaches_the_history_that_a_reset_has_taken(tmp_path: Path) -> None:
    async def main() -> None:
        remote = f"file://{tmp_path / 'store'}"
        with budwood.open(home=tmp_path / "home", remote=remote) as edge:
            database, frames = in_wal_mode(tmp_path / "a.db")
            volume = edge.import_(tmp_path / "a.db", "a")
            volume.push()
            async with trio.open_nursery() as nursery:
                file = unmounted(tmp_path, volume, len(database))
                handle = await file.open(writable=True)
                wal = file.writeback.wal = Wal(volume, LocalFile(tmp_path, "a.db-wal followed"), Background(nursery))
                wal.write(0, frames)
                await wal.drain()
                await file.write(handle, 4096, b"astray")
                assert file.writeback.state is State.ASTRAY
                assert await file.supersede(lambda: volume.reset(discard=True))
                before = volume.local.peek()
                with pytest.raises(pyfuse3.FUSEError) as refused:
                    await file.writeback.act(Event.FSYNC)
                assert refused.value.errno == errno.EIO
                await file.writeback.restart_wal()
                assert not file.image.is_of(before), "who has it open reads on in the history before"
                await file.close(handle)
                assert volume.local.peek() == before

    trio.run(main)


def test_an_fsync_that_has_nothing_to_commit_flushes_what_a_close_has_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(again: bytes) -> set[str]:
        """What of the home was flushed at the fsync."""
        with budwood.open(home=tmp_path / again.decode(), remote="") as edge:
            volume = edge.create("a")
            file = unmounted(tmp_path, volume, 0)
            handle = await file.open(writable=True)
            await file.write(handle, 0, b"one")
            await file.writeback.act(Event.CLOSE)
            flushed, flush, flush_file = set[str](), edge.environment.flush_store, os.fdatasync

            def flush_store() -> None:
                flush()
                flushed.add("store")

            def fdatasync(fd: int) -> None:
                flush_file(fd)
                flushed.add("journal")

            with monkeypatch.context() as patch:
                patch.setattr(edge.environment, "flush_store", flush_store)
                patch.setattr(os, "fdatasync", fdatasync)
                await file.write(handle, 0, again)
                await file.writeback.act(Event.FSYNC)
            await file.close(handle)
            return flushed

    assert trio.run(run, b"one") == {"store"}
    assert trio.run(run, b"two") == {"store", "journal"}

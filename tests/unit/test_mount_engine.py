"""The engine that syncs a mount's volumes, where it breaks."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyfuse3")

import trio
from tests.waits import LIMIT_SECONDS, wait_until

import budwood
from budwood.fuse.exchange.autosync import Syncing
from budwood.sync.autosync import Autosync
from budwood.sync.divergence import tell
from budwood.sync.edge import open as open_edge


class Planted(Exception):
    pass


class Engine:
    """Of a home with a volume that nobody has pushed."""

    def __init__(self, folder: Path) -> None:
        self.place: Any = {"home": folder / "home", "remote": (folder / "store").as_uri()}
        self.commit("one")
        self.edge = open_edge(**self.place)
        self.mistaken = self.edge.volume_here("one").id.raw
        naming: Any = SimpleNamespace(namespace=SimpleNamespace(url=lambda: "", owes_attributes=self._owes))
        moving: Any = None
        self.syncing = Syncing(self.edge, naming, moving, on_diverged=tell)
        self.limit = trio.CancelScope()

    def _owes(self, vid: bytes) -> bool:
        if vid == self.mistaken:
            raise Planted
        return False

    def commit(self, name: str) -> None:
        with closing(budwood.connect(name, **self.place)) as db:
            db.execute("create table t (a)")

    async def run(self) -> None:
        self.limit.deadline = trio.current_time() + LIMIT_SECONDS
        with self.limit:
            await self.syncing.run()


def test_a_mistake_that_is_met_with_one_volume_puts_off_that_one_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Engine(tmp_path)

    def is_pushed() -> bool:
        return not made.edge.volume_here("two").status(count=False)["unpushed"]

    def go_on() -> None:
        wait_until(lambda: "Planted" in made.syncing.error_of(made.mistaken))
        made.commit("two")
        wait_until(is_pushed)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.run)
            await trio.to_thread.run_sync(go_on)
            nursery.cancel_scope.cancel()

    with made.edge:
        with pytest.raises(ExceptionGroup) as raised:
            trio.run(run)
        assert [type(each) for each in raised.value.exceptions] == [Planted]
        assert is_pushed()
    assert not made.limit.cancel_called
    assert "a defect" in caplog.text


def test_one_that_ends_is_told_at_once_so_that_it_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Engine(tmp_path)

    def breaks(_: Autosync) -> None:
        raise Planted

    monkeypatch.setattr(Autosync, "_look", breaks)
    with made.edge, pytest.raises(Planted):
        trio.run(made.run)
    assert not made.limit.cancel_called
    assert made.syncing.engine is None

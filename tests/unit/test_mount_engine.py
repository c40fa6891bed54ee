"""The engine that syncs a mount's volumes, where it breaks."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyfuse3")

import trio
from tests.waits import LIMIT_SECONDS

import budwood
from budwood.fuse.exchange.autosync import Syncing
from budwood.sync.divergence import tell
from budwood.sync.edge import open as open_edge


def test_one_that_breaks_is_told_at_once_so_that_it_is_begun_anew(tmp_path: Path) -> None:
    place: Any = {"home": tmp_path / "home", "remote": (tmp_path / "store").as_uri()}
    with closing(budwood.connect("v", **place)) as db:
        db.execute("create table t (a)")

    def breaks(_vid: bytes) -> bool:
        raise ZeroDivisionError

    naming: Any = SimpleNamespace(namespace=SimpleNamespace(url=lambda: "", owes_attributes=breaks))
    moving: Any = None

    limit = trio.CancelScope()

    async def run() -> None:
        limit.deadline = trio.current_time() + LIMIT_SECONDS
        with limit:
            await syncing.run()

    with open_edge(**place) as edge:
        syncing = Syncing(edge, naming, moving, on_diverged=tell)
        with pytest.raises(ZeroDivisionError):
            trio.run(run)
        assert not limit.cancel_called
        assert syncing.engine is None

"""A reader that was written from docs/formats.md alone reads what stands in a store and a home, to the byte."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from budwood.server.store.file import FileStore
from budwood.testing.stores import MemoryStore

from ..estate import Estate, build_home, build_store
from ..reread import check_home, reread
from ..second_reader import Store, directory

pytestmark = pytest.mark.anyio


async def test_every_volume_reads_the_same_at_every_lsn() -> None:
    store = MemoryStore()
    estate = await build_store(store)
    second = await reread(store.objects)
    assert set(second.volumes) == {vid.raw for vid in estate.history}
    for vid, history in estate.history.items():
        for lsn, pages in enumerate(history):
            if lsn:
                expected = {page: data for page, data in pages.items() if any(data)}
                assert second.volume(vid.raw).pages_at(lsn) == expected
    assert {name: bound.target for name, bound in second.names().items()} == {
        name: vid.raw for name, vid in estate.names.items()
    }


def test_a_home_reads_as_its_programs_saw_it(tmp_path: Path) -> None:
    async def build() -> Estate:
        store = await FileStore.open(str(tmp_path / "store"))
        try:
            return await build_store(store)
        finally:
            await store.aclose()

    estate = anyio.run(build)
    seen = build_home(tmp_path / "home", f"file://{tmp_path}/store", estate)
    home = check_home(tmp_path / "home", Store(directory(tmp_path / "store")), seen)
    assert set(home.names()) >= {"empty", "empty/link", *seen}

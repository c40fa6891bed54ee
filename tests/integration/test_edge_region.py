"""A volume that an edge makes is to be served where the edge says (S2.23)."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import budwood
from budwood.server.metastore.births import read_birth
from budwood.server.store.open_store import open_store
from budwood.server.store.retrying import PATIENT
from budwood.volume.ids import VolumeId


@pytest.mark.parametrize("region", ["", "north"])
def test_the_birth_of_what_an_edge_pushes_has_its_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region: str
) -> None:
    monkeypatch.setenv("BUDWOOD_REGION", region)
    url = (tmp_path / "store").as_uri()
    db = budwood.connect("shop", home=tmp_path / "home", remote=url)
    db.execute("CREATE TABLE t(a)")
    db.execute("PRAGMA budwood_push")
    db.close()
    (born,) = (path.parent.name for path in (tmp_path / "store" / "volumes").glob("*/birth"))

    async def read() -> str:
        store = await open_store(url)
        try:
            return (await read_birth(store, VolumeId.parse(born), PATIENT)).region
        finally:
            await store.aclose()

    assert anyio.run(read) == region

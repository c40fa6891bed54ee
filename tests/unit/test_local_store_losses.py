"""Rows that are gone from the local store: what was not pushed can be had nowhere else, so nothing stands in for it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.volume.errors import Corrupt
from budwood.volume.protocols import Durability

PAGE = 4096


def write(edge: Edge, pages: dict[int, bytes]) -> None:
    writer = edge.volume("v").writer(page_size=PAGE)
    for page, data in pages.items():
        writer.write(page, data * PAGE)
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()


def lose(edge: Edge, page: int) -> None:
    """Every row of the page."""
    tables, prefix = edge.environment.tables, edge.volume("v").id.raw + page.to_bytes(4)

    def drop(txn: Any) -> None:
        for table in (tables.tails, tables.bodies):
            cursor = txn.cursor(table)
            more = cursor.set_range(prefix)
            while more and cursor.key().startswith(prefix):
                more = cursor.delete()

    edge.environment.update(drop)


@pytest.mark.parametrize("pushed", [False, True])
def test_an_unpushed_page_that_is_gone_is_damage_and_neither_zeros_nor_the_remotes(
    tmp_path: Path, pushed: bool
) -> None:
    with open_edge(home=tmp_path / "home", remote=f"file://{tmp_path}/store") as edge:
        volume = edge.create("v", page_size=PAGE)
        write(edge, {1: b"a", 2: b"a"})
        if pushed:
            volume.push()
            write(edge, {1: b"b", 2: b"b"})
        lose(edge, 2)
        with closing(volume.snapshot()) as snapshot:
            assert snapshot.read(1)[:1] == (b"b" if pushed else b"a")
            with pytest.raises(Corrupt, match=r"page 2 .* not pushed yet"):
                snapshot.read(2)
        with pytest.raises(Corrupt, match=r"page 2 .* not pushed yet"):
            volume.push()
        with pytest.raises(Corrupt, match="page 2"):
            volume.export(tmp_path / "file")
        assert not (tmp_path / "file").exists()


def test_a_page_that_was_pushed_and_is_gone_is_fetched_again(tmp_path: Path) -> None:
    with open_edge(home=tmp_path / "home", remote=f"file://{tmp_path}/store") as edge:
        volume = edge.create("v", page_size=PAGE)
        write(edge, {1: b"a", 2: b"a"})
        volume.push()
        lose(edge, 2)
        with closing(volume.snapshot()) as snapshot:
            assert snapshot.read(2) == b"a" * PAGE

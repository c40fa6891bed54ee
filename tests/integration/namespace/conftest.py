"""Two homes over one store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ...namespaces import Side


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "store").mkdir()
    return f"file://{tmp_path}/store"


@pytest.fixture
def ann(tmp_path: Path, store: str) -> Iterator[Side]:
    side = Side(tmp_path / "ann", store)
    yield side
    side.edge.close()


@pytest.fixture
def bob(tmp_path: Path, store: str) -> Iterator[Side]:
    side = Side(tmp_path / "bob", store)
    yield side
    side.edge.close()

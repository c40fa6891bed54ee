"""The second reader is one: it has nothing of Budwood's, and refuses what docs/formats.md says is refused."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "second_reader"


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def test_it_imports_nothing_of_ours() -> None:
    names = {name for path in FOLDER.glob("*.py") for name in imported(path)}
    own = {f".{path.stem}" for path in FOLDER.glob("*.py")}
    assert ".log" in names
    assert "xxhash" in names
    assert not [name for name in names if name.startswith((".", "tests", "budwood")) and name not in own]

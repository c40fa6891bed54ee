"""The metrics that docs/operations.md names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "operations.md"


class Documented(NamedTuple):
    kind: str
    labels: frozenset[str]
    told_by: str
    """Of an edge's."""


def documented(section: str) -> dict[str, Documented]:
    """Those of one section, by name."""
    text = DOCUMENT.read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| `")]
    return {
        row[0].strip("`"): Documented(row[1], frozenset(re.findall(r"`(\w+)`", row[2])), row[3] if len(row) > 4 else "")
        for row in rows
    }

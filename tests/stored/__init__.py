"""Stores and a home as they were written when their formats were settled, and what they hold: kept for good.

    format-2.tar.xz          store/ and home/, as tests/estate.py makes them
    format-2.json            digests of what they hold: of volumes by id and LSN, of names, and of the home's volumes
    format-2-grown.tar.xz    store/ alone, as tests/grown.py makes it: folded, forgotten in part, half collected
    format-2-grown.json      digests of what of it can be read, and what else it says
    format-2-relocated.…     the same of a store whose volumes forget nothing, as tests/relocated.py makes it
    code-2026-11-24.tar.xz   the code of that day, budwood/: `git archive 89631f19 __init__.py cli volume …`; for fleets
                             of which a part is older

`python -m tests.stored young` writes the first pair, `grown` and `relocated` the others. Whoever steps a format adds
pairs of the new number, and leaves the others: a store of before is read as before, or refused in words.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

__all__ = [
    "FOLDER",
    "GROWN",
    "RELOCATED",
    "YOUNG",
    "Held",
    "HeldGrown",
    "HeldVolume",
    "digest_of",
    "unpack",
    "unpack_code",
    "unpack_grown",
]

HERE = Path(__file__).parent
YOUNG = HERE / "format-2"
GROWN = HERE / "format-2-grown"
RELOCATED = HERE / "format-2-relocated"
"""Without their endings."""
CODE = HERE / "code-2026-11-24.tar.xz"
FOLDER = Path("/tmp/budwood-stored")
"""Where they were made: a home remembers the address of its remote."""


class Held(msgspec.Struct):
    volumes: dict[str, list[str]]
    """By id: a digest for each LSN from 0."""
    names: dict[str, str]
    """To volumes' ids."""
    home: dict[str, str]
    """By name: a digest."""


class HeldVolume(msgspec.Struct):
    name: str
    """In tests/grown.py."""
    log: str
    since: int
    head: int
    policy: tuple[int, ...] | None
    """All, hourly and daily, in milliseconds."""
    labels: dict[str, int]
    pages: dict[str, str]
    """By LSN, of those that can be read: a digest."""


class HeldGrown(msgspec.Struct):
    now_ms: int
    """When it was left: leases that hold LSNs by then end later."""
    volumes: dict[str, HeldVolume]
    """By id."""
    names: dict[str, str]
    policy: tuple[int, ...]
    """The store's default."""


def digest_of(pages: Mapping[int, bytes]) -> str:
    """Of the pages that aren't zeros."""
    digest = hashlib.sha256()
    for page in sorted(page for page, data in pages.items() if any(data)):
        digest.update(page.to_bytes(4, "little") + pages[page])
    return digest.hexdigest()


def unpack(folder: Path) -> Held:
    """Put store/ and home/ into the folder."""
    _extract(YOUNG, folder)
    return msgspec.json.decode(YOUNG.with_suffix(".json").read_bytes(), type=Held)


def unpack_grown(folder: Path, pair: Path = GROWN) -> HeldGrown:
    """Put store/ into the folder."""
    _extract(pair, folder)
    return msgspec.json.decode(pair.with_suffix(".json").read_bytes(), type=HeldGrown)


def _extract(pair: Path, folder: Path) -> None:
    with tarfile.open(pair.with_suffix(".tar.xz")) as archive:
        archive.extractall(folder, filter="data")


def unpack_code(folder: Path) -> Path:
    """The older release; the same folder, for PYTHONPATH."""
    with tarfile.open(CODE) as archive:
        archive.extractall(folder, filter="data")
    return folder

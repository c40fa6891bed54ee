"""A store and a home as they were written when their formats were settled, and what they hold: kept for good.

    format-2.tar.xz    store/ and home/, as tests/estate.py makes them
    format-2.json      digests of what they hold: of volumes by id and LSN, of names, and of the home's volumes by name

`python -m tests.stored` writes them. Whoever steps a format adds a pair of the new number, and leaves the others: a
store of before is read as before, or refused in words.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

__all__ = ["ARCHIVE", "FOLDER", "HELD", "Held", "digest_of", "unpack"]

HERE = Path(__file__).parent
ARCHIVE = HERE / "format-2.tar.xz"
HELD = HERE / "format-2.json"
FOLDER = Path("/tmp/budwood-stored")
"""Where they were made: a home remembers the address of its remote."""


class Held(msgspec.Struct):
    volumes: dict[str, list[str]]
    """By id: a digest for each LSN from 0."""
    names: dict[str, str]
    """To volumes' ids."""
    home: dict[str, str]
    """By name: a digest."""


def digest_of(pages: Mapping[int, bytes]) -> str:
    """Of the pages that aren't zeros."""
    digest = hashlib.sha256()
    for page in sorted(page for page, data in pages.items() if any(data)):
        digest.update(page.to_bytes(4, "little") + pages[page])
    return digest.hexdigest()


def unpack(folder: Path) -> Held:
    """Put store/ and home/ into the folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return msgspec.json.decode(HELD.read_bytes(), type=Held)

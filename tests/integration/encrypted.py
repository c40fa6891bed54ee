"""Encrypted: what the tests of encrypted volumes and names write, and what they look for in a bucket."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from budwood.sync.edge import open as open_edge
from budwood.sync.volume import Volume
from budwood.volume.protocols import Durability

SIZE = 4096
KNOWN = b"a page that anybody would know again "
PAGES = {page: (KNOWN + b"%4d " % (page % 3)) * (SIZE // 42) for page in range(1, 9)}
"""Pages of a kind: some are equal but for their numbers."""


def write(volume: Volume, pages: dict[int, bytes]) -> None:
    writer = volume.writer()
    for page, data in pages.items():
        writer.write(page, data.ljust(SIZE, b"\0"))
    made = writer.commit(Durability.ORDERED)
    assert made is not None
    made.close()


def pages_of(volume: Volume) -> dict[int, bytes]:
    with closing(volume.snapshot()) as view:
        return {page: view.read(page).rstrip(b"\0") for page in range(1, view.length // SIZE + 1)}


def there(tmp_path: Path, bucket: Path, name: str = "notes") -> dict[int, bytes]:
    """What another home reads of it."""
    with open_edge(home=tmp_path / f"home-{len(list(tmp_path.iterdir()))}", remote=bucket.as_uri()) as other:
        return pages_of(other.clone(name))


def everything_in(bucket: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(bucket.rglob("*")) if path.is_file())

"""What an edge believes of a remote's answer."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from budwood.remote.token import Tokens
from budwood.sync.connection import Connection
from budwood.volume.ids import VolumeId
from budwood.volume.pageset import PageSet, span
from budwood.volume.wire import SnapshotInfo


def test_zeros_that_nobody_asked_for_take_no_room() -> None:
    """A few bytes name four thousand million pages."""
    vid = VolumeId.new()
    info = SnapshotInfo(vid=vid.raw, lsn=1, length=512, page_size=512)

    @contextmanager
    def read_pages(*arguments: Any, **options: Any) -> Generator[Any]:
        yield SimpleNamespace(snapshot=info, zeros=span(1, 10_000), frames=lambda: iter(()))

    connection = Connection("test://", Tokens(), Path("nowhere"))
    connection._remote = SimpleNamespace(url="test://", read_pages=read_pages)  # type: ignore[assignment]
    assert connection.pages(vid, 1, PageSet([3, 5]), 512)[1] == {3: bytes(512), 5: bytes(512)}

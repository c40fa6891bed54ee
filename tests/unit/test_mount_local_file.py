"""A sidecar's bytes stay what was written, whatever room the disk has."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

pytest.importorskip("pyfuse3")

from budwood.fuse.files import localfile
from budwood.fuse.files.localfile import LocalFile

ROOM_BYTES = 64 << 10
"""What the disk has of it, beyond which nothing is zeroed ahead."""


def test_room_that_is_made_late_is_none_of_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LocalFile(tmp_path, "a-wal")
    free = [ROOM_BYTES]

    def write_all(fd: int, data: bytes, offset_bytes: int) -> None:
        """As a disk that fills up: it takes what it has room for."""
        taken = data[: max(0, free[0] - offset_bytes)]
        os.pwrite(fd, taken, offset_bytes)
        if len(taken) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(localfile, "write_all", write_all)
    written = bytearray()
    for number, size in enumerate([32, 24, 4096, 24, 4096, 9000], 1):
        data = bytes([number]) * size
        file.write(len(written), data)
        written += data
        assert file.read(0, len(written)) == written
    with pytest.raises(OSError, match="No space left"):
        file.write(ROOM_BYTES, b"more")
    free[0] = 4 << 20
    file.write(len(written), b"room again")
    assert file.read(0, file.size) == written + b"room again"
    file.remove()
    file.close()

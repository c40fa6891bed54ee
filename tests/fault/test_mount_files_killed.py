"""What a plain file has after its mount was killed and brought back: what was closed, and what took another's place, to
the byte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ..mounts import Mount, mounted, needs_fuse

pytestmark = needs_fuse

PAGE = 4096
OLD = bytes(range(251)) * 50


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    with mounted(tmp_path) as mount:
        (mount.directory / "file").write_bytes(OLD)
        yield mount


def brought_back(mount: Mount) -> bytes:
    mount.kill()
    mount.start()
    return (mount.directory / "file").read_bytes()


def test_what_was_closed_is_there(mount: Mount) -> None:
    assert brought_back(mount) == OLD
    with (mount.directory / "file").open("ab") as file:
        file.write(b"more")
    assert brought_back(mount) == OLD + b"more"


@pytest.mark.parametrize("length", [1, PAGE - 100, PAGE])
@pytest.mark.parametrize("at", [0, PAGE, 2 * PAGE + 7, len(OLD) - 10, len(OLD) + 10])
def test_a_write_within_a_page_changes_its_own_bytes_alone(mount: Mount, at: int, length: int) -> None:
    with (mount.directory / "file").open("r+b") as file:
        file.seek(at)
        file.write(b"x" * length)
    expected = OLD.ljust(at, b"\0")
    assert brought_back(mount) == expected[:at] + b"x" * length + expected[at + length :]


def test_a_file_that_takes_another_s_place_has_what_was_written_to_it(mount: Mount) -> None:
    """By a program that has it open still, and has not said fsync."""
    opened = os.open(mount.directory / "new", os.O_WRONLY | os.O_CREAT)
    try:
        os.write(opened, b"new" * 3000)
        (mount.directory / "new").rename(mount.directory / "file")
        assert brought_back(mount) == b"new" * 3000
        assert not (mount.directory / "new").exists()
    finally:
        # It was the dead mount's.
        with suppress(OSError):
            os.close(opened)

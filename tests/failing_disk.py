"""A failing disk: a file system of its own, which refuses writes and flushes as it is told. What fails isn't done."""

from __future__ import annotations

import json
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from .passed_through import passed_through

WRITE, FLUSH, NAME, SOCKET = "write", "flush", "name", "socket"
KINDS = ((WRITE,), (FLUSH,), (WRITE, FLUSH), (NAME,), (WRITE, FLUSH, NAME))
"""What fails together, for whoever draws by chance."""


@contextmanager
def failing_disk(place: Path) -> Generator[tuple[Path, Path]]:
    """In a folder: the disk, and the file that says what fails, while it is there."""
    folder, directory, control = place / "folder", place / "disk", place / "control"
    folder.mkdir()
    directory.mkdir()
    with passed_through("tests.failing_passthrough", folder, directory, control):
        yield directory, control


def fail(
    control: Path,
    code: int,
    *of: str,
    chance: float = 1,
    below: int | None = None,
    after: int = 0,
    times: int | None = None,
) -> None:
    """From now on, of writes only those that begin before the offset `below`; `control.unlink()` ends it. So many
    of them are let through first (`after`), and so many refused (`times`).
    """
    beside = control.with_name(f"{control.name}.new")
    refused_file(control).unlink(missing_ok=True)
    told = {"chance": chance, "of": of, "errno": code, "below": below, "after": after, "times": times}
    beside.write_text(json.dumps(told | {"token": uuid.uuid4().hex}))
    beside.replace(control)


def refused_file(control: Path) -> Path:
    """Which is there once anything was refused since the last `fail`."""
    return control.with_name("refused")

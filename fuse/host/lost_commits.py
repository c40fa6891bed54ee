"""Lost commits: those that a program was told of and that no volume has, since the -wal that held them was damaged.

Each is said in the log at once, and in its volume's status from then on, until the file is next let go with all that is
in it committed: whoever had it open by then has seen it as it is. A file a volume, <home>/mount/lost/{vid}, holds the
words. Standard library alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from .mount_client import folder


def losses(home: Path) -> dict[str, str]:
    """What is said, by volume id."""
    try:
        return {path.name: path.read_text() for path in _folder(home).iterdir()}
    except FileNotFoundError:
        return {}


def note_loss(home: Path, vid: str, words: str) -> None:
    _folder(home).mkdir(mode=0o700, exist_ok=True)
    with open(_folder(home) / vid, "w", opener=_private) as file:
        file.write(words)


def forget_loss(home: Path, vid: str) -> None:
    (_folder(home) / vid).unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _folder(home: Path) -> Path:
    return folder(home) / "lost"

"""Log file: what the mount process says on standard error, bounded however long it lives and whatever programs do.

- Of lines that are alike (the same words, about the same thing) a minute sees so many; the next one that is let through
  says how many were left out. A program that makes a thousand mistakes a second is told of each; the log is not.
- Where standard error is the home's log, a log that has grown large becomes `log.1`, and another is begun.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO

LARGEST_BYTES: Final = 4 << 20
_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_SECONDS: Final = 60.0
_ALIKE: Final = 20
_KINDS: Final = 256
_LONGEST_LINE: Final = 4096


class Repeats(logging.Filter):
    """Lets the first few of lines that are alike pass in each minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[object, ...], tuple[float, int]] = {}
        """By what makes them alike: when the minute began, and how many came in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        about = record.args[0] if isinstance(record.args, tuple) and record.args else ""
        kind = (record.name, record.levelno, record.msg, str(about))
        now = self._clock()
        begun, count = self._seen.pop(kind, (now, 0))
        left_out = 0
        if now - begun >= _SECONDS:
            left_out, begun, count = max(0, count - _ALIKE), now, 0
        self._seen[kind] = begun, count + 1
        if len(self._seen) > _KINDS:
            # The one that was longest not seen.
            del self._seen[next(iter(self._seen))]
        if left_out:
            record.msg, record.args = f"{record.getMessage()} (and {left_out} like it that were left out)", ()
        return count < _ALIKE


class LogFile(logging.StreamHandler[TextIO]):
    """Writes to standard error; `path` is the file that this is, if it is one of ours."""

    def __init__(self, path: Path | None = None, largest_bytes: int = LARGEST_BYTES) -> None:
        super().__init__(sys.stderr)
        self._path = path
        self._largest_bytes = largest_bytes
        self.setFormatter(logging.Formatter(_FORMAT))
        self.addFilter(Repeats())

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if self._path is not None and os.fstat(sys.stderr.fileno()).st_size > self._largest_bytes:
            self._begin_anew(self._path)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        # A name may be a screenful, and a traceback is longer.
        return text if record.exc_info or len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…"

    def _begin_anew(self, path: Path) -> None:
        path.replace(path.with_name(f"{path.name}.1"))
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # What prints goes where standard error went.
        for each in (sys.stdout.fileno(), sys.stderr.fileno()):
            os.dup2(fd, each)
        os.close(fd)

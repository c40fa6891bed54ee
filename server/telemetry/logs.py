"""Logs: lines of a node for programs to read, as JSON or as logfmt, each with the request that it is about.

    {"time": "2026-03-01T12:00:00.123Z", "level": "warning", "logger": "budwood.calls", "request": "4f1c2a90-7", …}
    time=2026-03-01T12:00:00.123Z level=warning logger=budwood.calls request=4f1c2a90-7 …

A line is one line, whatever its values hold. At the level debug there is one for each call; who does what an operator
would ask about has a line of its own in any case (audit.py).
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Final

from ...volume.errors import BadInput
from ...volume.request_id import current

ROOT: Final = "budwood"
AUDIT: Final = "budwood.audit"
CALLS: Final = "budwood.calls"
FIELDS: Final = "fields"
"""In a record's `extra`: what the line says beside its words."""
LEVELS: Final = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}
_BARE: Final = re.compile(r"[\w./:+@-]+", re.ASCII)

Value = str | int | float | bool


def json_line(fields: Mapping[str, Value]) -> str:
    return json.dumps(fields, ensure_ascii=True)


def logfmt_line(fields: Mapping[str, Value]) -> str:
    return " ".join(f"{name}={_logfmt(value)}" for name, value in fields.items())


def _logfmt(value: Value) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text)


FORMATS: Final[dict[str, Callable[[Mapping[str, Value]], str]]] = {"json": json_line, "logfmt": logfmt_line}


class LineFormatter(logging.Formatter):
    """What was raised goes into the line, with its traceback."""

    def __init__(self, line: Callable[[Mapping[str, Value]], str]) -> None:
        super().__init__()
        self._line = line

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields: dict[str, Value] = {"time": time, "level": record.levelname.lower(), "logger": record.name}
        request = current.get()
        if request:
            fields["request"] = request
        fields["message"] = record.getMessage()
        fields |= getattr(record, FIELDS, {})
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return self._line(fields)


def log_to_stderr(form: str, level: str) -> None:
    """From now on, what this process logs. Raises BadInput on a word that is none of FORMATS, or of LEVELS."""
    if form not in FORMATS:
        raise BadInput(f"{form!r} is no format of logs: there are {', '.join(FORMATS)}")
    if level not in LEVELS:
        raise BadInput(f"{level!r} is no level of logs: there are {', '.join(LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(FORMATS[form]))
    logger = logging.getLogger(ROOT)
    logger.addHandler(handler)
    logger.setLevel(LEVELS[level])
    logger.propagate = False
    # Said at any level.
    logging.getLogger(AUDIT).setLevel(logging.INFO)


class _PrivateFileHandler(WatchedFileHandler):
    """A file of its owner's alone, also where it is made anew."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return open(os.open(self.baseFilename, flags, 0o600), "a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:
            # It is made anew outside of what logging guards; the call that is told of here was answered all the same.
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """The disk is full, or the folder is gone: what would have been written is told on standard error."""
        words = "the audit log %s can't be written (%s), which would say: %s"
        logging.getLogger(ROOT).error(words, self.baseFilename, sys.exception(), self.format(record))


def audit_to(path: Path) -> None:
    """Append the audit to this file, for its owner alone. It may be moved away: the next line makes it anew. Raises
    BadInput where it can't be written."""
    try:
        handler = _PrivateFileHandler(path)
    except OSError as error:
        raise BadInput(
            f"can't write the audit log {path} ({error.strerror}): name a file in a folder of yours"
        ) from error
    handler.setFormatter(LineFormatter(json_line))
    logger = logging.getLogger(AUDIT)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

"""Tracebacks: an error as a program's author is to see it: one line, below the lines of their own program.

Where an error crosses from our machinery (an event loop in another thread, a callback of SQLite's) to whoever called,
the frames behind it and the errors of libraries that it was made of are left behind: its text has said what they say.
They are ours to debug with, and stay where BUDWOOD_DEBUG is set.
"""

from __future__ import annotations

import os
from typing import TypeVar

from .errors import BudwoodError

E = TypeVar("E", bound=BaseException)


def strip_traceback(error: E) -> E:
    """The same error, to be raised again. One that isn't of our tree is a defect, and keeps everything."""
    if isinstance(error, BudwoodError) and not os.environ.get("BUDWOOD_DEBUG"):
        error.__traceback__ = None
        # What was its context still is, and isn't printed.
        error.__cause__ = None
    return error

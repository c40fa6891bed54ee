"""Errors at the command line: one line on standard error, and an exit status.

    0    done
    1    it failed
    2    the call was wrong: an unknown verb, option or value
    3    a choice is needed: the remote moved on, or unpushed work stands in the way
    130  interrupted
    141  the reader of the output has gone

Every error ends as `budwood: what is wrong and what to do`, on one line, whatever it was born as: an error of ours,
of the operating system, of SQLite. No traceback is shown unless BUDWOOD_DEBUG=1; an error that none of the tables
below knows is a defect of ours, and its line says how to see the traceback.

An error of ours that passed through SQLite arrives inside SQLite's own error, or inside a group of tasks: the
outermost of ours speaks.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Final, cast

import typer

from ..volume.errors import BadInput, BudwoodError, Conflict, Diverged
from ..volume.thread_limit import NO_THREAD, is_no_thread

FAILED: Final = 1
USAGE: Final = 2
CHOICE: Final = 3
INTERRUPTED: Final = 130
OUTPUT_CLOSED: Final = 141

# The first row that fits counts.
EXIT_CODES: Final[tuple[tuple[type[BaseException], int], ...]] = (
    (BadInput, USAGE),
    (Diverged, CHOICE),
    (Conflict, CHOICE),
    (KeyboardInterrupt, INTERRUPTED),
    (BrokenPipeError, OUTPUT_CLOSED),
)

# What the system says, in words that name a way out; `{where}` is the path, or nothing.
OS_LINES: Final[dict[int, str]] = {
    errno.ENOSPC: "no room left on the disk{where}: make room, then try again; nothing was lost",
    errno.EDQUOT: "the disk quota is used up{where}: make room, then try again; nothing was lost",
    errno.EFBIG: "the file may not grow any more{where}: raise the file size limit; nothing was lost",
    errno.EACCES: "not permitted{where}: it belongs to another user, or is read-only",
    errno.EPERM: "not permitted{where}: it belongs to another user, or is read-only",
    errno.EROFS: "the file system is read-only{where}",
    errno.ENOENT: "no such file or directory{where}",
    errno.EISDIR: "that is a directory, not a file{where}",
    errno.ENOTDIR: "that is a file, not a directory{where}",
    errno.EEXIST: "that file exists already{where}: remove it, or take another name",
    errno.EMFILE: "too many open files: raise the limit (ulimit -n)",
    errno.EADDRINUSE: "the address is in use{where}: another server listens there; take another with --listen",
    errno.EADDRNOTAVAIL: "that address is not one of this machine's{where}",
}

# SQLite's own errors by primary result code, where its message alone would leave a user guessing.
SQLITE_LINES: Final[dict[int, str]] = {
    5: "the database is locked by another connection or process: wait for it, then try again",  # SQLITE_BUSY
    10: "reading or writing failed: {message}",  # SQLITE_IOERR
    11: "SQLite finds the database damaged: {message}",  # SQLITE_CORRUPT
    13: "no room left on the disk: make room, then try again; nothing was lost",  # SQLITE_FULL
    26: "this is not a SQLite database: {message}",  # SQLITE_NOTADB
}
BUSY_SNAPSHOT: Final = 517
"""Someone committed after this transaction had begun to read."""


class Call(Exception):
    """The command line itself is wrong; ends with USAGE."""


class Stopped(Exception):
    """Carries, as its cause, an error that typer would turn into a status of its own: interrupts, system errors."""


def report(error: BaseException) -> int:
    """Print the one line and return the exit status. Nothing is printed for an interrupt or a closed pipe."""
    told = speaker(error)
    code = exit_code(told)
    if os.environ.get("BUDWOOD_DEBUG"):
        traceback.print_exception(error)
    line = line_of(told)
    if line and sys.stderr is not None:
        # A path in it may be no text.
        words = " ".join(line.split()).encode(errors="backslashreplace").decode()
        print(f"budwood: {words}", file=sys.stderr)
    return code


def exit_code(error: BaseException) -> int:
    if isinstance(error, Call):
        return USAGE
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


def line_of(error: BaseException) -> str:
    """What to say; "" for silence."""
    if isinstance(error, KeyboardInterrupt | BrokenPipeError):
        return ""
    if isinstance(error, BudwoodError | Call):
        return str(error)
    if (line := _sqlite_line(error)) is not None:
        return line
    if isinstance(error, OSError) and error.errno is not None:
        # What isn't the system's own word for it was said by whoever raised it.
        own = "" if error.strerror == os.strerror(error.errno) else error.strerror
        where = f": {error.filename or own}" if error.filename or own else ""
        words = OS_LINES.get(error.errno)
        return words.format(where=where) if words else f"{os.strerror(error.errno)}{where}"
    if isinstance(error, UnicodeDecodeError):
        return "a text value is not valid UTF-8: select it with CAST(column AS BLOB)"
    if isinstance(error, MemoryError):
        return "out of memory"
    if is_no_thread(error):
        return NO_THREAD
    what = type(error).__name__ + (f": {error}" if str(error) else "")
    return f"unexpected {what} (set BUDWOOD_DEBUG=1 to see where; please report it)"


def speaker(error: BaseException) -> BaseException:
    """The error among `error` and its causes that knows best what happened: the outermost of ours, else of the
    system's own, else `error` itself, or the first that a group holds."""
    chain = list(_chain(error))
    for kind in (BudwoodError, KeyboardInterrupt, OSError):
        found = next((each for each in chain if isinstance(each, kind)), None)
        if found is not None:
            return found
    return next((each for each in chain if not isinstance(each, BaseExceptionGroup)), error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, the members of a group, and what they were raised from; each once."""
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        if isinstance(each, BaseExceptionGroup):
            waiting += cast("BaseExceptionGroup[BaseException]", each).exceptions
        # An error that SQLite makes of ours holds it as its context; one raised "from None" hides it on purpose.
        before = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
        if before is not None:
            waiting.append(before)


def _sqlite_line(error: BaseException) -> str | None:
    """The line for an error of apsw's; None for any other.

    apsw is looked up, not imported: it has been if the error is its.
    """
    apsw = sys.modules.get("apsw")
    if apsw is None or not isinstance(error, apsw.Error):
        return None
    message = str(error)
    extended = int(getattr(error, "extendedresult", 0))
    if extended == BUSY_SNAPSHOT:
        return "someone else committed meanwhile, and this transaction was rolled back: run it again"
    return SQLITE_LINES.get(extended & 0xFF, "{message}").format(message=message or type(error).__name__)


# Typer carries its own copy of click since 0.26 and gives out the leaves of its tree of exceptions, not their root.
_ClickException: Final = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def as_call(error: BaseException, command: str) -> BaseException:
    """An error in how the command was called, as a line that names the help page to read; anything else unchanged."""
    if not isinstance(error, _ClickException):
        return error
    path = getattr(getattr(error, "ctx", None), "command_path", command)
    message = str(getattr(error, "format_message", lambda: error)()).rstrip(".")
    return Call(f"{message} (see {path} --help)")

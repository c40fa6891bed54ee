"""Errors: one tree. Each class stands for something that a caller can do.

    BudwoodError
    ├─ UsageError            mend the call; nothing was changed
    │  ├─ BadInput           a value is not acceptable; the text says which and what would be
    │  ├─ NotFound           no such name, volume or LSN
    │  ├─ AlreadyExists      the name (or volume, or file) is taken
    │  ├─ Conflict           someone committed first: pull, then fork or reset
    │  ├─ Diverged           unpushed commits stand against newer remote ones: fork or reset
    │  ├─ Busy               someone else holds the write lock (or is pushing): wait, then try again
    │  ├─ ReadOnly           this view cannot be written
    │  ├─ Forgotten          the LSN lies below since
    │  ├─ NotOwner           another node owns the log; `.owner` is its address
    │  ├─ PagesNotHere       the pages were written under another epoch: send them again
    │  ├─ OutcomeUnknown     an ephemeral client's commit may have been folded
    │  ├─ WrongStore         the volume belongs to another store
    │  ├─ Unsupported        written by a newer or foreign program
    │  ├─ Locked             the volume is encrypted, and no key that was given opens it
    │  ├─ Unauthorized       the key or token is missing, or is none here (any more)
    │  └─ Forbidden          the key or token is good, and not for this
    └─ StoreError            retry, or look at the store; `.determinate` says whether it may have happened
       ├─ Unavailable        no answer, or a refusal that passes
       │  └─ Overloaded      too much waits already: nothing was taken in; wait, then send it again
       ├─ Full               no room on the disk
       ├─ Fenced             this writer was deposed: reopen the log
       └─ Corrupt            the bytes read are not the bytes written; `.key` names the object

Sources: S3.33 (usage and location errors, determinate and indeterminate), S4.4 (contention is explicit).
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = [
    "AlreadyExists",
    "BadInput",
    "BudwoodError",
    "Busy",
    "Conflict",
    "Corrupt",
    "Diverged",
    "Fenced",
    "Forbidden",
    "Forgotten",
    "Full",
    "Locked",
    "NotFound",
    "NotOwner",
    "OutcomeUnknown",
    "Overloaded",
    "PagesNotHere",
    "ReadOnly",
    "StoreError",
    "Unauthorized",
    "Unavailable",
    "Unsupported",
    "UsageError",
    "WrongStore",
]


class BudwoodError(Exception):
    """Root of the tree. `str(error)` is one line that says what is wrong and what to do."""

    def __reduce__(self) -> tuple[Callable[..., BudwoodError], tuple[object, ...]]:
        # From one process to another, as multiprocessing sends it. The classes' own signatures differ.
        return restored, (type(self), self.args, vars(self))


def restored(kind: type[BudwoodError], args: tuple[object, ...], fields: dict[str, object]) -> BudwoodError:
    """An error as it was, not through its class's __init__."""
    error = kind.__new__(kind)
    error.args = args
    vars(error).update(fields)
    return error


class UsageError(BudwoodError):
    """The call was wrong, or came too late; nothing was changed."""


class BadInput(UsageError):
    """A value is not acceptable."""


class NotFound(UsageError):
    """No such name, volume or LSN."""


class AlreadyExists(UsageError):
    """The name, volume or file is taken."""


class Conflict(UsageError):
    """Someone committed first. `.head` is the LSN that stands (0 when unknown)."""

    def __init__(self, message: str, *, head: int = 0) -> None:
        super().__init__(message)
        self.head = head


class Diverged(UsageError):
    """Unpushed commits stand against newer remote ones; nothing is lost until one is chosen."""


class Busy(UsageError):
    """Someone else holds the lock; it passes."""


class ReadOnly(UsageError):
    """This view cannot be written."""


class Forgotten(UsageError):
    """The LSN lies below `since`. `.oldest` is the first of those that can all be read (0 when unknown)."""

    def __init__(self, message: str, *, oldest: int = 0) -> None:
        super().__init__(message)
        self.oldest = oldest


class NotOwner(UsageError):
    """Another node owns the log. `.owner` is its address ("" when unknown), `.log` the log's name."""

    def __init__(self, message: str, *, owner: str = "", log: str = "") -> None:
        super().__init__(message)
        self.owner = owner
        self.log = log


class PagesNotHere(UsageError):
    """The pages were written under an epoch that no longer owns the log: send them again."""


class OutcomeUnknown(UsageError):
    """Whether an ephemeral client's commit landed can't be told any more: it may have been folded."""


class WrongStore(UsageError):
    """The volume belongs to another store than the one that answered."""


class Unsupported(UsageError):
    """Written by a newer or a foreign program; nothing was read or changed."""


class Unauthorized(UsageError):
    """The key or token is missing or refused.

    `.reason`: the same for programs: missing, wrong, malformed, unknown, revoked, expired, early, lifetime, signature,
    store, grants; "" where a store refused us.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class Locked(UsageError):
    """The volume is encrypted, and no key that was given opens it."""


class Forbidden(UsageError):
    """Whoever calls may not do this; nothing was changed."""


class StoreError(BudwoodError):
    """Something beyond the caller failed.

    `.determinate` is true when it certainly did not happen, false when it may have.
    """

    def __init__(self, message: str, *, determinate: bool = True) -> None:
        super().__init__(message)
        self.determinate = determinate


class Unavailable(StoreError):
    """No answer in time, or a refusal that passes.

    `.hopeless`: nothing is gained by trying again at once: it has never answered, and nothing leads there.
    """

    def __init__(self, message: str, *, determinate: bool = True, hopeless: bool = False) -> None:
        super().__init__(message, determinate=determinate)
        self.hopeless = hopeless


class Overloaded(Unavailable):
    """Too much waits already, so that this wasn't taken in: it did not happen, and may be sent again, whatever it
    changes. The text says what is full.

    `.reason`: the same for programs: memory, queue, calls_per_second, calls_at_once.
    """

    def __init__(self, message: str, *, determinate: bool = True, hopeless: bool = False, reason: str = "") -> None:
        super().__init__(message, determinate=determinate, hopeless=hopeless)
        self.reason = reason


class Full(StoreError):
    """No room on the disk."""


class Fenced(StoreError):
    """A newer epoch stands in the log: this writer is deposed and must reopen."""


class Corrupt(StoreError):
    """The bytes read are not the bytes written. `.key` names the object."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"{key} is damaged: {what}")
        self.key = key
        self.what = what

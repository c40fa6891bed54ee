"""Free room: what LMDB's file has free goes back to the disk (docs/design/0106-room.md).

LMDB never shrinks its file: pages that are free wait in it to be used again. They are given back where they lie, as
holes of the file, while anybody reads and writes the home: LMDB writes a page that it takes anew whole, without having
read it. Nothing is copied, so no room is needed for it, and a crash leaves fewer holes, nothing else.

    held        by LMDB's write lock, a while at a time: nobody takes a page meanwhile
    durable     LMDB's newest transaction is made so before: none that a power loss could bring back has these pages
    unread      pages that a transaction set free after the oldest reader began stay, as LMDB itself leaves them
    spared      a few pages stay: with a full disk, what makes room writes first

Whoever has changed much gives back at once, everybody else by the way (room_watch.py), and the last one to close the
home.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ..volume import faults
from ..volume.errors import StoreError
from .lmdb_errors import os_error, translated
from .lmdb_tree_check import PAGE_BYTES, free_lists

if TYPE_CHECKING:
    from .environment import Environment

MOST: Final = 1.15
"""What the file may take of the disk, by what is in use of it, before it is seen to."""
MOST_LONG: Final = 1.25
"""The same of its length, for whoever closes the home."""
_MUCH: Final = 1.3
SPARED_PAGES: Final = 256
SLACK_BYTES: Final = 4 * SPARED_PAGES * PAGE_BYTES
"""More than that has to be free."""
_SECONDS: Final = 0.1
"""For whoever has something else to do. A call takes microseconds, or, where each is told to the disk, milliseconds."""
_TURN_SECONDS: Final = 0.5
"""Before others may write."""
_NO_HOLES: Final = -1
_KEEP_SIZE_AND_PUNCH: Final = 3
_UNABLE: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODEV, errno.EINVAL)

GIVEN_BACK = faults.point("room: some of it given back")

_libc: Final = ctypes.CDLL(None, use_errno=True)
_name: Final = "fallocate64" if hasattr(_libc, "fallocate64") else "fallocate"
_fallocate: Callable[[int, int, int, int], int] = getattr(_libc, _name)
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)  # type: ignore[attr-defined]


class Room(NamedTuple):
    """What a home's file takes, in bytes."""

    length: int
    """As listings show it, holes included."""
    on_disk: int
    used: int
    """By pages that hold something."""

    def is_due(self, spare_bytes: int = 0) -> bool:
        return self.on_disk - self.used - spare_bytes > max(SLACK_BYTES, (MOST - 1) * self.used)

    @property
    def is_long(self) -> bool:
        """By its length, whatever holes it has."""
        return self.length - self.used > max(SLACK_BYTES, (MOST_LONG - 1) * self.used)


def room(environment: Environment) -> Room:
    status = os.stat(environment.data_path)
    with environment.view() as txn:
        stats = [environment.handle.stat(), *(txn.stat(table) for table in environment.tables)]
    pages = 2 + sum(each["branch_pages"] + each["leaf_pages"] + each["overflow_pages"] for each in stats)
    return Room(status.st_size, status.st_blocks * 512, pages * PAGE_BYTES)


def is_in_use_by_others(environment: Environment) -> bool:
    """Another process reads or writes the home, or has: it is among LMDB's readers."""
    environment.handle.reader_check()
    own = str(os.getpid())
    pids = {line.split()[0] for line in environment.handle.readers().splitlines() if line.split()[:1]}
    return any(pid.isdecimal() and pid != own for pid in pids)


def give_back_if_due(environment: Environment, spare_bytes: int = 0) -> bool:
    """For whoever has something else to do, and is about to use so much of it again. Whether it is still due: somebody
    reads what was freed, it can't be done here, or takes too long; whoever needs the room is told when it lacks.
    """
    try:
        found = room(environment)
        if not found.is_due(spare_bytes):
            return False
        give_back(environment, _SECONDS if found.on_disk < _MUCH * found.used else 5 * _SECONDS)
        return room(environment).is_due(spare_bytes)
    except (OSError, StoreError):
        return True


def give_back(environment: Environment, seconds: float | None = None) -> bool:
    """Everything that nobody may read any more; within these seconds the longest parts of it. False where the file
    system has no holes. Raises Unavailable, Corrupt, Full.
    """
    if environment.read_only:
        return False
    until = None if seconds is None else time.monotonic() + seconds
    above: int | None = 0
    while above is not None:
        above = _turn(environment, above, until)
        if above == _NO_HOLES:
            return False
    return True


def _turn(environment: Environment, above: int, until: float | None) -> int | None:
    """The parts that begin above this page, as far as one turn goes; up to where, or None when that was all."""
    environment.handle.reader_check()
    txn = environment.lock()
    try:
        with environment.file.own_change(), translated(environment.data_path):
            environment.flush_store()
            meta, lists = free_lists(environment.data_path)
            # LMDB's own rule, but for the newest one: that is durable now.
            oldest = min([meta.transaction, *_readers(environment.handle.readers())])
            free = [page for number, pages in lists if number <= oldest for page in pages]
            parts = [part for part in runs(sorted(free)[SPARED_PAGES:]) if part[0] > above]
            if until is None:
                return _punch(environment, parts, time.monotonic() + _TURN_SECONDS)
            parts.sort(key=lambda part: -part[1])
            stopped = _punch(environment, parts, until)
            return _NO_HOLES if stopped == _NO_HOLES else None
    except OSError as error:
        raise os_error(error, f"the local store {environment.data_path} can't be given room back of") from error
    finally:
        txn.abort()


def _punch(environment: Environment, parts: list[tuple[int, int]], until: float) -> int | None:
    """The first page of the part that was last within the time, None after all of them."""
    fd = os.open(environment.data_path, os.O_RDWR | os.O_CLOEXEC)
    try:
        for first, count in parts:
            if _fallocate(fd, _KEEP_SIZE_AND_PUNCH, first * PAGE_BYTES, count * PAGE_BYTES):
                code = ctypes.get_errno()
                if code in _UNABLE:
                    return _NO_HOLES
                raise OSError(code, os.strerror(code))
            GIVEN_BACK()
            if time.monotonic() > until:
                return first
    finally:
        os.close(fd)
    return None


def runs(pages: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers as (first, how many)."""
    first = last = -2
    for page in pages:
        if page != last + 1:
            if first >= 0:
                yield first, last - first + 1
            first = page
        last = page
    if first >= 0:
        yield first, last - first + 1


def _readers(told: str) -> Iterator[int]:
    """The transactions that are being read, from what LMDB tells of its readers: a line each, pid, thread, number."""
    for line in told.splitlines():
        number = line.split()[-1:]
        if number and number[0].isdecimal():
            yield int(number[0])

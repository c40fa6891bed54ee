"""Journal: what SQLite keeps to take back its own changes, as a file that has no name.

SQLite writes into its rollback journal the pages as they were before a transaction touched them, and reads them
again for ROLLBACK, for savepoints and for a statement that fails midway. Nothing else needs it: a transaction that
a crash cut off was never committed to the volume, so no journal is ever hot and none is looked for. So it is never
synced, never found by anyone else, and gone when it is closed.

The last `SPILL_BYTES` lie in memory, what came before them in an unlinked temporary file, so that an UPDATE of a
whole database doesn't hold the database in memory. SQLite writes a journal from front to back, three small writes a
page; most transactions never spill.
"""

# The methods' names are SQLite's.
# ruff: noqa: N802

from __future__ import annotations

import os
import tempfile
from typing import IO, Final

from ..volume.errors import Full
from .codes import as_sqlite

SPILL_BYTES: Final = 8 * 1024 * 1024


class JournalFile:
    """Bytes below `_base` are in the temporary file, the others in `_tail`."""

    __slots__ = ("_base", "_file", "_tail")

    def __init__(self) -> None:
        self._base = 0
        self._tail = bytearray()
        self._file: IO[bytes] | None = None

    def xRead(self, amount: int, offset: int) -> bytes:
        start = offset - self._base
        if start >= 0:
            return bytes(self._tail[start : start + amount])
        assert self._file is not None
        below = os.pread(self._file.fileno(), min(amount, -start), offset)
        return below + self._tail[: amount - len(below)]

    def xWrite(self, data: bytes, offset: int) -> None:
        tail = self._tail
        start = offset - self._base
        if start == len(tail) < SPILL_BYTES:
            tail += data
            return
        if start < 0:
            self._spill(data[:-start], offset)
            data, start = data[-start:], 0
        if start > len(tail):
            tail.extend(bytes(start - len(tail)))
        tail[start : start + len(data)] = data
        if len(tail) > SPILL_BYTES:
            self._spill(tail, self._base)
            self._base += len(tail)
            self._tail = bytearray()

    def xTruncate(self, size: int) -> None:
        if size < self._base:
            assert self._file is not None
            self._file.truncate(size)
            self._base = size
        del self._tail[size - self._base :]

    def _spill(self, data: bytes | bytearray, offset: int) -> None:
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="budwood-journal-", buffering=0)  # noqa: SIM115
            written = 0
            while written < len(data):
                written += os.pwrite(self._file.fileno(), memoryview(data)[written:], offset + written)
        except OSError as error:
            # None where there is none.
            where = tempfile.tempdir or "the directory of temporary files"
            room = f"{where} can't hold what a ROLLBACK of this transaction needs: {error.strerror}"
            raise as_sqlite(Full(f"{room}; make room there or set TMPDIR")) from error

    def xFileSize(self) -> int:
        return self._base + len(self._tail)

    def xSync(self, flags: int) -> None:
        """There is no crash that it would have to survive."""

    def xLock(self, level: int) -> None:
        """Nobody else can open it."""

    def xUnlock(self, level: int) -> None:
        """See xLock."""

    def xCheckReservedLock(self) -> bool:
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:
        return False

    def xSectorSize(self) -> int:
        return 512

    def xDeviceCharacteristics(self) -> int:
        return 0

    def xClose(self) -> None:
        self._tail = bytearray()
        if self._file is not None:
            self._file.close()
            self._file = None

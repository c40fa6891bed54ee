"""Connection: apsw's, where an error comes out of `with db:` as the one that was raised.

apsw's own context manager, when its COMMIT or ROLLBACK fails, makes an error of SQLite's number and has what a callback
raised as that one's context: a damaged page is "disk I/O error" then, and nobody who catches `Corrupt` sees it. And
where SQLite has rolled back by itself, what it had done so for is lost behind "cannot rollback".
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

import apsw

from ..volume.errors import BudwoodError


class VolumeConnection(apsw.Connection):
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            return super().__exit__(kind, error, trace)
        except apsw.Error as failed:
            if error is not None and not self.in_transaction:
                return False
            if isinstance(failed, BudwoodError):
                raise
            ours = next((each for each in causes(failed) if isinstance(each, BudwoodError)), None)
            if ours is None:
                raise
            raise ours from (None if ours is error else error)


def causes(error: BaseException) -> Iterator[BaseException]:
    """What an error came of, nearest first; each once, as a chain may be a circle."""
    seen = {id(error)}
    before = error.__cause__ or error.__context__
    while before is not None and id(before) not in seen:
        seen.add(id(before))
        yield before
        before = before.__cause__ or before.__context__

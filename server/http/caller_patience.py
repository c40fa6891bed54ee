"""Caller patience: how long whoever calls will wait, told in the header `X-Server-Timeout`, in seconds.

It counts from when the body has been read, so that no two clocks are compared. When it is over, the work for that
caller is cancelled, and with it whatever is being repeated at the store: one deadline holds from end to end. What
others wait for as well goes on (S4.25). A body that waits for memory is waited for as long, from when its head came: so
the caller is told what is full while he still listens.
"""

from __future__ import annotations

import math
import re
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import anyio

from ...volume.calls import TIMEOUT_HEADER
from ...volume.errors import BadInput, Unavailable
from .asgi import Request

_HEADER: Final = TIMEOUT_HEADER.lower().encode()
_SECONDS: Final = re.compile(r"\d{1,9}(?:\.\d{1,9})?")


class CallerPatience:
    """Of one request. What is done for it is done in its `scope`."""

    def __init__(self, request: Request) -> None:
        """Raises BadInput on a header that says no number."""
        given = request.header(_HEADER) if request.has(_HEADER) else None
        if given is not None and _SECONDS.fullmatch(given) is None:
            raise BadInput(f"{TIMEOUT_HEADER} is a number of seconds, as 30 or 2.5, not {given[:50]!r}")
        self.seconds = math.inf if given is None else float(given)
        self._scope = None if given is None else anyio.CancelScope()

    def scope(self) -> AbstractContextManager[object]:
        """Where the work for the caller is done."""
        return self._scope or nullcontext()

    def begin(self) -> None:
        """The body has been read."""
        if self._scope is not None:
            self._scope.deadline = anyio.current_time() + self.seconds

    def end(self) -> None:
        """An answer has begun: it may take as long as it is read."""
        if self._scope is not None:
            self._scope.deadline = math.inf

    def over(self, *, changes: bool, store_fails: bool) -> Unavailable:
        why = ", since the node's store fails, of which its log says more" if store_fails else ""
        words = f"it took longer than the {self.seconds:g} s that the caller waits{why}: ask again"
        return Unavailable(words, determinate=not changes)

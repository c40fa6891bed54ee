"""Request ids: by which a caller's line and a node's lines about the same call are found together.

Whoever calls may give one in the header `X-Request-Id`; where it gives none that is well-formed, the node makes one.
Either way it stands in the answer, and in every line that is logged meanwhile.
"""

from __future__ import annotations

import os
import re
from contextvars import ContextVar
from itertools import count
from typing import Final

HEADER: Final = "X-Request-Id"
_WELL_FORMED: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)

current: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""Of the call that is being answered here; "" outside of any."""


def is_request_id(text: str) -> bool:
    return _WELL_FORMED.fullmatch(text) is not None


class RequestIds:
    """New ones: 8 random hex digits for all of one source, and a number."""

    def __init__(self) -> None:
        self._source = os.urandom(4).hex()
        self._numbers = count(1)

    def new(self) -> str:
        return f"{self._source}-{next(self._numbers):x}"

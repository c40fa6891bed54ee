"""Audit: a line for each call that an operator would ask about afterwards: who, what, of which volume or name, and what
came of it. Ordinary commits and reads are none.

It is written as the call ends, by the process that answered it; a call that was cut off has a line, too, since it may
have happened all the same.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Final

import msgspec

from ...volume.calls import (
    ADVANCE,
    CHANGE_NAME,
    DECOMMISSION,
    FORK,
    MOVE_LOG,
    REKEY,
    REMOVE,
    RETAIN,
    RETAIN_DEFAULT,
    SET_MODE,
    TAKE_LOG,
)
from ...volume.errors import BadInput, BudwoodError
from ...volume.ids import VolumeId
from .logs import AUDIT, FIELDS, Value

AUDITED: Final = {
    call.name
    for call in (
        *(ADVANCE, CHANGE_NAME, DECOMMISSION, FORK, MOVE_LOG),
        *(REKEY, REMOVE, RETAIN, RETAIN_DEFAULT, SET_MODE, TAKE_LOG),
    )
}
NOBODY: Final = "-"
"""Who calls where nobody is asked who they are."""
CUT_OFF: Final = "cut off"
DONE: Final = "done"
_MOST: Final = 1000
"""Characters of one value."""
_VOLUMES: Final = {"vid": "volume", "child": "child", "target": "volume"}
"""Fields of requests that hold a volume's id, and what a line calls them."""

_logger: Final = logging.getLogger(AUDIT)


class Audited:
    """One call, while it is answered."""

    __slots__ = ("_fields",)

    def __init__(self, call: str, message: msgspec.Struct, who: str, where: str) -> None:
        self._fields: dict[str, Value] = {"who": who or NOBODY, "from": where or NOBODY, "what": call}
        self._fields |= _told(message)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        outcome = DONE
        if error is not None:
            # A cancelled call may have been done.
            outcome = type(error).__name__ if isinstance(error, Exception) else CUT_OFF
            if isinstance(error, BudwoodError):
                self._fields["why"] = str(error)
        _logger.info("audit", extra={FIELDS: {**self._fields, "outcome": outcome}})


def _volume(raw: bytes) -> str:
    try:
        return str(VolumeId(raw))
    except BadInput:
        return raw.hex()[:_MOST]


def _told(message: msgspec.Struct) -> dict[str, Value]:
    """What a request says: ids as people write them, and whatever is text or a number. No attributes, no pages."""
    found: dict[str, Value] = {}
    for name in message.__struct_fields__:
        value: Any = getattr(message, name)
        if name in _VOLUMES:
            if value:
                found[_VOLUMES[name]] = _volume(value)
        elif isinstance(value, str):
            found[name] = value[:_MOST]
        elif isinstance(value, int | float):
            found[name] = value
        elif isinstance(value, msgspec.Struct):
            found[name] = msgspec.json.encode(value).decode()
    return found

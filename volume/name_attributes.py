"""Name attributes: what may be said of a name, and which of what stands can be passed on (limits.py)."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, cast

import msgspec

from .errors import BadInput
from .ids import VolumeId
from .wire import NameEntry

MOST_ATTRIBUTES_BYTES: Final = 16 * 1024
"""As MessagePack. A symbolic link's text, the longest that a file system brings, has 4 KiB."""
MOST_ATTRIBUTES_DEPTH: Final = 8
MOST_ATTRIBUTES: Final = 256
"""Values, at all depths together."""

READABLE_DEPTH: Final = 64
"""Far below what a decoder or encoder follows, at whatever depth it is itself called."""


def is_of_volume(entry: NameEntry) -> bool:
    """Or of a directory, a link or the like, which a mount has made and which leads to nothing."""
    mode = entry.attributes.get("mode", stat.S_IFREG)
    return not isinstance(mode, int) or stat.S_IFMT(mode) in (0, stat.S_IFREG)


def volume_of(entry: NameEntry, url: str) -> VolumeId:
    """What the name leads to. Raises BadInput where that is no volume."""
    if not is_of_volume(entry):
        raise BadInput(f"{entry.name!r} is a directory or a link at {url}, and no volume")
    return VolumeId(entry.target)


def check_attributes(attributes: dict[str, Any]) -> None:
    """Raises BadInput unless a name may have them."""
    count = 0
    for depth, level in enumerate(_levels(attributes)):
        count += len(level)
        if depth > MOST_ATTRIBUTES_DEPTH:
            raise BadInput(f"a name's attributes are nested at most {MOST_ATTRIBUTES_DEPTH} deep")
        if count > MOST_ATTRIBUTES:
            raise BadInput(f"a name's attributes are at most {MOST_ATTRIBUTES} values, at all depths together")
        for value in level:
            _check_plain(value)
    try:
        size = len(msgspec.msgpack.encode(attributes))
    except (TypeError, ValueError, OverflowError) as error:
        # What can't be encoded must be met here, since the writer encodes the records of many clients together.
        raise BadInput(f"a name's attributes have text for keys, and numbers of 64 bits at most: {error}") from error
    if size > MOST_ATTRIBUTES_BYTES:
        raise BadInput(f"a name's attributes have at most {MOST_ATTRIBUTES_BYTES} bytes, not {size}")


def is_readable(attributes: dict[str, Any]) -> bool:
    """Whether attributes that stand already can be passed on."""
    return next(islice(_levels(attributes), READABLE_DEPTH + 1, None), None) is None


def _levels(value: object) -> Iterator[list[object]]:
    """The value, then what it holds, then what that holds: what is looked for is what recursion can't follow."""
    level = [value]
    while level:
        yield level
        level = [inner for item in level for inner in _held(item)]


def _held(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[object, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def _check_plain(value: object) -> None:
    """Raises BadInput on what JSON, or another program, couldn't be told."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in cast("dict[object, object]", value)):
            raise BadInput("a name's attributes have text for keys, in maps within them too")
    elif not isinstance(value, str | bytes | int | float | list | None):
        raise BadInput(f"a name's attributes hold text, bytes, numbers, lists and maps, no {type(value).__name__}")

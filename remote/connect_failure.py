"""Connect failure: what the system said of a connection that couldn't be made, beneath what libraries made of it."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from typing import cast


def was_reset(error: Exception) -> bool:
    """Whether somebody listened, and ended before it stood. Nothing was sent over it."""
    return any(isinstance(cause, ConnectionResetError) for cause in _system_errors(error))


def words_of(error: Exception) -> str:
    """As "Connection refused", for each of the addresses that were tried; "" where the system said nothing."""
    return ", ".join(dict.fromkeys(map(_said, _system_errors(error))))


def _system_errors(error: BaseException | None) -> Iterator[OSError]:
    """TLS's errors have numbers of their own, and speak for themselves."""
    if isinstance(error, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _system_errors(each)
    elif isinstance(error, OSError) and error.errno:
        if not isinstance(error, ssl.SSLError):
            yield error
    elif error is not None:
        yield from _system_errors(error.__cause__ or error.__context__)


def _said(error: OSError) -> str:
    # A resolver's errors have numbers of their own, too, below 0.
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)

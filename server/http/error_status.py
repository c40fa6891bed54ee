"""Errors over HTTP: the one table from class to status, and the body that carries the error itself.

A client goes by the body's `code`; the status is for proxies, browsers and people. What is no error of ours is a bug:
it is logged whole here, and told in one line without its insides.
"""

from __future__ import annotations

import logging
from typing import Final

from ...volume import errors as tree
from ...volume.calls import ErrorBody
from ...volume.errors import BudwoodError, Unavailable
from ...volume.wire import to_wire

STATUS: Final[dict[type[BudwoodError], int]] = {
    tree.BadInput: 400,
    tree.Unauthorized: 401,
    tree.Locked: 409,
    tree.Forbidden: 403,
    tree.ReadOnly: 403,
    tree.NotFound: 404,
    tree.AlreadyExists: 409,
    tree.Conflict: 409,
    tree.Diverged: 409,
    tree.PagesNotHere: 409,
    tree.WrongStore: 409,
    tree.Forgotten: 410,
    tree.OutcomeUnknown: 410,
    tree.NotOwner: 421,
    tree.Busy: 423,
    tree.UsageError: 400,
    tree.Corrupt: 500,
    tree.Unsupported: 501,
    tree.Unavailable: 503,
    tree.Overloaded: 503,
    tree.Fenced: 503,
    tree.StoreError: 503,
    tree.Full: 507,
    tree.BudwoodError: 500,
}

_log: Final = logging.getLogger(__name__)


def status_of(error: BudwoodError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def body_of(error: BudwoodError) -> ErrorBody:
    code, message, details = to_wire(error)
    return ErrorBody(code=code, message=message, details=details)


def bug(error: Exception, what: str) -> Unavailable:
    """The error to answer with where something failed that should not have."""
    _log.error("%s failed", what, exc_info=error)
    return Unavailable(f"the node failed at {what}: its log says why ({type(error).__name__})", determinate=False)


def known(error: Exception, what: str) -> BudwoodError:
    """The error itself if it is ours."""
    return error if isinstance(error, BudwoodError) else bug(error, what)

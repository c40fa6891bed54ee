"""Errors go from one process to another whole: a worker of multiprocessing that fails tells its parent how."""

from __future__ import annotations

import pickle

import apsw
import pytest

from budwood.vfs.codes import as_sqlite
from budwood.volume.errors import BudwoodError, Busy, Conflict, Corrupt, NotOwner, Unavailable

ERRORS = [
    Busy("wait"),
    Conflict("late", head=7),
    Corrupt("objects/1", "one byte is wrong"),
    NotOwner("elsewhere", owner="http://127.0.0.1:1", log="main"),
    Unavailable("no answer", determinate=False),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_it_was_sent(error: BudwoodError) -> None:
    there = pickle.loads(pickle.dumps(error))
    assert type(there) is type(error)
    assert (str(there), vars(there)) == (str(error), vars(error))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_that_came_out_of_sql_arrives_as_both_kinds(error: BudwoodError) -> None:
    sent = as_sqlite(error, at_commit=True)
    there = pickle.loads(pickle.dumps(sent))
    assert isinstance(there, type(error))
    assert isinstance(there, apsw.Error)
    assert type(there) is type(sent)
    assert (str(there), vars(there)) == (str(sent), vars(sent))

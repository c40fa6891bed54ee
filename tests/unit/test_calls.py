"""Calls: the table holds every row, and a node that leaves one unanswered doesn't come to stand."""

from __future__ import annotations

from typing import Any

import pytest

from budwood.server.answers import Answers
from budwood.volume import calls
from budwood.volume.calls import CALLS, HELLO, Call, Done, Row
from budwood.volume.wire import StoreInfo


def test_the_table_holds_every_row_under_its_name() -> None:
    rows: dict[str, Row[Any, Any]] = {name: row for name, row in vars(calls).items() if isinstance(row, Row)}
    assert len(rows) > 20
    assert {name.lower(): row for name, row in rows.items()} == CALLS


async def hello(_: None, _request: Done) -> StoreInfo:
    return StoreInfo(store="a")


def test_what_answers_one_call_alone_is_refused_with_the_names_of_the_others() -> None:
    answers = Answers[None]()
    answers(HELLO)(hello)
    with pytest.raises(TypeError, match=r"nothing answers create, snapshot, .*: write the method") as caught:
        answers.complete()
    unanswered = str(caught.value).partition(":")[0].removeprefix("nothing answers ").split(", ")
    assert unanswered == [name for name, row in CALLS.items() if isinstance(row, Call) and row is not HELLO]

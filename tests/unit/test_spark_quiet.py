"""A command's session and the signals of its process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from budwood.spark_export.export import quiet_session


@pytest.fixture
def interrupts() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("before", [signal.default_int_handler, signal.SIG_IGN])
def test_an_interrupt_is_what_it_was_before_pyspark_took_it(before: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own exception at a terminal, and nothing at all in a script's background job."""

    def theirs(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError("pyspark's handler")

    def level(_level: str) -> None:
        pass

    def start(*_: object, **__: object) -> SimpleNamespace:
        signal.signal(signal.SIGINT, theirs)
        return SimpleNamespace(sparkContext=SimpleNamespace(setLogLevel=level))

    monkeypatch.setattr(quiet_session, "start", start)
    signal.signal(signal.SIGINT, before)
    quiet_session.start_quietly("test")
    assert signal.getsignal(signal.SIGINT) is before

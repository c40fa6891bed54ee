"""Lost answers: of an edge's remote, whose commits land while nobody hears of it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from budwood.remote.portal import BlockingRemote
from budwood.volume.calls import OUTCOME, A, Call, Q
from budwood.volume.errors import Unavailable
from budwood.volume.wire import CommitRequest, Committed


@contextmanager
def no_outcomes(remote: BlockingRemote) -> Generator[None]:
    """Whoever asks what became of a commit isn't answered."""
    ask = remote.ask

    def mute(call: Call[Q, A], request: Q) -> A:
        if call.name == OUTCOME.name:
            raise Unavailable("no answer")
        return ask(call, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "ask", mute)
        yield


@contextmanager
def unheard(remote: BlockingRemote) -> Generator[list[Committed]]:
    """And what it would have answered to commits, which land."""
    commit, landed = remote.commit, list[Committed]()

    def deaf(request: CommitRequest, segment: bytes = b"") -> Committed:
        landed.append(commit(request, segment))
        raise Unavailable("the answer is lost", determinate=False)

    with no_outcomes(remote), pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote, "commit", deaf)
        yield landed

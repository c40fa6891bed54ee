"""An error says whether it may have happened, and never takes back an answer (S3.33)."""

from __future__ import annotations

from pathlib import Path

import pytest

from budwood.server.log.submission import Submission
from budwood.sync.edge import open as open_edge
from budwood.volume.errors import Full, Unavailable
from budwood.volume.protocols import Durability


@pytest.mark.anyio
async def test_what_was_acknowledged_is_not_failed_afterwards() -> None:
    submission = Submission()
    submission.answer(7)
    submission.fail(Unavailable("the writer stopped", determinate=False))
    assert await submission.wait() == 7


def test_a_commit_that_could_not_be_flushed_may_have_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_edge(home=tmp_path, remote="") as edge:
        volume = edge.create("v")
        writer = volume.writer(page_size=4096)
        writer.write(1, b"x" * 4096)

        def full() -> None:
            raise Full("no room")

        with monkeypatch.context() as patched:
            patched.setattr(edge.environment, "flush_store", full)
            with pytest.raises(Full) as told:
                writer.commit(Durability.DURABLE)
        assert not told.value.determinate
        view = volume.snapshot()
        assert view.read(1) == b"x" * 4096
        view.close()

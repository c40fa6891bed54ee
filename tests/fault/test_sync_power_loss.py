"""Power losses of a home that syncs, a few of them: `python -m tests.power --sync STEPS` does as many as it is told."""

from __future__ import annotations

from pathlib import Path

from ..mounts import needs_fuse
from ..power.run import judge_states
from ..power.sync_run import record_sync

pytestmark = needs_fuse

SEED, STEPS = 5, 60


def test_a_home_goes_on_with_its_remote_from_whatever_a_power_loss_left(tmp_path: Path) -> None:
    sync, scratch = record_sync(tmp_path, STEPS, SEED), tmp_path / "scratch"
    scratch.mkdir()
    for states, cuts in ((20, None), (70, sync.cuts_of_pushes())):
        assert judge_states(sync.recorded, sync.judge, states, SEED, scratch, cuts) > states / 3

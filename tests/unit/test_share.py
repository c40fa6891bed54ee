"""Which worker of a node each log and volume is with: worked out alike by all of them, from names alone."""

from __future__ import annotations

from collections import Counter

import pytest

from budwood.server.metastore.share import Share, log_of_worker
from budwood.volume.errors import BadInput
from budwood.volume.ids import VolumeId


def shares(count: int) -> list[Share]:
    return [Share("main", number, count) for number in range(1, count + 1)]


def test_each_worker_has_a_log_of_its_own_and_the_first_the_nodes() -> None:
    assert [share.log for share in shares(3)] == ["main", "main-w2", "main-w3"]
    for share in shares(3):
        assert share.of_log(share.log) == share.number


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_every_log_and_volume_is_with_one_worker_and_all_agree_which(count: int) -> None:
    vid = VolumeId.new()
    for log in ("main", "main-w2", "main-w7", "main-w", "main-w1", "main-w02", "other", "other-w2", str(vid)):
        whose = {share.of_log(log) for share in shares(count)}
        assert len(whose) == 1
        assert whose <= set(range(1, count + 1))
    assert Share("main", 1, count).of_log(str(vid)) == Share("main", 1, count).of_volume(vid)


def test_new_volumes_spread_evenly() -> None:
    spread = Counter(Share("main", 1, 4).of_volume(VolumeId.new()) for _ in range(4000))
    assert set(spread) == {1, 2, 3, 4}
    assert min(spread.values()) > 800


def test_logs_of_workers_that_there_are_no_more_fall_to_those_that_there_are() -> None:
    logs = [log_of_worker("main", number) for number in range(1, 6)]
    behind = {share.number: [log for log in logs if share.is_left_behind(log)] for share in shares(2)}
    assert behind == {1: ["main-w3", "main-w5"], 2: ["main-w4"]}
    assert [log for log in logs if Share("main").is_left_behind(log)] == logs[1:]
    assert not any(share.is_left_behind(log) for share in shares(5) for log in logs)


@pytest.mark.parametrize("log", ["main-w1", "main-w0", "main-w02", "main-w", "main-wx", "other-w2", "xmain-w2"])
def test_what_is_only_called_alike_is_no_workers(log: str) -> None:
    assert Share("main").number_of(log) == 0
    assert not Share("main").is_left_behind(log)


def test_a_stand_by_leaves_workers_to_whoever_starts_them_again_and_the_rest_to_one_of_them() -> None:
    for log in ("main", "main-w2", "main-w3"):
        assert not any(share.watches(log) for share in shares(3))
    for log in ("other", "main-w4", "main-w9"):
        assert [share.watches(log) for share in shares(3)].count(True) == 1


def test_a_name_that_is_too_long_for_its_workers_is_refused() -> None:
    name = "a" * 20
    assert log_of_worker(name, 1) == name
    with pytest.raises(BadInput, match="can't name a node"):
        log_of_worker(name, 2)

"""One node in several processes (`serve --workers`): one of them is killed, and the others go on; nothing that was
acknowledged is lost; and whatever becomes of the process that started them, none is left behind.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from budwood.remote.moving import move_volume
from budwood.remote.portal import BlockingRemote
from budwood.server.metastore.share import Share
from budwood.testing.commits import commit_of
from budwood.volume.calls import (
    CREATE,
    HELLO,
    LIST_NAMES,
    PULL_COMMITS,
    SNAPSHOT,
    CreateRequest,
    Done,
    NamesRequest,
    RangeRequest,
    SnapshotRequest,
)
from budwood.volume.errors import Unavailable
from budwood.volume.ids import ClientId, VolumeId

from ..waits import wait_until
from .crash_harness import SERVE, Place, Serving, start
from .test_nodes_apart import straight_to

PAGE = 512
WORKERS = 3


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def serving(place: Place) -> Generator[Serving]:
    serving = Serving(place)
    yield serving
    serving.stop()


def children_of(pid: int) -> list[int]:
    """The workers, those that were started first in front."""
    return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def supervisor_of(serving: Serving) -> int:
    assert serving.child is not None
    return serving.child.pid


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def born(remote: BlockingRemote, worker: int = 0, workers: int = WORKERS) -> VolumeId:
    """With that worker, or with any."""
    share = Share("main", 1, workers)
    vid = VolumeId.new()
    while worker and share.of_volume(vid) != worker:
        vid = VolumeId.new()
    remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    return vid


def put(remote: BlockingRemote, vid: VolumeId, base: int) -> int:
    """Until it lands, each time the same commit."""
    request = commit_of(vid, base, {1: bytes([base % 256]) * PAGE}, client=ClientId.new(), page_size=PAGE)

    def tried() -> int:
        try:
            return remote.commit(*request).lsn
        except Unavailable:
            return 0

    return wait_until(tried)


def log_of(remote: BlockingRemote, vid: VolumeId) -> str:
    return remote.ask(SNAPSHOT, SnapshotRequest(vid.raw)).log


class Writer(threading.Thread):
    """Commits to one volume, one after the other, until it is told to stop."""

    def __init__(self, url: str, vid: VolumeId) -> None:
        # A test that fails doesn't wait for it.
        super().__init__(daemon=True)
        self.vid = vid
        self.acknowledged = 0
        self.failures: list[str] = []
        self._remote = straight_to(url)
        self._stopped = threading.Event()

    def run(self) -> None:
        client = ClientId.new()
        while not self._stopped.is_set():
            base = self.acknowledged
            request = commit_of(self.vid, base, {1: bytes([base % 256]) * PAGE}, client=client, page_size=PAGE)
            while self.acknowledged == base and not self._stopped.is_set():
                try:
                    self.acknowledged = self._remote.commit(*request).lsn
                except Unavailable as error:
                    self.failures.append(str(error))
        self._remote.close()

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def test_volumes_spread_and_each_client_sees_all_of_them_at_one_address(serving: Serving) -> None:
    serving.start("--workers", str(WORKERS))
    vids: list[VolumeId] = []
    with closing(straight_to(serving.url)) as remote:
        vids += [born(remote) for _ in range(24)]
        assert [put(remote, vid, 0) for vid in vids] == [1] * len(vids)
    expected = Counter(Share("main", Share("main", 1, WORKERS).of_volume(vid), WORKERS).log for vid in vids)
    for _ in range(WORKERS):
        # Each over connections of its own.
        with closing(straight_to(serving.url)) as remote:
            assert Counter(log_of(remote, vid) for vid in vids) == expected
            held = remote.ask(HELLO, Done())
            assert (held.node, held.log) == ("main", "main")
            assert [log.log for log in held.logs] == ["main", "main-w2", "main-w3"]
    assert set(expected) == {"main", "main-w2", "main-w3"}


def test_a_worker_that_is_killed_under_load_is_back_and_the_others_never_notice(serving: Serving) -> None:
    serving.start("--workers", str(WORKERS))
    with closing(straight_to(serving.url)) as remote:
        writers = [Writer(serving.url, born(remote, worker)) for worker in (1, 2, 3) for _ in range(2)]
        for writer in writers:
            writer.start()
        # By then each writes over a connection that leads to the worker of its volume.
        wait_until(lambda: all(writer.acknowledged > 60 for writer in writers))
        before = [len(writer.failures) for writer in writers]
        victim = children_of(supervisor_of(serving))[1]
        os.kill(victim, signal.SIGKILL)
        reached = [writer.acknowledged + 30 for writer in writers]
        wait_until(lambda: all(writer.acknowledged > goal for writer, goal in zip(writers, reached, strict=True)))
        for writer in writers:
            writer.stop()
        for writer, count in zip(writers, before, strict=True):
            if log_of(remote, writer.vid) != "main-w2":
                assert writer.failures[count:] == []
            commits = remote.ask(PULL_COMMITS, RangeRequest(writer.vid.raw)).commits
            assert [info.lsn for info in commits] == list(range(1, writer.acknowledged + 1))
        terms = {log.log: log.epoch for log in remote.ask(HELLO, Done()).logs}
    assert terms == {"main": 1, "main-w2": 2, "main-w3": 1}
    workers = children_of(supervisor_of(serving))
    assert len(workers) == WORKERS
    assert victim not in workers
    errors = serving.stop()
    assert errors.splitlines() == ["budwood: worker 2 was ended by SIGKILL, and is started again"]


def test_what_a_dead_workers_volumes_are_asked_meanwhile_is_answered(serving: Serving) -> None:
    """Before it is there again, and without an error."""
    serving.start("--workers", "2")
    with closing(straight_to(serving.url)) as remote:
        vid = born(remote, 2, workers=2)
        assert put(remote, vid, 0) == 1
    for base in range(1, 4):
        os.kill(children_of(supervisor_of(serving))[-1], signal.SIGKILL)
        with closing(straight_to(serving.url)) as remote:
            assert remote.ask(SNAPSHOT, SnapshotRequest(vid.raw)).lsn == base
            assert remote.ask(LIST_NAMES, NamesRequest()).entries == ()
            assert put(remote, vid, base) == base + 1


def test_a_volume_moves_between_workers(serving: Serving) -> None:
    serving.start("--workers", str(WORKERS))
    with closing(straight_to(serving.url)) as remote:
        vid = born(remote, 1)
        for base, to in enumerate(("main-w2", "main-w3", "private", "main-w2", "main")):
            assert put(remote, vid, base) == base + 1
            log = str(vid) if to == "private" else to
            assert remote.call(partial(move_volume, vid=vid, to=to)) == log
            with closing(straight_to(serving.url)) as other:
                assert log_of(other, vid) == log
        assert put(remote, vid, 5) == 6


def test_with_more_workers_and_with_fewer_all_volumes_can_be_written(serving: Serving) -> None:
    """Where there are fewer, those that there are own the others' logs, too."""
    heads: dict[VolumeId, int] = {}
    for workers in (1, 4, 2, 1, 3):
        serving.start("--workers", str(workers))
        with closing(straight_to(serving.url)) as remote:
            if workers == 1 and heads:
                # Before anybody writes to them.
                owned = {own.log for own in remote.ask(HELLO, Done()).logs}
                assert owned == {"main", "main-w2", "main-w3", "main-w4"}
            heads[born(remote, workers, workers=workers)] = 0
            for vid, head in heads.items():
                heads[vid] = put(remote, vid, head)
        assert serving.stop() == ""
    assert sorted(heads.values()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_ends_all_workers_cleanly(serving: Serving, how: signal.Signals) -> None:
    serving.start("--workers", str(WORKERS))
    child = serving.child
    assert child is not None
    workers = children_of(child.pid)
    assert len(workers) == WORKERS
    with closing(straight_to(serving.url)) as remote:
        vid = born(remote)
        writer = Writer(serving.url, vid)
        writer.start()
        wait_until(lambda: writer.acknowledged > 5)
        child.send_signal(how)
        output, errors = child.communicate()
        serving.child = None
        assert (child.returncode, output, errors) == (0, "", "")
        assert not any(map(is_there, workers))
        acknowledged = writer.acknowledged
        serving.start("--workers", str(WORKERS))
        wait_until(lambda: writer.acknowledged > acknowledged)
        writer.stop()
        commits = remote.ask(PULL_COMMITS, RangeRequest(vid.raw)).commits
        assert [info.lsn for info in commits] == list(range(1, writer.acknowledged + 1))


def test_killed_it_leaves_nothing_behind_and_can_be_started_again(serving: Serving) -> None:
    serving.start("--workers", str(WORKERS))
    with closing(straight_to(serving.url)) as remote:
        vids = [born(remote, worker) for worker in (1, 2, 3)]
        assert [put(remote, vid, 0) for vid in vids] == [1, 1, 1]
    child = serving.child
    assert child is not None
    workers = children_of(child.pid)
    child.kill()
    child.wait()
    try:
        wait_until(lambda: not any(map(is_there, workers)))
    finally:
        # Who outlives it holds its output.
        for worker in filter(is_there, workers):
            os.kill(worker, signal.SIGKILL)
        child.communicate()
        serving.child = None
    serving.start("--workers", str(WORKERS))
    with closing(straight_to(serving.url)) as remote:
        assert [put(remote, vid, 1) for vid in vids] == [2, 2, 2]


def test_a_worker_that_dies_again_and_again_is_started_after_a_pause_and_nobody_is_sent_to_it(serving: Serving) -> None:
    serving.start("--workers", "2")
    pid = supervisor_of(serving)
    with closing(straight_to(serving.url)) as remote:
        vid = born(remote, 1, workers=2)
        first = children_of(pid)[0]
        for _ in range(2):
            last = wait_until(lambda: [each for each in children_of(pid) if each != first])[0]
            os.kill(last, signal.SIGKILL)
            wait_until(lambda: last not in children_of(pid))  # noqa: B023 - at once
        # It is away for half a second now.
        assert put(remote, vid, 0) == 1
        for _ in range(16):
            with closing(straight_to(serving.url)) as other:
                assert other.ask(SNAPSHOT, SnapshotRequest(vid.raw)).lsn == 1
        wait_until(lambda: len(children_of(pid)) == 2)
        wait_until(lambda: len(remote.ask(HELLO, Done()).logs) == 2)
    assert serving.stop().splitlines() == [
        "budwood: worker 2 was ended by SIGKILL, and is started again",
        "budwood: worker 2 was ended by SIGKILL, and is started again in 0.5 s",
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--store", "file:///nowhere/at/all"), "there is no store at /nowhere/at/all"),
        (("--store", "memory:"), "each worker would have a memory: of its own"),
        (("--store", "ftp://x"), "'ftp://x' names no store"),
        (("--node", "a-name-of-20-letters"), "can't name a node"),
    ],
)
def test_what_can_not_be_served_is_said_once(place: Place, options: tuple[str, str], words: str) -> None:
    child = start(SERVE, "serve", "--store", place.store, "--listen", "127.0.0.1:0", "--workers", "4", *options)
    output, errors = child.communicate()
    assert output == ""
    assert words in errors
    assert len(errors.splitlines()) == 1
    assert child.returncode in {1, 2}


def test_one_worker_is_the_process_itself(serving: Serving) -> None:
    serving.start("--workers", "1")
    assert children_of(supervisor_of(serving)) == []

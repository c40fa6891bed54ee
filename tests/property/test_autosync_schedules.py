"""Autosync, step by step: whatever its thread, its workers and two homes do in which order, all is pushed and pulled in
the end (S2.30).

The real engine, over a real store, without its thread and its pool: a schedule looks, begins what is due and runs what
was begun, one after the other, as a seed draws them. Before and after each push and pull, and while a divergence is
settled, other things happen in their midst, as they would in other threads: programs commit, the other home pushes, the
engine looks, volumes are removed, come back, are opened and change their modes, connections are given up. Answers get
lost. Time is a number that is drawn, too. AUTOSYNC_SEEDS=500 tries as many schedules of each way out.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

import budwood
from budwood.sync import autosync
from budwood.sync.autosync import Autosync
from budwood.sync.divergence import Home, OnDiverged, fork, tell
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.merge import merging
from budwood.sync.poll_slots import PollSlots
from budwood.sync.volume import Volume
from budwood.volume.calls import SNAPSHOT, Head, SnapshotRequest, WaitRequest
from budwood.volume.errors import Busy, Diverged, NotFound, Unavailable

SEEDS: Final = int(os.environ.get("AUTOSYNC_SEEDS", "8"))
STEPS: Final = 40
ROUNDS: Final = 60
ROWS: Final = 6
NAMES: Final = ("v", "w")
POLICIES: Final[dict[str, OnDiverged]] = {
    "tell": tell,
    "fork": fork,
    "merge": merging,
    "replay": budwood.replaying("ours"),
}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Poll:
    """See remote.loop.Begun."""

    def __init__(self, request: WaitRequest, began: float, done: Callable[[], None]) -> None:
        self.request = request
        self.began = began
        self.done = done
        self.answer: Head | Unavailable | None = None

    def result(self) -> Head:
        assert self.answer is not None, "it has no answer yet"
        if isinstance(self.answer, Unavailable):
            raise self.answer
        return self.answer

    def abandon(self) -> None:
        self.answer = Unavailable("nobody waits for it")


class Polled:
    """A connection whose long polls are answered when the schedule says so."""

    def __init__(self, schedule: Schedule) -> None:
        self.remote = self
        self._schedule = schedule

    def begin(self, work: Callable[[Any], object], done: Callable[[], None]) -> Poll:
        asked: list[WaitRequest] = []

        class Asked:
            def ask(self, _call: object, request: WaitRequest) -> None:
                asked.append(request)

        work(Asked())
        poll = Poll(asked[0], self._schedule.clock.now, done)
        self._schedule.polls.append(poll)
        return poll


class PolledHome:
    """See divergence.Home."""

    def __init__(self, edge: Edge, schedule: Schedule) -> None:
        self.edge = edge
        self.environment, self.home, self.remote = edge.environment, edge.home, edge.remote
        self._polled = Polled(schedule)

    def volume_of(self, vid: bytes) -> Volume | None:
        return self.edge.volume_of(vid)

    def connection(self, recorded: str = "") -> Any:
        return self._polled


class Volumes(set[bytes]):
    """In the order in which they were made: a seed decides everything."""

    def __iter__(self) -> Iterator[bytes]:
        return iter(sorted(super().__iter__()))


class ByHand(Autosync):
    """Its thread does nothing."""

    def _run(self) -> None:
        pass

    def begin(self, chance: Callable[[], float]) -> None:
        self._chance, self._awake = chance, Volumes()


class Jobs:
    """The pool of its workers: what was begun waits to be run."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, work: Callable[..., None], *arguments: object) -> None:
        self.waiting.append(lambda: work(*arguments))


class Schedule:
    def __init__(self, folder: Path, seed: str, policy: str) -> None:
        self.dice = random.Random(seed)
        self.clock = Clock()
        self.polls: list[Poll] = []
        self.jobs: Any = Jobs()
        self.depth = 0
        self.calm = False
        """Nothing happens in the midst of anything, and no answer is lost, any more."""
        self.said: list[str] = []
        self.store = (folder / "store").as_uri()
        self.ann = open_edge(home=folder / "ann", remote=self.store)
        self.bob = open_edge(home=folder / "bob", remote=self.store)
        for name in NAMES:
            with budwood.connect(name, home=self.ann.home, remote=self.store) as db:
                db.execute("CREATE TABLE t(a INTEGER PRIMARY KEY, b, c TEXT)")
                db.executemany("INSERT INTO t VALUES (?, 0, ?)", [(row, "x" * 3000) for row in range(ROWS)])
            db.close()
            self.ann.volume(name).push()
            self.bob.volume(name)
        self.policy = policy
        home: Any = PolledHome(self.ann, self)
        self.slots = PollSlots(self.dice.choice([1, 8]), 1.0, self.dice.choice([None, 60.0]))
        self.engine = ByHand(home, on_diverged=self.settle, say=self.said.append, slots=self.slots)
        self.engine.begin(self.dice.random)

    def close(self) -> None:
        self.engine.close()
        self.ann.close()
        self.bob.close()

    # What happens

    def step(self) -> None:
        self.dice.choice([*self.others(), *[self.run] * 4])()

    def others(self) -> list[Callable[[], None]]:
        return [
            self.commit,
            self.commit,
            self.push_elsewhere,
            self.look,
            self.look,
            self.go_on,
            self.go_on,
            self.answer,
            self.wait,
            self.remove,
            self.open,
            self.set_mode,
            self.abandon,
        ]

    def commit(self) -> None:
        self.write(self.ann, self.dice.choice(NAMES), [0, 1, 2, 3])

    def push_elsewhere(self) -> None:
        """The other home writes to the newest, and pushes."""
        volume = self.bob.volume(self.dice.choice(NAMES))
        try:
            volume.pull()
        except Diverged:
            volume.reset(discard=True)
        self.write(self.bob, volume.name, [2, 3, 4, 5])
        if self.dice.random() < 0.8:
            volume.push()

    def write(self, edge: Edge, name: str, rows: list[int]) -> None:
        db = budwood.connect(name, home=edge.home, remote=self.store)
        with db:
            db.execute("UPDATE t SET b = ? WHERE a = ?", (self.dice.randrange(1 << 30), self.dice.choice(rows)))
        db.close()

    def look(self) -> None:
        self.engine._next_look = 0.0  # pyright: ignore[reportPrivateUsage]
        self.engine._look()  # pyright: ignore[reportPrivateUsage]

    def go_on(self) -> None:
        self.engine._go_on(self.jobs)  # pyright: ignore[reportPrivateUsage]

    def run(self) -> None:
        if self.jobs.waiting:
            self.jobs.waiting.pop(self.dice.randrange(len(self.jobs.waiting)))()

    def answer(self) -> None:
        open_ones = [poll for poll in self.polls if poll.answer is None]
        if not open_ones:
            return
        poll = self.dice.choice(open_ones)
        if not self.calm and self.dice.random() < 0.2:
            poll.answer = Unavailable("the answer got lost")
        else:
            head = self.newest(poll.request.vid)
            if head == poll.request.after and self.clock.now < poll.began + poll.request.timeout_seconds:
                return
            poll.answer = Head(lsn=head)
        poll.done()

    def wait(self) -> None:
        self.clock.now += self.dice.choice([0.05, 0.5, 1.5, 10.0, 60.0])

    def remove(self) -> None:
        if self.dice.random() < 0.3:
            with suppress(Busy, NotFound):
                self.ann.rm(self.dice.choice(NAMES), discard=True)

    def open(self) -> None:
        """In a mount, or no more."""
        with suppress(NotFound):
            vid = self.ann.volume_here(self.dice.choice(NAMES)).id.raw
            if self.dice.random() < 0.5:
                self.slots.open(vid, self.clock.now)
                self.engine.stir(vid)
            else:
                self.slots.close(vid)

    def set_mode(self) -> None:
        with suppress(NotFound):
            self.ann.volume_here(self.dice.choice(NAMES)).set_mode(self.dice.choice(["both", "push", "disabled"]))

    def abandon(self) -> None:
        """As after the machine has slept."""
        self.engine._abandon()  # pyright: ignore[reportPrivateUsage]
        self.engine.wake()

    # In the midst of things

    def meanwhile(self) -> None:
        """What other threads, processes and homes do."""
        if self.calm or self.depth > 2:
            return
        self.depth += 1
        for _ in range(self.dice.choice([0, 0, 1, 1, 2, 4])):
            self.dice.choice([*self.others(), self.run])()
        self.depth -= 1

    def around(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(volume: Volume, *arguments: Any, **options: Any) -> Any:
            if volume.local.environment is not self.ann.environment:
                return work(volume, *arguments, **options)
            self.meanwhile()
            if self.lost():
                raise Unavailable("it never came there")
            result = work(volume, *arguments, **options)
            self.meanwhile()
            if self.lost():
                raise Unavailable("the answer got lost")
            return result

        return run

    def settle(self, edge: Home, volume: Volume) -> str:
        assert isinstance(edge, PolledHome)
        self.meanwhile()
        line = POLICIES[self.policy](edge.edge, volume)
        if self.dice.random() < 0.5:
            # Before this worker has ended, what it has committed is seen.
            self.look()
        self.meanwhile()
        return line

    def lost(self) -> bool:
        return not self.calm and self.dice.random() < 0.1

    # The end

    def newest(self, vid: bytes) -> int:
        remote = self.bob.connection(self.store).remote
        return remote.ask(SNAPSHOT, SnapshotRequest(vid)).lsn

    def come_to_rest(self) -> None:
        """Whatever there is to do is done, once the network is whole and nobody does anything any more."""
        self.calm = True
        for volume in self.ann.volumes():
            volume.set_mode("both")
            self.slots.open(volume.id.raw, self.clock.now)
            self.engine.stir(volume.id.raw)
        for _ in range(ROUNDS):
            self.clock.now += 40.0
            self.look()
            self.go_on()
            while self.jobs.waiting:
                self.run()
            for _ in range(len(self.polls)):
                self.answer()
            self.polls = [poll for poll in self.polls if poll.answer is None]

    def check(self) -> None:
        for volume in self.ann.volumes():
            status = volume.status(count=False)
            if self.policy in ("tell", "merge") and status["diverged"]:
                assert self.engine.error_of(volume.id.raw), "nobody was told"
                continue
            assert (status["unpushed"], status["pending"]) == (0, False), (status, self.said)
            assert status["remote_lsn"] == self.newest(volume.id.raw), (status, self.said)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_all_is_pushed_and_pulled_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, policy: str
) -> None:
    schedule = Schedule(tmp_path, f"{policy} {seed}", policy)
    try:
        monkeypatch.setattr(autosync, "time", schedule.clock)
        monkeypatch.setattr(Volume, "push", schedule.around(Volume.push))
        monkeypatch.setattr(Volume, "pull", schedule.around(Volume.pull))
        for _ in range(STEPS):
            schedule.step()
        schedule.come_to_rest()
        schedule.check()
    finally:
        schedule.close()

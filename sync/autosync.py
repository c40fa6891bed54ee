"""Autosync: the volumes of a home are pushed and pulled by themselves, each as its sync mode says.

    with edge.autosync():
        …                               # what is committed here is pushed, what others push is pulled

Of all processes of a home one does it (autosync_election.py); the others wait for its end, and one takes over. The
leader looks at what the home's processes commit, by a number that moves with every change, and pushes it a moment later
(autosync_pace.py). What others push it hears of by a long poll for each volume, which holds no thread.

**Trouble** of one volume is that volume's alone: it is put off, with longer and longer pauses. A remote that is away is
asked more rarely; once any volume has an answer, or this machine has slept or changed its network, all that waited for
that are tried at once.

**Diverged** volumes are given to `on_diverged`, once for each state that they stand in, under no lock: `tell` leaves
them as they are, `fork` keeps what is unpushed as a volume of its own. Anything else that takes a home and a volume,
and answers with a line to tell, may stand there.

Mode `disabled` is neither looked at nor asked about. A crash of the leader at any moment leaves what a crash in push or
pull leaves, which the next one settles: autosync keeps no state of its own.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from ..volume.calls import WAIT, WaitRequest
from ..volume.calls import Head as RemoteHead
from ..volume.errors import AlreadyExists, BadInput, BudwoodError, Busy, Diverged, NotFound, Unavailable
from .afterfork import forgets
from .autosync_election import Leadership, mount_wants, stand
from .autosync_pace import Pace
from .conflict_names import conflict_names
from .home_figures import SyncCounts
from .tables import DIVERGED

if TYPE_CHECKING:
    from ..remote.loop import Begun
    from .connection import Connection
    from .environment import Environment
    from .volume import Volume


class Home(Protocol):
    """What autosync needs of an edge."""

    environment: Environment
    home: Path
    remote: str

    def volumes(self) -> list[Volume]: ...

    def connection(self, recorded: str = "") -> Connection: ...


OnDiverged = Callable[[Home, "Volume"], str]
"""What to do about a volume that has diverged; the line to tell."""
Say = Callable[[str], None]

LOOK_SECONDS: Final = 0.12
"""Between two looks at what was committed here."""
STAND_SECONDS: Final = 0.5
"""Between two tries to lead."""
WAIT_SECONDS: Final = 25.0
"""Of one long poll."""
TRIAL_SECONDS: Final = 1.0
"""Of one after an error: it tells soon that all is well again."""
_SHARE: Final = 20
"""The time between two looks is so many times what a look takes."""
_WORKERS: Final = 4
_SLEPT_SECONDS: Final = 5.0
_NETWORK_SECONDS: Final = 2.0
_ROUTES: Final = (Path("/proc/net/route"), Path("/proc/net/ipv6_route"))


def tell(_edge: Home, volume: Volume) -> str:
    """Leave it as it is."""
    name = volume.name
    return (
        f"volume {name!r} has diverged and stays as it is: `budwood replay {name}` applies what was changed here to "
        f"the remote's newest, `budwood reset {name} --keep-as NEW` keeps it beside"
    )


def fork(edge: Home, volume: Volume) -> str:
    """Keep what is unpushed as a volume of its own, and take the remote's. Raises what `reset` raises."""
    for name in conflict_names(edge.environment, volume.name):
        try:
            volume.reset(keep_as=name)
        except AlreadyExists:
            continue
        return f"volume {volume.name!r} has diverged: what was unpushed is {name!r} now"
    raise AssertionError("there is always another name")


@dataclass(slots=True)
class _Task:
    """What is known of one volume."""

    volume: Volume
    pace: Pace
    label: str = ""
    """The head when it was looked at last."""
    told: str = ""
    """The head at which its divergence was dealt with."""
    running: bool = False
    poll: _Poll | None = None


@dataclass(slots=True)
class _Poll:
    """A long poll under way."""

    after: int
    seconds: float
    began: float
    done: threading.Event = field(default_factory=threading.Event)
    begun: Begun[RemoteHead] | None = None


class Autosync(AbstractContextManager["Autosync"]):
    """One process's part in it, from its making until `close`. The edge stays open longer than it."""

    def __init__(self, edge: Home, *, on_diverged: OnDiverged = tell, say: Say = lambda _line: None) -> None:
        self._edge = edge
        self._on_diverged = on_diverged
        self._say = say
        self._stop = threading.Event()
        self._stirred = threading.Event()
        self._tasks: dict[bytes, _Task] = {}
        self._change = -1
        self._next_look = 0.0
        self._chance = random.SystemRandom().random
        self._mistake: BaseException | None = None
        self._leadership: Leadership | None = None
        self.counts = SyncCounts()
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name="budwood-autosync", daemon=True)
        forgets(self)
        self._thread.start()

    def forget(self) -> None:
        """In a child after fork: the parent goes on, and the child does nothing of it."""
        self._thread = self._leadership = None

    def close(self) -> None:
        """End it; what is under way is waited for. Another process of the home takes over, if there is one."""
        self._stop.set()
        self._stirred.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join()
        if self._mistake is not None:
            raise self._mistake

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def trouble(self) -> int:
        """How many volumes don't sync now."""
        return sum(bool(task.pace.error) for task in list(self._tasks.values()))

    def errors(self) -> dict[str, str]:
        """Of the volumes that don't sync now: why."""
        return {task.volume.name: task.pace.error for task in list(self._tasks.values()) if task.pace.error}

    @property
    def is_leader(self) -> bool:
        return self._leadership is not None

    @property
    def is_running(self) -> bool:
        """Whether it leads or waits to; False once it was closed, or came upon a mistake of its own, which `close`
        raises."""
        return not self._stop.is_set()

    def _run(self) -> None:
        try:
            self._stand()
        except BaseException as error:
            self._break(error)

    def _break(self, error: BaseException) -> None:
        self._mistake = self._mistake or error
        self._stop.set()
        self._stirred.set()

    def _stand(self) -> None:
        said = ""
        while not self._stop.is_set():
            try:
                leadership = stand(self._edge.home)
            except BudwoodError as error:
                if not isinstance(error, Busy) and str(error) != said:
                    said = str(error)
                    self._say(f"this home can't be synced now: {error}")
                self._stop.wait(STAND_SECONDS)
                continue
            with leadership:
                self._lead(leadership)

    def _lead(self, leadership: Leadership) -> None:
        self._leadership, self._tasks, self._change = leadership, {}, -1
        clock = _Wakings()
        try:
            with ExitStack() as stack:
                stack.callback(self._abandon)
                workers = stack.enter_context(ThreadPoolExecutor(_WORKERS, thread_name_prefix="budwood-autosync"))
                stack.callback(self._abandon)
                while not self._stop.is_set() and not mount_wants(self._edge.home):
                    if clock.woke():
                        self._abandon()
                        self._wake()
                    self._look()
                    for task in list(self._tasks.values()):
                        self._step(task, workers)
                    self._stop.wait(LOOK_SECONDS)
                    self._stirred.wait(LOOK_SECONDS)
                    self._stirred.clear()
        finally:
            self._leadership = None

    def _look(self) -> None:
        """See what changed in the home."""
        now = time.monotonic()
        if now < self._next_look:
            return
        try:
            change = self._edge.environment.last_change()
            if change == self._change:
                return
            volumes = {volume.id.raw: volume for volume in self._edge.volumes()}
            for vid in self._tasks.keys() - volumes.keys():
                self._drop_poll(self._tasks.pop(vid))
            for vid, volume in volumes.items():
                self._note(vid, volume, now)
            self._change = change
        except BudwoodError as error:
            self._say(f"what changes in this home can't be seen now: {error}")
            self._next_look = now + 1.0
            return
        self._next_look = now + _SHARE * (time.monotonic() - now)

    def _note(self, vid: bytes, volume: Volume, now: float) -> None:
        task = self._tasks.get(vid)
        if task is None:
            task = self._tasks[vid] = _Task(volume, Pace(self._chance))
        task.volume = volume
        try:
            head, _, pending = volume.local.sync_state()
        except NotFound:
            # It has just been removed, which the next look sees.
            return
        if (head.unpushed or pending is not None) and (head.label != task.label or task.pace.first is None):
            task.pace.committed(now)
        task.label = head.label

    def _step(self, task: _Task, workers: ThreadPoolExecutor) -> None:
        """Begin what is due of one volume."""
        if task.running:
            return
        try:
            head, record, _ = task.volume.local.sync_state()
        except BudwoodError:
            return
        pulls, pushes = record.mode in ("pull", "both"), record.mode in ("push", "both")
        if not pulls or not record.created:
            self._drop_poll(task)
        if not (pulls or pushes) or not (self._edge.remote or record.remote):
            return
        now = time.monotonic()
        if head.state == DIVERGED:
            if task.told != head.label and task.pace.may_ask(now):
                self._start(task, workers, lambda: self._settle(task))
        elif pushes and task.pace.may_push(now):
            self._start(task, workers, lambda: self._push(task))
        elif pulls and record.created and task.poll is not None and task.poll.done.is_set():
            self._start(task, workers, lambda: self._hear(task))
        elif pulls and record.created and task.poll is None and task.pace.may_ask(now):
            self._start(task, workers, lambda: self._ask(task))

    def _start(self, task: _Task, workers: ThreadPoolExecutor, work: Callable[[], None]) -> None:
        task.running = True
        workers.submit(self._work, task, work)

    def _work(self, task: _Task, work: Callable[[], None]) -> None:
        try:
            work()
        except NotFound as error:
            if any(volume.id == task.volume.id for volume in self._edge.volumes()):
                self._failed(task, error)
        except BudwoodError as error:
            self._failed(task, error)
        except BaseException as error:
            self._break(error)
        finally:
            task.running = False
            self._stirred.set()

    def _failed(self, task: _Task, error: BudwoodError) -> None:
        self.counts.failed()
        # What a divergence means is told by whoever deals with it.
        if not task.pace.failed(time.monotonic(), error) or self._stop.is_set():
            return
        self._note_trouble()
        if not isinstance(error, Diverged):
            self._say(f"volume {task.volume.name!r} isn't synced: {error}")

    def _note_trouble(self) -> None:
        """Where others look who syncs this home."""
        leadership, errors = self._leadership, self.errors()
        if leadership is None:
            return
        if errors:
            name, error = next(reversed(errors.items()))
            leadership.failed(f"volume {name!r}: {error}")
        else:
            leadership.worked()

    def _worked(self, task: _Task) -> None:
        was_offline, had_error = task.pace.is_offline, bool(task.pace.error)
        task.pace.worked()
        if had_error:
            self._note_trouble()
            self._say(f"volume {task.volume.name!r} is synced again")
        if was_offline:
            self._wake()

    def _push(self, task: _Task) -> None:
        since, task.pace.first = task.pace.first, None
        try:
            began = time.monotonic()
            task.volume.push()
            self.counts.pushed(time.monotonic() - began)
        except BudwoodError:
            task.pace.first = since if task.pace.first is None else task.pace.first
            raise
        self._worked(task)

    def _settle(self, task: _Task) -> None:
        label = task.volume.local.peek().label
        try:
            line = self._on_diverged(self._edge, task.volume)
        except Diverged as error:
            # What was to settle it leaves it to somebody else.
            line = f"volume {task.volume.name!r} has diverged and stays as it is: {error}"
        except BudwoodError:
            raise
        except Exception as error:
            raise BadInput(f"what was to settle its divergence failed: {type(error).__name__}: {error}") from error
        task.told = label
        task.pace.pushed()
        if task.volume.local.peek().state == DIVERGED:
            task.pace.error = line
        else:
            task.pace.worked()
        self._note_trouble()
        self._say(line)

    def _ask(self, task: _Task) -> None:
        """Begin to wait for the remote to move."""
        after = task.volume.local.peek().sync_remote
        seconds = TRIAL_SECONDS if task.pace.error else WAIT_SECONDS
        request = WaitRequest(task.volume.id.raw, after=after, timeout_seconds=seconds)
        poll = _Poll(after, seconds, time.monotonic())

        def done() -> None:
            poll.done.set()
            self._stirred.set()

        connection = self._edge.connection(task.volume.local.record().remote)
        poll.begun = connection.remote.begin(lambda remote: remote.ask(WAIT, request), done)
        task.poll = poll

    def _hear(self, task: _Task) -> None:
        poll, task.poll = task.poll, None
        assert poll is not None
        assert poll.begun is not None
        volume = task.volume
        newest = poll.begun.result().lsn
        here = volume.local.peek().sync_remote
        if newest != here:
            # Where it has less than was seen of it, the pull tells whether it lags behind or has lost commits.
            began = time.monotonic()
            volume.pull()
            self.counts.pulled(time.monotonic() - began)
            here = volume.local.peek().sync_remote
        if newest != here and here <= poll.after:
            raise Unavailable(f"the remote says that it is at LSN {newest}, and gives LSN {here}")
        if newest == poll.after and time.monotonic() - poll.began < poll.seconds / 2:
            raise Unavailable("the remote answers at once, instead of when it has something new")
        self._worked(task)

    def _wake(self) -> None:
        for task in list(self._tasks.values()):
            task.pace.wake()

    def _abandon(self) -> None:
        """Connections from before may be dead without a word."""
        for task in list(self._tasks.values()):
            if not task.running:
                self._drop_poll(task)

    def _drop_poll(self, task: _Task) -> None:
        poll, task.poll = task.poll, None
        if poll is not None and poll.begun is not None:
            poll.begun.abandon()


class _Wakings:
    """Whether this process was held, the machine slept, or its network changed, since it was asked last."""

    def __init__(self) -> None:
        self._seen = _elapsed()
        self._routes = _routes()
        self._next = self._seen + _NETWORK_SECONDS

    def woke(self) -> bool:
        before, self._seen = self._seen, _elapsed()
        woke = self._seen - before > _SLEPT_SECONDS
        if self._seen >= self._next:
            self._next = self._seen + _NETWORK_SECONDS
            was, self._routes = self._routes, _routes()
            woke = woke or was != self._routes
        return woke


def _elapsed() -> float:
    """With the time for which the machine slept."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def _routes() -> frozenset[tuple[str, ...]]:
    """The ways out of this machine, without their counters; none where the system doesn't tell."""
    found = set[tuple[str, ...]]()
    for path in _ROUTES:
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue
        found |= {
            tuple(line.split()[:3] if path.name == "route" else (line.split()[0], line.split()[-1])) for line in lines
        }
    return frozenset(found)

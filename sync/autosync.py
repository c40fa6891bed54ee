"""Autosync: the volumes of a home are pushed and pulled by themselves, each as its sync mode says.

    with edge.autosync():
        …                               # what is committed here is pushed, what others push is pulled

Of all processes of a home one does it (autosync_election.py); the others wait for its end, and one takes over. The
leader looks at what the home's processes commit, by a number that moves with every change, and pushes it a moment later
(autosync_pace.py). What others push it hears of by long polls, which hold no thread (poll_slots.py). A volume of which
there is nothing to do costs nothing: it is looked at when its rows change, its poll has an answer, or its time comes.

**Trouble** of one volume is that volume's alone: it is put off, with longer and longer pauses. A remote that is away is
asked more rarely; once any volume has an answer, or this machine has slept or changed its network, all that waited for
that are tried at once. A mistake of our own, too, puts off the volume that it was met with, and `close` raises it.

**Diverged** volumes are given to `on_diverged` (divergence.py), once for each state that they stand in, under no lock.

**A mount** syncs its home by this, too. It comes before others, watches only what its programs use, and has its own way
of moving a head under them (`Edge.mover`).

Mode `disabled` is neither looked at nor asked about. A crash of the leader at any moment leaves what a crash in push or
pull leaves, which the next one settles: autosync keeps no state of its own.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from ..volume.calls import WAIT, WaitRequest
from ..volume.calls import Head as RemoteHead
from ..volume.errors import BadInput, BudwoodError, Busy, Diverged, NotFound, Unavailable
from ..volume.ids import VolumeId
from ..volume.thread_limit import start_thread
from ..volume.thread_pool import ThreadPool
from .afterfork import forgets
from .autosync_election import Leadership, claim, lead_for_mount, mount_wants, stand
from .autosync_pace import Pace
from .autosync_throttle import Throttle
from .connection import has_hung_up
from .divergence import Home, OnDiverged, tell
from .home_figures import SyncCounts
from .local_volume import Local, state_hashes
from .name_table import is_reserved
from .poll_slots import PollSlots
from .tables import DIVERGED
from .wakings import Wakings

if TYPE_CHECKING:
    from ..remote.loop import Begun
    from .local_volume import SyncState
    from .tables import VolumeRecord
    from .volume import Volume

Say = Callable[[str], None]
T = TypeVar("T")

LOOK_SECONDS: Final = 0.12
"""Between two looks at what was committed here."""
STAND_SECONDS: Final = 0.5
"""Between two tries to lead."""
MOUNT_STAND_SECONDS: Final = 0.1
WAIT_SECONDS: Final = 25.0
"""Of one long poll."""
TRIAL_SECONDS: Final = 1.0
"""Of one after an error: it tells soon that all is well again."""
_SHARE: Final = 20
"""The time between two looks is so many times what a look takes."""
_WORKERS: Final = 4


@dataclass(slots=True)
class _Task:
    """What is known of one volume. A home may have a hundred thousand, of which most are never touched: nothing of it
    is open, and none of its rows is kept, while there is nothing to do."""

    vid: bytes
    name: str
    pace: Pace
    state: SyncState | None = None
    """As it was looked at last, while it is looked at again and again; None if it may have changed since."""
    label: str = ""
    """The head when it was looked at last."""
    told: str = ""
    """The head at which its divergence was dealt with."""
    poll: _Poll | None = None
    is_told: bool = False
    """Whether people were told that it isn't synced, and not yet that it is again."""


@dataclass(slots=True)
class _Poll:
    """A poll under way."""

    after: int
    seconds: float
    began: float
    done: threading.Event = field(default_factory=threading.Event)
    begun: Begun[RemoteHead] | None = None


class Autosync(AbstractContextManager["Autosync"]):
    """One process's part in it, from its making until `close`. The edge stays open longer than it. For any thread."""

    def __init__(
        self,
        edge: Home,
        *,
        on_diverged: OnDiverged = tell,
        say: Say = lambda _line: None,
        is_mount: bool = False,
        slots: PollSlots | None = None,
        on_answer: Callable[[], None] = lambda: None,
        on_pushed: Callable[[Volume], None] = lambda _volume: None,
        on_mistake: Callable[[BaseException, bool], None] = lambda _error, _ends: None,
        served: Callable[[], int] | None = None,
    ) -> None:
        """`on_answer` hears, in a thread of this, that a remote which was away answers, or may by now; `on_pushed` of a
        volume whose commits it has; `on_mistake` of an error that is nobody else's, and whether this ends by it.
        `served` counts what this process answers programs, which this gives way to.
        """
        self._edge = edge
        self._on_diverged = on_diverged
        self._say = say
        self._is_mount = is_mount
        self._slots = PollSlots() if slots is None else slots
        self._on_answer = on_answer
        self._on_pushed = on_pushed
        self._on_mistake = on_mistake
        self._throttle = Throttle(_WORKERS, served)
        self._stop = threading.Event()
        self._stirred = threading.Event()
        self._tasks: dict[bytes, _Task] = {}
        self._awake = set[bytes]()
        """Volumes of which there is something to do, now or at a time to come."""
        self._events = deque[bytes]()
        """Volumes that something happened to."""
        self._busy = set[bytes]()
        """Volumes of which something is under way, or about to be."""
        self._queued: dict[bytes, object] = {}
        """Of those that no worker has taken yet: what it is to find there."""
        self._ended = threading.Condition()
        """Notified when one of them is busy no more."""
        self._states: dict[bytes, int] = {}
        """As they were looked at last (state_hashes)."""
        self._change = -1
        self._next_look = 0.0
        self._chance = random.SystemRandom().random
        self._mistake: BaseException | None = None
        self._leadership: Leadership | None = None
        self._telling = threading.Lock()
        self.counts = SyncCounts()
        self._thread: threading.Thread | None = threading.Thread(target=self._run, name="budwood-autosync", daemon=True)
        forgets(self)
        start_thread(self._thread)

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

    # What others see of it, and tell it

    @property
    def trouble(self) -> int:
        """How many volumes don't sync now."""
        return len(self.errors())

    def errors(self) -> dict[str, str]:
        """Of the volumes that don't sync now: why."""
        return {task.name: task.pace.error for task in list(self._tasks.values()) if task.pace.error}

    def error_of(self, vid: bytes) -> str:
        """Why that volume doesn't sync, or waits to; "" if it does."""
        task = self._tasks.get(vid)
        return "" if task is None else task.pace.error or task.pace.waits_for

    def is_offline(self, vid: bytes) -> bool:
        """Whether that volume's remote did not answer when it was asked last."""
        task = self._tasks.get(vid)
        return task is not None and task.pace.is_offline

    @property
    def is_leader(self) -> bool:
        return self._leadership is not None

    @property
    def is_running(self) -> bool:
        """Whether it leads or waits to; False once it was closed, or has ended by a mistake of its own, which `close`
        raises."""
        return not self._stop.is_set()

    @property
    def polls(self) -> int:
        """Volumes that are waited for by a long poll each, or are about to be."""
        return len(self._slots)

    def hears_of(self, vid: bytes) -> bool:
        """Whether that volume is one of them."""
        return vid in self._slots

    def stir(self, vid: bytes) -> None:
        """Something happened to that volume that its home doesn't tell: it wants one of the slots, say."""
        self._happened(vid)

    def wake(self) -> None:
        """The remote may answer again: whatever waited for that is tried at once."""
        # Each that works again wakes the others, of which most are awake by then.
        waiting = [(vid, task) for vid, task in list(self._tasks.items()) if task.pace.is_offline and task.pace.retry]
        for _, task in waiting:
            task.pace.wake()
        self._happened(*(vid for vid, _ in waiting))

    @contextmanager
    def apart(self, vid: bytes) -> Generator[None]:
        """Nothing of that volume is begun meanwhile, and what is under way is waited for: for a push, pull or reset of
        somebody else's. When that works, so does the volume."""
        with self._ended:
            if self._queued.pop(vid, None) is not None:
                self._busy.discard(vid)
            self._ended.wait_for(lambda: vid not in self._busy)
            self._busy.add(vid)
        task = self._tasks.get(vid)
        try:
            yield
            if task is not None:
                self._worked(task)
        finally:
            self._leave(vid)

    def _run(self) -> None:
        try:
            self._stand()
        except BaseException as error:
            self._break(error)

    def _break(self, error: BaseException) -> None:
        self._mistake = self._mistake or error
        self._stop.set()
        self._stirred.set()
        self._on_mistake(error, True)

    def _stand(self) -> None:
        with ExitStack() as held:
            if self._is_mount:
                claimed = self._have(lambda: claim(self._edge.home))
                if claimed is not None:
                    held.callback(claimed.release)
            while not self._stop.is_set():
                leadership = self._have(lambda: (lead_for_mount if self._is_mount else stand)(self._edge.home))
                if leadership is not None:
                    with leadership:
                        self._lead(leadership)

    def _have(self, take: Callable[[], T]) -> T | None:
        """What is to be had, as soon as that may be; None at the end."""
        said = ""
        while not self._stop.is_set():
            try:
                return take()
            except BudwoodError as error:
                if not isinstance(error, Busy) and str(error) != said:
                    said = str(error)
                    self._say(f"this home can't be synced now: {error}")
                self._stop.wait(MOUNT_STAND_SECONDS if self._is_mount else STAND_SECONDS)
        return None

    def _lead(self, leadership: Leadership) -> None:
        self._leadership, self._tasks, self._states, self._change = leadership, {}, {}, -1
        wakings = Wakings()
        try:
            with ExitStack() as stack:
                stack.callback(self._abandon)
                workers = stack.enter_context(ThreadPool(_WORKERS, thread_name_prefix="budwood-autosync"))
                stack.callback(self._abandon)
                while not self._stop.is_set() and not self._steps_down():
                    if wakings.woke():
                        self._abandon()
                        self.wake()
                        self._on_answer()
                    self._look()
                    self._go_on(workers)
                    self._stop.wait(LOOK_SECONDS)
                    self._stirred.wait(LOOK_SECONDS)
                    self._stirred.clear()
        finally:
            self._leadership = None

    def _steps_down(self) -> bool:
        try:
            return not self._is_mount and mount_wants(self._edge.home)
        except BudwoodError as error:
            self._say(f"whether this home is mounted can't be seen now: {error}")
            return False

    def _look(self) -> None:
        """See what changed in the home."""
        now = time.monotonic()
        if now < self._next_look:
            return
        try:
            change = self._edge.environment.last_change()
            if change == self._change:
                return
            states = state_hashes(self._edge.environment)
            for vid in self._tasks.keys() - states.keys():
                self._drop(vid)
            for vid, state in states.items():
                if self._states.get(vid) != state:
                    self._note(vid, now)
            self._states, self._change = states, change
        except BudwoodError as error:
            self._say(f"what changes in this home can't be seen now: {error}")
            self._next_look = now + 1.0
            return
        self._next_look = now + _SHARE * (time.monotonic() - now)

    def _note(self, vid: bytes, now: float) -> None:
        """A volume is new, or its head or its record has changed."""
        try:
            head, record, pending = self._state_of(vid)
        except NotFound:
            # It has just been removed, which the next look sees.
            return
        if is_reserved(record.name):
            self._drop(vid)
            return
        task = self._tasks.get(vid)
        if task is None:
            task = self._tasks[vid] = _Task(vid, record.name, Pace(self._chance))
        task.name, task.state = record.name, None
        if (head.unpushed or pending is not None) and (head.label != task.label or task.pace.first is None):
            task.pace.committed(now)
        if task.label and head.label != task.label:
            self._slots.use(vid, now)
        task.label = head.label
        self._awake.add(vid)

    def _state_of(self, vid: bytes) -> SyncState:
        """Raises NotFound where it was removed."""
        return Local(self._edge.environment, VolumeId(vid), "").sync_state()

    def _volume_of(self, task: _Task) -> Volume:
        volume = self._edge.volume_of(task.vid)
        if volume is None:
            raise NotFound(f"volume {task.name!r} was removed")
        return volume

    def _drop(self, vid: bytes) -> None:
        task = self._tasks.pop(vid, None)
        if task is not None:
            self._drop_poll(task)
        self._slots.forget(vid)

    def _happened(self, *vids: bytes) -> None:
        self._events.extend(vids)
        self._stirred.set()

    def _go_on(self, workers: ThreadPool) -> None:
        """Begin what is due, of each volume of which there is something to do."""
        while self._events:
            self._awake.add(self._events.popleft())
        for vid in list(self._awake):
            task = self._tasks.get(vid)
            if task is None:
                self._awake.discard(vid)
            elif not self._step(vid, task, workers):
                task.state = None
                self._awake.discard(vid)
        while (turn := self._slots.turn(time.monotonic())) is not None:
            task = self._tasks.get(turn)
            if task is not None and self._may_ask(task):
                self._start(turn, workers, partial(self._ask, task, 0.0), task)

    def _step(self, vid: bytes, task: _Task, workers: ThreadPool) -> bool:
        """Begin what is due of one volume; whether it is to be looked at again though nothing happens to it."""
        if vid in self._busy:
            # It is told when that has ended.
            return False
        try:
            state = task.state = task.state or self._state_of(vid)
        except NotFound:
            return False
        except BudwoodError:
            return True
        head, record, _ = state
        pushes, pulls = record.mode in ("push", "both"), _pulls(record)
        if not pulls:
            self._drop_poll(task)
            self._slots.give_back(vid)
        if not (pushes or record.mode == "pull") or not (self._edge.remote or record.remote):
            return False
        now = time.monotonic()
        if head.state == DIVERGED:
            if task.told == head.label:
                return False
            return not (task.pace.may_ask(now) and self._start(vid, workers, partial(self._settle, task), task))
        if task.told:
            # Somebody has settled it.
            task.told = ""
            self._worked(task)
        if pushes and task.pace.may_push(now):
            return not self._start(vid, workers, partial(self._push, task), task)
        if pulls and task.poll is not None and task.poll.done.is_set():
            return not self._start(vid, workers, partial(self._hear, task), task)
        if pulls and task.poll is None:
            if not task.pace.may_ask(now) or not self._slots.may_take(vid, now):
                return True
            taken, from_other = self._slots.take(vid, now)
            if from_other is not None:
                self._lost_slot(from_other)
            if taken:
                seconds = TRIAL_SECONDS if task.pace.error else WAIT_SECONDS
                return not self._start(vid, workers, partial(self._ask, task, seconds), task)
        return pushes and task.pace.first is not None

    def _lost_slot(self, vid: bytes) -> None:
        task = self._tasks.get(vid)
        if task is not None and vid not in self._busy:
            self._drop_poll(task)
            self._happened(vid)

    def _may_ask(self, task: _Task) -> bool:
        """Whether it is to be asked for once, in its turn."""
        if task.poll is not None or not task.pace.may_ask(time.monotonic()):
            return False
        try:
            return _pulls(self._state_of(task.vid).record)
        except NotFound:
            return False
        except BudwoodError:
            # It takes its place in the row again.
            self._awake.add(task.vid)
            return False

    def _start(self, vid: bytes, workers: ThreadPool, work: Callable[[], None], task: _Task) -> bool:
        with self._ended:
            if vid in self._busy:
                return False
            self._busy.add(vid)
            mark = self._queued[vid] = object()
        try:
            workers.submit(self._work, vid, task, work, mark)
        except Unavailable as error:
            self._work(vid, task, partial(_fail, error), mark)
        return True

    def _work(self, vid: bytes, task: _Task, work: Callable[[], None], mark: object) -> None:
        with self._ended:
            if self._queued.get(vid) is not mark:
                # Somebody else does it, who didn't wait for its turn.
                return
            del self._queued[vid]
        try:
            with self._throttle.turn():
                work()
        except NotFound as error:
            if self._edge.volume_of(vid) is not None:
                self._failed(task, error)
        except BudwoodError as error:
            self._failed(task, error)
        except Exception as error:
            self._mistake = self._mistake or error
            self._on_mistake(error, False)
            self._failed(task, BudwoodError(f"a defect of Budwood's own ({type(error).__name__}: {error})"))
        except BaseException as error:
            self._break(error)
        finally:
            self._leave(vid)

    def _leave(self, vid: bytes) -> None:
        task = self._tasks.get(vid)
        if task is not None:
            task.state = None
        with self._ended:
            self._busy.discard(vid)
            self._ended.notify_all()
        self._happened(vid)

    def _failed(self, task: _Task, error: BudwoodError) -> None:
        self.counts.failed()
        # What a divergence means is told by whoever deals with it.
        if not task.pace.failed(time.monotonic(), error) or self._stop.is_set() or has_hung_up():
            return
        self._note_trouble()
        with self._telling:
            if isinstance(error, Diverged) or (task.pace.is_offline and self._is_known_offline(task)):
                return
            task.is_told = True
        self._say(f"volume {task.name!r} isn't synced: {error}")

    def _is_known_offline(self, task: _Task) -> bool:
        """Whether people were told of another volume that its remote doesn't answer: one line does for all of them."""
        return any(other.is_told and other.pace.is_offline for other in list(self._tasks.values()) if other is not task)

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
        if task.is_told:
            task.is_told = False
            self._say(f"volume {task.name!r} is synced again")
        if was_offline:
            self.wake()
            self._on_answer()

    def _push(self, task: _Task) -> None:
        with task.pace.taking():
            began, volume = time.monotonic(), self._volume_of(task)
            volume.push()
            self.counts.pushed(time.monotonic() - began)
            self._slots.use(task.vid, time.monotonic())
        self._worked(task)
        self._on_pushed(volume)

    def _settle(self, task: _Task) -> None:
        volume = self._volume_of(task)
        label = volume.local.peek().label
        # What settles it may commit, which is noted before it has ended.
        with task.pace.taking():
            line = self._settled(volume)
        task.told = label
        if volume.local.peek().state == DIVERGED:
            task.pace.error = line
        else:
            task.pace.worked()
        self._note_trouble()
        self._say(line)

    def _settled(self, volume: Volume) -> str:
        """What to tell of it."""
        try:
            return self._on_diverged(self._edge, volume)
        except Diverged as error:
            # What was to settle it leaves it to somebody else.
            return f"volume {volume.name!r} has diverged and stays as it is: {error}"
        except BudwoodError:
            raise
        except Exception as error:
            raise BadInput(f"what was to settle its divergence failed: {type(error).__name__}: {error}") from error

    def _ask(self, task: _Task, seconds: float) -> None:
        """Begin to wait, so long at the most, for the remote to move."""
        vid, (head, record, _) = task.vid, self._state_of(task.vid)
        after = head.sync_remote
        if seconds and vid not in self._slots:
            # Another was used meanwhile.
            return
        request = WaitRequest(vid, after=after, timeout_seconds=seconds)
        poll = _Poll(after, seconds, time.monotonic())

        def done() -> None:
            poll.done.set()
            self._happened(vid)

        connection = self._edge.connection(record.remote)
        poll.begun = connection.remote.begin(lambda remote: remote.ask(WAIT, request), done)
        task.poll = poll

    def _hear(self, task: _Task) -> None:
        poll, task.poll = task.poll, None
        if poll is None:
            # The volume was removed before a worker came to this.
            return
        assert poll.begun is not None
        newest = poll.begun.result().lsn
        volume = self._volume_of(task)
        here = volume.local.peek().sync_remote
        if newest != here:
            # Where it has less than was seen of it, the pull tells whether it lags behind or has lost commits.
            began = time.monotonic()
            volume.pull()
            self.counts.pulled(time.monotonic() - began)
            self._slots.use(task.vid, time.monotonic())
            here = volume.local.peek().sync_remote
        if newest != here and here <= poll.after:
            raise Unavailable(f"the remote says that it is at LSN {newest}, and gives LSN {here}")
        if newest == poll.after and time.monotonic() - poll.began < poll.seconds / 2:
            raise Unavailable("the remote answers at once, instead of when it has something new")
        self._worked(task)

    def _abandon(self) -> None:
        """Connections from before may be dead without a word."""
        for vid, task in list(self._tasks.items()):
            if vid not in self._busy:
                self._drop_poll(task)
                self._happened(vid)

    def _drop_poll(self, task: _Task) -> None:
        poll, task.poll = task.poll, None
        if poll is not None and poll.begun is not None:
            poll.begun.abandon()


def _pulls(record: VolumeRecord) -> bool:
    """Whether what others push to it is wanted, and can be known."""
    return record.created and record.mode in ("pull", "both")


def _fail(error: BudwoodError) -> None:
    raise error

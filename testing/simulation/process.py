"""Process: a node that can crash, sleep, be cut off and come back, with clocks of its own.

A crash ends all its tasks where they wait, or at a fault point; what it had sent may arrive all the same. A process
that sleeps sends nothing and hears nothing; then it goes on where it was, as if no time had passed, and whoever asked
it gets an answer that is as late. Its clock of the day may be wrong by half of what clocks may lie apart; the one that
goes on in sleep begins anywhere.

One that is *cut* has no way to the store; one that is *apart*, none to the other processes, nor they to it.

Whoever asks waits `ASKED_SECONDS` and then goes away; the work goes on, and its answer counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, TypeVar

import trio

from ...server.log.waiting import Batching
from ...server.node import Node
from ...server.store.protocol import Store
from ...server.store.retrying import Patience
from ...volume import faults
from ...volume.calls import Done
from ...volume.entry import EpochRecord
from ...volume.errors import BudwoodError, Unavailable
from ...volume.owner import Liveness
from .determinism import true_ms
from .trace import Trace

T = TypeVar("T")

ASKED_SECONDS: Final = 90.0

_current: Final = ContextVar["Process | None"]("process", default=None)


@dataclass(slots=True)
class Trap:
    """What befalls a process at one of its requests: at the nth whose key has this part."""

    part: str
    nth: int
    nap_seconds: float
    """0: it crashes."""
    op: str = ""
    """Any, where it is empty."""

    def springs(self, op: str, key: str) -> bool:
        if self.part not in key or (self.op and op != self.op):
            return False
        self.nth -= 1
        return self.nth <= 0


class _Life:
    """From a start to a crash."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.settled = trio.Event()
        self.ended = trio.Event()
        self.dead = False
        self.node: Node | None = None
        self.calls: trio.Nursery | None = None
        self.failure: BaseException | None = None


class Process:
    def __init__(
        self,
        name: str,
        log: str | None,
        way: Callable[[Process], Store],
        trace: Trace,
        tasks: trio.Nursery,
        random: Random,
        probe_owner: Callable[[Process, EpochRecord], Awaitable[Liveness]],
        *,
        lies_ms: int,
        memory_bytes: int | None,
        batching: Callable[[], Batching],
        standby: bool = False,
    ) -> None:
        """`way` leads to the store. `batching` is drawn anew for each of its lives."""
        self.name = name
        self.log = log
        self.address = f"test://{name}" if log is not None else ""
        """Whoever has no log listens nowhere."""
        self.alpha = 1
        """The most entries that it has in flight in this life."""
        self.trace = trace
        self.trap: Trap | None = None
        self.fault: str = ""
        """The fault point at which it crashes."""
        self._way = way
        self._tasks = tasks
        self._random = random
        self._probe_owner = probe_owner
        self._lies_ms = lies_ms
        self._memory_bytes = memory_bytes
        self._batching = batching
        self._standby = standby
        self.patience = Patience(
            deadline_seconds=20.0,
            try_seconds=10.0,
            now=trio.current_time,
            boot=self.boot,
            sleep=self._pause,
            draw=random.random,
        )
        self._boot_began = random.uniform(0, 1e6)
        self._wakes_at = 0.0
        self._cut_until = 0.0
        self._apart_until = 0.0
        self._woken = trio.Event()
        self._life: _Life | None = None
        self.broken: BaseException | None = None
        """What ended it that was no crash."""

    @property
    def is_up(self) -> bool:
        return self._life is not None and not self._life.dead and self._life.node is not None

    @property
    def is_asleep(self) -> bool:
        return trio.current_time() < self._wakes_at

    @property
    def is_cut(self) -> bool:
        return trio.current_time() < self._cut_until

    @property
    def is_apart(self) -> bool:
        return trio.current_time() < self._apart_until

    @property
    def node(self) -> Node | None:
        return self._life.node if self._life is not None and not self._life.dead else None

    def now_ms(self) -> int:
        return true_ms() + self._lies_ms

    async def start(self, *, takeover: bool = False) -> bool:
        """Whether it opened. A store that fails, or another owner that lives, may keep it from that."""
        if self._life is not None and not self._life.dead:
            return self._life.node is not None
        life = self._life = _Life()
        self._tasks.start_soon(self._live, life, takeover)
        await life.settled.wait()
        self.trace(self.name, "is up" if life.node is not None else f"does not start: {life.failure!r}")
        return life.node is not None

    def crash(self) -> None:
        if self._life is not None and not self._life.dead:
            self.trace(self.name, "crashes")
            self.trace.count("crashes")
            self._end(self._life)

    def sleep(self, seconds: float) -> None:
        self.trace(self.name, f"sleeps for {seconds:.0f} s")
        self.trace.count("sleeps")
        self._wakes_at = max(self._wakes_at, trio.current_time() + seconds)

    def cut(self, seconds: float) -> None:
        """From the store."""
        self.trace(self.name, f"is cut off for {seconds:.0f} s")
        self.trace.count("cuts")
        self._cut_until = max(self._cut_until, trio.current_time() + seconds)

    def part(self, seconds: float) -> None:
        """From the others."""
        self.trace(self.name, f"is apart for {seconds:.0f} s")
        self._apart_until = max(self._apart_until, trio.current_time() + seconds)

    def join(self) -> None:
        """It is neither any more."""
        self._cut_until = self._apart_until = 0.0

    def wake(self) -> None:
        self._wakes_at = 0.0
        self._woken.set()
        self._woken = trio.Event()

    async def awake(self) -> None:
        """Returns once it doesn't sleep."""
        while self.is_asleep:
            with trio.move_on_at(self._wakes_at):
                await self._woken.wait()

    async def down(self) -> None:
        """Returns once it doesn't run."""
        if self._life is not None:
            await self._life.ended.wait()

    async def reach(self, op: str, key: str) -> None:
        """It is about to send that request."""
        if self._life is None or self._life.dead:
            raise Unavailable("this process has crashed", hopeless=True)
        if self.trap is not None and self.trap.springs(op, key):
            trap, self.trap = self.trap, None
            self.trace(self.name, f"is caught at {op} {key}")
            if trap.nap_seconds:
                self.sleep(trap.nap_seconds)
            else:
                self.crash()
        await self.awake()

    async def ask(
        self,
        work: Callable[[Node], Awaitable[T]],
        heard: Callable[[T], None] = lambda _: None,
        *,
        seconds: float = ASKED_SECONDS,
    ) -> T:
        """What `work` comes to in this process; `heard` is told of it too, even if this caller went away meanwhile.
        Raises what `work` does, and Unavailable."""
        life = self._life
        if life is None or life.dead or life.calls is None:
            raise Unavailable(f"nobody answers at {self.name}")
        answered, answers, errors = trio.Event(), list[T](), list[BaseException]()

        async def asked() -> None:
            assert life.node is not None
            try:
                await self.awake()
                answer = await work(life.node)
                await self.awake()
                if not life.dead:
                    heard(answer)
                    answers.append(answer)
            except Exception as error:
                errors.append(error)
            finally:
                answered.set()

        life.calls.start_soon(asked)
        with trio.move_on_after(seconds):
            await answered.wait()
        if errors and not life.dead:
            raise errors[0]
        if not answers or life.dead:
            raise Unavailable(f"{self.name} did not answer", determinate=False)
        return answers[0]

    async def holds(self, epoch: EpochRecord) -> bool:
        """Whether it answers that it does."""
        node = self.node
        if node is None or self.is_asleep:
            return False
        answer = await node.hello(Done())
        own = (epoch.log, epoch.n, epoch.writer)
        return any((each.log, each.epoch, each.writer) == own for each in answer.logs)

    async def stop(self) -> None:
        """In order."""
        if self._life is not None and not self._life.dead:
            self._end(self._life)
        if self._life is not None:
            await self._life.ended.wait()

    def _end(self, life: _Life) -> None:
        life.dead = True
        life.scope.cancel()
        self.trap, self.fault = None, ""
        self.wake()

    async def _live(self, life: _Life, takeover: bool) -> None:
        _current.set(self)
        batching = self._batching()
        self.alpha = batching.alpha
        try:
            with life.scope:
                async with (
                    Node.open(
                        self._way(self),
                        name=self.log,
                        address=self.address,
                        now_ms=self.now_ms,
                        patience=self.patience,
                        probe_owner=partial(self._probe_owner, self),
                        takeover=takeover,
                        memory_bytes=self._memory_bytes,
                        batching=batching,
                        standby=self._standby,
                    ) as node,
                    trio.open_nursery() as life.calls,
                ):
                    life.node = node
                    life.settled.set()
                    await trio.sleep_forever()
        except (Exception, faults.Cut, BaseExceptionGroup) as error:
            life.failure = error
            if not life.dead and not isinstance(error, BudwoodError):
                self.broken = error
        finally:
            life.dead = True
            life.settled.set()
            life.ended.set()

    def boot(self) -> float:
        return self._boot_began + trio.current_time()

    async def _pause(self, seconds: float) -> None:
        await trio.sleep(seconds)
        await self.awake()


def cut(name: str) -> Callable[[], None]:
    """The action of a fault point: whoever is to crash there, and reaches it, does."""

    def reached() -> None:
        process = _current.get()
        if process is not None and process.fault == name:
            process.fault = ""
            process.trace(process.name, f"reaches {name!r}")
            process.trace.count("crashes at fault points")
            process.crash()
            raise faults.Cut

    return reached

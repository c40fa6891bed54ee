"""What a writer does for those whose judgement needs what isn't in memory, and which rollup its entries name. The log
knows nothing of volumes, so what is submitted here is judged by a word."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from budwood.server.log import log_writer
from budwood.server.log.log_writer import LogWriter
from budwood.server.log.reader import LogReader
from budwood.server.log.submission import Admission, Contents, Submission
from budwood.server.log.term import Term
from budwood.server.log.waiting import Batching
from budwood.server.store.retrying import Patience
from budwood.testing.clock import ManualClock
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.entry import EntryHeader, entry_key, parse_entry
from budwood.volume.errors import (
    BudwoodError,
    Conflict,
    Corrupt,
    Full,
    NotOwner,
    Unauthorized,
    Unavailable,
    Unsupported,
)
from budwood.volume.records import StreamRecords
from budwood.volume.rollup import Rollup, rollup_key, seal_rollup

from ..waits import LIMIT_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

LOG = "main"


def name_of(slot: int, digit: str = "a") -> str:
    return f"{slot:016x}/{digit * 64}"


class Wish(Submission):
    """Can be judged once it was loaded as often as it wants."""

    def __init__(self, word: str, loads: int = 0, *, size: int = 0, error: Exception | None = None) -> None:
        super().__init__(size)
        self.word = word
        self.wants = loads
        self.loaded = 0
        self.error = error
        self.gate = anyio.Event()
        self.gate.set()
        self.loading = anyio.Event()

    def hold(self) -> Wish:
        """Its loads wait until it is let go."""
        self.gate = anyio.Event()
        return self

    async def load(self) -> None:
        self.loading.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.loaded += 1


class Wishes:
    """A draft that takes whoever is loaded, each for a stream of its own."""

    def __init__(self, _now_ms: int, _before: Sequence[Any] = ()) -> None:
        self.taken: list[Wish] = []

    def admit(self, submission: Any) -> Admission:
        wish: Wish = submission
        if wish.loaded < wish.wants:
            return Admission.LOAD
        self.taken.append(wish)
        return Admission.TAKEN

    def finish(self) -> Contents:
        streams = {wish.word: StreamRecords(records=(wish.word.encode(),)) for wish in self.taken}
        return Contents(b"", {}, streams, ())

    def acknowledge(self) -> None:
        for wish in self.taken:
            wish.answer(wish.word)


@dataclass
class Scene:
    inner: MemoryStore
    store: RiggedStore
    reader: LogReader
    writer: LogWriter
    tasks: anyio.abc.TaskGroup
    stood: list[int]
    closed: bool = False
    told: dict[str, Any] = field(default_factory=dict[str, Any])
    """By word: the answer, or the error."""

    async def wish(self, wish: Wish) -> None:
        try:
            self.told[wish.word] = await self.writer.submit(wish)
        except BudwoodError as error:
            self.told[wish.word] = error

    async def begin(self, *wishes: Wish) -> None:
        for wish in wishes:
            self.tasks.start_soon(self.wish, wish)
        await anyio.wait_all_tasks_blocked()

    def headers(self) -> list[EntryHeader]:
        keys = (entry_key(LOG, slot) for slot in range(self.reader.chain.next))
        return [parse_entry(key, self.inner.objects[key]).header for key in keys]

    def words(self) -> list[list[str]]:
        """Of each entry behind the anchor."""
        return [list(header.streams) for header in self.headers()[1:]]


@asynccontextmanager
async def opened(
    term: Term | None = None, inner: MemoryStore | None = None, batching: Batching | None = None
) -> AsyncGenerator[Scene, None]:
    inner, clock = inner or MemoryStore(), ManualClock(1000.0, jumps=True)
    store = RiggedStore(inner)
    patience = Patience(deadline_seconds=0.1, now=clock.now, boot=clock.now, sleep=clock.sleep)
    stood: list[int] = []

    async def seed(_key: str, _data: bytes) -> None:
        pass

    def start(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if scene.closed:
            raise Unavailable("this node is shutting down")
        tasks.start_soon(work)

    reader = LogReader(store, LOG, lambda _: None, patience=patience, on_rollup=lambda _name, _rollup: None)
    with anyio.fail_after(LIMIT_SECONDS):
        async with anyio.create_task_group() as tasks:
            writer = LogWriter(
                reader,
                term or Term.private(),
                draft=Wishes,
                now_ms=clock.now_ms,
                start=start,
                seed=seed,
                stood=lambda _: stood.append(reader.chain.next - 1),
                patience=patience,
                batching=batching or Batching(),
            )
            scene = Scene(inner, store, reader, writer, tasks, stood)
            await reader.open()
            yield scene


async def test_nobody_waits_for_anothers_load_and_whoever_is_loaded_comes_first() -> None:
    async with opened() as scene:
        slow = Wish("slow", 1).hold()
        await scene.begin(slow, Wish("beside it"))
        assert slow.loading.is_set()
        assert not scene.reader.lock.locked()
        await scene.begin(Wish("behind it"))
        gate = scene.store.add(Rule(op="create", gate=anyio.Event()))
        await scene.begin(Wish("in flight"))
        await scene.begin(Wish("waits"))
        slow.gate.set()
        await anyio.wait_all_tasks_blocked()
        assert "slow" not in scene.told
        assert gate.gate is not None
        gate.gate.set()
        await anyio.wait_all_tasks_blocked()
        assert scene.words() == [["beside it"], ["behind it"], ["in flight"], ["slow", "waits"]]
        assert all(scene.told[word] == word for word in ("slow", "beside it", "behind it", "in flight", "waits"))


async def test_loads_run_beside_each_other_and_as_often_as_they_are_asked_for() -> None:
    async with opened() as scene:
        wishes = [Wish(word, 3).hold() for word in "abc"]
        await scene.begin(*wishes)
        assert all(wish.loading.is_set() for wish in wishes)
        assert not scene.words()
        for wish in wishes:
            wish.gate.set()
        await anyio.wait_all_tasks_blocked()
        assert scene.told == {word: word for word in "abc"}
        assert [wish.loaded for wish in wishes] == [3, 3, 3]
        assert sorted(word for words in scene.words() for word in words) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("away", determinate=False),
        Full("full"),
        Unauthorized("refused"),
        Corrupt("logs/main/nodes/1", "a bit was flipped"),
        Unsupported("upgrade"),
        Conflict("no business of a load"),
        RuntimeError("nobody foresaw this"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_a_load_meets_is_told_to_its_own_submission_alone(error: Exception) -> None:
    async with opened() as scene:
        other = Wish("other", 1).hold()
        await scene.begin(other, Wish("failing", 1, error=error), Wish("fine"))
        told = scene.told["failing"]
        if isinstance(error, Corrupt | Unsupported | Conflict | Unauthorized):
            assert told is error
        else:
            assert type(told) is Unavailable
            assert str(error) in str(told)
        assert getattr(told, "determinate", True), "nothing of it was sent"
        other.gate.set()
        await anyio.wait_all_tasks_blocked()
        await scene.begin(Wish("behind it"))
        assert scene.words() == [["fine"], ["other"], ["behind it"]]
        assert scene.reader.ended is None


async def test_whoever_is_loaded_when_the_log_has_ended_or_another_owns_it_is_told() -> None:
    async with opened() as scene:
        for word in ("ended", "deposed"):
            wish = Wish(word, 1).hold()
            await scene.begin(wish)
            if word == "ended":
                scene.reader.end(RuntimeError("boom"))
            else:
                scene.reader.ended, scene.writer.halted = None, NotOwner("another's")
            wish.gate.set()
            await anyio.wait_all_tasks_blocked()
            scene.writer.halted = None
            scene.reader.ended = None
        assert isinstance(scene.told["ended"], Unavailable)
        assert "opened anew" in str(scene.told["ended"])
        assert isinstance(scene.told["deposed"], NotOwner)


async def test_whoever_needs_a_load_while_the_process_ends_is_told() -> None:
    async with opened() as scene:
        await scene.writer.anchor()
        gate = scene.store.add(Rule(op="create", gate=anyio.Event()))
        held = Wish("held", 1).hold()
        await scene.begin(held, Wish("in flight"))
        await scene.begin(Wish("too late", 1), Wish("waits"))
        scene.closed = True
        assert gate.gate is not None
        gate.gate.set()
        await anyio.wait_all_tasks_blocked()
        assert scene.words() == [["in flight"], ["waits"]]
        assert str(scene.told["too late"]) == "this node is shutting down"
        held.gate.set()
        await anyio.wait_all_tasks_blocked()
        assert str(scene.told["held"]) == "this node is shutting down"
        assert scene.reader.ended is None


async def test_a_load_that_is_cancelled_leaves_nobody_waiting() -> None:
    wish = Wish("held", 1).hold()
    async with opened() as scene:
        await scene.begin(wish)
        scene.tasks.cancel_scope.cancel()
    with pytest.raises(Unavailable, match="stopped"):
        await wish.wait()


async def test_what_is_being_loaded_waits_and_counts_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3.28."""
    monkeypatch.setattr(log_writer, "QUEUE_BYTES", 1000)
    async with opened() as scene:
        held = Wish("held", 1, size=600).hold()
        await scene.begin(held)
        await scene.begin(Wish("too much", size=600))
        await scene.begin(Wish("fits", size=400))
        assert "600 bytes of pages wait to be written already" in str(scene.told["too much"])
        assert scene.told["fits"] == "fits"
        held.gate.set()
        await anyio.wait_all_tasks_blocked()
        assert scene.told["held"] == "held"
        await scene.begin(Wish("then", size=1000))
        failing = Wish("failing", 1, size=600, error=Unavailable("away"))
        await scene.begin(failing)
        await scene.begin(Wish("large", size=5000))
        assert scene.told["large"] == "large"


async def test_entries_name_the_newest_rollup_that_is_known() -> None:
    async with opened() as scene:
        await scene.begin(Wish("a"))
        scene.reader.propose(name_of(1), "")
        await scene.begin(Wish("b"))
        assert scene.reader.rollup == name_of(1)
        scene.reader.propose(name_of(0), name_of(1))
        await scene.begin(Wish("c"))
        scene.reader.propose(name_of(3), name_of(1))
        await scene.begin(Wish("d"))
        scene.reader.propose(name_of(3, "b"), name_of(3))
        await scene.begin(Wish("e"))
        named = [header.rollup for header in scene.headers()]
        assert named == ["", "", name_of(1), name_of(1), name_of(3), name_of(3)]


async def test_a_rollup_that_was_made_from_another_than_the_last_that_was_named_is_named_by_nobody() -> None:
    """Its tree may have nodes that the last one does without, and that go with the older ones."""
    async with opened() as scene:
        await scene.begin(Wish("a"))
        scene.reader.propose(name_of(1), "")
        await scene.begin(Wish("b"))
        scene.reader.propose(name_of(2), "")
        assert scene.reader.to_name == ""
        await scene.begin(Wish("c"))
        assert [header.rollup for header in scene.headers()][-2:] == [name_of(1), name_of(1)]


async def test_a_fence_names_it_too_whether_an_entry_that_counts_did_or_not() -> None:
    async with opened() as scene:
        await scene.begin(Wish("a"), Wish("b"))
        chain, inner = scene.reader.chain, scene.inner
        name, data = seal_rollup(
            Rollup(log=LOG, slot=1, n=chain.n, writer=chain.writer, canonical=1, digest=chain.digest)
        )
        await inner.create(rollup_key(LOG, name), data)
        scene.reader.propose(name, "")
        await scene.begin(Wish("c"))
    for epoch in (1, 2):
        async with opened(Term(epoch, b"%d" % epoch * 16), inner) as owner:
            assert owner.reader.rollup == name
            await owner.writer.fence()
            await owner.begin(Wish("d"))
            assert [header.rollup for header in owner.headers()[-2:]] == [name, name]


async def test_a_rollup_of_slots_that_were_not_read_is_never_named() -> None:
    async with opened() as scene:
        await scene.begin(Wish("a"))
        scene.reader.propose(name_of(2), "")
        await scene.begin(Wish("b"))
        assert scene.reader.ended is not None
        assert len(scene.inner.objects) == 2


async def test_it_is_said_when_an_entry_has_been_acknowledged_and_only_then() -> None:
    async with opened() as scene:
        await scene.begin(Wish("a"))
        assert scene.stood == [1]
        lost = scene.store.add(Rule(op="create", times=None, after=Unavailable("no answer", determinate=False)))
        away = scene.store.add(Rule(op="get", times=None, before=Unavailable("away")))
        await scene.begin(Wish("b"))
        assert isinstance(scene.told["b"], Unavailable)
        assert not scene.told["b"].determinate
        assert scene.stood == [1]
        for rule in (lost, away):
            scene.store.rules.remove(rule)
        await scene.begin(Wish("c"))
        assert scene.words() == [["a"], ["b"], ["c"]]
        assert scene.stood == [1, 3]

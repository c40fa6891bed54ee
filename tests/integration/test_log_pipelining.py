"""Several entries in flight (DESIGN §4, rules 2, 3, 5 and 7): whichever the store answers first, what is lost of them,
and who has fenced whom meanwhile. Submissions are words, as in test_log_loads.py."""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from weakref import WeakSet

import anyio
import pytest

from budwood.server.log import waiting
from budwood.server.log.chain import Chain
from budwood.server.log.reader import LogReader
from budwood.server.log.submission import Contents
from budwood.server.log.term import Term
from budwood.server.log.waiting import Batching
from budwood.server.metastore.entry_draft import EntryDraft
from budwood.server.node import Node
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import CREATE, CreateRequest
from budwood.volume.entry import entry_key, parse_entry, seal_entry
from budwood.volume.errors import Conflict, Corrupt, NotOwner, Unavailable
from budwood.volume.garbage import plan_name
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.records import StreamRecords

from .test_log_loads import LOG, Scene, Wish, Wishes, opened

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

ALPHA = 4
PAGE = 512
WORDS = ["a", "b", "c", "d"]
UNKNOWN = Unavailable("no answer", determinate=False)


def term(epoch: int) -> Term:
    return Term(epoch, bytes([epoch]) * 16)


@asynccontextmanager
async def owned(
    epoch: int = 2, inner: MemoryStore | None = None, window_seconds: float = 0.0
) -> AsyncGenerator[Scene, None]:
    """By a writer that has fenced the log."""
    async with opened(term(epoch), inner, Batching(ALPHA, window_seconds)) as scene:
        await scene.writer.fence()
        yield scene


def held(scene: Scene, slot: int, **fate: Exception) -> Rule:
    """The create of that slot waits, and meets that then."""
    return scene.store.add(Rule(op="create", key=entry_key(LOG, slot), gate=anyio.Event(), **fate))  # type: ignore[arg-type]


async def let_go(*rules: Rule) -> None:
    for rule in rules:
        assert rule.gate is not None
        rule.gate.set()
    await anyio.wait_all_tasks_blocked()


async def in_flight(scene: Scene, words: list[str]) -> None:
    """One entry each."""
    for word in words:
        await scene.begin(Wish(word))


def slots(scene: Scene) -> list[int]:
    return [slot for slot in range(40) if entry_key(LOG, slot) in scene.inner.objects]


async def canonical(inner: MemoryStore) -> list[str]:
    """The words that count, as whoever comes reads them."""
    words: list[str] = []
    reader = LogReader(inner, LOG, lambda entry: words.extend(entry.streams))
    await reader.open()
    return words


def another(scene: Scene, slot: int, chain: Chain, epoch: int, words: list[str], kind: str = "data") -> bytes:
    """An entry of another writer, made from that chain."""
    assert chain.next == slot
    streams = {word: StreamRecords(records=(word.encode(),)) for word in words}
    header = chain.header(epoch=epoch, writer=term(epoch).writer, kind=kind, streams=streams)
    return seal_entry(header)


def zombie(stale: Chain, slot: int) -> bytes:
    """An entry of epoch 1, whose writer knows nothing of the fence and has sent so far ahead."""
    writer = term(1).writer
    chain = Chain(log=LOG, next=slot, epoch=1, n=9, writer=writer, slot=stale.slot, digest=stale.digest)
    return seal_entry(chain.header(epoch=1, writer=writer, kind="data"))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_entries_are_acknowledged_in_their_order_whichever_lands_first(order: tuple[int, ...]) -> None:
    """S4.13, S0.3."""
    async with owned() as scene:
        first = scene.reader.chain.next
        rules = [held(scene, first + at) for at in range(3)]
        await in_flight(scene, WORDS[:3])
        landed = set[int]()
        for at in order:
            await let_go(rules[at])
            landed.add(at)
            stand = next(n for n in range(4) if n not in landed)
            assert sorted(scene.told) == WORDS[:stand]
        assert await canonical(scene.inner) == WORDS[:3]
        headers = scene.headers()[-3:]
        assert [header.alpha for header in headers] == [ALPHA] * 3
        assert [header.acked for header in headers] == [first - 1] * 3


async def test_no_more_are_in_flight_than_allowed_and_the_next_one_takes_all_who_wait() -> None:
    """S0.3."""
    async with owned() as scene:
        first = scene.reader.chain.next
        rules = [held(scene, first + at) for at in range(ALPHA)]
        await in_flight(scene, [*"abcdefg"])
        assert slots(scene) == list(range(first))
        await let_go(rules[1])
        assert entry_key(LOG, first + ALPHA) not in scene.inner.objects
        await let_go(rules[0])
        assert sorted(scene.told) == ["a", "b"]
        await let_go(*rules[2:])
        assert scene.words()[-5:] == [["a"], ["b"], ["c"], ["d"], ["e", "f", "g"]]


async def test_a_batch_collects_for_its_window_or_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """S0.18: at once when idle; behind one in flight when there is enough."""
    monkeypatch.setattr(waiting, "BATCH_BYTES", 100)
    monkeypatch.setattr("budwood.server.log.in_flight.BATCH_BYTES", 100)
    async with owned(window_seconds=math.inf) as scene:
        first = held(scene, scene.reader.chain.next)
        await scene.begin(Wish("idle"))
        assert first.reached.is_set()
        await scene.begin(Wish("small", size=50))
        assert "small" not in scene.told
        await scene.begin(Wish("enough", size=50))
        await let_go(first)
        assert scene.words()[-2:] == [["idle"], ["small", "enough"]]


async def test_a_private_log_has_one_entry_in_flight() -> None:
    async with opened(batching=Batching(ALPHA, 0.0)) as scene:
        await scene.begin(Wish("anchor"))
        rule = held(scene, scene.reader.chain.next)
        await in_flight(scene, WORDS)
        await let_go(rule)
        assert scene.words() == [["anchor"], ["a"], ["b", "c", "d"]]


async def test_parallel_writes_halt_at_the_first_slot_that_is_lost() -> None:
    """S0.32: two writers. Of the older epoch's three entries in flight the first meets the newer one's fence; the other
    two land behind it, and count for nobody."""
    inner = MemoryStore()
    async with owned(1, inner) as old:
        first = old.reader.chain.next
        rules = [held(old, first + at) for at in range(3)]
        await in_flight(old, WORDS[:3])
        await let_go(rules[2])
        async with owned(2, inner) as new:
            assert new.reader.chain.next == first + 1
            await let_go(rules[0])
            assert not old.told
            await let_go(rules[1])
            assert {word: type(told) for word, told in old.told.items()} == dict.fromkeys(WORDS[:3], NotOwner)
            # The newer one's next entry loses two slots to what the older one has left there.
            await new.begin(Wish("new"))
            assert new.told == {"new": "new"}
            assert new.headers()[-1].i == first + 3
            assert await canonical(inner) == ["new"]
        await old.begin(Wish("later"))
        assert isinstance(old.told["later"], NotOwner)


async def test_three_writers_of_whom_two_fence_at_once() -> None:
    """S0.32: each slot has one of them, and the youngest goes on."""
    inner = MemoryStore()
    async with owned(1, inner) as old:
        first = old.reader.chain.next
        rules = [held(old, first + at) for at in range(2)]
        await in_flight(old, WORDS[:2])
        await let_go(rules[1])
        async with opened(term(2), inner, Batching(ALPHA, 0.0)) as second, owned(3, inner) as third:
            await let_go(rules[0])
            with pytest.raises(NotOwner):
                await second.writer.fence()
            await in_flight(third, ["x", "y"])
            assert third.told == {"x": "x", "y": "y"}
            assert {type(told) for told in old.told.values()} == {NotOwner}
        assert await canonical(inner) == ["x", "y"]


async def test_whoever_loses_a_slot_to_an_older_epoch_sends_all_of_it_anew() -> None:
    """Rule 3: in fresh slots, one at a time until the first is canonical."""
    inner = MemoryStore()
    async with owned(1, inner) as old:
        stale = old.reader.chain
    async with owned(2, inner) as scene:
        first = scene.reader.chain.next
        rules = [held(scene, first + at) for at in range(3)]
        await in_flight(scene, WORDS[:3])
        await inner.create(entry_key(LOG, first), zombie(stale, first))
        alone, behind = held(scene, first + 3), held(scene, first + 4)
        await let_go(*rules)
        assert not scene.told
        assert slots(scene)[-1] == first + 2, "one alone"
        await scene.begin(Wish("e"))
        assert not behind.reached.is_set()
        await let_go(alone, behind)
        assert scene.told == {word: word for word in [*WORDS[:3], "e"]}
        assert [header.i for header in scene.headers()][-2:] == [first + 3, first + 4]
        assert await canonical(inner) == [*WORDS[:3], "e"]


@pytest.mark.parametrize("landed", [False, True])
async def test_an_answer_that_is_lost_leaves_all_behind_it_unsettled_and_the_same_bytes_are_sent_again(
    landed: bool,
) -> None:
    """Rule 5: whether the oldest landed or not, those behind it stand, and count with it."""
    async with owned() as scene:
        first = scene.reader.chain.next
        fate = {"after" if landed else "before": UNKNOWN}
        rules = [held(scene, first, **fate), held(scene, first + 1), held(scene, first + 2, before=UNKNOWN)]
        # Nor can be found out what stands there.
        for slot in (first, first + 2):
            scene.store.add(Rule(op="create", key=entry_key(LOG, slot), nth=2, times=None, before=UNKNOWN))
        await in_flight(scene, WORDS[:3])
        await let_go(*rules)
        assert all(isinstance(told, Unavailable) and not told.determinate for told in scene.told.values())
        assert len(scene.told) == 3
        behind = scene.inner.objects[entry_key(LOG, first + 1)]
        assert slots(scene)[first:] == ([first] if landed else []) + [first + 1]
        scene.store.rules.clear()
        await scene.begin(Wish("next"))
        assert scene.told["next"] == "next"
        assert await canonical(scene.inner) == [*WORDS[:3], "next"]
        assert scene.inner.objects[entry_key(LOG, first + 1)] == behind


async def test_an_entry_that_may_stand_is_sent_until_that_is_known() -> None:
    """A store that refuses it the second time has said nothing of the first."""
    async with owned() as scene:
        key = entry_key(LOG, scene.reader.chain.next)
        scene.store.add(Rule(op="create", key=key, times=None, before=UNKNOWN))
        await scene.begin(Wish("a"))
        scene.store.rules.clear()
        busy = Unavailable("busy", determinate=True)
        scene.store.add(Rule(op="create", key=key, times=None, before=busy))
        await scene.begin(Wish("b"))
        assert (scene.told["a"].determinate, scene.told["b"].determinate) == (False, True)
        scene.store.rules.clear()
        await scene.begin(Wish("c"))
        assert await canonical(scene.inner) == ["a", "c"]


async def test_unsettled_entries_are_void_once_a_look_has_found_another_in_the_oldest_s_slot() -> None:
    inner = MemoryStore()
    async with owned(1, inner) as old:
        stale = old.reader.chain
    async with owned(2, inner) as scene:
        first = scene.reader.chain.next
        rules = [held(scene, first + at, before=UNKNOWN) for at in range(2)]
        down = scene.store.add(Rule(op="create", key=f"logs/{LOG}/entries/*", nth=3, times=None, before=UNKNOWN))
        await in_flight(scene, ["a", "b"])
        await let_go(*rules)
        await inner.create(entry_key(LOG, first), zombie(stale, first))
        await scene.reader.refresh()
        scene.store.rules.remove(down)
        await scene.begin(Wish("c"))
        assert scene.told["c"] == "c"
        assert await canonical(inner) == ["c"]


async def test_an_entry_that_was_certainly_not_sent_is_sent_as_it_is_where_others_build_on_it() -> None:
    """Whoever put another into its slot would break the chain of those behind it, which have landed."""
    async with owned() as scene:
        first = scene.reader.chain.next
        busy = Unavailable("busy", determinate=True)
        oldest, other = held(scene, first, before=busy), held(scene, first + 1)
        refused = scene.store.add(Rule(op="create", key=entry_key(LOG, first), nth=2, times=None, before=busy))
        await in_flight(scene, ["a", "b"])
        await let_go(other, oldest)
        assert len(scene.told) == 2
        assert not any(told.determinate for told in scene.told.values())
        scene.store.rules.remove(refused)
        await scene.begin(Wish("c"))
        assert await canonical(scene.inner) == ["a", "b", "c"]


async def test_whoever_was_certainly_not_sent_last_hears_so() -> None:
    async with owned() as scene:
        first = scene.reader.chain.next
        busy = Unavailable("busy", determinate=True)
        oldest = held(scene, first, before=UNKNOWN)
        scene.store.add(Rule(op="create", key=entry_key(LOG, first), times=None, before=UNKNOWN))
        last = scene.store.add(Rule(op="create", key=entry_key(LOG, first + 1), times=None, before=busy))
        await in_flight(scene, ["a", "b"])
        assert last.reached.is_set()
        await let_go(oldest)
        assert {word: told.determinate for word, told in scene.told.items()} == {"a": False, "b": True}
        scene.store.rules.clear()
        await scene.begin(Wish("c"))
        assert await canonical(scene.inner) == ["a", "c"]


async def test_unsettled_entries_are_void_once_the_oldest_was_lost() -> None:
    inner = MemoryStore()
    async with owned(1, inner) as scene:
        first = scene.reader.chain.next
        down = scene.store.add(Rule(op="create", key=f"logs/{LOG}/entries/*", times=None, before=UNKNOWN))
        await in_flight(scene, ["a", "b"])
        assert len(scene.told) == 2
        async with owned(2, inner) as new:
            assert new.reader.chain.next == first + 1
            scene.store.rules.remove(down)
            await scene.begin(Wish("c"))
            assert isinstance(scene.told["c"], NotOwner)
            assert slots(scene) == list(range(first + 1)), "and nothing more is sent"
            assert not scene.writer.unsettled


async def test_whoever_opens_fences_at_the_first_gap_and_what_lies_behind_is_void() -> None:
    """S4.14: whoever came before had another number in flight; the newest name, its entry, and what comes behind what
    that had acknowledged are all that is asked for."""
    inner = MemoryStore()
    async with owned(1, inner) as old:
        first = old.reader.chain.next
        rules = [held(old, first, before=UNKNOWN), held(old, first + 1), held(old, first + 2)]
        old.store.add(Rule(op="create", key=entry_key(LOG, first), times=None, before=UNKNOWN))
        await in_flight(old, WORDS[:3])
        await let_go(*rules)
        assert slots(old) == [*range(first), first + 1, first + 2]
    async with opened(term(2), inner, Batching(2, 0.0)) as scene:
        # The newest, those behind what it had acknowledged, and the anchor and the fence, which no rollup covers here.
        assert scene.store.count("list") == 1
        assert scene.store.count("get") <= 1 + first + 2 * ALPHA
        await scene.writer.fence()
        assert scene.reader.chain.slot == first
        await in_flight(scene, ["x", "y"])
        assert scene.told == {"x": "x", "y": "y"}
        assert [header.alpha for header in scene.headers()][-1] == 2
        assert await canonical(inner) == ["x", "y"]


async def test_whoever_wants_to_look_has_its_turn_though_commits_never_cease() -> None:
    async with owned() as scene:
        first = scene.reader.chain.next
        rules = [held(scene, first + at) for at in range(3)]
        await in_flight(scene, ["a", "b"])
        looked: list[int] = []

        async def look() -> None:
            await scene.reader.refresh()
            looked.append(scene.reader.chain.next)

        scene.tasks.start_soon(look)
        await anyio.wait_all_tasks_blocked()
        await scene.begin(Wish("c"))
        await let_go(rules[0])
        assert not rules[2].reached.is_set()
        await let_go(rules[1])
        assert looked == [first + 2]
        await let_go(rules[2])
        assert sorted(scene.told) == ["a", "b", "c"]


async def test_damage_that_is_met_in_flight_is_told_to_all() -> None:
    async with owned() as scene:
        first = scene.reader.chain.next
        rules = [held(scene, first + at) for at in range(2)]
        await in_flight(scene, ["a", "b"])
        other = another(scene, first, scene.reader.chain, 9, [], kind="fence")
        await scene.inner.create(entry_key(LOG, first), other[:-1] + bytes([other[-1] ^ 1]))
        await let_go(*rules)
        assert all(isinstance(told, Unavailable) and not told.determinate for told in scene.told.values())
        assert len(scene.told) == 2
        await scene.begin(Wish("c"))
        assert isinstance(scene.told["c"], Corrupt)
        assert parse_entry(entry_key(LOG, first + 1), scene.inner.objects[entry_key(LOG, first + 1)]).header.n == 2


@asynccontextmanager
async def served(store: RiggedStore) -> AsyncGenerator[tuple[Node, VolumeId], None]:
    async with Node.open(store, name=LOG, batching=Batching(ALPHA, 0.0)) as node:
        vid = VolumeId.new()
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        yield node, vid


async def test_a_commit_is_judged_on_those_in_flight_before_it() -> None:
    """Rule 3; and whoever is refused because of one waits until that is acknowledged (rule 7)."""
    store = RiggedStore(MemoryStore())
    async with served(store) as (node, vid):
        first = (await node.logs.get(LOG)).reader.chain.next
        rules = [store.add(Rule(op="create", key=entry_key(LOG, first + at), gate=anyio.Event())) for at in range(2)]
        told: dict[str, int | Conflict] = {}

        async def commit(word: str, base: int) -> None:
            pages = {1: word.encode() * PAGE}
            try:
                told[word] = (
                    await node.commit(*commit_of(vid, base, pages, client=ClientId.new(), page_size=PAGE))
                ).lsn
            except Conflict as error:
                told[word] = error

        async with anyio.create_task_group() as tasks:
            for word, base in (("a", 0), ("b", 1), ("c", 0)):
                tasks.start_soon(commit, word, base)
                await anyio.wait_all_tasks_blocked()
            assert rules[1].reached.is_set()
            await let_go(rules[1])
            assert not told
            await let_go(rules[0])
        assert (told["a"], told["b"]) == (1, 2)
        conflict = told["c"]
        assert isinstance(conflict, Conflict)
        assert conflict.head == 2


async def test_drafts_let_go_of_those_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long entries are in flight without a pause."""
    store = RiggedStore(MemoryStore())
    async with served(store) as (node, _):
        log, made = await node.logs.get(LOG), WeakSet[EntryDraft]()
        first = log.reader.chain.next

        def noted(now_ms: int, before: Sequence[EntryDraft]) -> EntryDraft:
            draft = EntryDraft(now_ms, before)
            made.add(draft)
            return draft

        monkeypatch.setattr(log.writer, "_draft", noted)
        rules = [store.add(Rule(op="create", key=entry_key(LOG, first + at), gate=anyio.Event())) for at in range(20)]

        async def commit() -> None:
            await node.ask(CREATE, CreateRequest((vid := VolumeId.new()).raw, page_size=PAGE))
            await node.commit(*commit_of(vid, 0, {1: bytes(PAGE)}, client=ClientId.new(), page_size=PAGE))

        async with anyio.create_task_group() as tasks:
            for before, rule in zip([None, *rules], rules, strict=False):
                tasks.start_soon(commit)
                await rule.reached.wait()
                if before is not None:
                    await let_go(before)
            assert len(made) <= 2
            await let_go(rules[-1])


class Plans(Wishes):
    """A wish that is a number is for the garbage plan of that number."""

    def finish(self) -> Contents:
        plans = [wish.word for wish in self.taken if wish.word.isdigit()]
        return super().finish()._replace(garbage=plan_name(int(plans[0])) if plans else "")


async def test_nothing_is_sent_behind_an_entry_that_acknowledges_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after it is judged on what the plan says."""
    async with owned() as scene:
        first = scene.reader.chain.next
        monkeypatch.setattr(scene.writer, "_draft", Plans)
        rules = [held(scene, first + at) for at in range(3)]
        await in_flight(scene, ["a", "7", "b"])
        assert [rule.reached.is_set() for rule in rules] == [True, True, False]
        await let_go(*rules)
        assert scene.words()[-3:] == [["a"], ["7"], ["b"]]

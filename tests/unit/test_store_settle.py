"""A lost answer of a create is settled by the bytes that stand there; what passes is repeated until a deadline."""

from __future__ import annotations

import pytest

from budwood.server.store.retrying import Patience, create_settled, get_retried, same_bytes
from budwood.testing.clock import ManualClock
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.errors import Full, NotFound, Unauthorized, Unavailable

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


class Bench:
    def __init__(self, *, deadline_seconds: float = 30.0, try_seconds: float = 60.0) -> None:
        self.clock = ManualClock(jumps=True)
        self.memory = MemoryStore()
        self.store = RiggedStore(self.memory)
        self.patience = Patience(
            deadline_seconds=deadline_seconds,
            try_seconds=try_seconds,
            now=self.clock.now,
            sleep=self.clock.sleep,
            draw=lambda: 1.0,
        )


def lost() -> Unavailable:
    return Unavailable("no answer", determinate=False)


async def test_a_lost_answer_is_found_to_be_ours() -> None:
    bench = Bench()
    bench.store.add(Rule(op="create", after=lost()))
    assert await create_settled(bench.store, "k", [b"our", b"s"], bench.patience) is None
    assert bench.memory.objects == {"k": b"ours"}
    assert bench.store.count("create") == 2


async def test_a_lost_request_is_sent_again() -> None:
    bench = Bench()
    bench.store.add(Rule(op="create", times=3, before=lost()))
    assert await create_settled(bench.store, "k", b"ours", bench.patience) is None
    assert bench.store.count("create") == 4
    assert bench.clock.slept == [0.05, 0.1, 0.2]


async def test_another_ones_bytes_are_given_back() -> None:
    bench = Bench()
    await bench.memory.create("k", b"theirs")
    bench.store.add(Rule(op="create", before=lost()))
    assert await create_settled(bench.store, "k", b"ours", bench.patience) == b"theirs"
    assert bench.memory.objects == {"k": b"theirs"}


async def test_what_stands_there_is_read_until_it_answers() -> None:
    bench = Bench()
    bench.store.add(Rule(op="create", after=lost()))
    bench.store.add(Rule(op="get", times=2, before=Unavailable("busy")))
    assert await create_settled(bench.store, "k", b"ours", bench.patience) is None


async def test_a_deadline_leaves_the_outcome_open_if_any_try_may_have_arrived() -> None:
    bench = Bench()
    bench.store.add(Rule(op="create", after=lost()))
    bench.store.add(Rule(op="create", times=None, before=Unavailable("refused")))
    with pytest.raises(Unavailable) as caught:
        await create_settled(bench.store, "k", b"ours", bench.patience)
    assert not caught.value.determinate
    assert bench.clock.now() < 30.0
    assert max(bench.clock.slept) == 2.0


async def test_a_deadline_says_for_certain_that_nothing_happened() -> None:
    bench = Bench(deadline_seconds=5.0)
    bench.store.add(Rule(op="create", times=None, before=Unavailable("refused")))
    with pytest.raises(Unavailable, match="refused") as caught:
        await create_settled(bench.store, "k", b"ours", bench.patience)
    assert caught.value.determinate
    assert bench.memory.objects == {}


async def test_a_create_that_never_answers_is_given_up_and_settled() -> None:
    bench = Bench(try_seconds=0.01)
    bench.store.add(Rule(op="create", hang="after"))
    assert await create_settled(bench.store, "k", b"ours", bench.patience) is None
    assert bench.store.count("create") == 2


async def test_an_object_that_was_deleted_meanwhile_is_nobodys() -> None:
    bench = Bench()
    await bench.memory.create("k", b"?")
    bench.store.add(Rule(op="get", before=NotFound("no object k")))
    with pytest.raises(NotFound, match="can't be told"):
        await create_settled(bench.store, "k", b"ours", bench.patience)


@pytest.mark.parametrize("error", [Full("no room"), Unauthorized("no")])
async def test_what_does_not_pass_is_raised_at_once(error: Exception) -> None:
    bench = Bench()
    bench.store.add(Rule(before=error, times=2))
    with pytest.raises(type(error)):
        await create_settled(bench.store, "k", b"ours", bench.patience)
    with pytest.raises(type(error)):
        await get_retried(bench.store, "k", patience=bench.patience)
    assert bench.clock.slept == []


async def test_what_has_no_hope_is_not_tried_again() -> None:
    bench = Bench()
    bench.store.add(Rule(times=None, before=Unavailable("nothing leads there", hopeless=True)))
    for asked in (
        get_retried(bench.store, "k", patience=bench.patience),
        create_settled(bench.store, "k", b"ours", bench.patience),
    ):
        with pytest.raises(Unavailable, match="nothing leads there") as caught:
            await asked
        assert caught.value.hopeless
        assert caught.value.determinate
    assert (bench.store.count("get"), bench.store.count("create")) == (1, 1)
    assert bench.clock.slept == []


async def test_a_get_is_repeated_until_the_deadline() -> None:
    bench = Bench()
    await bench.memory.create("k", b"hello")
    rule = bench.store.add(Rule(op="get", times=4, before=Unavailable("busy")))
    assert await get_retried(bench.store, "k", start=1, end=3, patience=bench.patience) == b"el"
    assert rule.fired == 4
    bench.store.add(Rule(op="get", times=None, before=Unavailable("down")))
    with pytest.raises(Unavailable, match="down"):
        await get_retried(bench.store, "k", patience=bench.patience)


async def test_a_missing_object_is_no_reason_to_repeat() -> None:
    bench = Bench()
    with pytest.raises(NotFound):
        await get_retried(bench.store, "k", patience=bench.patience)
    assert bench.store.count() == 1


@pytest.mark.parametrize(
    ("pieces", "same"),
    [
        ([b"ab", b"c"], True),
        ([b"", bytearray(b"abc")], True),
        (memoryview(b"abc"), True),
        ([b"ab", b"d"], False),
        ([b"abc", b"d"], False),
        (b"ab", False),
        ([], False),
    ],
)
async def test_bytes_are_compared_across_pieces(pieces: list[bytes], same: bool) -> None:
    assert same_bytes(b"abc", pieces) is same


@pytest.mark.parametrize("error", [Full("no room"), Unauthorized("expired")])
async def test_a_refusal_after_a_lost_answer_leaves_it_unknown_whether_it_happened(error: Exception) -> None:
    bench = Bench()
    bench.store.add(Rule(op="create", after=lost()))
    bench.store.add(Rule(op="create", before=error))
    with pytest.raises(Unavailable) as unknown:
        await create_settled(bench.store, "k", b"ours", bench.patience)
    assert not unknown.value.determinate
    assert bench.memory.objects == {"k": b"ours"}

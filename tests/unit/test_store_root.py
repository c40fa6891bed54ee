"""The root is made once, read by all, and refused in words when it isn't ours to read."""

from __future__ import annotations

import anyio
import msgspec
import pytest

from budwood.server.store.retrying import Patience
from budwood.server.store.root import ROOT_KEY, Root, new_root, open_root, parse_root, seal_root
from budwood.testing.clock import ManualClock
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.envelope import ENTRY, ROOT, encode, seal
from budwood.volume.errors import Corrupt, NotFound, Unavailable, Unsupported

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


async def test_the_first_comer_makes_the_root_and_later_ones_read_it() -> None:
    store = MemoryStore()
    made = await open_root(store, now_ms=lambda: 1_700_000_000_000)
    assert list(store.objects) == [ROOT_KEY]
    assert await open_root(store) == made
    assert await open_root(store, create=False) == made
    assert (made.cas, made.generation, made.gc_interval_seconds, made.max_alpha) == ("native", 1, 3600, 16)
    assert made.store_id.time_ms == made.names_id.time_ms == made.time == 1_700_000_000_000


async def test_two_first_comers_read_the_same() -> None:
    memory = MemoryStore()
    roots: list[Root] = []
    first, second = RiggedStore(memory), RiggedStore(memory)
    gate = first.add(Rule(op="create", gate=anyio.Event()))

    async def come(store: RiggedStore) -> None:
        roots.append(await open_root(store))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(come, first)
        await gate.reached.wait()
        await come(second)
        assert gate.gate is not None
        gate.gate.set()
    assert roots[0] == roots[1]
    assert parse_root(memory.objects[ROOT_KEY]) == roots[0]


async def test_a_root_whose_answer_was_lost_is_still_ours() -> None:
    clock = ManualClock(jumps=True)
    store = RiggedStore(MemoryStore())
    store.add(Rule(op="create", after=Unavailable("lost", determinate=False)))
    made = await open_root(store, patience=Patience(now=clock.now, sleep=clock.sleep))
    assert await open_root(store) == made


async def test_no_root_is_made_unless_allowed() -> None:
    store = MemoryStore()
    with pytest.raises(NotFound, match="no Budwood store at test://"):
        await open_root(store, create=False)
    assert store.objects == {}


async def test_every_flipped_byte_is_damage_that_names_the_root() -> None:
    data = bytearray(seal_root(new_root(1)))
    for at in range(len(data)):
        data[at] ^= 0x20
        with pytest.raises(Corrupt) as caught:
            parse_root(bytes(data))
        assert caught.value.key == ROOT_KEY
        data[at] ^= 0x20
    for length in range(4, len(data)):
        with pytest.raises(Corrupt):
            parse_root(bytes(data[:length]))


@pytest.mark.parametrize("data", [b"", b"SQLite format 3\0", b"\x7fELF", b"{}", b"hello world" * 20])
async def test_a_foreign_object_is_refused_in_words(data: bytes) -> None:
    with pytest.raises(Unsupported, match="not Budwood's"):
        parse_root(data)


async def test_a_newer_root_is_refused_in_words() -> None:
    sealed = seal(ROOT, encode(new_root(1)), features=1 << 40)
    with pytest.raises(Unsupported, match="newer"):
        parse_root(sealed)
    three_phase = msgspec.structs.replace(new_root(1), cas="three-phase", generation=2)
    with pytest.raises(Unsupported, match=r"three-phase.*generation 2"):
        parse_root(seal_root(three_phase))


async def test_an_unknown_field_is_passed_over() -> None:
    root = new_root(1)
    assert parse_root(seal(ROOT, encode(msgspec.to_builtins(root, builtin_types=(bytes,)) | {"later": 7}))) == root


@pytest.mark.parametrize(
    "change", [{"store": b"short"}, {"names": new_root(1).store}, {"max_alpha": 0}, {"generation": 0}]
)
async def test_a_root_that_makes_no_sense_is_damage(change: dict[str, object]) -> None:
    with pytest.raises(Corrupt):
        parse_root(seal_root(msgspec.structs.replace(new_root(1), **change)))


async def test_another_kind_of_object_under_its_key_is_damage() -> None:
    with pytest.raises(Corrupt):
        parse_root(b"BWRO" + seal(ENTRY, encode(new_root(1)))[4:])

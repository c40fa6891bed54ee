"""Every backend keeps the rules of server/store/protocol.py, under asyncio and under trio; so does one without
create-if-absent, with records (S0.6, S0.9)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from uuid import uuid4

import anyio
import pytest

from budwood.server.store.open_store import open_store
from budwood.server.store.probe import probe
from budwood.server.store.protocol import Buffer, Store
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume.errors import AlreadyExists, BadInput, NotFound

from ..postgres import PostgresServer
from .s3_server import S3Server
from .store_servers import Bucket, environment, made_by, served

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

# Order by whole keys differs from order by directories wherever '-' or '.' meets '/'.
KEYS = ["a", "a-b", "a.b", "a-/x", "b/c", "b-/c", "b.c", "b/c-d/e", "b/c.d", "b/cc", "b0", "b=", "Z", "_", "b/c0/0"]


OTHERS = ("moto", "azurite")
"""Made by others: see store_servers.py."""


@pytest.fixture(scope="module")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Bucket]]:
    """A prefix of its own in a server by that name, which all tests share."""
    with ExitStack() as stack:
        started: dict[str, Bucket] = {}
        numbers = count()

        def start(name: str) -> Bucket:
            if name not in started:
                folder = tmp_path_factory.mktemp(name)
                started[name] = stack.enter_context(served(name, folder))
            url, _, options = started[name].url.partition("?")
            return replace(started[name], url=f"{url}/{next(numbers)}?{options}".rstrip("?"))

        yield start


@pytest.fixture(
    params=[
        "file",
        "memory",
        "plain",
        "rigged",
        "s3",
        *map(made_by, OTHERS),
        "file, sqlite",
        "memory, postgresql",
        "s3 without create, sqlite",
    ]
)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, buckets: Callable[[str], Bucket]
) -> AsyncIterator[Store]:
    kind: str = request.param
    sqlite = f"records=sqlite://{tmp_path}/records"
    with ExitStack() as stack:
        opened: Store
        if kind == "file, sqlite":
            opened = await open_store(f"{(tmp_path / 'store').as_uri()}?{sqlite}")
        elif kind == "memory, postgresql":
            postgres: PostgresServer = request.getfixturevalue("postgres")
            opened = await open_store(f"memory://{uuid4().hex}?records={postgres.url(uuid4().hex)}")
        elif kind == "s3 without create, sqlite":
            server = stack.enter_context(S3Server(honours_create=False, page_keys=4))
            stack.enter_context(server.environment())
            opened = await open_store(f"s3://bucket/a/prefix?{sqlite}")
        elif kind == "file":
            opened = await open_store((tmp_path / "st ore").as_uri())
        elif kind == "memory":
            opened = await open_store(f"memory://{uuid4().hex}")
        elif kind == "s3":
            server = stack.enter_context(S3Server(page_keys=4))
            stack.enter_context(server.environment())
            opened = await open_store("s3://bucket/a/prefix")
        elif kind in OTHERS:
            bucket = buckets(kind)
            stack.enter_context(environment(bucket.variables))
            opened = await open_store(bucket.url)
        else:
            opened = MemoryStore() if kind == "plain" else RiggedStore(MemoryStore())
        yield opened
        await opened.aclose()
        await opened.aclose()


async def test_an_object_is_read_as_it_was_created(store: Store) -> None:
    data = bytes(range(256)) * 5000
    await store.create("a/b", data)
    assert await store.get("a/b") == data
    for start, end in [(0, 1), (0, 256), (255, 258), (1_279_999, 1_280_000), (0, 5_000_000), (70_000, 900_000)]:
        assert await store.get("a/b", start=start, end=end) == data[start:end]
    assert await store.get("a/b", start=1_279_990) == data[-10:]


async def test_a_range_beyond_the_end_gives_what_is_there(store: Store) -> None:
    await store.create("a", b"hello")
    for start, end in [(2, 100), (5, 9), (5, None), (9, 12), (9, None), (3, 3), (0, 0), (7, 7)]:
        assert await store.get("a", start=start, end=end) == b"hello"[start:end]


async def test_an_empty_object_is_an_object(store: Store) -> None:
    await store.create("a", b"")
    assert await store.get("a") == b""
    assert await store.get("a", start=0, end=7) == b""
    assert await store.get_tail("a", 32) == (b"", 0)
    assert await store.list("") == ["a"]
    with pytest.raises(AlreadyExists):
        await store.create("a", b"")


async def test_a_tail_comes_with_the_whole_length(store: Store) -> None:
    await store.create("a", b"hello")
    assert await store.get_tail("a", 2) == (b"lo", 5)
    assert await store.get_tail("a", 5) == (b"hello", 5)
    assert await store.get_tail("a", 50) == (b"hello", 5)


async def test_data_comes_whole_or_in_pieces(store: Store) -> None:
    pieces: list[Buffer] = [b"ab", bytearray(b"cd"), b"", memoryview(b"xefx")[1:3], memoryview(bytearray(b"gh"))]
    await store.create("pieces", pieces)
    await store.create("array", bytearray(b"abcdefgh"))
    await store.create("view", memoryview(b"abcdefgh"))
    await store.create("many", [b"x"] * 3000)
    await store.create("none", [])
    for key in ("pieces", "array", "view"):
        assert await store.get(key) == b"abcdefgh"
    assert await store.get("many") == b"x" * 3000
    assert await store.get("none") == b""


async def test_the_first_create_stands(store: Store) -> None:
    await store.create("a/b", b"first")
    with pytest.raises(AlreadyExists):
        await store.create("a/b", b"second")
    assert await store.get("a/b") == b"first"


async def test_of_many_creators_exactly_one_wins(store: Store) -> None:
    won: list[bytes] = []

    async def create(mine: bytes) -> None:
        try:
            await store.create("slot/0", mine)
        except AlreadyExists:
            return
        won.append(mine)

    async with anyio.create_task_group() as tasks:
        for number in range(32):
            tasks.start_soon(create, b"%d" % number)
    assert won == [await store.get("slot/0")]


async def test_a_missing_object_is_not_found(store: Store) -> None:
    await store.create("a/b", b"x")
    for call in (store.get("b"), store.get("a"), store.get("a/c"), store.get("b", start=3, end=4)):
        with pytest.raises(NotFound):
            await call
    with pytest.raises(NotFound):
        await store.get_tail("b", 4)


async def test_delete_is_idempotent_and_frees_the_key(store: Store) -> None:
    await store.create("a/b/c", b"x")
    await store.delete("a/b/c")
    await store.delete("a/b/c")
    await store.delete("never/was")
    assert await store.list("") == []
    with pytest.raises(NotFound):
        await store.get("a/b/c")
    await store.create("a/b/c", b"y")
    assert await store.get("a/b/c") == b"y"


async def test_keys_are_listed_in_the_order_of_their_bytes(store: Store) -> None:
    for key in KEYS:
        if key not in {"b/c"}:  # A key is never another's directory.
            await store.create(key, b"")
    keys = sorted(set(KEYS) - {"b/c"})
    assert await store.list("") == keys
    for prefix in ["a", "a-", "b", "b/", "b/c", "b/c-", "b/c-d/", "b/c.", "b.", "c", "a/", "b/c0/0", "b/c0/00"]:
        assert await store.list(prefix) == [key for key in keys if key.startswith(prefix)], prefix


async def test_a_listing_starts_where_it_is_told_and_stops_at_its_limit(store: Store) -> None:
    keys = sorted(set(KEYS) - {"b/c"})
    for key in keys:
        await store.create(key, b"")
    starts = [
        "",
        *keys,
        *(key + "\0" for key in keys),
        "b/",
        "b",
        "b/c",
        "b/c/",
        "b/b",
        "zz",
        "A",
        "~",
        "b/c-d/e/f",
        "\x7f",
        "a//b",
    ]
    for prefix in ["", "b", "b/", "b/c", "a-"]:
        for start in starts:
            right = [key for key in keys if key.startswith(prefix) and key >= start]
            assert await store.list(prefix, start=start) == right, (prefix, start)
            for limit in (0, 1, 2):
                assert await store.list(prefix, start=start, limit=limit) == right[:limit], (prefix, start, limit)


async def test_a_listing_tells_sizes_on_request(store: Store) -> None:
    sizes = {"a/b": 0, "a/c": 1, "a/d/e": 70_000, "b": 3}
    for key, size in sizes.items():
        await store.create(key, bytes(size))
    assert await store.sizes("") == list(sizes.items())
    assert await store.sizes("a/") == list(sizes.items())[:3]
    assert await store.sizes("a/", start="a/c", limit=1) == [("a/c", 1)]
    assert await store.sizes("a/", start="a/c\0") == [("a/d/e", 70_000)]
    assert await store.sizes("c") == []
    assert await store.sizes("a/", limit=0) == []


async def test_a_listing_can_be_taken_in_parts(store: Store) -> None:
    keys = [f"logs/x/entries/{number:016x}" for number in range(23)]
    for key in keys:
        await store.create(key, b"")
    found: list[str] = []
    start = ""
    while part := await store.list("logs/x/entries/", start=start, limit=5):
        found += part
        start = part[-1] + "\0"
    assert found == keys


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "a/../b",
        "a/./b",
        ".tmp",
        ".tmp/x",
        "a/.b",
        "a b",
        "ä",
        "a\0",
        "a\n",
        "x" * 201,
    ],
)
async def test_a_bad_key_is_refused(store: Store, key: str) -> None:
    for call in (store.get(key), store.create(key, b""), store.delete(key), store.get_tail(key, 1)):
        with pytest.raises(BadInput):
            await call
    assert await store.list("") == []


async def test_bad_ranges_are_refused(store: Store) -> None:
    await store.create("a", b"hello")
    bad: list[Callable[[], object]] = [
        lambda: store.get("a", start=-1),
        lambda: store.get("a", start=3, end=2),
        lambda: store.get_tail("a", 0),
        lambda: store.list("", limit=-1),
    ]
    for call in bad:
        with pytest.raises(BadInput):
            await call()  # type: ignore[misc]


@pytest.mark.parametrize("prefix", ["/", "a//", "../", ".tmp", ".tmp/", "a/../", "ä", "a\0"])
async def test_no_key_starts_with_what_no_key_may_hold(store: Store, prefix: str) -> None:
    await store.create("a/b", b"")
    assert await store.list(prefix) == []


async def test_a_store_that_keeps_the_rules_passes_the_probe_and_is_left_clean(store: Store) -> None:
    await probe(store)
    await probe(store)
    assert await store.list("") == []

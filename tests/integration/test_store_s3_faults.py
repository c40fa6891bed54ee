"""obstore's own S3 client against a server that fails: what passes is repeated, what doesn't is told in words."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from budwood.server.store.open_store import open_store
from budwood.server.store.probe import probe
from budwood.server.store.protocol import Store
from budwood.server.store.retrying import Patience, create_settled
from budwood.volume.errors import AlreadyExists, BadInput, Unavailable, Unsupported

from .s3_server import S3Server

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server() -> AsyncIterator[S3Server]:
    with S3Server() as server, server.environment():
        yield server


@pytest.fixture
async def store(server: S3Server) -> Store:
    return await open_store("s3://bucket/p")


async def test_a_create_whose_answer_was_lost_is_settled(server: S3Server, store: Store) -> None:
    server.faults.append("lose")
    assert await create_settled(store, "k", [b"ou", b"rs"]) is None
    assert server.objects == {"p/k": b"ours"}


async def test_a_repeated_create_meets_itself(server: S3Server, store: Store) -> None:
    """Why AlreadyExists is never taken at its word: the client below repeats what was refused in passing."""
    server.faults.extend(["503", "503"])
    await store.create("k", b"first")
    assert [request for request in server.requests if request.startswith("PUT")] == ["PUT /bucket/p/k"] * 3
    with pytest.raises(AlreadyExists):
        await store.create("k", b"first")
    assert await create_settled(store, "k", b"first") is None
    assert await create_settled(store, "k", b"second") == b"first"


@pytest.mark.parametrize("fault", ["503", "cut"])
async def test_a_get_survives_a_passing_fault(server: S3Server, store: Store, fault: str) -> None:
    await store.create("k", b"hello")
    server.faults.append("503" if fault == "503" else "cut")
    assert await store.get("k") == b"hello"


async def test_a_store_that_stays_down_is_unavailable_in_one_line(server: S3Server, store: Store) -> None:
    server.faults.extend(("503", "503", "503"))
    with pytest.raises(Unavailable) as caught:
        await store.create("k", b"x")
    assert not caught.value.determinate
    assert "\n" not in str(caught.value)
    assert "<?xml" not in str(caught.value)
    server.faults.extend(("503", "503", "503"))
    with pytest.raises(Unavailable) as caught:
        await store.get("k")
    assert caught.value.determinate, "a read changes nothing"


async def test_a_missing_bucket_is_no_missing_object(server: S3Server) -> None:
    store = await open_store("s3://none/p")
    for call in (store.get("k"), store.create("k", b""), store.list("")):
        with pytest.raises(BadInput, match="no such bucket"):
            await call


async def test_a_store_without_create_if_absent_is_refused() -> None:
    with S3Server(honours_create=False) as server, server.environment():
        store = await open_store("s3://bucket/p")
        with pytest.raises(Unsupported, match="create-if-absent"):
            await probe(store)
        assert server.objects == {}


async def test_a_store_that_refuses_the_condition_is_refused_at_once() -> None:
    """S0.5: it isn't waited for."""
    with S3Server(creates="refused") as server, server.environment():
        store = await open_store("s3://bucket/p")
        with pytest.raises(Unsupported, match=r"s3://bucket/p doesn't take If-None-Match \(501\)"):
            await probe(store, Patience(sleep=never))
        assert server.objects == {}


async def never(_seconds: float) -> None:
    raise AssertionError("nothing is to be waited for")


async def test_the_newest_is_found_with_one_request(server: S3Server, store: Store) -> None:
    for number in range(5):
        await store.create(f"logs/x/entries/{number:016x}", b"")
    server.requests.clear()
    assert await store.list("logs/x/entries/", limit=1) == ["logs/x/entries/0000000000000000"]
    assert server.requests == ["GET /bucket"]


async def test_a_server_that_is_gone_fails_in_time() -> None:
    with S3Server() as server, server.environment():
        store = await open_store("s3://bucket/p")
    patience = Patience(deadline_seconds=0.2)
    with pytest.raises(Unavailable):
        await create_settled(store, "k", b"x", patience)

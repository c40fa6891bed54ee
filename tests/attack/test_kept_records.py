"""What one client may put into records that everybody reads for ever: bounded at admission, over HTTP and embedded
alike, and what was admitted before the bounds stays readable (volume/limits.py)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest
from tests.served import asked, client, serving

from budwood.server.metastore.namespace_state import NamesState, apply_change
from budwood.server.node import Node
from budwood.testing.commits import altered, commit_of
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import (
    CHANGE_NAME,
    CREATE,
    JSON,
    LIST_NAMES,
    PIN,
    PULL_COMMITS,
    CreateRequest,
    NamesRequest,
    PinRequest,
    RangeRequest,
)
from budwood.volume.envelope import unpack
from budwood.volume.errors import BadInput
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.limits import MOST_ANSWER_BYTES, MOST_BINDINGS_BYTES, MOST_NONCE_BYTES
from budwood.volume.name_attributes import (
    MOST_ATTRIBUTES,
    MOST_ATTRIBUTES_BYTES,
    MOST_ATTRIBUTES_DEPTH,
    READABLE_DEPTH,
)
from budwood.volume.records import NameChange, Touched
from budwood.volume.wire import NameRequest

pytestmark = pytest.mark.anyio

CLIENT = ClientId.new()
VID = VolumeId.new()


def nested(depth: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return {} if depth == 0 else value


def bind(name: str, packed: bytes) -> bytes:
    """A bind whose attributes are these bytes of MessagePack."""
    request = msgspec.msgpack.encode(NameRequest(op="bind", name=name, target=VID.raw, client=CLIENT.raw))
    # A map of few keys: its first byte counts them.
    return bytes([request[0] + 1]) + request[1:] + msgspec.msgpack.encode("attributes") + packed


async def test_attributes_nested_deep_are_refused_and_the_names_are_there_after_a_restart() -> None:
    store = MemoryStore()
    depths = [MOST_ATTRIBUTES_DEPTH + 1, 100, 500, 900, *range(930, 1000), 5_000, 1_000_000]
    async with serving(store) as address, client(address) as remote:
        await remote.ask(CHANGE_NAME, NameRequest(op="bind", name="good", target=VID.raw, attributes=nested(8)))
        for depth in depths:
            said = await asked(address, "change_name", bind(f"deep/{depth}", b"\x81\xa1a" * depth + b"\x01"))
            assert (said.status, said.code) == (400, "BadInput"), f"{depth} deep: {said}"
            deep = '{"op":"bind","name":"j","attributes":' + '{"a":' * depth + "1" + "}" * depth + "}"
            assert (await asked(address, "change_name", deep.encode(), JSON)).code == "BadInput", depth
    async with serving(store) as address, client(address) as remote:
        assert [entry.name for entry in (await remote.ask(LIST_NAMES, NamesRequest())).entries] == ["good"]


async def test_deep_nesting_in_any_call_is_a_bad_request_and_no_failure_of_the_node() -> None:
    async with serving(MemoryStore()) as address:
        for call in ("hello", "create", "lookup", "snapshot", "read_pages", "commit"):
            said = await asked(address, call, b"\x81\xa1z" * 100_000 + b"\x01")
            assert (said.status, said.code) == (400, "BadInput"), f"{call}: {said}"


def test_attributes_that_were_admitted_at_any_depth_are_read_and_then_passed_on_as_none() -> None:
    def record(depth: int) -> bytes:
        change = NameChange(
            vid=VID.raw, lsn=1, op="bind", touched=(Touched(name="n", revision=0),), target=VID.raw, time=1
        )
        packed = msgspec.msgpack.encode(change)
        return bytes([packed[0] + 1]) + packed[1:] + b"\xaaattributes" + b"\x81\xa1a" * depth + b"\x01"

    def deeper(frames: int, work: Callable[[], Any]) -> Any:
        return work() if frames == 0 else deeper(frames - 1, work)

    def read(depth: int) -> NamesState:
        change = deeper(300, lambda: unpack(record(depth), NameChange))
        after = apply_change(NamesState(VID.raw), change)
        assert isinstance(after, NamesState)
        return after

    for depth in (READABLE_DEPTH + 1, 900, 957):
        entry = read(depth).lookup("n")
        assert entry is not None
        assert (entry.target, entry.attributes) == (VID.raw, {})
    entry = read(READABLE_DEPTH).lookup("n")
    assert entry is not None
    assert entry.attributes == nested(READABLE_DEPTH)


TOO_MUCH: dict[str, dict[str, Any]] = {
    "bytes": {"attributes": {"a": "x" * MOST_ATTRIBUTES_BYTES}},
    "values": {"attributes": {str(number): 0 for number in range(MOST_ATTRIBUTES + 1)}},
    "values in lists": {"attributes": {"a": [[0] * 100] * 3}},
    "keys": {"attributes": {"a": {1: 2}}},
    "a time": {"attributes": {"a": msgspec.msgpack.Ext(5, b"x" * 100)}},
    "target": {"op": "unbind", "target": b"\x80" * 15_000_000},
    "name": {"name": "x/" * 600 + "x"},
    "client": {"client": b"\x82" * 1_000_000},
    "revision": {"revision": (1 << 64) - 1, "name": ""},
}


@pytest.mark.parametrize("fields", TOO_MUCH.values(), ids=TOO_MUCH.keys())
async def test_a_change_of_names_that_nobody_needs_is_refused(fields: dict[str, Any]) -> None:
    request = {"op": "bind", "name": "n", "target": VID.raw, "client": CLIENT.raw} | fields
    packed = msgspec.msgpack.encode(request)
    async with serving(MemoryStore()) as address, Node.open(MemoryStore()) as node:
        assert (await asked(address, "change_name", packed)).code == "BadInput"
        with pytest.raises(BadInput):
            await node.ask(CHANGE_NAME, msgspec.msgpack.decode(packed, type=NameRequest))
        async with client(address) as remote:
            with pytest.raises(BadInput):
                await remote.ask(CHANGE_NAME, msgspec.msgpack.decode(packed, type=NameRequest))


async def test_numbers_that_no_record_can_hold_are_refused() -> None:
    async with serving(MemoryStore()) as address:
        for fields in ({"revision": 10**30}, {"attributes": {"a": 10**30}}, {"op": "move", "new_revision": 10**30}):
            request = {"op": "bind", "name": "n", "new": "m"} | fields
            assert (await asked(address, "change_name", json.dumps(request).encode(), JSON)).code == "BadInput"


async def test_a_listing_of_names_is_cut_into_answers_that_a_client_can_hold() -> None:
    many = MOST_ANSWER_BYTES // MOST_ATTRIBUTES_BYTES * 2 + 10
    attributes = {"a": "x" * (MOST_ATTRIBUTES_BYTES - 10)}
    store = MemoryStore()
    async with Node.open(store) as node, anyio.create_task_group() as tasks:
        for number in range(many):
            bound = NameRequest(
                op="bind", name=f"{number:05}", target=VID.raw, attributes=attributes, client=CLIENT.raw
            )
            tasks.start_soon(node.change_name, bound)
    async with serving(store) as address, client(address) as remote:
        names, after, answers = list[str](), "", 0
        while True:
            listed = await remote.ask(LIST_NAMES, NamesRequest(after=after, limit=10_000))
            assert len(msgspec.msgpack.encode(listed)) < MOST_ANSWER_BYTES + 2 * MOST_ATTRIBUTES_BYTES
            names += [entry.name for entry in listed.entries]
            answers += 1
            if not listed.next:
                break
            after = listed.next
    assert names == [f"{number:05}" for number in range(many)]
    assert answers == 3


@pytest.mark.parametrize("kind", ["nonce", "bindings", "pages", "client"])
async def test_a_commit_keeps_no_more_than_it_needs(kind: str) -> None:
    vid = VolumeId.new()
    request, segment = commit_of(vid, 0, {1: os.urandom(512)}, client=CLIENT, page_size=512)
    noise = os.urandom(15_000_000)
    changed = {
        "nonce": {"nonce": bytes(MOST_NONCE_BYTES + 1)},
        "bindings": {"bindings": bytes(MOST_BINDINGS_BYTES + 1)},
        # What follows a page set's own bytes would be kept with it.
        "pages": {"pages": request.pages + noise},
        "client": {"client": request.client + noise},
    }[kind]
    async with serving(MemoryStore()) as address, client(address) as remote:
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=512))
        with pytest.raises(BadInput):
            await remote.commit(altered(request, **changed), segment)
        assert (await remote.commit(altered(request, nonce=bytes(MOST_NONCE_BYTES)), segment)).lsn == 1


async def test_a_history_is_cut_into_answers_that_a_client_can_hold() -> None:
    vid, commits = VolumeId.new(), 300
    async with serving(MemoryStore()) as address, client(address) as remote:
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=512))
        for base in range(commits):
            request, segment = commit_of(vid, base, {1: os.urandom(512)}, client=CLIENT, page_size=512)
            await remote.commit(msgspec.structs.replace(request, bindings=bytes(MOST_BINDINGS_BYTES)), segment)
        told, answers = list[int](), 0
        while len(told) < commits:
            some = (await remote.ask(PULL_COMMITS, RangeRequest(vid.raw, after=len(told)))).commits
            assert some
            assert sum(len(commit.bindings) for commit in some) <= MOST_ANSWER_BYTES + MOST_BINDINGS_BYTES
            told += [commit.lsn for commit in some]
            answers += 1
    assert told == list(range(1, commits + 1))
    assert answers > 1


async def test_a_pins_owner_is_a_short_line() -> None:
    vid = VolumeId.new()
    async with serving(MemoryStore()) as address, client(address) as remote:
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=512))
        for owner in ("x" * 256, "two\nlines", "x" * 15_000_000):
            with pytest.raises(BadInput):
                await remote.ask(PIN, PinRequest(vid.raw, lsn=0, seconds=60, owner=owner, pin=PinId.new().raw))

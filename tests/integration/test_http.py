"""The protocol over HTTP, against a real node: what it answers, in which form, in how many requests (DESIGN §6)."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import msgspec
import pytest
from tests.served import Raw, client, serving

from budwood.remote.open import open_remote
from budwood.remote.owner_liveness import liveness_probe, local_stack
from budwood.remote.routed import Routed
from budwood.server.http.app import SCANS_BYTES, make_app
from budwood.server.http.error_status import STATUS
from budwood.server.http.openapi import document
from budwood.server.http.run_node import bind
from budwood.server.log.term import read_epoch
from budwood.server.node import Node
from budwood.server.pagestore.read import WINDOW_BYTES
from budwood.server.store.directory_store import FileStore
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume import errors
from budwood.volume.calls import (
    CALLS,
    CHANGE_NAME,
    CREATE,
    FORK,
    HELLO,
    LIST_NAMES,
    LOCATE,
    LOOKUP,
    MAX_PAGES_BYTES,
    MAX_WAIT_SECONDS,
    MOVE_LOG,
    PULL_CHANGES,
    PULL_COMMITS,
    SNAPSHOT,
    WAIT,
    WAIT_NAMES,
    Call,
    CreateRequest,
    Done,
    ForkRequest,
    Head,
    LocateRequest,
    LookupRequest,
    MoveRequest,
    NamesRequest,
    RangeRequest,
    SnapshotRequest,
    WaitNamesRequest,
    WaitRequest,
)
from budwood.volume.errors import BadInput, Conflict, Corrupt, NotFound, NotOwner, Unauthorized, Unavailable
from budwood.volume.frame import unpack_frame
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.owner import Liveness, NetworkStack
from budwood.volume.pageset import PageSet, encode_pages, span
from budwood.volume.protocols import Remote
from budwood.volume.wire import CommitRequest, Committed, NameRequest

from ..waits import LIMIT_SECONDS

pytestmark = pytest.mark.anyio

PAGE = 512
CLIENT = ClientId.new()
SEGMENTS = {"content-type": "application/octet-stream"}
MSGPACK = {"content-type": "application/msgpack", "accept": "application/msgpack"}


def packed(vid: VolumeId, base: int, pages: dict[int, bytes]) -> tuple[CommitRequest, bytes]:
    """A commit of these pages on `base`, and its segment."""
    return commit_of(vid, base, pages, client=CLIENT, page_size=PAGE, length=6000 * PAGE)


async def push(remote: Remote, vid: VolumeId, base: int, pages: dict[int, bytes]) -> Committed:
    request, segment = packed(vid, base, pages)
    return await remote.commit(request, segment)


async def pull(remote: Remote, vid: VolumeId, lsn: int, pages: PageSet, extra_bytes: int = 0) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    async with remote.read_pages(vid, lsn, pages, extra_bytes=extra_bytes) as answer:
        found.update(dict.fromkeys(answer.zeros, bytes(PAGE)))
        async for frame in answer.frames():
            plain = unpack_frame("answer", frame.info, frame.stored, PAGE)
            found |= {i: data for i, data in zip(frame.info.pages, plain, strict=True) if i in frame.valid}
    return found


def page(index: int, version: int = 0) -> bytes:
    return bytes([index % 251, version]) * (PAGE // 2)


async def test_a_volume_goes_in_and_comes_out() -> None:
    async with serving(MemoryStore()) as address, client(address) as remote:
        vid = VolumeId.new()
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        first = {index: page(index) for index in range(1, 200)}
        assert (await push(remote, vid, 0, first)).lsn == 1
        assert (await push(remote, vid, 1, {3: page(3, 1), 199: page(199, 1)})).lsn == 2
        assert await pull(remote, vid, 1, span(1, 199)) == first
        newest = await pull(remote, vid, 0, span(1, 199))
        assert newest == first | {3: page(3, 1), 199: page(199, 1)}
        assert (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw))).lsn == 2
        assert [commit.lsn for commit in (await remote.ask(PULL_COMMITS, RangeRequest(vid.raw))).commits] == [
            1,
            2,
        ]
        assert (await remote.ask(PULL_CHANGES, RangeRequest(vid.raw, after=1))).pages == encode_pages(PageSet([3, 199]))
        with pytest.raises(Conflict) as late:
            await push(remote, vid, 1, {3: page(3, 2)})
        assert late.value.head == 2
        with pytest.raises(NotFound):
            await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=9))


async def test_large_commits_go_as_fragments_and_name_them() -> None:
    async with serving(MemoryStore()) as address, client(address) as remote:
        vid = VolumeId.new()
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        pages = {index: os.urandom(PAGE) for index in range(1, 6001)}
        request, segment = packed(vid, 0, pages)
        request = msgspec.structs.replace(request, locations=(await remote.write_pages(vid, segment),))
        assert (await remote.commit(request)).lsn == 1
        assert await remote.commit(request) == await remote.commit(request), "the same token is one commit"
        assert await pull(remote, vid, 1, span(1, 6000)) == pages


async def test_a_one_row_push_is_one_request_and_one_create_and_a_cold_read_one_request(sent: list[str]) -> None:
    store = RiggedStore(MemoryStore())
    async with serving(store) as address, client(address) as remote:
        vid = VolumeId.new()
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await push(remote, vid, 0, {1: page(1)})
        sent.clear()
        store.forget()
        await push(remote, vid, 1, {1: page(1, 1)})
        assert [request.op for request in store.requests] == ["create"]
        assert sent == ["POST /v1/commit"]
        sent.clear()
        store.forget()
        async with remote.read_pages(vid, 0, PageSet([1])) as answer:
            assert answer.snapshot.lsn == 2
            (frame,) = [frame async for frame in answer.frames()]
        assert frame.info.pages == (1,)
        assert sent == ["POST /v1/read_pages"]
        assert store.count() == 0, "what was just written is read from the node's cache"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every HTTP request that any client sends."""
    requests: list[str] = []
    send = httpx.AsyncClient.send

    async def noting(self: httpx.AsyncClient, request: httpx.Request, **kwargs: Any) -> httpx.Response:
        requests.append(f"{request.method} {request.url.path}")
        return await send(self, request, **kwargs)

    monkeypatch.setattr(httpx.AsyncClient, "send", noting)
    return requests


async def test_names_forks_and_waiting() -> None:
    async with serving(MemoryStore()) as address, client(address) as remote, client(address) as other:
        vid, child = VolumeId.new(), VolumeId.new()
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await push(remote, vid, 0, {1: page(1)})
        await remote.ask(CHANGE_NAME, NameRequest(op="bind", name="a/ü", target=vid.raw, client=CLIENT.raw))
        entry = (await other.ask(LOOKUP, LookupRequest("a/ü"))).entry
        assert entry is not None
        assert entry.target == vid.raw
        assert [entry.name for entry in (await other.ask(LIST_NAMES, NamesRequest(prefix="a/"))).entries] == ["a/ü"]
        assert (await other.ask(LOOKUP, LookupRequest("nothing"))).entry is None
        assert (await other.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=1))).lsn == 1
        assert await pull(other, child, 1, PageSet([1])) == {1: page(1)}
        heads: list[int] = []

        async def wait() -> None:
            heads.append((await other.ask(WAIT, WaitRequest(vid.raw, after=1, timeout_seconds=MAX_WAIT_SECONDS))).lsn)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await push(remote, vid, 1, {2: page(2)})
        assert heads == [2]
        assert (await other.ask(WAIT, WaitRequest(vid.raw, after=2, timeout_seconds=0.01))).lsn == 2

        async def wait_for_names() -> None:
            heads.append((await other.ask(WAIT_NAMES, WaitNamesRequest(after=1, timeout_seconds=MAX_WAIT_SECONDS))).lsn)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for_names)
            await remote.ask(CHANGE_NAME, NameRequest(op="bind", name="b", target=vid.raw, client=CLIENT.raw))
        assert heads == [2, 2]
        assert (
            (await other.ask(LIST_NAMES, NamesRequest())).head
            == (await other.ask(WAIT_NAMES, WaitNamesRequest(after=2, timeout_seconds=0.01))).lsn
            == 2
        )


async def test_where_pages_lie_is_told_as_the_node_itself_tells_it() -> None:
    store = MemoryStore()
    async with serving(store) as address, client(address) as remote:
        vid = VolumeId.new()
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await push(remote, vid, 0, {index: page(index) for index in range(1, 101)})
        await push(remote, vid, 1, {7: page(7, 1)})
        located = await remote.ask(
            LOCATE, LocateRequest(vid.raw, lsn=0, pages=encode_pages(span(1, 200)), measure=True)
        )
        async with Node.open(store) as node:
            assert (
                await node.ask(LOCATE, LocateRequest(vid.raw, lsn=2, pages=encode_pages(span(1, 200)), measure=True))
                == located
            )
        assert [placement.lsn for placement in located.placements] == [2, 1]
        assert all(placement.stored_bytes and placement.object in store.objects for placement in located.placements)
        with pytest.raises(NotFound):
            await remote.ask(LOCATE, LocateRequest(vid.raw, lsn=9, pages=encode_pages(PageSet([1]))))
        with pytest.raises(BadInput):
            await remote.ask(LOCATE, LocateRequest(vid.raw, lsn=-1, pages=encode_pages(PageSet([1]))))


async def test_json_says_the_same_as_messagepack() -> None:
    async with serving(MemoryStore()) as address, client(address) as remote, httpx.AsyncClient(base_url=address) as web:
        vid = VolumeId.new()
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        await push(remote, vid, 0, {1: page(1)})
        asked = {"vid": base64.b64encode(vid.raw).decode()}
        told = await web.post("/v1/snapshot", json=asked)
        assert told.headers["content-type"] == "application/json"
        snapshot = told.json()
        assert (snapshot["lsn"], base64.b64decode(snapshot["vid"])) == (1, vid.raw)
        mixed = await web.post("/v1/snapshot", json=asked, headers={"accept": "application/msgpack"})
        assert msgspec.msgpack.decode(mixed.content)["vid"] == vid.raw
        lost = await web.post("/v1/snapshot", json=asked | {"lsn": 7})
        assert lost.status_code == 404
        assert lost.json()["code"] == "NotFound"
        commits = (await web.post("/v1/pull_commits", json=asked)).json()["commits"]
        assert [commit["lsn"] for commit in commits] == [1]


@pytest.mark.parametrize(
    ("path", "headers", "body", "status", "words"),
    [
        ("/v1/snapshot", {"content-type": "application/json"}, b"{", 400, "truncated"),
        ("/v1/snapshot", {"content-type": "application/json"}, b"{}", 400, "missing required field `vid`"),
        ("/v1/snapshot", {"content-type": "application/json"}, b'{"vid":"AAAA"}', 400, "not a VolumeId"),
        ("/v1/snapshot", {"content-type": "text/plain"}, b"x", 415, "takes application/json or application/msgpack"),
        ("/v1/snapshot", MSGPACK, b"\xc1", 400, "malformed"),
        ("/v1/wait", MSGPACK, msgspec.msgpack.encode({"vid": bytes(16), "after": -1}), 400, ">= 0"),
        ("/v1/list_names", MSGPACK, msgspec.msgpack.encode({"limit": 10**9}), 400, "<= 10000"),
        ("/v1/write_pages?vid=nonsense", SEGMENTS, b"x", 400, "not a VolumeId"),
        ("/v1/write_pages", SEGMENTS, b"x", 400, "not a VolumeId"),
        ("/v1/write_pages", {}, b"x", 415, "takes application/octet-stream"),
        ("/v1/commit", {"content-type": "application/vnd.budwood.parts"}, b"junk", 400, "no part"),
        pytest.param("/v1/read_pages", MSGPACK, msgspec.msgpack.encode({"vid": VolumeId.new().raw, "lsn": 0,
                     "pages": b"?"}), 400, "no page set", id="read_pages-no page set"),
        pytest.param("/v1/read_pages", MSGPACK, msgspec.msgpack.encode({"vid": VolumeId.new().raw, "lsn": 0,
                     "pages": encode_pages(PageSet([1]))}), 404, "no volume", id="read_pages-no volume"),
        ("/v1/nothing", {}, b"", 404, "there is nothing at /v1/nothing"),
        ("/", {}, b"", 404, "there is nothing at /"),
        ("/healthz", {}, b"", 405, "takes GET or HEAD, not POST"),
    ],
)  # fmt: skip
async def test_bad_input_is_one_line_in_the_common_shape(
    path: str, headers: dict[str, str], body: bytes, status: int, words: str
) -> None:
    async with serving(MemoryStore()) as address, httpx.AsyncClient(base_url=address) as web:
        answer = await web.post(path, content=body, headers=headers)
        decode = msgspec.msgpack.decode if "msgpack" in answer.headers["content-type"] else json.loads
        told = decode(answer.content)
        assert (answer.status_code, "\n" in told["message"]) == (status, False)
        assert words in told["message"]
        assert set(told) <= {"code", "message", "details"}


async def test_a_body_beyond_the_limit_is_refused_before_it_is_read() -> None:
    async with serving(MemoryStore()) as address:
        host, _, port = address.rpartition("/")[2].partition(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            vid = VolumeId.new()
            head = (
                f"POST /v1/write_pages?vid={vid} HTTP/1.1\r\nhost: localhost\r\n"
                f"content-type: application/octet-stream\r\ncontent-length: {MAX_PAGES_BYTES + 1}\r\n\r\n"
            )
            await stream.send(head.encode())
            answer = await stream.receive()
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"at most 67108864 bytes" in answer


async def test_our_own_bug_is_told_without_its_insides(caplog: pytest.LogCaptureFixture) -> None:
    store = RiggedStore(MemoryStore())
    async with serving(store) as address, client(address) as remote:
        vid = VolumeId.new()
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        store.add(Rule(before=ZeroDivisionError("inside"), times=None))
        with pytest.raises(Unavailable, match="its log says why"):
            await remote.ask(SNAPSHOT, SnapshotRequest(VolumeId.new().raw))
        store.rules.clear()
    assert "inside" in caplog.text


async def test_an_object_that_is_damaged_is_named_to_the_reader() -> None:
    inner = MemoryStore()
    vid = VolumeId.new()
    async with serving(inner) as address, client(address) as remote:
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        request, segment = packed(vid, 0, {index: os.urandom(PAGE) for index in range(1, 6001)})
        location = await remote.write_pages(vid, segment)
        await remote.commit(msgspec.structs.replace(request, locations=(location,)))
    damaged = bytearray(inner.objects[location.object])
    damaged[len(damaged) // 2] ^= 1
    inner.objects[location.object] = bytes(damaged)
    async with serving(inner) as address, client(address) as remote:
        with pytest.raises(Corrupt, match="does not match its checksum") as caught:
            await pull(remote, vid, 1, span(1, 6000))
        assert caught.value.key == location.object


async def test_a_token_opens_the_calls_and_only_them() -> None:
    async with serving(MemoryStore(), token="s3cret") as address:
        for wrong in ("", "s3cre", "s3crett"):
            async with client(address, wrong) as remote:
                with pytest.raises(Unauthorized, match="--token"):
                    await remote.ask(HELLO, Done())
                assert (await remote.health()).log == "main"
        async with client(address, "s3cret") as remote:
            assert (await remote.ask(HELLO, Done())).log == "main"


async def test_whether_an_owner_is_alive() -> None:
    """Only the very term counts: at the same address may be another node by now, or another store's."""
    store = MemoryStore()
    async with serving(store) as address:
        owner = await read_epoch(store, "main", 1)
        assert owner.address == address
        replace, here = msgspec.structs.replace, local_stack()
        assert await liveness_probe()(owner) is Liveness.ANSWERS
        assert await liveness_probe()(replace(owner, address=address.removeprefix("http://"))) is Liveness.ANSWERS
        others = {"log": "other", "n": 2, "writer": bytes(16)}
        for name, value in others.items():
            assert await liveness_probe()(replace(owner, **{name: value})) is Liveness.GONE
        assert await liveness_probe()(replace(owner, address="")) is Liveness.GONE
        assert await liveness_probe(address)(owner) is Liveness.GONE, "it listens there itself"
        elsewhere = str(NetworkStack("another", here.boot, here.network))
        assert await liveness_probe(address)(replace(owner, stack=elsewhere)) is Liveness.UNKNOWN
    assert await liveness_probe()(owner) is Liveness.GONE


async def test_every_call_of_the_protocol_is_served_and_described() -> None:
    methods = {name for name in vars(Remote) if not name.startswith("_")} - {"url", "aclose", "ask"}
    assert {name for name, row in CALLS.items() if not isinstance(row, Call)} == methods
    async with Node.open(MemoryStore()) as node:
        app: Any = make_app(node).app
        # Pages are for people, and what answers GET answers HEAD.
        served = {
            (path, method)
            for path, route in app.routes.items()
            for method in route.methods - {"HEAD"}
            if not f"{path}/".startswith("/ui/")
        }
    described = {(path, method.upper()) for path, item in document()["paths"].items() for method in item}
    assert described == served


async def test_the_description_is_served_and_holds_together() -> None:
    async with serving(MemoryStore()) as address, httpx.AsyncClient(base_url=address) as web:
        served = (await web.get("/openapi.json")).json()
    assert served == json.loads(json.dumps(document()))
    assert served["openapi"] == "3.1.0"
    names = set(served["components"]["schemas"])
    references = {str(value) for key, value in walk(served) if key == "$ref"}
    assert references
    assert references <= {f"#/components/schemas/{name}" for name in names}
    operations = [operation for item in served["paths"].values() for operation in item.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all("200" in operation["responses"] for operation in operations)


def walk(value: object) -> Iterator[tuple[str, object]]:
    """Every key and value of a JSON document, however deep."""
    if isinstance(value, dict):
        for key, inner in cast("dict[str, object]", value).items():
            yield key, inner
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in cast("list[object]", value):
            yield from walk(inner)


def test_every_error_has_a_status() -> None:
    classes = {getattr(errors, name) for name in errors.__all__}
    assert set(STATUS) == classes
    assert all(400 <= status < 600 for status in STATUS.values())


async def test_a_port_that_is_taken_is_refused_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadInput, match="take another with --listen"):
            bind("127.0.0.1", taken.getsockname()[1])
    async with serving(MemoryStore()) as address:
        with pytest.raises(BadInput, match="take another"):
            bind("127.0.0.1", int(address.rpartition(":")[2]))
    with pytest.raises(BadInput):
        bind("no.such.host.invalid", 1)


async def test_stopping_ends_long_polls_and_frees_the_port(sent: list[str]) -> None:
    failures: list[str] = []

    async def wait(address: str, vid: VolumeId) -> None:
        async with client(address) as remote:
            with pytest.raises(Unavailable) as caught:
                await remote.ask(WAIT, WaitRequest(vid.raw, after=0, timeout_seconds=MAX_WAIT_SECONDS))
            failures.append(str(caught.value))

    async with anyio.create_task_group() as tasks:
        async with serving(MemoryStore()) as address, client(address) as remote:
            vid = VolumeId.new()
            await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
            sent.clear()
            tasks.start_soon(wait, address, vid)
            await anyio.wait_all_tasks_blocked()
            assert sent == ["POST /v1/wait"]
        bind("127.0.0.1", int(address.rpartition(":")[2])).close()
    assert len(failures) == 1


async def test_no_request_outlives_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one whose caller went away, for which the server itself doesn't wait: it would meet a closed node."""
    begun, ended = anyio.Event(), anyio.Event()

    async def hang(*_: object) -> None:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)
            ended.set()

    async with serving(MemoryStore()) as address:
        monkeypatch.setattr(Node, "ask", hang)
        async with Raw(address) as caller:
            body = msgspec.msgpack.encode(CreateRequest(VolumeId.new().raw, page_size=PAGE))
            await caller.head(CREATE.name, len(body))
            await caller.send(body)
            await begun.wait()
    assert ended.is_set()


async def test_any_number_of_small_commits_reach_the_log_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """None waits for another's answer, so that they share its next entry (S4.9)."""
    store = RiggedStore(MemoryStore())
    inside, all_inside = 0, anyio.Event()
    commit = Node.commit

    async def counting(self: Node, request: CommitRequest, segment: bytes = b"") -> Committed:
        nonlocal inside
        inside += 1
        if inside == 30:
            all_inside.set()
        return await commit(self, request, segment)

    monkeypatch.setattr(Node, "commit", counting)
    async with serving(store) as address, client(address) as remote:
        vids = [VolumeId.new() for _ in range(30)]
        for vid in vids:
            await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        store.forget()
        gate = anyio.Event()
        store.add(Rule(op="create", key="logs/main/entries/*", gate=gate))
        async with anyio.create_task_group() as tasks:
            for vid in vids:
                tasks.start_soon(push, remote, vid, 0, {1: page(1)})
            with anyio.fail_after(LIMIT_SECONDS):
                await all_inside.wait()
            gate.set()
        assert store.count("create", "logs/main/entries/*") < 10


async def test_a_reader_who_goes_away_ends_the_read_and_a_slow_one_holds_no_more_than_a_window() -> None:
    store = RiggedStore(MemoryStore())
    async with serving(store) as address, client(address) as remote:
        vid = VolumeId.new()
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        for base in range(4):
            pages = {index: os.urandom(PAGE) for index in range(base * 20_000 + 1, base * 20_000 + 20_001)}
            request, segment = commit_of(vid, base, pages, client=CLIENT, page_size=PAGE, length=80_000 * PAGE)
            location = await remote.write_pages(vid, segment)
            await remote.commit(msgspec.structs.replace(request, locations=(location,)))
    async with serving(store) as address, client(address) as remote:
        store.forget()
        for _ in range(SCANS_BYTES // WINDOW_BYTES + 2):
            async with remote.read_pages(vid, 4, span(1, 80_000)) as answer:
                await anext(answer.frames())
        assert store.count("get") < 100, "the window of one reader, and the rest from the cache"
        assert len(await pull(remote, vid, 4, span(1, 80_000))) == 80_000, "those who left gave their places back"


async def test_a_long_poll_ends_when_its_caller_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = anyio.Event(), anyio.Event()
    wait = Node.wait

    async def watched(self: Node, request: WaitRequest) -> Head:
        begun.set()
        try:
            return await wait(self, request)
        finally:
            ended.set()

    monkeypatch.setattr(Node, "wait", watched)
    async with serving(MemoryStore()) as address, client(address) as remote:
        vid = VolumeId.new()
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(remote.ask, WAIT, WaitRequest(vid.raw, after=0, timeout_seconds=MAX_WAIT_SECONDS))
            await begun.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(LIMIT_SECONDS):
            await ended.wait()


async def test_http_2_is_answered_too() -> None:
    async with serving(MemoryStore()) as address, httpx.AsyncClient(base_url=address, http1=False, http2=True) as web:
        told = await web.get("/healthz")
        assert (told.http_version, told.json()["log"]) == ("HTTP/2", "main")


def test_a_node_is_one_process_and_dies_with_it(tmp_path: Path) -> None:
    """Nothing of it may go on writing after kill -9. It leaves as `budwood serve` does: a thread of the HTTP server's
    own runtime may want the interpreter while that is taken apart."""
    program = f"""
import os
import anyio
from budwood.server.http.run_node import serve
from budwood.server.log.term import read_epoch
from budwood.server.node import Node
from budwood.server.store.directory_store import FileStore
async def main():
    store = await FileStore.open({str(tmp_path)!r})
    open_node = lambda address: Node.open(store, name="main", address=address)
    await serve(open_node, port=0, on_ready=lambda address, node: print(address, flush=True))
anyio.run(main)
os._exit(0)
"""
    for end, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 0), (signal.SIGINT, 0)):
        process = subprocess.Popen([sys.executable, "-W", "error", "-c", program], stdout=subprocess.PIPE, text=True)
        with process:
            try:
                assert process.stdout is not None
                port = int(process.stdout.readline().rpartition(":")[2])
                threads = Path(f"/proc/{process.pid}/task").iterdir()
                assert "".join((thread / "children").read_text() for thread in threads) == ""
                process.send_signal(end)
                assert process.wait(LIMIT_SECONDS) == code
                bind("127.0.0.1", port).close()
            finally:
                process.kill()


async def test_calls_for_a_shared_log_reach_its_owner_through_a_process_that_owns_none(tmp_path: Path) -> None:
    store = await FileStore.open(str(tmp_path))
    vid = VolumeId.new()
    async with serving(store) as address:
        async with client(address) as remote:
            await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        embedded = await open_remote(f"file://{tmp_path}")
        assert isinstance(embedded, Routed)
        with pytest.raises(NotOwner) as refused:
            await push(embedded.home, vid, 0, {1: page(1)})
        assert refused.value.owner == address
        assert (await push(embedded, vid, 0, {1: page(1)})).lsn == 1
        assert await pull(embedded, vid, 0, PageSet([1])) == {1: page(1)}
        request, segment = packed(vid, 1, {2: page(2)})
        location = await embedded.write_pages(vid, segment)
        assert (await embedded.commit(msgspec.structs.replace(request, locations=(location,)))).lsn == 2
    with pytest.raises(Unavailable, match=r"owned by a node that can't be reached .*budwood move NAME") as silent:
        await push(embedded, vid, 2, {1: page(1, 1)})
    assert silent.value.determinate
    assert await pull(embedded, vid, 2, PageSet([1])) == {1: page(1)}, "reading needs no owner"
    assert (await embedded.ask(MOVE_LOG, MoveRequest(vid.raw, to="private", takeover=True))).log == str(vid)
    assert (await push(embedded, vid, 2, {1: page(1, 1)})).lsn == 3
    await embedded.aclose()
    await store.aclose()


async def test_many_calls_that_wait_hold_up_no_other_call() -> None:
    """A mount waits for dozens of volumes at once, and reads pages meanwhile."""
    answered: list[int] = []
    async with serving(MemoryStore()) as address, client(address) as remote, anyio.create_task_group() as tasks:
        head = (await remote.ask(LIST_NAMES, NamesRequest())).head

        async def wait() -> None:
            answered.append(
                (await remote.ask(WAIT_NAMES, WaitNamesRequest(after=head, timeout_seconds=MAX_WAIT_SECONDS))).lsn
            )

        for _ in range(64):
            tasks.start_soon(wait)
        # So long that each of them is under way.
        await remote.ask(WAIT_NAMES, WaitNamesRequest(after=head, timeout_seconds=1.0))
        await remote.ask(LIST_NAMES, NamesRequest())
        assert answered == [], "they were waited for"
        tasks.cancel_scope.cancel()

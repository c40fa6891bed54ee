"""What a page of any web site can send through the browser of somebody who runs a node (server/http/access_control.py):
nothing
that the node does. A page sends types of its own choice only after asking the node, which doesn't answer that."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.integration.cli import serving as command_serving
from tests.served import Said, asked, client, serving

from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import (
    CALLS,
    CREATE,
    HELLO,
    JSON,
    LIST_NAMES,
    MSGPACK,
    PARTS,
    SEGMENT,
    SNAPSHOT,
    CreateRequest,
    Done,
    Form,
    NamesRequest,
    SnapshotRequest,
)
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.pageset import PageSet

pytestmark = pytest.mark.anyio

PAGE = 512
VID = VolumeId.new()
TEXT = base64.b64encode(VID.raw).decode()

CHANGES = {
    "create": {"vid": base64.b64encode(VolumeId.new().raw).decode(), "page_size": PAGE},
    "change_name": {"op": "bind", "name": "mine", "target": TEXT},
    "advance": {"vid": TEXT, "since": 2},
    "move_log": {"vid": TEXT, "to": "private"},
}
SIMPLE = ["", "text/plain", "text/plain;application/json", "application/x-www-form-urlencoded", "multipart/form-data"]
"""What a page may say without asking first; "" for nothing."""


@asynccontextmanager
async def standing(*allowed: str, token: str = "") -> AsyncGenerator[str, None]:
    """A node with a volume of two LSNs and a name; nobody may have changed them at the end."""
    async with serving(MemoryStore(), token=token, allowed_hosts=allowed) as address, client(address, token) as remote:
        await remote.ask(CREATE, CreateRequest(VID.raw, page_size=PAGE))
        for base in range(2):
            request, segment = commit_of(
                VID, base, {1: bytes([base + 1]) * PAGE}, client=ClientId.new(), page_size=PAGE
            )
            await remote.commit(request, segment)
        yield address
        view = await remote.ask(SNAPSHOT, SnapshotRequest(VID.raw))
        assert (view.lsn, view.since, view.log) == (2, 1, "main")
        assert (await remote.ask(LIST_NAMES, NamesRequest())).entries == ()


async def sent(address: str, call: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(verify=False) as web:
        return await web.post(f"{address}/v1/{call}", content=json.dumps(CHANGES[call]), headers=headers)


@pytest.mark.parametrize("content", SIMPLE)
async def test_a_body_of_a_type_that_any_page_can_send_is_not_read(content: str) -> None:
    async with standing() as address:
        for call in CHANGES:
            answer = await sent(address, call, **({"content-type": content} if content else {}))
            assert answer.status_code == 415, call
            assert "Content-Type" in answer.json()["message"]
        for call in CALLS:
            said = await asked(address, call, b"", content)
            assert (said.status, said.code) == (415, "BadInput"), call


async def test_a_page_of_another_origin_is_refused_whatever_it_says() -> None:
    async with standing() as address:
        other = address.rpartition(":")[0] + ":3000"
        for origin in ("https://evil.example", "null", other, "http://localhost", f"{address}.evil.example", "file://"):
            for call in CHANGES:
                answer = await sent(address, call, **{"content-type": JSON, "origin": origin})
                assert answer.status_code == 403, (call, origin)
                assert "may not call" in answer.json()["message"]
        own = await asked(address, "hello", b"\x80", MSGPACK, origin=address)
        assert own == Said(200, "", "")


async def test_a_name_that_leads_here_but_is_not_the_nodes_is_refused() -> None:
    """A page of evil.example whose name comes to lead to 127.0.0.1 is of the same origin, to the browser."""
    async with standing() as address:
        assert (await asked(address, "hello", b"\x80", host="")).status == 403
        for host in ("evil.example", "evil.example:7447", "127.0.0.1.evil.example", "localhost.evil.example", "1@evil"):
            for call in CHANGES:
                headers = {"content-type": JSON, "host": host, "origin": f"http://{host}"}
                assert (await sent(address, call, **headers)).status_code == 403, (call, host)
            async with httpx.AsyncClient(verify=False) as web:
                answer = await web.get(f"{address}/healthz", headers={"host": host})
            assert answer.status_code == 403
            assert "--allowed-host" in answer.json()["message"]


async def test_a_node_is_called_by_its_addresses_loopback_and_what_it_is_told() -> None:
    port = 7447
    async with standing("db.example", "http://proxy.example:80/x") as address:
        for host in ("127.0.0.1", "[::1]:7447", "10.0.0.7:80", "localhost", f"LocalHost.:{port}", "a.localhost",
                     "db.example", "DB.example:443", "proxy.example"):  # fmt: skip
            assert (await asked(address, "hello", b"\x80", host=host)).status == 200, host
        for host in ("other.example", ""):
            assert (await asked(address, "hello", b"\x80", host=host)).status == 403, host
    async with standing("*") as address:
        assert (await asked(address, "hello", b"\x80", host="other.example")).status == 200


async def test_the_command_takes_names(tmp_path: Path) -> None:
    with command_serving(tmp_path / "store", "--allowed-host", "db.example", "--allowed-host", "b.example") as address:
        assert (await asked(address, "hello", b"\x80", host="db.example")).status == 200
        assert (await asked(address, "hello", b"\x80", host="b.example:80")).status == 200
        assert (await asked(address, "hello", b"\x80", host="c.example")).status == 403


async def test_a_token_is_what_a_page_does_not_have_so_any_name_will_do() -> None:
    async with standing(token="s3cret") as address:
        said = await asked(address, "hello", b"\x80", host="db.example", authorization="Bearer s3cret")
        assert said.status == 200
        assert (await asked(address, "hello", b"\x80", host="db.example")).status == 401
        evil = {"host": "db.example", "authorization": "Bearer s3cret", "origin": "https://evil.example"}
        assert (await asked(address, "hello", b"\x80", **evil)).status == 403


async def test_our_own_client_says_the_type_of_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, str] = {}
    send = httpx.AsyncClient.send

    async def noting(self: httpx.AsyncClient, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        said[request.url.path.rpartition("/")[2]] = request.headers.get("content-type", "")
        return await send(self, request, stream=stream)

    monkeypatch.setattr(httpx.AsyncClient, "send", noting)
    async with serving(MemoryStore()) as address, client(address) as remote:
        await remote.ask(CREATE, CreateRequest(VID.raw, page_size=PAGE))
        request, segment = commit_of(VID, 0, {1: b"\1" * PAGE}, client=ClientId.new(), page_size=PAGE)
        await remote.write_pages(VID, segment)
        await remote.commit(request, segment)
        await remote.ask(HELLO, Done())
        async with remote.read_pages(VID, 1, PageSet([1])) as answer:
            assert [frame async for frame in answer.frames()]
    forms = {Form.MESSAGE: MSGPACK, Form.PART_IN: PARTS, Form.SEGMENT_IN: SEGMENT, Form.PARTS_OUT: MSGPACK}
    assert said == {name: forms[CALLS[name].form] for name in said}
    assert len(said) == 5

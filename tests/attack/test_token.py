"""Where a token goes: to the origins that it was given for, whatever a remote, a URI or a home says
(remote/token.py)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import anyio.abc
import msgspec
import pytest
from anyio import to_thread
from tests.integration.cli import Command
from tests.served import serving

import budwood
import budwood.lite
from budwood.remote.open import open_remote
from budwood.remote.token import Tokens, origin_of
from budwood.server.node import Node
from budwood.server.store.open_store import open_store
from budwood.sync.edge import open as open_edge
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import CREATE, MSGPACK, SNAPSHOT, CreateRequest, ErrorBody, SnapshotRequest
from budwood.volume.errors import BadInput, BudwoodError, NotFound, NotOwner, Unauthorized, Unavailable
from budwood.volume.ids import ClientId, StoreId, VolumeId
from budwood.volume.wire import StoreInfo

pytestmark = pytest.mark.anyio

VID = VolumeId.new()
TOKEN = "s3cret"
HELLO = msgspec.msgpack.encode(StoreInfo(store=str(StoreId.new())))


class Listener:
    """Whoever listens there: says what it is told to, and keeps the heads of what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.heads: list[str] = []
        self.answer: Callable[[], tuple[str, bytes]] = lambda: ("200 OK", HELLO)

    def owned_by(self, owner: str) -> None:
        told = ErrorBody(code="NotOwner", message="not mine", details={"owner": owner, "log": "main"})
        self.answer = lambda: ("421 Misdirected Request", msgspec.msgpack.encode(told))

    @property
    def tokens(self) -> list[str]:
        """Those that came, "" where there was none."""
        lines = [head.split("\r\n") for head in self.heads]
        found = [[line for line in some if line.lower().startswith("authorization:")] for some in lines]
        return [some[0].split()[-1] if some else "" for some in found]

    async def handle(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received:
                received += await stream.receive()
            self.heads.append(received.decode("latin-1"))
            status, body = self.answer()
            head = f"HTTP/1.1 {status}\r\ncontent-type: {MSGPACK}\r\nconnection: close\r\n"
            await stream.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)


@asynccontextmanager
async def listening() -> AsyncGenerator[Listener, None]:
    node = Listener()
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, node.handle)
        node.url = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
        yield node
        tasks.cancel_scope.cancel()


async def asked(url: str, token: str) -> BudwoodError | None:
    """One call that the owner is to answer."""
    remote = await open_remote(url, token=token)
    try:
        await remote.ask(SNAPSHOT, SnapshotRequest(VID.raw))
    except BudwoodError as error:
        return error
    finally:
        await remote.aclose()
    return None


async def test_an_owner_that_the_remote_names_gets_no_token_that_was_not_given_for_it() -> None:
    async with listening() as home, listening() as owner:
        home.owned_by(owner.url)
        refused = await asked(home.url, TOKEN)
        assert isinstance(refused, Unauthorized)
        assert f"{origin_of(owner.url)}=TOKEN" in str(refused)
        assert TOKEN not in str(refused)
        assert (home.tokens, owner.heads) == ([TOKEN], [])


async def test_an_owner_that_the_token_was_given_for_gets_its_own() -> None:
    async with listening() as home, listening() as owner:
        home.owned_by(owner.url)
        owner.owned_by("")
        assert isinstance(await asked(home.url, f"{TOKEN} {owner.url}=0ther"), NotOwner)
        assert (home.tokens, owner.tokens) == ([TOKEN], ["0ther"])
        assert isinstance(await asked(home.url, f"{owner.url},{home.url}=both"), NotOwner)
        assert (home.tokens[1:], owner.tokens[1:]) == (["both"], ["both"])


async def test_without_a_token_an_owner_is_followed_and_gets_none() -> None:
    async with listening() as home, listening() as owner:
        home.owned_by(owner.url.removeprefix("http://"))
        owner.owned_by("")
        assert isinstance(await asked(home.url, ""), NotOwner)
        assert (home.tokens, owner.tokens) == ([""], [""])


@pytest.mark.parametrize(
    "owner",
    ["ftp://127.0.0.1/", "file:///etc", "http://user:pass@127.0.0.1:1", "http://127.0.0.1:1/v1/../admin?x=",
     "http://127.0.0.1:1/path", "http://", "http://[::1", "javascript:alert(1)", "http://127.0.0.1:99999"],
)  # fmt: skip
async def test_an_owner_at_no_nodes_address_is_not_followed(owner: str) -> None:
    async with listening() as home:
        home.owned_by(owner)
        for token in ("", TOKEN):
            refused = await asked(home.url, token)
            assert isinstance(refused, Unavailable), refused
            assert "--advertise" in str(refused) or "without a path" in str(refused)


async def test_an_owner_that_a_store_names_gets_no_token_that_was_not_given_for_it(tmp_path: Path) -> None:
    store = tmp_path.as_uri()
    async with listening() as owner:
        owner.owned_by("")
        async with Node.open(await open_store(store), name="main", address=owner.url) as node:
            await node.ask(CREATE, CreateRequest(VID.raw, page_size=512))
        request, segment = commit_of(VID, 0, {1: bytes(512)}, client=ClientId.new(), page_size=512)
        for token, sent in ((TOKEN, ""), (f"{owner.url}={TOKEN}", TOKEN)):
            remote = await open_remote(store, token=token)
            with pytest.raises(NotOwner):
                await remote.commit(request, segment)
            await remote.aclose()
            assert owner.tokens[-1] == sent


def test_from_https_none_is_followed_to_http_and_from_afar_none_to_this_machine() -> None:
    def owner(home: str, address: str, token: str = "") -> str:
        return Tokens.of(token).owner_of(home, NotOwner("", owner=address, log="main"))

    for home, address in (
        ("https://a.example", "http://b.example:7447"),
        ("https://a.example", "https://127.0.0.1:7447"),
        ("http://a.example:7447", "http://localhost:7447"),
        ("http://a.example:7447", "http://[::1]:7447"),
    ):
        with pytest.raises(Unavailable):
            owner(home, address)
        assert owner(home, address, f"{address}=t") == address, "somebody has said so"
    assert owner("https://a.example", "https://b.example/") == "https://b.example"
    assert owner("https://a.example", "https://A.example:443/nodes/b", TOKEN), "one origin"
    assert owner("http://127.0.0.1:1", "http://127.0.0.2:2") == "http://127.0.0.2:2"
    assert owner("file:///srv/store", "127.0.0.1:7447", TOKEN) == "http://127.0.0.1:7447"


async def test_a_token_never_goes_over_plain_http_to_another_machine_unless_that_was_written_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "http://db.example:7447"
    with pytest.raises(BadInput, match="plain http") as caught:
        await open_remote(url, token=TOKEN)
    assert f"{url}=TOKEN" in str(caught.value)
    assert TOKEN not in str(caught.value)
    with pytest.raises(BadInput, match="plain http"):
        await to_thread.run_sync(lambda: budwood.lite.connect(url, "shop", token=TOKEN))
    monkeypatch.setenv("BUDWOOD_TOKEN", TOKEN)
    with open_edge(home=tmp_path, remote=url) as edge, pytest.raises(BadInput, match="plain http"):
        await to_thread.run_sync(edge.volume, "shop")
    assert Tokens.of(f"{url}={TOKEN}").for_remote(f"{url}/") == TOKEN
    for safe in (
        "https://db.example",
        "http://localhost:1",
        "http://127.0.0.1:1",
        "http://[::1]:1",
        "http://a.localhost",
    ):
        assert Tokens.of(TOKEN).for_remote(safe) == TOKEN


def kept_in(home: Path) -> list[Path]:
    """The files that hold the token."""
    return [path for path in home.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


async def test_a_remembered_remote_gets_the_token_that_was_given_for_it_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume was adopted from one remote; BUDWOOD_TOKEN is set for another."""

    def row(remote: str | None) -> None:
        with closing(budwood.connect("shop", home=tmp_path, remote=remote)) as db:
            db.execute("create table if not exists t(x)")
            db.execute("insert into t values (1)")
            db.execute("pragma budwood_push")

    async with serving(MemoryStore(), token=TOKEN) as address:
        monkeypatch.setenv("BUDWOOD_TOKEN", TOKEN)
        await to_thread.run_sync(row, address)
        await to_thread.run_sync(row, None)
        monkeypatch.setenv("BUDWOOD_TOKEN", "another-remote's")
        with open_edge(home=tmp_path) as edge:
            volume = edge.volume("shop")
            with pytest.raises(Unauthorized, match="was not sent") as caught:
                await to_thread.run_sync(volume.pull)
            assert f"--remote {address}" in str(caught.value)
        monkeypatch.setenv("BUDWOOD_TOKEN", f"{address}={TOKEN} another-remote's")
        await to_thread.run_sync(row, None)
    assert not await to_thread.run_sync(kept_in, tmp_path)


async def test_a_remote_that_a_home_remembers_sees_no_token_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening() as node:
        monkeypatch.setenv("BUDWOOD_TOKEN", TOKEN)
        with open_edge(home=tmp_path) as edge:
            remembered = edge.connection(node.url)
            assert await to_thread.run_sync(lambda: remembered.store)
        with open_edge(home=tmp_path, fallback=node.url) as edge:
            assert await to_thread.run_sync(lambda: edge.connection().store)
        assert node.tokens == ["", ""]
        with open_edge(home=tmp_path, remote=node.url) as edge:
            assert await to_thread.run_sync(lambda: edge.connection().store)
        with open_edge(home=tmp_path) as edge:
            assert await to_thread.run_sync(lambda: edge.connection(node.url).store)
        assert node.tokens == ["", "", TOKEN, TOKEN]
        monkeypatch.setenv("BUDWOOD_REMOTE", "http://127.0.0.1:1")
        with open_edge(home=tmp_path / "other", remote=node.url) as edge:
            assert await to_thread.run_sync(lambda: edge.connection().store)
        assert node.tokens[4:] == [""], "the two of the environment belong together"


async def test_a_uri_takes_no_token_to_where_it_says(tmp_path: Path) -> None:
    async with serving(MemoryStore(), token=TOKEN) as address, listening() as node:

        def attach() -> None:
            with closing(budwood.connect("shop", home=tmp_path, remote=address, token=TOKEN)) as db:
                db.execute("create table t(x)")
                db.execute("pragma budwood_push")
                db.execute(f"attach 'file:x?remote={node.url}' as x")

        def attach_lite() -> None:
            with (
                closing(budwood.lite.connect(address, "shop", token=TOKEN)) as db,
                pytest.raises(NotFound),
            ):
                db.execute(f"attach 'file:x?remote={node.url}' as x")

        await to_thread.run_sync(attach)
        edge_asked = len(node.heads)
        await to_thread.run_sync(attach_lite)
    assert 0 < edge_asked < len(node.heads)
    assert set(node.tokens) == {""}


@pytest.mark.parametrize("text", ["http://x", "http://x:1=", "http://u@x=t", "https://x/path=t", "a\nb", "ü"])
def test_a_token_that_says_nothing_clear_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        Tokens.of(f"hidden {text}")
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    "option", [["--advertise", "ftp://db"], ["--advertise", "http://[::1"], ["--token", "https://db.example=t"]]
)
def test_a_node_is_not_served_where_nobody_could_follow_to_it_or_show_its_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str]
) -> None:
    user = Command(capsys, tmp_path / "home", "")
    said = user("serve", "--store", (tmp_path / "store").as_uri(), *option).line(2)
    assert option[0] in said
    assert not (tmp_path / "store").exists()


def test_tokens_are_what_was_written() -> None:
    assert Tokens.of("open  sesame").bare == "open  sesame"
    tokens = Tokens.of("http://A.example:80/=x==,y https://b=z bare")
    assert (tokens.bare, dict(tokens.scoped)) == ("bare", {"http://a.example:80": "x==,y", "https://b:443": "z"})
    assert Tokens.of(tokens.text) == tokens
    assert "bare" not in repr(tokens)
    assert "z" not in repr(tokens)

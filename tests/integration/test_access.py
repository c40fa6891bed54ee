"""Who may do what on a node whose callers have keys: every call by everyone, and what strangers try."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import pytest

from budwood.remote.http import HttpRemote
from budwood.server.access.access import Access
from budwood.server.access.credentials import KEY_MARK, Claims, Secret, new_secret, parse_secret, sign
from budwood.server.access.registry import REVOKED_SECONDS, Registry
from budwood.server.node import Node, now_ms
from budwood.server.store.retrying import PATIENT
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore
from budwood.volume import calls
from budwood.volume.access import Grant, Right
from budwood.volume.calls import (
    CALLS,
    CHANGE_NAME,
    CREATE,
    FORK,
    HELLO,
    LIST_NAMES,
    LOOKUP,
    OPEN,
    PULL_NAMES,
    SNAPSHOT,
    CreateRequest,
    ForkRequest,
    Form,
    LookupRequest,
    NamesRequest,
    OpenRequest,
    PullNamesRequest,
    SnapshotRequest,
)
from budwood.volume.encryption import VolumeKeys, WrappingKey
from budwood.volume.errors import AlreadyExists, BudwoodError, Forbidden, NotFound, Unauthorized
from budwood.volume.ids import ClientId, PinId, VolumeId
from budwood.volume.pageset import PageSet, encode_pages
from budwood.volume.protocols import Remote
from budwood.volume.records import Location
from budwood.volume.wire import CommitRequest, NameRequest, ReadRequest

from ..served import Said, asked, client, serving

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

PAGE = 512
ANN = ClientId.new()
TOKEN = "the-operators"


@dataclass
class Deployed:
    """A node whose callers have keys, over one store."""

    address: str
    store: RiggedStore
    registry: Registry
    keys: dict[str, Secret] = field(default_factory=dict[str, Secret])

    async def key(self, who: str, org: str, *grants: Grant, expires_ms: int = 0) -> str:
        _, secret = await self.registry.make_key(who, grants or (Grant("write"),), org=org, expires_ms=expires_ms)
        self.keys[who] = secret
        return secret.text

    async def call(self, credential: str, call: str, request: msgspec.Struct) -> Said:
        headers = {"authorization": f"Bearer {credential}"} if credential else {}
        return await asked(self.address, call, msgspec.msgpack.encode(request), **headers)

    def remote(self, credential: str) -> Any:
        return client(self.address, credential)

    async def reason(self, authorization: str) -> str:
        """Why a head with this in it is refused."""
        async with httpx.AsyncClient() as web:
            headers = {"content-type": "application/json", "authorization": authorization}
            answer = await web.post(f"{self.address}/v1/hello", content=b"{}", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        return str(answer.json()["details"]["reason"])


@asynccontextmanager
async def deployed(store: RiggedStore | None = None, **options: Any) -> AsyncGenerator[Deployed]:
    store = store or RiggedStore(MemoryStore())
    registry = Registry(store, now_ms, PATIENT)

    async def access(node: Remote) -> Access:
        assert isinstance(node, Node)
        return Access(node, store, str(node.root.store_id), registry)

    async with serving(store, token=TOKEN, access=access, **options) as address:
        yield Deployed(address, store, registry)


async def volume_of(remote: HttpRemote, name: str, letter: bytes = b"s") -> VolumeId:
    vid = VolumeId.new()
    await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    await remote.commit(*commit_of(vid, 0, {1: letter * PAGE}, client=ANN, page_size=PAGE))
    await remote.ask(CHANGE_NAME, NameRequest(op="bind", name=name, target=vid.raw, client=ANN.raw))
    return vid


HEADER = VolumeKeys.new(WrappingKey(bytes(range(32)))).header.encoded()
REQUESTS: dict[type[msgspec.Struct], Callable[[VolumeId], msgspec.Struct]] = {
    calls.Done: lambda _: calls.Done(),
    calls.CreateRequest: lambda _: CreateRequest(VolumeId.new().raw, page_size=PAGE),
    calls.SnapshotRequest: lambda vid: SnapshotRequest(vid.raw),
    calls.RangeRequest: lambda vid: calls.RangeRequest(vid.raw),
    calls.OutcomeRequest: lambda vid: calls.OutcomeRequest(vid.raw, client=ANN.raw, token=bytes(16)),
    calls.LocateRequest: lambda vid: calls.LocateRequest(vid.raw, lsn=1, pages=encode_pages(PageSet([1]))),
    calls.PlanRequest: lambda vid: calls.PlanRequest(vid.raw, lsn=1, sql="SELECT 1"),
    calls.WaitRequest: lambda vid: calls.WaitRequest(vid.raw, after=0, timeout_seconds=0),
    calls.WaitNamesRequest: lambda _: calls.WaitNamesRequest(after=0, timeout_seconds=0),
    calls.ForkRequest: lambda vid: ForkRequest(vid.raw, child=VolumeId.new().raw, lsn=1),
    calls.PinRequest: lambda vid: calls.PinRequest(vid.raw, pin=PinId.new().raw, seconds=60),
    calls.RenewRequest: lambda vid: calls.RenewRequest(vid.raw, pin=PinId.new().raw, seconds=60),
    calls.UnpinRequest: lambda vid: calls.UnpinRequest(vid.raw, pin=PinId.new().raw),
    calls.VolumeRequest: lambda vid: calls.VolumeRequest(vid.raw),
    calls.SharedLogsRequest: lambda _: calls.SharedLogsRequest(),
    calls.SinceRequest: lambda vid: calls.SinceRequest(vid.raw, since=1),
    calls.RetainRequest: lambda vid: calls.RetainRequest(vid.raw),
    calls.ModeRequest: lambda vid: calls.ModeRequest(vid.raw, mode="optimistic"),
    calls.RekeyRequest: lambda vid: calls.RekeyRequest(vid.raw, encryption=HEADER, before=bytes(32)),
    calls.RetainDefaultRequest: lambda _: calls.RetainDefaultRequest(),
    calls.LookupRequest: lambda _: LookupRequest("secret"),
    calls.OpenRequest: lambda _: OpenRequest(name="secret"),
    calls.NamesRequest: lambda _: NamesRequest(),
    calls.PullNamesRequest: lambda _: PullNamesRequest(),
    NameRequest: lambda vid: NameRequest(op="bind", name="other", target=vid.raw, client=ANN.raw),
    calls.MoveRequest: lambda vid: calls.MoveRequest(vid.raw, to="private"),
    calls.LogName: lambda _: calls.LogName(log="elsewhere"),
    calls.DecommissionRequest: lambda _: calls.DecommissionRequest(node="elsewhere"),
    CommitRequest: lambda vid: commit_of(vid, 1, {1: b"x" * PAGE}, client=ANN, page_size=PAGE)[0],
    ReadRequest: lambda vid: ReadRequest(vid=vid.raw, lsn=1, pages=encode_pages(PageSet([1]))),
}
ABOUT_A_VOLUME = {kind for kind in REQUESTS if "vid" in kind.__struct_fields__} - {calls.CreateRequest}
MESSAGES = [row for row in CALLS.values() if row.form is not Form.SEGMENT_IN]


@pytest.mark.parametrize("row", MESSAGES, ids=[row.name for row in MESSAGES])
async def test_each_call_by_everyone(row: calls.Row[Any, Any]) -> None:
    """The rights go up, and so each has what those before him have; a stranger is told what an unknown id is told."""
    async with deployed() as node:
        rights = {Right.READ: "read", Right.WRITE: "write", Right.ADMIN: "admin"}
        ours = {right: await node.key(name, "acme", Grant(name)) for right, name in rights.items()}
        operator = await node.key("root", "", Grant("admin"))
        stranger = await node.key("mallory", "evil", Grant("admin"))
        async with node.remote(ours[Right.WRITE]) as remote:
            vid = await volume_of(remote, "secret")
        request = REQUESTS[row.request]

        assert (await node.call("", row.name, request(vid))).status == 401
        for right, key in ours.items():
            said = await node.call(key, row.name, request(vid))
            assert (said.code == "Forbidden") == (right < row.needs), (right, said)
            assert said.code != "Unauthorized"
        if row.needs is Right.OPERATE:
            for key in (operator, TOKEN):
                assert (await node.call(key, row.name, request(vid))).code not in {"Forbidden", "Unauthorized"}
            assert (await node.call(stranger, row.name, request(vid))).code == "Forbidden"
        elif row.request in ABOUT_A_VOLUME:
            unknown = VolumeId.new()
            said, told = [await node.call(stranger, row.name, request(each)) for each in (vid, unknown)]
            assert said.code == "NotFound"
            assert said.message.replace(str(vid), "ID") == told.message.replace(str(unknown), "ID")


async def test_a_segment_is_written_by_who_may_write_and_to_his_own() -> None:
    async with deployed() as node:
        reader, stranger = await node.key("r", "acme", Grant("read")), await node.key("mallory", "evil")
        async with node.remote(await node.key("w", "acme")) as remote:
            vid = await volume_of(remote, "secret")
        _, segment = commit_of(vid, 1, {1: b"x" * PAGE}, client=ANN, page_size=PAGE)
        for credential, kind in ((reader, Forbidden), (stranger, NotFound)):
            async with node.remote(credential) as remote:
                with pytest.raises(kind):
                    await remote.write_pages(vid, segment)
                with pytest.raises(kind if kind is NotFound else Forbidden):
                    await remote.commit(*commit_of(vid, 1, {1: b"x" * PAGE}, client=ANN, page_size=PAGE))


async def test_an_organisation_sees_its_own_names_and_no_others() -> None:
    async with (
        deployed() as node,
        node.remote(await node.key("a", "acme")) as acme,
        node.remote(await node.key("e", "evil", Grant("admin"))) as evil,
        node.remote(TOKEN) as store,
    ):
        vid, other = await volume_of(acme, "ledger"), await volume_of(evil, "ledger", b"e")
        for remote, own in ((acme, vid), (evil, other)):
            assert [entry.target for entry in (await remote.ask(LIST_NAMES, NamesRequest())).entries] == [own.raw]
            delta = await remote.ask(PULL_NAMES, PullNamesRequest())
            assert ([entry.target for entry in delta.entries], delta.head) == ([own.raw], 1)
            opened = await remote.ask(OPEN, OpenRequest(name="ledger"))
            assert opened.snapshot is not None
            assert opened.snapshot.vid == own.raw
        # Whoever operates the store has names of his own, and looks at others' when he says whose.
        assert (await store.ask(LIST_NAMES, NamesRequest())).entries == ()
        assert [entry.target for entry in (await store.ask(LIST_NAMES, NamesRequest(org="acme"))).entries] == [vid.raw]
        assert await pages_at(store, vid) == {1: b"s" * PAGE}
        # Whose names he means is nothing that a caller says.
        told = await evil.ask(LOOKUP, LookupRequest("ledger", org="acme"))
        assert told.entry is not None
        assert told.entry.target == other.raw
        for name in (
            "../acme/ledger",
            "/acme/ledger",
            "acme/ledger",
            "acme%2fledger",
            "..%2facme",
            "ledger\0",
            "\uff4cedger",
        ):
            said = await node.call(node.keys["e"].text, "lookup", LookupRequest(name))
            assert said.status == 200 or "acme" not in said.message.replace(name, "")


async def test_no_name_and_no_fork_leads_to_anothers_pages() -> None:
    async with (
        deployed() as node,
        node.remote(await node.key("a", "acme")) as acme,
        node.remote(await node.key("e", "evil", Grant("admin"))) as evil,
    ):
        vid = await volume_of(acme, "ledger")
        mine = await volume_of(evil, "mine", b"e")
        bind = NameRequest(op="bind", name="stolen", target=vid.raw, client=ANN.raw)
        with pytest.raises(NotFound, match=f"there is no volume {vid} in this store"):
            await evil.ask(CHANGE_NAME, bind)
        with pytest.raises(NotFound):
            await evil.ask(FORK, ForkRequest(vid.raw, child=VolumeId.new().raw, lsn=1))
        for size, kind in ((PAGE, NotFound), (4096, AlreadyExists)):
            with pytest.raises(kind):
                await evil.ask(CREATE, CreateRequest(vid.raw, page_size=size, org="acme"))
        with pytest.raises(NotFound):
            await evil.ask(SNAPSHOT, SnapshotRequest(vid.raw))
        # A commit that names where another's pages lie.
        where = await acme.ask(calls.LOCATE, calls.LocateRequest(vid.raw, lsn=1, pages=encode_pages(PageSet([1]))))
        request, _ = commit_of(mine, 1, {1: b"x" * PAGE}, client=ANN, page_size=PAGE)
        for placement in where.placements:
            stolen = msgspec.structs.replace(
                request, locations=(Location(object=placement.object, slot=placement.slot),)
            )
            with pytest.raises(BudwoodError):
                await evil.commit(stolen)
        assert await pages_at(evil, mine) == {1: b"e" * PAGE}
        child = VolumeId.new()
        await acme.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=1))
        assert await pages_at(acme, child) == {1: b"s" * PAGE}
        with pytest.raises(NotFound):
            await evil.ask(SNAPSHOT, SnapshotRequest(child.raw))


async def test_of_names_of_the_past_a_key_for_a_prefix_sees_its_own() -> None:
    async with (
        deployed() as node,
        node.remote(await node.key("a", "acme")) as acme,
        node.remote(await node.key("p", "acme", Grant("read", "pub/"))) as some,
    ):
        for name in ("pub/one", "ledger"):
            await volume_of(acme, name)
        then = max(entry.time for entry in (await acme.ask(LIST_NAMES, NamesRequest())).entries)
        move = NameRequest(op="move", name="pub/one", revision=1, new="secret/one", client=ANN.raw)
        await acme.ask(CHANGE_NAME, move)
        for remote, names in ((acme, ["ledger", "pub/one"]), (some, ["pub/one"])):
            listed = await remote.ask(LIST_NAMES, NamesRequest(at=then))
            assert ([entry.name for entry in listed.entries], listed.at) == (names, then)
        assert (await some.ask(LIST_NAMES, NamesRequest(at=then + (1 << 40)))).entries == ()


async def test_a_prefix_is_all_that_a_key_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        deployed() as node,
        node.remote(await node.key("a", "acme")) as acme,
        node.remote(await node.key("p", "acme", Grant("read", "pub/"), Grant("write", "own/"))) as some,
    ):
        public, private = await volume_of(acme, "pub/one"), await volume_of(acme, "ledger")
        assert await pages_at(some, public) == {1: b"s" * PAGE}
        with pytest.raises(Forbidden):
            await some.ask(SNAPSHOT, SnapshotRequest(private.raw))
        with pytest.raises(Forbidden):
            await some.commit(*commit_of(public, 1, {1: b"x" * PAGE}, client=ANN, page_size=PAGE))
        assert [entry.name for entry in (await some.ask(LIST_NAMES, NamesRequest())).entries] == ["pub/one"]
        for name, target in (("own/stolen", private), ("ledger2", public)):
            with pytest.raises(Forbidden):
                await some.ask(CHANGE_NAME, NameRequest(op="bind", name=name, target=target.raw, client=ANN.raw))
        mine = await volume_of(some, "own/mine", b"m")
        assert await pages_at(some, mine) == {1: b"m" * PAGE}
        # A name that goes takes the right along.
        entry = (await acme.ask(LOOKUP, LookupRequest("pub/one"))).entry
        assert entry is not None
        move = NameRequest(op="move", name="pub/one", revision=entry.revision, new="hidden", client=ANN.raw)
        await acme.ask(CHANGE_NAME, move)
        await volume_of(acme, "pub/two")
        with pytest.raises(Forbidden):
            await some.ask(LOOKUP, LookupRequest("hidden"))
        monkeypatch.setattr("budwood.server.access.names_of_volumes.STALE_SECONDS", 0.0)
        with pytest.raises(Forbidden):
            await some.ask(SNAPSHOT, SnapshotRequest(public.raw))


async def test_a_reader_holds_what_he_reads_for_a_while_only() -> None:
    async with (
        deployed() as node,
        node.remote(await node.key("w", "acme")) as writer,
        node.remote(await node.key("r", "acme", Grant("read"))) as reader,
    ):
        vid = await volume_of(writer, "ledger")
        lease = calls.PinRequest(vid.raw, pin=PinId.new().raw, seconds=60)
        pin = await reader.ask(calls.PIN, lease)
        for seconds in (0, 1e9):
            for call, request in (
                (calls.PIN, msgspec.structs.replace(lease, pin=PinId.new().raw, seconds=seconds)),
                (calls.RENEW, calls.RenewRequest(vid.raw, pin=pin.id, seconds=seconds)),
            ):
                with pytest.raises(Forbidden):
                    await reader.ask(call, request)
        with pytest.raises(Forbidden):
            await reader.ask(calls.PIN, msgspec.structs.replace(lease, pin=b"", kind="named", label="v1"))
        await writer.ask(calls.PIN, msgspec.structs.replace(lease, pin=b"", kind="named", label="v1", seconds=0))


async def test_a_key_is_refused_for_its_reason() -> None:
    async with deployed() as node:
        good = await node.key("good", "acme")
        assert (await node.call(good, "hello", calls.Done())).status == 200
        revoked, expired = await node.key("revoked", "acme"), await node.key("old", "acme", expires_ms=now_ms() - 1)
        await node.registry.revoke(node.keys["revoked"].id)
        wrong = Secret(node.keys["good"].id, new_secret().seed).text
        reasons = {
            "": "missing",
            f"Basic {base64.b64encode(b'ann:open').decode()}": "missing",
            "Bearer": "missing",
            f"Bearer {TOKEN}x": "malformed",
            f"Bearer {good[:-1]}": "malformed",
            f"Bearer {good}{'A' * 9000}": "malformed",
            f"Bearer {new_secret().text}": "unknown",
            f"Bearer {Secret('../organisations/acme', bytes(32)).text}": "unknown",
            f"Bearer {wrong}": "wrong",
            f"Bearer {revoked}": "revoked",
            f"Bearer {expired}": "expired",
        }
        assert {given: await node.reason(given) for given in reasons} == reasons


async def test_one_character_that_is_another_makes_another_key() -> None:
    secret = new_secret()
    text = secret.text
    assert parse_secret(text) == secret
    for at in range(len(KEY_MARK), len(text)):
        other = "B" if text[at] != "B" else "C"
        with pytest.raises(BudwoodError):
            parse_secret(text[:at] + other + text[at + 1 :])


async def test_a_token_is_refused_for_its_reason() -> None:
    async with deployed() as node, deployed() as other:
        key = await node.key("ci", "acme", Grant("write", "app/"))
        secret, now = parse_secret(key), now_ms()
        async with node.remote(key) as remote:
            store = (await remote.ask(HELLO, calls.Done())).store
        async with other.remote(TOKEN) as remote:
            elsewhere = (await remote.ask(HELLO, calls.Done())).store

        def token(signer: Secret = secret, **changed: Any) -> str:
            claims = Claims(key=secret.id, store=store, since=now, until=now + 600_000)
            return sign(signer, msgspec.structs.replace(claims, **changed))

        assert (await node.call(token(), "hello", calls.Done())).status == 200
        packed, signature = token().removeprefix("bwt_").split(".")
        claims = json.loads(base64.urlsafe_b64decode(packed + "=="))
        forged = base64.urlsafe_b64encode(json.dumps(claims | {"until": now + 9**12}).encode()).decode().rstrip("=")
        headless = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
        day = 24 * 3600 * 1000
        long = Claims(key=secret.id, store=store, since=now, until=now + 3 * day)
        reasons = {
            f"bwt_{forged}.{signature}": "signature",
            f"bwt_{packed}.": "signature",
            f"bwt_{packed}.{signature[::-1]}": "signature",
            f"bwt_{headless}.{signature}": "malformed",
            "bwt_": "malformed",
            token(new_secret()): "signature",
            token(key=new_secret().id): "unknown",
            token(store=elsewhere): "store",
            token(since=now - 7_200_000, until=now - 3_600_000): "expired",
            token(since=now + 3_600_000, until=now + 7_200_000): "early",
            unlimited(secret, long): "lifetime",
            token(grants=(Grant("admin", "app/"),)): "grants",
            token(grants=(Grant("write"),)): "grants",
            token(grants=(Grant("write", "app"),)): "grants",
            token(grants=(Grant("everything"),)): "grants",
        }
        assert {given: await node.reason(f"Bearer {given}") for given in reasons} == reasons
        # One that was good here is none where the store is another.
        assert await other.reason(f"Bearer {token()}") == "unknown"
        narrow = token(grants=(Grant("read", "app/x"),))
        assert (
            await node.call(narrow, "create", CreateRequest(VolumeId.new().raw, page_size=PAGE))
        ).code == "Forbidden"
        assert (await node.call(narrow, "lookup", LookupRequest("app/y"))).code == "Forbidden"
        assert (await node.call(narrow, "lookup", LookupRequest("app/xyz"))).status == 200


def unlimited(secret: Secret, claims: Claims) -> str:
    """What `sign` refuses to make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("budwood.server.access.credentials.MOST_TOKEN_SECONDS", 1 << 40)
        return sign(secret, claims)


async def test_a_revoked_key_opens_nothing_ten_seconds_later_at_a_node_that_has_just_seen_it() -> None:
    store, clock = RiggedStore(MemoryStore()), [1000.0]
    patience = dataclasses.replace(PATIENT, now=lambda: clock[0])
    here, elsewhere = Registry(store, now_ms, patience), Registry(store, now_ms)
    async with Node.open(store) as node:
        store_id = str(node.root.store_id)
        access = Access(node, store, store_id, here)
        key, secret = await elsewhere.make_key("ci", (Grant("write"),), org="acme")
        now = now_ms()
        token = sign(secret, Claims(key=key.id, store=store_id, since=now, until=now + 600_000))
        for text in (secret.text, token):
            assert (await access.principal(text)).name == "acme/ci"
        await elsewhere.revoke(key.id)
        clock[0] += REVOKED_SECONDS - 1
        gets = store.count("get")
        for text in (secret.text, token):
            await access.principal(text)
        assert store.count("get") == gets, "it is looked at every ten seconds"
        clock[0] += 1.5
        for text in (secret.text, token):
            with pytest.raises(Unauthorized) as refused:
                await access.principal(text)
            assert refused.value.reason == "revoked"


async def test_metrics_are_the_operators() -> None:
    async with deployed() as node, httpx.AsyncClient() as web:
        told: dict[str, int] = {}
        for who, key in (("nobody", ""), ("acme", await node.key("a", "acme", Grant("admin"))), ("us", TOKEN)):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            told[who] = (await web.get(f"{node.address}/metrics", headers=headers)).status_code
        assert told == {"nobody": 401, "acme": 403, "us": 200}
        assert (await web.get(f"{node.address}/healthz")).status_code == 200


async def test_the_node_is_no_oracle_of_ids_by_what_its_store_is_asked() -> None:
    """An id of another organisation costs the store what one costs that isn't there, each time."""
    async with (
        deployed() as node,
        node.remote(await node.key("a", "acme")) as acme,
        node.remote(await node.key("e", "evil")) as evil,
    ):
        vid = await volume_of(acme, "ledger")
        await evil.ask(HELLO, calls.Done())
        gets: list[int] = []
        for each in (vid, VolumeId.new(), vid, VolumeId.new()):
            before = node.store.count("get")
            with pytest.raises(NotFound):
                await evil.ask(SNAPSHOT, SnapshotRequest(each.raw))
            gets.append(node.store.count("get") - before)
        assert gets == [1] * 4


async def test_who_is_asked_says_so() -> None:
    async with deployed() as node, node.remote("") as remote:
        with pytest.raises(Unauthorized, match="budwood login") as refused:
            await remote.ask(HELLO, calls.Done())
        assert refused.value.reason == "missing"

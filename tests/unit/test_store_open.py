"""A URL names a store, or is refused in words; the probe refuses a store that breaks the rules."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from budwood.server.store.open_store import open_store
from budwood.server.store.probe import probe
from budwood.server.store.protocol import Data, Keys
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.errors import AlreadyExists, BadInput, Corrupt, NotFound, Unavailable, Unsupported

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "must start with"),
        ("/tmp/x", "must start with one of file://"),
        ("ftp://host/x", "must start with"),
        ("file://relative/x", "in full"),
        ("file:x", "in full"),
        ("file:///a?b", "%3F"),
        ("file:///a%00b", "no directory"),
        ("s3://", "names no bucket"),
        ("s3:///prefix", "names no bucket"),
        ("http://[::1", "not a URL"),
        ("memory://x?records=redis://host/0", r"records are at sqlite:///.*postgresql://"),
        ("memory://x?records=sqlite://host/x", "write sqlite:///, and the path in full"),
        ("memory://x?records=sqlite:///x?y=1", "write '\\?' as %3F"),
        ("file:///srv/store?records=sqlite:///srv/store/records", "keep the records beside it"),
        ("memory://x?records=postgresql://user:secret@host/x", "no password: give it in PGPASSWORD"),
        ("memory://x?records=postgresql://host/x?password=secret", "no password: give it in PGPASSWORD"),
        ("az://container", "can't open az://container"),
        ("s3://bucket/p?regoin=x", "no option 'regoin': it has endpoint, region, profile, hedging, rates"),
        ("s3://bucket/p?region=x&region=y", "the option region is said twice"),
        ("s3://bucket/p?region=", "the option region is said without a value"),
        ("s3://bucket/p?hedging=off", "write hedging=yes or hedging=no, not 'off'"),
        ("gs://bucket/p?profile=work", "no option 'profile': it has hedging, rates"),
        ("memory://x?hedging=no", "memory:// has none"),
    ],
)
async def test_a_url_that_names_no_store_is_refused_in_words(url: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        await open_store(url)


async def test_a_file_url_is_unquoted_and_quoted_again(tmp_path: Path) -> None:
    url = (tmp_path / "a b%3F").as_uri()
    store = await open_store(url)
    await store.create("k", b"x")
    assert store.url == url
    assert (tmp_path / "a b%3F" / "k").read_bytes() == b"x"
    await store.aclose()


async def test_a_missing_directory_is_made_only_if_allowed(tmp_path: Path) -> None:
    url = (tmp_path / "new").as_uri()
    with pytest.raises(NotFound):
        await open_store(url, create=False)
    assert not (tmp_path / "new").exists()
    await (await open_store(url)).aclose()
    await (await open_store(url, create=False)).aclose()


async def test_the_same_memory_url_is_the_same_store() -> None:
    one, same, other = [await open_store(f"memory://{name}") for name in ("open-a", "open-a", "open-b")]
    await one.create("k", b"x")
    assert await same.get("k") == b"x"
    assert await other.list("") == []
    await one.delete("k")


async def test_a_url_is_shown_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    store = await open_store("s3://user:password@bucket/prefix?region=eu-west-1")
    assert store.url == "s3://bucket/prefix"


@pytest.mark.parametrize(
    ("records", "shown"),
    [
        ("sqlite:///srv/a%20b", "sqlite:///srv/a%20b"),
        ("postgresql://ann@host:5433/db?sslmode=require&options=-csearch_path%3Dx", "postgresql://host:5433/db"),
        ("postgresql:///db?host=/run/postgresql", "postgresql:///db"),
    ],
)
async def test_records_come_last_in_a_url_and_are_shown_without_who_asks(records: str, shown: str) -> None:
    store = await open_store(f"memory://open-records?records={records}")
    assert store.url == f"memory://open-records?records={shown}"
    await store.aclose()


async def test_records_that_cannot_be_reached_are_told_at_the_first_request(tmp_path: Path) -> None:
    """And at once: whoever has never answered isn't waited for."""
    away = {
        f"postgresql:///db?host={tmp_path}&user=ann": "postgresql:///db: .*No such file",
        "postgresql://127.0.0.1:1/db?user=ann": "postgresql://127.0.0.1:1/db: .*refused",
    }
    for url, words in away.items():
        store = await open_store(f"memory://open-away?records={url}")
        with pytest.raises(Unavailable, match=words) as told:
            await store.create("a", b"x")
        assert told.value.determinate
        assert told.value.hopeless
        await store.aclose()
    store = await open_store(f"memory://open-away?records=sqlite://{tmp_path}/none/records")
    with pytest.raises(NotFound, match="its folder must be there"):
        await store.create("a", b"x")
    store = await open_store(f"memory://open-away?records=sqlite://{tmp_path}/none", create=False)
    with pytest.raises(NotFound, match="there are no records at sqlite://"):
        await store.create("a", b"x")


async def test_records_that_are_something_else_are_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database" * 1000)
    store = await open_store(f"memory://open-other?records=sqlite://{tmp_path}/text")
    with pytest.raises(Corrupt, match="not a database"):
        await store.create("a", b"x")
    url = f"memory://open-newer?records=sqlite://{tmp_path}/newer"
    store = await open_store(url)
    await store.create("a", b"x")
    await store.aclose()
    with closing(apsw.Connection(str(tmp_path / "newer"))) as connection:
        connection.execute("UPDATE budwood_state SET format = 2")
    store = await open_store(url)
    with pytest.raises(Unsupported, match="format 2, a newer Budwood's: upgrade"):
        await store.create("b", b"x")


async def test_without_psycopg_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "budwood.server.store.postgres_records", raising=False)
    with pytest.raises(BadInput, match=r"pip install 'budwood\[postgres\]'"):
        await open_store("memory://x?records=postgresql://host/x")


async def test_without_obstore_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delitem(sys.modules, "budwood.server.store.obstore_store", raising=False)
    with pytest.raises(BadInput, match=r"pip install 'budwood\[s3\]'"):
        await open_store("s3://bucket")


class Overwriting(MemoryStore):
    """A store that takes a second create for the first."""

    async def create(self, key: str, data: Data) -> None:
        await self.delete(key)
        await super().create(key, data)


class Pretending(MemoryStore):
    """A store that refuses a second create, and overwrites all the same."""

    async def create(self, key: str, data: Data) -> None:
        try:
            await super().create(key, data)
        except AlreadyExists:
            await self.delete(key)
            await super().create(key, data)
            raise


class ByDirectory(MemoryStore):
    """A store that lists directory by directory."""

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        return sorted(await super().list(prefix, start=start, limit=limit), key=lambda key: key.split("/"))


@pytest.mark.parametrize(
    ("store", "words"),
    [(Overwriting(), "create-if-absent"), (Pretending(), "create-if-absent"), (ByDirectory(), "order of their bytes")],
)
async def test_a_store_that_breaks_a_rule_is_refused_with_the_way_out(store: MemoryStore, words: str) -> None:
    with pytest.raises(Unsupported, match=f"{words}.*use a store or gateway that does"):
        await probe(store)
    assert store.objects == {}


async def test_a_probe_costs_seven_requests_and_survives_a_lost_answer() -> None:
    store = RiggedStore(MemoryStore())
    await probe(store)
    assert store.count() == 7
    store.add(Rule(op="create", after=Unavailable("lost", determinate=False)))
    await probe(store)


async def test_a_probe_that_can_t_clean_up_tells_the_first_error() -> None:
    store = RiggedStore(Overwriting())
    store.add(Rule(op="delete", times=None, before=Unavailable("down")))
    with pytest.raises(Unsupported, match="create-if-absent"):
        await probe(store)

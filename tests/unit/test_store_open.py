"""A URL names a store, or is refused in words; the probe refuses a store that breaks the rules."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from budwood.server.store.open_store import open_store
from budwood.server.store.probe import probe
from budwood.server.store.protocol import Data, Keys
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.errors import AlreadyExists, BadInput, NotFound, Unavailable, Unsupported

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

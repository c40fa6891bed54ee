"""A node that speaks TLS: whoever trusts its certificate calls it, and nobody else; in one process and in several."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from budwood.remote.owner_liveness import liveness_probe
from budwood.remote.portal import open_remote
from budwood.server.log.term import read_epoch
from budwood.server.node import Node
from budwood.server.store.directory_store import FileStore
from budwood.testing.commits import commit_of
from budwood.volume.calls import CREATE, HELLO, CreateRequest, Done
from budwood.volume.errors import Unavailable
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.owner import Liveness

from ..fault.crash_harness import SERVE, Place, Serving, start
from ..waits import LIMIT_SECONDS

PAGE = 512


class Authority:
    """Its certificate, and one that it has given out for loopback."""

    def __init__(self, folder: Path) -> None:
        self.vouches, self.chain, self.key = (folder / name for name in ("ca.pem", "chain.pem", "key.pem"))
        made = trustme.CA()
        given = made.issue_cert("127.0.0.1", "localhost")
        made.cert_pem.write_to_path(self.vouches)
        for blob in given.cert_chain_pems:
            blob.write_to_path(self.chain, append=True)
        given.private_key_pem.write_to_path(self.key)

    @property
    def options(self) -> tuple[str, ...]:
        return ("--tls-cert", str(self.chain), "--tls-key", str(self.key))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def node(tmp_path: Path) -> Generator[Serving]:
    serving = Serving(Place(tmp_path))
    yield serving
    serving.stop()


def secure(node: Serving) -> str:
    return f"https://127.0.0.1:{node.port}"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_who_trusts_the_certificate_calls_it_and_nobody_else(
    monkeypatch: pytest.MonkeyPatch, authority: Authority, node: Serving, workers: str
) -> None:
    node.start(*authority.options, "--token", "s3cret", "--workers", workers)
    vid = VolumeId.new()
    with closing(open_remote(secure(node), token="s3cret")) as remote, pytest.raises(Unavailable, match=r"(?i)certif"):
        remote.ask(HELLO, Done())
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.vouches))
    with closing(open_remote(secure(node), token="s3cret")) as remote:
        remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        request = commit_of(vid, 0, {1: b"a" * PAGE}, client=ClientId.new(), page_size=PAGE)
        assert remote.commit(*request).lsn == 1
    with closing(open_remote(node.url, token=f"{node.url}=s3cret")) as remote, pytest.raises(Unavailable):
        remote.ask(HELLO, Done())


@pytest.mark.anyio
async def test_its_owner_is_known_to_live_whoever_vouches_for_it(
    anyio_backend: str, authority: Authority, node: Serving
) -> None:
    """Else a stand-by that doesn't know the authority would fence it."""
    node.start(*authority.options, "--node", "one")
    store = await FileStore.open(str(node.place.folder / "store"))
    async with Node.open(store) as reader:
        log = await reader.logs.get("one")
        owner = await read_epoch(reader.store, "one", log.reader.chain.epoch)
    assert owner.address == secure(node)
    assert await liveness_probe()(owner) is Liveness.ANSWERS


def test_browsers_too_speak_http_2_with_it(authority: Authority, node: Serving) -> None:
    node.start(*authority.options)
    context = httpx.create_ssl_context()
    context.load_verify_locations(str(authority.vouches))
    with httpx.Client(http2=True, verify=context) as web:
        told = web.get(f"{secure(node)}/healthz")
    assert (told.status_code, told.http_version) == (200, "HTTP/2")


@pytest.mark.parametrize("damage", ["missing", "no certificate", "another key", "one of two", "with a password"])
def test_what_is_no_certificate_is_said_in_a_line(tmp_path: Path, authority: Authority, damage: str) -> None:
    options = list(authority.options)
    match damage:
        case "missing":
            authority.key.unlink()
        case "no certificate":
            authority.chain.write_text("hello")
        case "another key":
            (tmp_path / "other").mkdir()
            options[3] = str(Authority(tmp_path / "other").key)
        case "with a password":
            options[3] = str(tmp_path / "sealed.pem")
            key = serialization.load_pem_private_key(authority.key.read_bytes(), None)
            sealed = serialization.BestAvailableEncryption(b"x")
            pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
            Path(options[3]).write_bytes(key.private_bytes(pem, pkcs8, sealed))
        case _:
            del options[2:]
    place = Place(tmp_path)
    child = start(SERVE, "serve", "--create", "--store", place.store, "--listen", "127.0.0.1:0", *options)
    output, errors = child.communicate(timeout=LIMIT_SECONDS)
    assert (output, errors.count("\n")) == ("", 1), errors
    assert child.returncode > 0
    assert "certificate" in errors or "can't be read" in errors

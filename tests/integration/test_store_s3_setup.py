"""S3 as its users set it up: ~/.aws, AWS_PROFILE, roles, an endpoint of their own; and what is said of a mistake."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from obstore import exceptions

from budwood.server.store import obstore_store
from budwood.server.store.aws import find_settings
from budwood.server.store.obstore_errors import translated
from budwood.server.store.open_store import open_store
from budwood.server.store.probe import probe
from budwood.server.store.root import open_root
from budwood.server.store.store_url import StoreUrl
from budwood.volume.errors import BadInput, BudwoodError, NotFound, Unauthorized, Unavailable

from .cli import Command
from .s3_server import S3Server

pytestmark = pytest.mark.anyio

URL = "s3://bucket/prefix"
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


class Machine:
    """A user's home folder and variables. Nobody told it anything yet, and no role is to be had."""

    def __init__(self, home: Path, patch: pytest.MonkeyPatch) -> None:
        self._home = home
        self._patch = patch

    def set(self, **variables: str) -> None:
        for name, value in variables.items():
            self._patch.setenv(name, value)

    def write(self, name: str, text: str) -> None:
        (self._home / ".aws").mkdir(exist_ok=True)
        (self._home / ".aws" / name).write_text(text)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "user"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{closed_port()}")
    return Machine(home, monkeypatch)


@pytest.fixture
def server() -> Iterator[S3Server]:
    with S3Server(keys={"key": "secret", "work": "hidden"}, region="eu-west-1") as server:
        yield server


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


async def reached(url: str = URL) -> None:
    """A node's first steps."""
    store = await open_store(url)
    try:
        with pytest.raises(NotFound, match="there is no Budwood store at"):
            await open_root(store, create=False)
        await probe(store)
    finally:
        await store.aclose()


async def refused(url: str = URL) -> BudwoodError:
    """What it says, which must be one line."""
    with pytest.raises(BudwoodError) as caught:
        await reached(url)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    return caught.value


async def test_a_profile_says_keys_region_and_endpoint(machine: Machine, server: S3Server) -> None:
    machine.write("credentials", "[work]\naws_access_key_id = work\naws_secret_access_key = hidden\n")
    machine.write("config", f"[profile work]\nregion = eu-west-1\nendpoint_url = {server.endpoint}\n")
    machine.set(AWS_PROFILE="work")
    await reached()


async def test_without_a_name_the_default_profile_is_taken(machine: Machine, server: S3Server) -> None:
    machine.write("credentials", "[default]\naws_access_key_id = key\naws_secret_access_key = secret\n")
    machine.write("config", "[default]\nregion = eu-west-1\nservices = here\n\n[services here]\ns3 =\n")
    with (Path.home() / ".aws" / "config").open("a") as config:
        config.write(f"  endpoint_url = {server.endpoint}\n")
    await reached()
    machine.set(AWS_IGNORE_CONFIGURED_ENDPOINT_URLS="true")
    assert "endpoint" not in find_settings(StoreUrl(URL)).config


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"])
async def test_an_endpoint_of_ones_own_may_speak_http(machine: Machine, server: S3Server, name: str) -> None:
    machine.set(**KEYS, AWS_REGION="eu-west-1", **{name: server.endpoint + "/"})
    await reached()
    # What the environment says beside it still counts.
    machine.set(AWS_TIMEOUT="7s")
    assert find_settings(StoreUrl(URL)).client == {"timeout": "7s", "allow_http": "true"}


async def test_the_url_goes_before_all_else(machine: Machine, server: S3Server) -> None:
    machine.write("credentials", "[work]\naws_access_key_id = work\naws_secret_access_key = hidden\n")
    machine.write("config", f"[profile work]\nregion = us-west-2\nendpoint_url = http://127.0.0.1:{closed_port()}\n")
    machine.set(AWS_ACCESS_KEY_ID="nobody", AWS_SECRET_ACCESS_KEY="none", AWS_PROFILE="none", AWS_REGION="us-east-2")
    await reached(f"{URL}?profile=work&region=eu-west-1&endpoint={server.endpoint}")
    error = await refused(f"{URL}?profile=wrok")
    assert isinstance(error, BadInput)
    assert "?profile= is 'wrok', which ~/.aws doesn't have; it has work" in str(error)


async def test_variables_go_before_the_profile(machine: Machine, server: S3Server) -> None:
    machine.write("credentials", "[default]\naws_access_key_id = nobody\naws_secret_access_key = none\n")
    machine.write("config", f"[default]\nregion = us-west-2\nendpoint_url = http://127.0.0.1:{closed_port()}\n")
    machine.set(**KEYS, AWS_REGION="eu-west-1", AWS_ENDPOINT_URL=server.endpoint)
    await reached()


async def test_a_program_tells_the_keys(machine: Machine, server: S3Server, tmp_path: Path) -> None:
    told = {"Version": 1, "AccessKeyId": "work", "SecretAccessKey": "hidden", "Expiration": "2999-01-01T00:00:00Z"}
    program = tmp_path / "keys.py"
    program.write_text(f"print({json.dumps(told)!r})")
    machine.write("config", f"[default]\nregion = eu-west-1\ncredential_process = {sys.executable} {program}\n")
    machine.set(AWS_ENDPOINT_URL=server.endpoint)
    await reached()
    program.write_text("import sys; sys.exit('your ticket\\nhas ended')")
    error = await refused()
    assert isinstance(error, Unauthorized)
    assert "your ticket has ended" in str(error)


@contextmanager
def metadata_service() -> Generator[str]:
    """What a machine of EC2 asks after its role: its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._say("a token")

        def do_GET(self) -> None:
            assert self.headers["x-aws-ec2-metadata-token"] == "a token"
            role = {"Code": "Success", "AccessKeyId": "work", "SecretAccessKey": "hidden", "Token": "t"}
            self._say(
                json.dumps(role | {"Expiration": "2999-01-01T00:00:00Z"}) if self.path.endswith("/role") else "role"
            )

        def _say(self, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing is logged."""

    service = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{service.server_address[1]}"
    finally:
        service.shutdown()
        service.server_close()
        thread.join()


async def test_a_machine_has_its_role(machine: Machine, server: S3Server) -> None:
    machine.set(AWS_REGION="eu-west-1", AWS_ENDPOINT_URL=server.endpoint)
    with metadata_service() as address:
        machine.set(AWS_EC2_METADATA_SERVICE_ENDPOINT=address)
        await reached()


async def test_a_public_bucket_needs_no_keys(machine: Machine) -> None:
    with S3Server(public=True) as server:
        machine.set(AWS_SKIP_SIGNATURE="true", AWS_ENDPOINT_URL=server.endpoint)
        await reached()


async def test_no_credentials_are_told_at_once_and_where_they_may_come_from(machine: Machine) -> None:
    error = await refused()
    assert isinstance(error, Unauthorized)
    assert str(error).startswith(f"{URL}: no AWS credentials were found: set AWS_ACCESS_KEY_ID and ")
    # A service that is there and says nothing is what a machine outside of EC2 may have.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        machine.set(AWS_EC2_METADATA_SERVICE_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert str(await refused()) == str(error)


@pytest.mark.parametrize(
    ("variables", "kind", "words"),
    [
        ({"AWS_ACCESS_KEY_ID": "other"}, Unauthorized, "InvalidAccessKeyId: the access key isn't known there; check "),
        ({"AWS_SECRET_ACCESS_KEY": "x"}, Unauthorized, "SignatureDoesNotMatch: the secret key doesn't belong to the "),
        ({"AWS_REGION": "us-east-1"}, BadInput, "the bucket's region is eu-west-1: set AWS_REGION to it"),
        ({"AWS_ENDPOINT_URL": "localhost:9000"}, BadInput, "the endpoint 'localhost:9000' is no URL: write http://"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:PORT"}, Unavailable, "can't be reached: nothing listens there; check"),
        ({"AWS_ENDPOINT_URL": "https://127.0.0.1:TLS"}, Unavailable, "can't be reached: it doesn't speak TLS, so writ"),
        ({"AWS_PROFILE": "wrok"}, BadInput, "AWS_PROFILE is 'wrok', which ~/.aws doesn't have; it has home, work"),
        (
            {"AWS_PROFILE": "wrok", "AWS_SKIP_SIGNATURE": "true"},
            BadInput,
            "AWS_PROFILE is 'wrok', which ~/.aws doesn't",
        ),
    ],
)
async def test_a_mistake_is_one_line_that_says_what_to_mend(
    machine: Machine, server: S3Server, variables: dict[str, str], kind: type[BudwoodError], words: str
) -> None:
    machine.write("config", "[profile work]\nregion = eu-west-1\n[profile home]\nregion = eu-west-1\n")
    machine.set(**KEYS, AWS_REGION="eu-west-1", AWS_ENDPOINT_URL=server.endpoint)
    port = server.endpoint.rpartition(":")[2]
    machine.set(**{k: v.replace("PORT", str(closed_port())).replace("TLS", port) for k, v in variables.items()})
    server.requests.clear()
    error = await refused()
    assert type(error) is kind
    assert str(error).startswith(f"{URL}: ")
    assert words in str(error)
    # It isn't tried again and again.
    assert len(server.requests) <= 1
    assert not isinstance(error, Unavailable) or error.hopeless


async def test_a_bucket_that_is_not_there_is_said(machine: Machine, server: S3Server) -> None:
    machine.set(**KEYS, AWS_REGION="eu-west-1", AWS_ENDPOINT_URL=server.endpoint)
    assert str(await refused("s3://bukket/x")) == "s3://bukket/x: there is no such bucket: create it first"


async def test_a_store_that_never_answers_is_not_waited_for(
    machine: Machine, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstore_store, "FIRST_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        machine.set(**KEYS, AWS_ENDPOINT_URL=f"http://127.0.0.1:{silent.getsockname()[1]}")
        error = await refused()
    assert isinstance(error, Unavailable)
    assert error.hopeless
    assert str(error) == f"{URL} has not answered within 0.5 s: check the endpoint and the network"


async def test_a_store_that_has_answered_before_is_waited_for(machine: Machine) -> None:
    with S3Server() as server:
        machine.set(**KEYS, AWS_ENDPOINT_URL=server.endpoint)
        store = await open_store(URL)
        with pytest.raises(NotFound):
            await store.get("k")
        # It is gone, for a while perhaps.
        server.faults.append("cut")
    with pytest.raises(Unavailable, match="nothing listens there") as caught:
        await store.get("k")
    assert not caught.value.hopeless
    assert caught.value.determinate


async def test_without_botocore_the_extra_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("botocore", "botocore.session", "botocore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    machine.set(**KEYS)
    await (await open_store(URL)).aclose()
    machine.set(AWS_PROFILE="work")
    with pytest.raises(BadInput, match=r"needs botocore: pip install 'budwood\[s3\]', or set AWS_ACCESS_KEY_ID"):
        await open_store(URL)


def test_the_command_says_it_in_one_line(
    machine: Machine, server: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(capsys, tmp_path / "home", URL)
    assert "no AWS credentials were found" in command("ls", "--remote", URL).line()
    machine.set(**KEYS, AWS_REGION="eu-west-1", AWS_ENDPOINT_URL=f"http://127.0.0.1:{closed_port()}")
    assert "nothing listens there" in command("serve", "--listen", "127.0.0.1:0", "--store", URL).line()
    machine.set(AWS_ENDPOINT_URL=server.endpoint, AWS_SECRET_ACCESS_KEY="typo")
    assert "SignatureDoesNotMatch" in command("serve", "--listen", "127.0.0.1:0", "--store", URL).line()
    machine.set(AWS_SECRET_ACCESS_KEY="secret")
    command.sql_made("shop")
    command.ok("push", "shop")
    assert any(key.startswith("prefix/volumes/") for key in server.objects)


_CONNECT = """Error performing GET https://nowhere.invalid/bucket/x/root in 262ms, after 2 retries - HTTP error: error

Debug source:
    kind: Connect,
    ConnectError("dns error", "failed to lookup address information: Name or service not known")
"""


@pytest.mark.parametrize(
    ("url", "text", "kind", "words"),
    [
        (
            "gs://bucket/x",
            "Error performing token request: Error performing GET http://169.254.169.254/computeMetadata/v1",
            Unauthorized,
            "no credentials were found: set GOOGLE_APPLICATION_CREDENTIALS, the file of a service account",
        ),
        (
            "az://bucket/x",
            "Error performing token request: Error performing GET http://169.254.169.254/metadata/identity",
            Unauthorized,
            "no credentials were found: set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        ),
        (
            "gs://bucket/x",
            _CONNECT,
            Unavailable,
            "https://nowhere.invalid can't be reached: no such host is known; check the endpoint and the network",
        ),
    ],
)
def test_what_no_test_can_ask_is_told_by_what_obstore_says(
    url: str, text: str, kind: type[BudwoodError], words: str
) -> None:
    error = translated(exceptions.GenericError(text), url, "root", changing=False, answered=False)
    assert (type(error), str(error)) == (kind, f"{url}: {words}")


async def test_azure_without_an_account_names_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(BadInput, match=r"Account must be specified \(credentials come from AZURE_STORAGE_ACCOUNT_NAME"):
        await open_store("az://container/x")

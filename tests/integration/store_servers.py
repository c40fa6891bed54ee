"""Servers of object stores that others make, each as a process of its own on a free port of loopback.

    with served("moto", folder) as bucket, environment(bucket.variables):
        store = await open_store(bucket.url)

    moto        S3, of Python; among the development packages
    azurite     Azure's blobs, of Microsoft; a package of npm
    s3rver      S3, of npm, which ignores If-None-Match

All but moto are there where `make stores` has put them; which must have them all (BUDWOOD_STORES).
"""

from __future__ import annotations

import base64
import hmac
import os
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from ..waits import wait_until

STORES: Final = Path(os.environ.get("BUDWOOD_STORES") or Path(__file__).parents[2] / ".venv" / "stores").resolve()
_ALL: Final = "BUDWOOD_STORES" in os.environ
_ACCOUNT: Final = "devstoreaccount1"
_ACCOUNT_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, which everybody knows."""
_PROGRAMS: Final = {
    "azurite": STORES / "node_modules" / ".bin" / "azurite-blob",
    "s3rver": STORES / "node_modules" / ".bin" / "s3rver",
}


@dataclass(frozen=True, slots=True)
class Bucket:
    """`variables` are what a client of it needs in its environment."""

    url: str
    variables: dict[str, str] = field(default_factory=dict[str, str])


def made_by(name: str) -> object:
    """A parameter that is left out where its server isn't installed."""
    missing = name in _PROGRAMS and not _PROGRAMS[name].exists()
    skips = [pytest.mark.skip(reason=f"{name} isn't installed: `make stores`")] if missing and not _ALL else []
    return pytest.param(name, marks=skips)


@contextmanager
def environment(variables: Mapping[str, str]) -> Generator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@contextmanager
def served(name: str, folder: Path) -> Generator[Bucket]:
    """A new server with an empty bucket, until the block is left."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    address = f"http://127.0.0.1:{port}"
    keys = {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER", "AWS_REGION": "us-east-1"}
    data, program = str(folder), str(_PROGRAMS.get(name, ""))
    match name:
        case "moto":
            command = [sys.executable, "-P", str(Path(__file__).with_name("moto_in_turn.py")), "127.0.0.1", str(port)]
        case "s3rver":
            command = [program, "-a", "127.0.0.1", "-p", str(port), "-d", data, "--configure-bucket", "bucket"]
        case "azurite":
            command = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port), "-l", data, "--skipApiVersionCheck"]
            command += ["--disableTelemetry"]
        case _:
            raise AssertionError(f"no server is called {name}")
    with (folder.parent / f"{folder.name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: _listens(port) or process.poll() is not None)
        assert process.poll() is None, f"{name} ended: its log stands beside its folder"
        if name == "azurite":
            _make_container(address)
            emulated = {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": address}
            yield Bucket("az://bucket/a/prefix", emulated)
        else:
            if name == "moto":
                httpx.put(f"{address}/bucket").raise_for_status()
            yield Bucket(f"s3://bucket/a/prefix?endpoint={address}", keys)
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


def _make_container(address: str) -> None:
    """As a client with the account's key asks for it."""
    url = f"{address}/{_ACCOUNT}/bucket"
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    named = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    told = f"PUT{12 * chr(10)}{named}/{_ACCOUNT}{urlsplit(url).path}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(_ACCOUNT_KEY), told.encode(), sha256)).decode()
    headers |= {"authorization": f"SharedKey {_ACCOUNT}:{signature}", "content-length": "0"}
    httpx.put(f"{url}?restype=container", headers=headers).raise_for_status()

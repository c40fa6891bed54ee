"""Keys at the command line: made in the store, kept by login, shown to the node by every way of use."""

from __future__ import annotations

import io
import json
import os
from contextlib import closing
from pathlib import Path

import pytest

import budwood
import budwood.lite
from budwood.remote.logins import keep, kept_for, logins_path
from budwood.remote.token import Tokens, carried
from budwood.volume.errors import BadInput, Forbidden

from ..waits import wait_until
from .cli import THREE, Command, serving


@pytest.fixture(autouse=True)
def logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "logins.json"
    monkeypatch.setenv("BUDWOOD_LOGINS", str(path))
    return path


def made(ann: Command, store: str, label: str, *arguments: str) -> str:
    said = ann("keys", "create", "--store", store, label, *arguments)
    assert said.code == 0, said
    assert "it is shown this once" in said.err
    return said.out.strip()


def log_in(ann: Command, key: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("sys.stdin", io.StringIO(key + "\n"))
    return ann.ok("login")


def id_of(key: str) -> str:
    return key.split("_")[1]


def spoilt(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_two_organisations_on_one_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, logins: Path, workers: str
) -> None:
    store = (tmp_path / "store").as_uri()
    with serving(tmp_path / "store"):
        pass
    operator = Command(capsys, tmp_path / "operator")
    acme = made(operator, store, "ci", "--org", "acme")
    evil = made(operator, store, "ci", "--org", "evil", "--admin", "")
    with serving(tmp_path / "store", "--workers", workers) as url:
        ann, eve = Command(capsys, tmp_path / "ann", url), Command(capsys, tmp_path / "eve", url)
        assert "keep one with `budwood login`" in ann("ls", "--remote").line(1)
        assert "took the key" in log_in(ann, acme, monkeypatch)
        assert logins.stat().st_mode & 0o777 == 0o600
        for name in ("one", "two", "three"):
            ann.sql_made(name)
            ann.ok("push", name)
        assert [row["name"] for row in json.loads(ann.ok("ls", "--remote", "--json"))] == ["one", "three", "two"]
        with closing(budwood.lite.connect(url, "two")) as db:
            assert db.execute("SELECT count(*) FROM t").get == 3
        token = ann.ok("keys", "token", "--for", "5m", "--read", "t").strip()
        with closing(budwood.connect("two", home=tmp_path / "some", remote=url, token=token)) as db:
            assert db.execute("SELECT count(*) FROM t").get == 3
            db.execute("DELETE FROM t")
            with pytest.raises(Forbidden, match="is for keys with the right to write"):
                db.execute("PRAGMA budwood_push")

        log_in(eve, evil, monkeypatch)
        assert json.loads(eve.ok("ls", "--remote", "--json")) == []
        assert "knows none" in eve("clone", "one").line(1)
        eve.sql_made("one")
        eve.ok("push", "one")
        assert (
            json.loads(eve.ok("status", "one", "--json"))[0]["id"]
            != json.loads(ann.ok("status", "one", "--json"))[0]["id"]
        )

        assert "is kept no more" in ann.ok("logout")
        assert not kept_for(url)
    said = operator("keys", "revoke", "--store", store, id_of(acme))
    assert said.code == 0
    rows = {row["org"]: row["state"] for row in json.loads(operator.ok("keys", "list", "--store", store, "--json"))}
    assert rows == {"acme": "revoked", "evil": "good"}
    rotated = operator("keys", "rotate", "--store", store, id_of(evil))
    states = [row["state"] for row in json.loads(operator.ok("keys", "list", "--store", store, "--json"))]
    assert sorted(states) == ["good", "revoked", "revoked"]
    with serving(tmp_path / "store") as url:
        eve = Command(capsys, tmp_path / "eve", url)
        assert "was revoked" in eve("--token", evil, "pull", "one").line(1)
        eve.ok("--token", rotated.out.strip(), "pull", "one")
    # Scrub knows names that are an organisation's, and what stands of keys.
    operator.ok("scrub", "--store", store)
    (record,) = [path for path in (tmp_path / "store" / "access" / "keys").iterdir() if path.name == id_of(acme)]
    record.write_bytes(spoilt(record.read_bytes()))
    said = operator("scrub", "--store", store)
    assert said.code == 1
    assert f"access/keys/{id_of(acme)}" in said.out + said.err


def test_a_rotated_key_is_good_as_long_as_the_old_one_or_as_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = (tmp_path / "store").as_uri()
    command = Command(capsys, tmp_path / "home")
    with closing(budwood.connect("v", home=tmp_path / "first", remote=store)) as db:
        db.execute(THREE)
        db.execute("PRAGMA budwood_push")

    def listed(secret: str) -> tuple[str, str]:
        rows = json.loads(command.ok("keys", "list", "--store", store, "--json"))
        return next((row["until"], row["state"]) for row in rows if row["id"] == id_of(secret))

    def made(*arguments: str) -> str:
        said = command("keys", arguments[0], "--store", store, *arguments[1:])
        assert said.code == 0, said
        return said.out.strip()

    day = made("create", "ci", "--expires", "1d")
    alike = made("rotate", id_of(day))
    assert listed(alike) == (listed(day)[0], "good")
    week = made("rotate", id_of(alike), "--expires", "7d")
    assert listed(week) > listed(day)
    gone = made("create", "ci", "--expires", "1ms")
    wait_until(lambda: listed(gone)[1] == "expired")
    assert "has expired" in command("keys", "rotate", "--store", store, id_of(gone)).line(2)
    again = made("rotate", id_of(gone), "--expires", "1d")
    assert (listed(again)[1], listed(gone)[1]) == ("good", "revoked")


def test_what_is_wrong_with_a_key_is_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = (tmp_path / "store").as_uri()
    ann = Command(capsys, tmp_path / "home")
    with closing(budwood.connect("v", home=tmp_path / "first", remote=store)) as db:
        db.execute(THREE)
        db.execute("PRAGMA budwood_push")
    assert "can't label a key" in ann("keys", "create", "--store", store, "a b").line(2)
    assert "can't name an organisation" in ann("keys", "create", "--store", store, "ci", "--org", "A/B").line(2)
    assert "is no time to last" in ann("keys", "create", "--store", store, "ci", "--expires", "soon").line(2)
    assert "there is no key 'nothing'" in ann("keys", "revoke", "--store", store, "nothing").line(1)
    assert "there is no key '../root'" in ann("keys", "revoke", "--store", store, "../root").line(1)
    assert "there is no key 'nothing'" in ann("keys", "rotate", "--store", store, "nothing").line(2)
    assert ann("keys", "list", "--store", f"{store}-not").code == 1
    assert json.loads(ann.ok("keys", "list", "--store", store, "--json")) == []
    assert "budwood login --remote" in ann("login").line(2)
    assert "say which remote" in ann("logout").line(2)


def test_what_is_kept_here_is_carried_to_machines_that_keep_none(logins: Path) -> None:
    """A Spark executor reads as its driver may."""
    url, other = "https://a.example", "https://b.example"
    keep("https://a.example:443", "bwk_1")
    assert carried("", url) == "https://a.example:443=bwk_1"
    assert carried("", other) == ""
    assert carried("given", url) == "given"
    assert carried(f"{url}=given", url) == f"{url}=given"
    both = Tokens.of(carried(f"{other}=given", url))
    logins.unlink()
    assert (both.for_remote(url), both.for_remote(other)) == ("bwk_1", "given")


def test_logins_that_others_can_read_are_not_used(logins: Path) -> None:
    keep("https://a.example:443", "bwk_1")
    assert kept_for("https://a.example:443") == "bwk_1"
    assert kept_for("https://b.example:443") == ""
    assert logins_path() == logins
    os.chmod(logins, 0o640)
    with pytest.raises(BadInput, match="chmod 600"):
        kept_for("https://a.example:443")
    os.chmod(logins, 0o600)
    for text in ("[]", "{", '{"a": 1}'):
        logins.write_text(text)
        with pytest.raises(BadInput, match="log in again"):
            kept_for("https://a.example:443")

"""What the command says where something was mistaken: what is so, and what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ..waits import LIMIT_SECONDS
from .cli import ENTRY, Command, Said, serving


@pytest.fixture
def user(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    return Command(capsys, tmp_path / "home", (tmp_path / "store").as_uri())


def test_sql_on_a_name_that_is_nowhere_says_how_to_make_it(user: Command) -> None:
    line = user("sql", "nowhere", "SELECT 1").line()
    assert "there is no volume 'nowhere'" in line
    assert "`budwood create nowhere`" in line
    user.ok("create", "nowhere")
    assert user.ok("sql", "nowhere", "SELECT 1") == "1\n"
    assert "create" not in user("sql", "other", "SELECT 1", "--lsn", "1").line(), "the past is not made"


def refusal(user: Command, *serve: str) -> str:
    """What a node says that doesn't serve; one that does is ended at once."""
    with user.start(*serve) as child:
        assert child.stdout is not None
        serves = child.stdout.readline()
        if serves:
            child.terminate()
        out, err = child.communicate(timeout=LIMIT_SECONDS)
    assert serves == ""
    return Said(child.returncode, out, err).line()


def test_a_store_that_is_not_there_is_not_served_unless_told(user: Command, tmp_path: Path) -> None:
    store = tmp_path / "typo"
    serve = ["serve", "--store", store.as_uri(), "--listen", "127.0.0.1:0"]
    said = refusal(user, *serve)
    assert str(store) in said
    assert "--create" in said
    assert not store.exists()
    # An empty directory is no store either: a file system that isn't mounted looks like that.
    store.mkdir()
    assert "--create" in refusal(user, *serve)
    assert not any(each.is_file() for each in store.rglob("*"))
    with serving(store) as url:
        assert url.startswith("http://")
    with subprocess.Popen([*ENTRY, *serve], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert "serves" in child.stdout.readline(), "once made it needs no word"
        finally:
            child.terminate()
        assert child.wait(LIMIT_SECONDS) == 0


def test_a_path_that_begins_wrong_is_no_place_for_a_store(user: Command, tmp_path: Path) -> None:
    store = tmp_path / "svr" / "budwood"
    said = refusal(user, "serve", "--create", "--store", store.as_uri(), "--listen", "127.0.0.1:0")
    assert f"there is no directory {store.parent}" in said
    user.ok("create", "v")
    user.ok("sql", "v", "CREATE TABLE t(a)")
    other = Command(user.capsys, user.home, store.as_uri())
    assert f"there is no directory {store.parent}" in other("push", "v").line()
    assert not store.parent.exists()


def test_a_wrong_token_and_none_are_two_things(user: Command, tmp_path: Path) -> None:
    with serving(tmp_path / "store", "--token", "right") as url:
        said = {
            token: Command(user.capsys, user.home, url)("ls", "--remote", *(["--token", token] if token else []))
            for token in ("", "wrong", "right")
        }
    assert "wants a token" in said[""].line()
    assert "not this node's" in said["wrong"].line()
    assert "wants a token" not in said["wrong"].line()
    assert said["right"].code == 0


def test_a_reset_that_kept_nothing_doesn_t_say_so(user: Command) -> None:
    user.ok("create", "v")
    user.ok("sql", "v", "CREATE TABLE t(a)")
    user.ok("push", "v")
    assert user.ok("reset", "v", "--keep-as", "kept") == "reset v to LSN 1; nothing was unpushed, so there is no kept\n"
    user.ok("sql", "v", "INSERT INTO t VALUES (1)")
    assert user.ok("reset", "v", "--keep-as", "kept") == "reset v to LSN 1; what was unpushed is kept now\n"
    assert user.ok("sql", "kept", "SELECT a FROM t") == "1\n"

"""Paths as people write them, and users who have no home directory: one clear word, and only where one is needed."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Any

import pytest

import budwood
from budwood.cli.main import run
from budwood.remote.logins import keep, kept_for
from budwood.volume.errors import BadInput
from budwood.volume.user_paths import default_home, expanded, user_home

NAMED = ("BUDWOOD_HOME", "BUDWOOD_LOGINS", "XDG_DATA_HOME", "XDG_CONFIG_HOME")


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number without an account, as containers run programs under."""

    def unknown(_number: int) -> Any:
        raise KeyError("getpwuid(): uid not found")

    for name in ("HOME", *NAMED):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.usefixtures("nobody")
def test_who_has_no_home_directory_is_told_to_name_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert user_home() is None
    with pytest.raises(BadInput, match=r"no home directory.*BUDWOOD_HOME"):
        budwood.open()
    with pytest.raises(BadInput, match=r"no home directory.*BUDWOOD_LOGINS"):
        keep("http://node", "key")
    assert run(["ls"]) == 2
    assert "no home directory" in capsys.readouterr().err


@pytest.mark.usefixtures("nobody")
def test_who_has_none_and_names_one_needs_nothing_else(tmp_path: Path) -> None:
    with budwood.open(home=tmp_path / "home") as edge:
        assert edge.ls() == []
    assert kept_for("http://node") == ""


def test_a_tilde_is_the_users_own_folder_wherever_a_path_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in NAMED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_home() == tmp_path / ".local/share/budwood"
    with budwood.open(home="~/here"):
        assert (tmp_path / "here/home.json").exists()
    assert run(["--home=~/there", "create", "v"]) == 0
    monkeypatch.setenv("BUDWOOD_HOME", "~/there")
    assert default_home() == tmp_path / "there"
    assert run(["ls"]) == 0
    assert "v" in capsys.readouterr().out
    monkeypatch.setenv("BUDWOOD_LOGINS", "~/logins.json")
    assert keep("http://node", "key") == tmp_path / "logins.json"


def test_a_tilde_that_is_nobodys_is_refused() -> None:
    with pytest.raises(BadInput, match="no home directory for the ~nobody-of-that-name"):
        expanded("~nobody-of-that-name/store")

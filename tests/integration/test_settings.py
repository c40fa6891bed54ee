"""budwood.toml, the environment and the command line: which of them counts, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from budwood.cli import autosyncing, mounting, serve, settings, upkeep
from budwood.cli.main import run

BODIES = {**serve.VERBS, **upkeep.VERBS, **mounting.VERBS, **autosyncing.VERBS}


class Said(NamedTuple):
    status: int
    out: str
    err: str


class Machine:
    """A user's file, and commands of theirs."""

    def __init__(self, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.file = file
        self.capsys = capsys

    def says(self, text: str) -> None:
        self.file.parent.mkdir(exist_ok=True)
        self.file.write_text(text)

    def run(self, *words: str) -> Said:
        status = run(words)
        said = self.capsys.readouterr()
        return Said(status, said.out, said.err)

    def config(self, *words: str) -> dict[str, tuple[object, str]]:
        said = self.run("config", "--json", *words)
        assert (said.status, said.err) == (0, "")
        return {row["setting"]: (row["value"], row["from"]) for row in json.loads(said.out)}


@pytest.fixture
def ann(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machine:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Machine(tmp_path / "budwood" / "budwood.toml", capsys)


def test_a_flag_goes_before_a_variable_and_that_before_the_file(ann: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ann.config()["remote"] == ("", "default")
    ann.says('remote = "https://file.example"\n[serve]\nin_flight = 2\n')
    file = str(ann.file)
    assert ann.config()["remote"] == ("https://file.example", file)
    assert ann.config()["serve.in_flight"] == (2, file)
    monkeypatch.setenv("BUDWOOD_REMOTE", "https://variable.example")
    monkeypatch.setenv("BUDWOOD_SERVE_IN_FLIGHT", "3")
    assert ann.config()["remote"] == ("https://variable.example", "BUDWOOD_REMOTE")
    assert ann.config()["serve.in_flight"] == (3, "BUDWOOD_SERVE_IN_FLIGHT")
    for words in ("--remote", "https://flag.example"), ("--remote", "https://variable.example"):
        assert ann.config(*words)["remote"] == (words[1], "--remote")
    monkeypatch.setenv("BUDWOOD_REMOTE", "")
    assert ann.config()["remote"] == ("https://file.example", file), "an empty variable counts as none"


def test_verbs_go_by_the_file(ann: Machine, tmp_path: Path) -> None:
    ann.says(f'home = "{tmp_path}/here"\n')
    assert ann.run("create", "shop").status == 0
    assert "shop" in ann.run("ls").out
    assert (tmp_path / "here").is_dir()
    assert "shop" not in ann.run("ls", "--home", str(tmp_path / "there")).out


def test_a_long_running_verb_takes_its_options_from_the_file(ann: Machine, tmp_path: Path) -> None:
    ann.says(f'[serve]\nstore = "{(tmp_path / "store").as_uri()}"\nlisten = "0.0.0.0:0"\n')
    said = ann.run("serve")
    assert said.status == 2
    assert "whoever reaches 0.0.0.0:0 could read and write all of the store" in said.err
    assert "'nowhere' is no address" in ann.run("serve", "--listen", "nowhere").err


def test_the_files_token_stays_with_the_files_remote(ann: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    ann.says('remote = "https://file.example"\ntoken = "s3cret"\n')
    assert ann.config()["token"] == ("(set)", str(ann.file))
    assert "s3cret" not in ann.run("config").out
    monkeypatch.setenv("BUDWOOD_REMOTE", "https://other.example")
    assert ann.config()["token"] == ("", "default")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('remot = "x"', "'remot' is no setting: did you mean remote?"),
        ("[serv]\nlisten = 1", "'serv' is no setting: did you mean serve?"),
        ("[serve]\nlistne = 1", "[serve] listne is no setting: did you mean listen?"),
        ("[serve]\ntakeover = true", "[serve] takeover is no setting"),
        ("[rm]\nyes = true", "'rm' is no setting"),
        ("[serve]\nlisten = 1", "[serve] listen takes a text in quotes"),
        ("[serve]\nworkers = true", "[serve] workers takes a whole number"),
        ("[serve]\nno_upkeep = 1", "[serve] no_upkeep takes true or false"),
        ('[serve]\nallowed_host = "x"', "[serve] allowed_host takes a list of texts"),
        ("home = 1", "home takes a text in quotes"),
        ("serve = 1", "'serve' is a table: write its settings below [serve]"),
        ("home =", "is no TOML: "),
    ],
)
def test_what_the_file_says_wrong_is_one_line_that_names_it(ann: Machine, text: str, line: str) -> None:
    ann.says(text)
    for words in ("config", "ls"):
        said = ann.run(words)
        assert said.status == 2
        assert said.err.startswith(f"budwood: {ann.file}")
        assert line in said.err
        assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("BUDWOOD_SERVE_LISTNE", "x", "BUDWOOD_SERVE_LISTNE is no setting: did you mean BUDWOOD_SERVE_LISTEN?"),
        ("BUDWOOD_SERVE_WORKERS", "two", "BUDWOOD_SERVE_WORKERS takes a whole number"),
        ("BUDWOOD_SERVE_NO_UPKEEP", "maybe", "BUDWOOD_SERVE_NO_UPKEEP takes true or false"),
        ("BUDWOOD_CONFIG", "/nowhere/budwood.toml", "BUDWOOD_CONFIG names /nowhere/budwood.toml, which isn't there"),
    ],
)
def test_a_wrong_variable_is_one_line_that_names_it(
    ann: Machine, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, line: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert ann.run("ls") == (2, "", f"budwood: {line}\n")


def test_variables_are_read_as_the_option_is(ann: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUDWOOD_SERVE_ALLOWED_HOST", "a.example b.example")
    monkeypatch.setenv("BUDWOOD_SERVE_NO_UPKEEP", "Yes")
    monkeypatch.setenv("BUDWOOD_AUTOSYNC_ON_DIVERGED", "fork")
    found = ann.config()
    assert found["serve.allowed_host"][0] == ["a.example", "b.example"]
    assert found["serve.no_upkeep"][0] is True
    assert found["autosync.on_diverged"] == ("fork", "BUDWOOD_AUTOSYNC_ON_DIVERGED")
    assert "a.example b.example" in ann.run("config").out


def test_each_setting_is_called_as_its_option() -> None:
    """`no_upkeep` is --no-upkeep; none is lost, so that the parser gets no name that it doesn't know."""
    from .. import deployed

    for name in settings.VERBS_WITH_SETTINGS:
        options = deployed.verb(name)
        known = settings.options_of(name, BODIES[name])
        assert known
        for key in known:
            assert f"--{key.replace('_', '-')}" in options


def test_without_a_table_no_verb_is_looked_at(ann: Machine) -> None:
    ann.says('cache_bytes = "2G"\n')
    found = settings.read()
    assert (found.known, found.defaults()) == ({}, {})
    assert found.place().cache_bytes == "2G"


def test_a_user_with_no_folder_has_no_file() -> None:
    assert settings.file_of({"XDG_CONFIG_HOME": "here"}).read_bytes() == b""

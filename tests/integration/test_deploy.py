"""deploy/: units of systemd, a container, a compose file: what they start is what the command takes."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer.core
import typer.main
from packaging.requirements import Requirement

from budwood.cli.main import build, run

from ..deployed import (
    DEPLOY,
    PROGRAM,
    ROOT,
    Started,
    compose,
    example_of,
    instructions,
    started_by_compose,
    started_by_container,
    started_by_unit,
    units,
    variables,
)
from ..waits import LIMIT_SECONDS

TOKEN = {"BUDWOOD_TOKEN": "s3cret"}
CALLS = [*map(started_by_unit, units()), started_by_container(), *started_by_compose(TOKEN)]
CONTAINERFILE = DEPLOY / "container" / "Containerfile"


@pytest.mark.parametrize("call", CALLS, ids=[call.source for call in CALLS])
def test_what_is_started_is_a_verb_with_options_that_it_has(call: Started) -> None:
    command = typer.main.get_command(build())
    assert isinstance(command, typer.core.TyperGroup)
    name, *words = call.words
    verb = command.commands[name]
    # Parsed as the command itself would; whatever it doesn't know raises.
    verb.make_context(name, words, parent=command.context_class(command))


def test_every_unit_is_found() -> None:
    assert {unit.stem for unit in units()} == {"budwood-node", "budwood-upkeep", "budwood-mount", "budwood-autosync"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd")
@pytest.mark.parametrize("who", ["system", "user"])
def test_systemd_has_nothing_to_say_of_the_units(who: str, tmp_path: Path) -> None:
    """Its own look at them, with a program that is there in the place of the one that an installation brings."""
    ours = [unit for unit in units() if (unit.parent.name == "user") == (who == "user")]
    for unit in ours:
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", f"--{who}", "--man=no", "verify", *[str(tmp_path / unit.name) for unit in ours]],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    # Of what else is installed on this machine it may have something to say.
    lines = (done.stdout + done.stderr).splitlines()
    said = [line for line in lines if any(unit.name in line for unit in ours)]
    assert (done.returncode, said) == (0, []), done.stderr


@pytest.mark.parametrize("unit", units(), ids=[unit.stem for unit in units()])
def test_the_example_has_every_variable_of_the_unit(unit: Path) -> None:
    lines = re.findall(r"^Exec.*$", unit.read_text(), re.MULTILINE)
    used = {name for line in lines for name in re.findall(r"\$\{?([A-Z_]+)", line)}
    assert used
    assert used <= variables(example_of(unit)).keys()


def test_the_units_node_serves_and_ends_when_told(tmp_path: Path) -> None:
    given = {**variables(DEPLOY / "systemd" / "node.env.example"), "LISTEN": "127.0.0.1:0"}
    given["STORE"] = (tmp_path / "store").as_uri()
    words = started_by_unit(DEPLOY / "systemd" / "budwood-node.service", given).words
    node = subprocess.Popen(
        [sys.executable, "-P", "-c", "from budwood.cli.launch import main; main()", *words],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert node.stdout is not None
        assert node.stdout.readline().startswith("budwood: node main serves file:///")
        node.send_signal(signal.SIGTERM)
        assert node.wait(LIMIT_SECONDS) == 0
    finally:
        node.kill()
        node.communicate()


def test_a_container_without_a_token_refuses_to_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it looks at any store. The units don't try bad arguments again: they go by this status."""
    monkeypatch.delenv("BUDWOOD_TOKEN", raising=False)
    assert run(started_by_container().words) == 2
    assert "for a token with --token or BUDWOOD_TOKEN" in capsys.readouterr().err
    with pytest.raises(LookupError, match="BUDWOOD_TOKEN: say who may use the node"):
        compose({})
    for unit in units():
        assert "\nRestartPreventExitStatus=2\n" in unit.read_text()


def test_the_container_is_built_in_stages_and_runs_as_nobody_in_particular() -> None:
    found = instructions(CONTAINERFILE)
    assert [name for name, _ in found].count("FROM") == 2
    last = dict(found)
    assert last["USER"] == "10001:10001"
    assert "--from=build" in last["COPY"]
    extras = re.search(r"'\.\[([a-z0-9,]+)\]'", CONTAINERFILE.read_text())
    assert extras is not None
    assert set(extras[1].split(",")) <= set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.M))


def test_the_containers_versions_are_those_of_the_locks() -> None:
    """As its own line of sed takes them out of the lock files."""
    (line,) = re.findall(r"sed -nE '[^']*' requirements/\*\.lock", CONTAINERFILE.read_text())
    done = subprocess.run(
        ["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True
    )
    pinned = [Requirement(each) for each in done.stdout.splitlines()]
    locked = "".join(lock.read_text() for lock in (ROOT / "requirements").glob("*.lock"))
    assert len(pinned) == len(re.findall(r"^[a-z0-9]\S*==", locked, re.M))
    assert {"granian", "obstore", "apsw", "h2"} <= {each.name for each in pinned}


def test_the_composed_node_is_this_machines_and_its_upkeep_a_process_of_its_own() -> None:
    services = compose(TOKEN)["services"]
    assert services["node"]["environment"]["BUDWOOD_TOKEN"] == "s3cret"
    assert all(port.startswith("127.0.0.1:") for port in services["node"]["ports"])
    assert "--no-upkeep" in services["node"]["command"]
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert (DEPLOY / "container" / service["build"]["context"]).resolve() == ROOT
        assert (ROOT / service["build"]["dockerfile"]) == CONTAINERFILE

"""Deployed: the command lines of deploy/, as the programs that read those files would start them."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer.core
import typer.main
import yaml

from budwood.cli.main import build

ROOT: Final = Path(__file__).parents[1]
DEPLOY: Final = ROOT / "deploy"
PROGRAM: Final = "/opt/budwood/bin/budwood"


@dataclass(frozen=True, slots=True)
class Started:
    """One call of `budwood`, and which file has it."""

    source: str
    words: tuple[str, ...]


def units() -> list[Path]:
    return sorted(DEPLOY.rglob("*.service"))


def variables(example: Path) -> dict[str, str]:
    """Of an example of an EnvironmentFile; those that stand behind a # are left out."""
    lines = [line for line in example.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def example_of(unit: Path) -> Path:
    (example,) = unit.parent.glob("*.env.example")
    return example


def started_by_unit(unit: Path, given: dict[str, str] | None = None) -> Started:
    """ExecStart with the example's variables, or with `given`: `${NAME}` is one word, `$NAME` any number of them; one
    that nobody has set is empty.
    """
    known = variables(example_of(unit)) if given is None else given
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    program, *words = shlex.split(line)
    assert program == PROGRAM
    found: list[str] = []
    for word in words:
        if re.fullmatch(r"\$[A-Z_]+", word):
            found += known.get(word[1:], "").split()
        else:
            found.append(re.sub(r"\$\{([A-Z_]+)\}", lambda name: known.get(name[1], ""), word))
    return Started(unit.name, tuple(found))


def instructions(containerfile: Path) -> list[tuple[str, str]]:
    """Each instruction of a Containerfile with what stands behind it, its lines joined."""
    text = re.sub(r"\\\n", " ", "\n".join(each for each in containerfile.read_text().split("\n") if each[:1] != "#"))
    return [(line.split(None, 1)[0], line.split(None, 1)[1].strip()) for line in text.splitlines() if line.strip()]


def started_by_container() -> Started:
    last = dict(instructions(DEPLOY / "container" / "Containerfile"))
    assert json.loads(last["ENTRYPOINT"]) == [PROGRAM]
    return Started("Containerfile", tuple(json.loads(last["CMD"])))


def compose(environment: dict[str, str]) -> dict[str, Any]:
    """compose.yaml with its anchors and `<<` merged and its variables put in: `${NAME:-else}`, `${NAME:?why}`."""

    def value(found: re.Match[str]) -> str:
        name, how, rest = found.groups()
        if how == ":?" and not environment.get(name):
            raise LookupError(f"{name}: {rest}")
        return environment.get(name) or (rest if how == ":-" else "")

    def put(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: put(each) for key, each in node.items()}  # pyright: ignore[reportUnknownVariableType]
        if isinstance(node, list):
            return [put(each) for each in node]  # pyright: ignore[reportUnknownVariableType]
        return re.sub(r"\$\{(\w+)(:[-?])([^}]*)\}", value, node) if isinstance(node, str) else node

    whole: dict[str, Any] = put(yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text()))
    return whole


def started_by_compose(environment: dict[str, str]) -> list[Started]:
    return [
        Started(f"compose.yaml: {name}", tuple(service["command"]))
        for name, service in compose(environment)["services"].items()
    ]


def verb(name: str) -> set[str]:
    """The options that a verb of the command has, as they are written."""
    command = typer.main.get_command(build())
    assert isinstance(command, typer.core.TyperGroup)
    return {option for each in command.commands[name].params for option in each.opts}

"""Every `budwood` command that a document, a unit's file or a message spells is one that the command line takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import typer
from typer.core import TyperGroup

from budwood.cli.exit_status import Call, as_call
from budwood.cli.main import build
from budwood.volume.as_of import moment_of
from budwood.volume.errors import BadInput

from .test_layout import ROOMS

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "how-to").glob("*.md")]
NO_COMMANDS: Final = frozenset(("formats.md", "mountopts.py"))
"""These spell bytes of a format, and what mount(8) calls."""
PLACEHOLDERS: Final = {"N": "1", "$ARGUMENTS": "--create"}
"""What stands for words of a kind."""
SOURCES: Final = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
UNITS: Final = list((ROOT / "deploy" / "systemd").rglob("*.service"))
BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NO_TIMES: Final = frozenset(("TIME", "…"))
BEHIND: Final = frozenset(("|", "&", "&&", "||", ";", "<", ">"))
"""A command ends before these."""

COMMAND: Final[Any] = typer.main.get_command(build())


class Spelled(NamedTuple):
    where: str
    text: str
    whole: bool
    """It can be typed as it stands, but for its names and places."""


def spelled() -> Iterator[Spelled]:
    for path in DOCUMENTS:
        for language, block in BLOCK.findall(path.read_text()):
            for line in block.replace("\\\n", " ").splitlines() if language == "sh" else ():
                if found := re.match(r"(?:[A-Z_]+=\S+ +)*(budwood .*)", line.strip()):
                    yield Spelled(path.name, found[1], whole=True)
    for path in UNITS:
        for line in re.findall(r"^Exec\w+=\S*/(budwood .*)", path.read_text(), re.MULTILINE):
            yield Spelled(path.name, line, whole=True)
    for path in (*DOCUMENTS, *SOURCES):
        for text in re.findall(r"`(budwood [^`]+)`", BLOCK.sub("", path.read_text())):
            if path.name not in NO_COMMANDS:
                yield Spelled(path.name, text, whole=False)


def refusal(line: Spelled) -> str:
    """Why the command line doesn't take it; empty where it does."""
    words = shlex.split(line.text, comments=True)[1:]
    words = [PLACEHOLDERS.get(word, word) for word in takewhile(lambda word: word not in BEHIND, words)]
    return _wrong_time(words) or (_parsed(COMMAND, words) if line.whole else _unknown(COMMAND, words))


def _wrong_time(words: list[str]) -> str:
    """What no parser looks at, as a time may also be a label."""
    times = [value for option, value in pairwise(words) if option == "--at" and value not in NO_TIMES]
    try:
        for time in times:
            moment_of(time)
    except BadInput as error:
        return str(error)
    return ""


def _parsed(command: Any, words: list[str]) -> str:
    """As click takes it, without the verb's body."""
    try:
        context = command.make_context(command.name, words)
        if isinstance(command, TyperGroup):
            _, below, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            assert below
            return _parsed(below, rest)
    except Exception as error:
        refused = as_call(error, "budwood")
        if not isinstance(refused, Call):
            raise
        return str(refused)
    return ""


def _unknown(command: Any, words: list[str]) -> str:
    """The first verb or option that there isn't. Values may be left out, and alternatives stand side by side."""
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)} | {"--help"}
    for at, word in enumerate(words):
        if word.startswith("-"):
            if unknown := {each.partition("=")[0] for each in word.split("|")} - options:
                return f"no option {min(unknown)}"
        elif isinstance(command, TyperGroup) and words[at - 1 : at] != ["--home"]:
            below = [command.commands.get(each) for each in word.split("|")]
            if None in below:
                return f"no verb {word}"
            return next(filter(None, (_unknown(each, words[at + 1 :]) for each in below if each)), "")
    return ""


def test_every_command_is_taken() -> None:
    lines = list(spelled())
    assert {"README.md", "tutorial.md", "budwood-node.service", "push.py"} <= {line.where for line in lines}
    assert [(*line, why) for line in lines if (why := refusal(line))] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("budwood gc --stor URL", "No such option: --stor"),
        ("budwood keys crate", "No such command 'crate'"),
        ("budwood restore shop --at yesterday", "is no time"),
        ("budwood fork", "Missing argument"),
    ],
)
def test_what_the_command_line_would_refuse_is_found(text: str, why: str) -> None:
    assert why in refusal(Spelled("", text, whole=True))
    if text != "budwood fork":
        assert refusal(Spelled("", text, whole=False))

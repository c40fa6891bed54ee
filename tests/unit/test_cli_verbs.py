"""Which verbs there are: the table of them (cli/verbs.py), and the verb that a command line is seen to name."""

from __future__ import annotations

from importlib import import_module

import pytest
import typer.main
from typer.core import TyperGroup

from budwood.cli.main import build
from budwood.cli.verbs import GROUPS, MODULES, body_of, named


def test_each_verb_stands_in_its_module_and_no_module_has_others() -> None:
    assert set(MODULES.items()) == {
        (verb, module) for module in MODULES.values() for verb in import_module(f"budwood.cli.{module}").VERBS
    }
    assert all(callable(body_of(verb)) for verb in MODULES)


@pytest.mark.parametrize("name", [*MODULES, *GROUPS])
def test_a_verb_that_is_built_alone_is_the_one_among_all(name: str) -> None:
    every, alone = typer.main.get_command(build()), typer.main.get_command(build(name))
    assert isinstance(every, TyperGroup)
    assert isinstance(alone, TyperGroup)
    assert list(alone.commands) == [name]
    of_all, of_one = every.commands[name], alone.commands[name]
    assert (of_one.help, of_one.context_settings) == (of_all.help, of_all.context_settings)
    assert [(each.name, each.opts) for each in of_one.params] == [(each.name, each.opts) for each in of_all.params]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ls", "ls"),
        ("ls --home push", "ls"),
        ("--home push ls", "ls"),
        ("--home=push --remote= ls --json", "ls"),
        ("--cache-bytes 1 --token ls keys create", "keys"),
        ("encryption show", "encryption"),
        ("--version ls", None),
        ("-h", None),
        ("--home", None),
        ("--home ls", None),
        ("lss", None),
        ("", None),
        ("-- ls", None),
    ],
)
def test_the_verb_is_what_follows_the_options_of_all(line: str, name: str | None) -> None:
    assert named(line.split()) == name

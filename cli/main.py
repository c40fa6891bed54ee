"""The `budwood` command: its verbs, and the one way in and out of them.

Whatever happens in a verb ends in `run`, which turns it into an exit status and at most one line on standard error
(`exit_status.py` has the tables). Help pages are laid out by rich on a terminal and are plain text elsewhere.

A shell waits for a command, so nothing heavy is imported here: the module of the verb that was called loads with the
command line (`verbs.py`), what the verb works with loads when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import Annotated, NoReturn

import typer

from . import settings
from .common_options import CacheOption, Context, HomeOption, RemoteOption, TokenOption, verb
from .exit_status import Call, Stopped, as_call, report
from .mountopts import called_by_mount, helper_call, spelled
from .verbs import GROUPS, MODULES, PANELS, body_of, group_of, named


def build(only: str | None = None) -> typer.Typer:
    """All verbs, or the one of that name: of the others neither modules nor options need be looked at."""
    app = typer.Typer(
        name="budwood",
        help="Volumes of pages in an object store, opened at the edge as SQLite databases.",
        add_completion=True,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(invoke_without_command=True)(_top)
    for panel, modules in PANELS.items():
        for name in chain.from_iterable(modules.values()):
            if only in (None, name):
                # SQL may begin with a comment, "--", which must not be taken for an option.
                settings = {"ignore_unknown_options": True} if name == "sql" else {}
                app.command(name, rich_help_panel=panel, context_settings=settings)(verb(body_of(name)))
    for name, (panel, words) in GROUPS.items():
        if only in (None, name):
            group = typer.Typer(help=words)
            for each, body in group_of(name).items():
                group.command(each)(verb(body))
            app.add_typer(group, name=name, rich_help_panel=panel)
    return app


def _top(
    ctx: typer.Context,
    home: HomeOption = None,
    remote: RemoteOption = None,
    token: TokenOption = None,
    cache_bytes: CacheOption = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of

        print(f"budwood {version_of('budwood')}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        raise Call("say what to do: budwood --help lists the verbs")
    found = settings.read()
    ctx.default_map = found.defaults()
    ctx.obj = Context.from_command_line(home, remote, token, cache_bytes).over(found.place())
    found.hand_keys_on()


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's) and return its exit status; never raises."""
    try:
        line = _spelled(sys.argv[1:] if arguments is None else arguments)
        # A shell that completes a line has it in the environment.
        app = build(None if "_BUDWOOD_COMPLETE" in os.environ else named(line))
        # An Exit raised in a verb comes back as its status; the verbs themselves return nothing.
        status = app(line, "budwood", standalone_mode=False)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Stopped as stop:
        return _fail(stop.__cause__ or stop)
    except BaseException as error:
        return _fail(as_call(error, "budwood"))
    return status or 0


def _spelled(arguments: Sequence[str]) -> list[str]:
    """What the parser can't be told: `ls --remote` may stand without a value, so it gets an empty one; and mount(8)
    calls us without a verb.
    """
    if called_by_mount(arguments, MODULES):
        home, directory, _, options = arguments
        return spelled(home, directory, options)
    last = len(arguments) - 1
    return [
        "--remote=" if each == "--remote" and (i == last or arguments[i + 1].startswith("-")) else each
        for i, each in enumerate(arguments)
    ]


def _fail(error: BaseException) -> int:
    code = report(error)
    # The interpreter flushes standard output once more at exit, which would fail once more, with words of its own.
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def main() -> NoReturn:
    status = run()
    if "granian" in sys.modules:
        # A thread of the HTTP server may need the interpreter a moment longer, and would abort the process while that
        # is taken apart (emmett-framework/granian, issue 693). What was printed has been flushed.
        os._exit(status)
    sys.exit(status)


def mount_helper() -> NoReturn:
    """The program that mount(8) runs for `-t fuse.budwood`."""
    try:
        call = helper_call(sys.argv[1:])
    except Call as error:
        sys.exit(report(error))
    sys.exit(0 if call is None else run(call))

"""The `budwood` command: its verbs, and the one way in and out of them.

Whatever happens in a verb ends in `run`, which turns it into an exit status and at most one line on standard error
(`exit_status.py` has the tables). Help pages are laid out by rich on a terminal and are plain text elsewhere.

A shell waits for a command, so nothing heavy is imported here: a verb's module loads with the command line, what the
verb works with loads when it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Final, NoReturn

import typer

from . import (
    autosyncing,
    care,
    cost,
    difference,
    doctor,
    encryption,
    export,
    fingerprint,
    keys,
    listening,
    log,
    metrics,
    modes,
    mounting,
    nodes,
    query,
    replaying,
    retention,
    room,
    scrub,
    serve,
    settings,
    soak,
    syncing,
    top,
    transactions,
    upkeep,
    volumes,
)
from .common_options import CacheOption, Context, HomeOption, RemoteOption, TokenOption, verb
from .exit_status import Call, Stopped, as_call, report
from .mountopts import called_by_mount, helper_call, spelled

_PANELS: Final = (
    ("Volumes", {**volumes.VERBS, **modes.VERBS}),
    ("Sync", {**syncing.VERBS, **autosyncing.VERBS, **replaying.VERBS, **fingerprint.VERBS}),
    ("History", {**difference.VERBS, **listening.VERBS, **retention.VERBS, **care.RESTORE}),
    ("SQL", query.VERBS),
    ("Mount", mounting.VERBS),
    ("Spark", export.VERBS),
    (
        "Server",
        {
            **serve.VERBS,
            **upkeep.VERBS,
            **nodes.VERBS,
            **transactions.VERBS,
            **scrub.VERBS,
            **log.VERBS,
            **cost.VERBS,
            **top.VERBS,
        },
    ),
    (
        "This machine",
        {**keys.VERBS, **settings.VERBS, **room.VERBS, **metrics.VERBS, **doctor.VERBS, **care.VERBS, **soak.VERBS},
    ),
)


def build() -> typer.Typer:
    app = typer.Typer(
        name="budwood",
        help="Volumes of pages in an object store, opened at the edge as SQLite databases.",
        add_completion=True,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(invoke_without_command=True)(_top)
    for panel, verbs in _PANELS:
        for name, body in verbs.items():
            # SQL may begin with a comment, "--", which must not be taken for an option.
            settings = {"ignore_unknown_options": True} if name == "sql" else {}
            app.command(name, rich_help_panel=panel, context_settings=settings)(verb(body))
    of_keys = typer.Typer(help="Who may call nodes of a store: make keys, list, revoke and rotate them; sign tokens.")
    for name, body in keys.OF_KEYS.items():
        of_keys.command(name)(verb(body))
    app.add_typer(of_keys, name="keys", rich_help_panel="Server")
    of_encryption = typer.Typer(help="Volumes that no node can read: make keys, show who holds them, change that.")
    for name, body in encryption.OF_ENCRYPTION.items():
        of_encryption.command(name)(verb(body))
    app.add_typer(of_encryption, name="encryption", rich_help_panel="Volumes")
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
    found = settings.read({name: body for _, verbs in _PANELS for name, body in verbs.items()})
    ctx.default_map = found.defaults()
    ctx.obj = Context.from_command_line(home, remote, token, cache_bytes).over(found.place())
    found.hand_keys_on()


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (default: the process's) and return its exit status; never raises."""
    try:
        # An Exit raised in a verb comes back as its status; the verbs themselves return nothing.
        status = build()(_spelled(sys.argv[1:] if arguments is None else arguments), "budwood", standalone_mode=False)
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
    if called_by_mount(arguments, [name for _, verbs in _PANELS for name in verbs]):
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

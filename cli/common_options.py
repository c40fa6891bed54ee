"""Common options: those of many verbs, and those that say where a command works (home, remote, token), before the verb
or after it.

`budwood --home X status` and `budwood status --home X` are the same. A value is taken from after the verb, else from
before it, else from the environment (BUDWOOD_HOME, BUDWOOD_REMOTE, BUDWOOD_TOKEN, BUDWOOD_CACHE_BYTES), else from
budwood.toml (`settings.py`); a home that nobody names is $XDG_DATA_HOME/budwood.

Each verb is a function whose first parameter is its Context. `verb` gives it the four options and hands it that.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from ..volume.user_paths import default_home, expanded
from .exit_status import Call, Stopped
from .mounted import Mounted, running, settle
from .traced import traced

if TYPE_CHECKING:
    from ..sync.edge import Edge

P = ParamSpec("P")


def argument(metavar: str, words: str) -> Any:
    """For `Annotated`: an argument of a verb, and what its help page says of it."""
    return typer.Argument(metavar=metavar, help=words, show_default=False)


def option(name: str, metavar: str, words: str, *, short: str = "", default: str = "") -> Any:
    """The same of an option that takes a value, which is called `metavar`. `default`: what happens without it."""
    names = [name, short] if short else [name]
    return typer.Option(*names, metavar=metavar, help=words, show_default=default or False)


def flag(*names_and_words: str) -> Any:
    """The same of an option without a value: its names, and what the help page says."""
    *names, words = names_and_words
    return typer.Option(*names, help=words)


Name = Annotated[str, argument("NAME", "The volume's name.")]
Lsn = Annotated[int | None, typer.Option("--lsn", metavar="N", min=0, help="As of this LSN.", show_default=False)]
At = Annotated[
    str | None,
    option("--at", "TIME|@LABEL", "As of this time: 2026-05-01T12:30, or with an offset; or as `pin --as` called it."),
]
Json = Annotated[bool, flag("--json", "Print a JSON array of objects.")]


@dataclass(frozen=True, slots=True)
class Context:
    """Where a command works."""

    home: Path | None = None
    """None stands for the default."""
    remote: str | None = None
    token: str | None = None
    cache_bytes: str | None = None
    """What the home is to keep of what the remote has; None: as before."""
    flags: frozenset[str] = frozenset()
    """Which of the four stood on the command line."""

    @classmethod
    def from_command_line(
        cls, home: str | None, remote: str | None, token: str | None, cache_bytes: str | None
    ) -> Context:
        given = {"home": home, "remote": remote, "token": token, "cache_bytes": cache_bytes}
        if home == "":
            raise Call("--home needs a directory")
        return cls(
            expanded(home) if home else None,
            remote,
            token,
            cache_bytes,
            frozenset(name for name, value in given.items() if value),
        )

    @classmethod
    def from_environment(cls) -> Context:
        """An empty variable counts as none."""
        home, remote, token = (os.environ.get(f"BUDWOOD_{name}") or None for name in ("HOME", "REMOTE", "TOKEN"))
        return cls(expanded(home) if home else None, remote, token, os.environ.get("BUDWOOD_CACHE_BYTES") or None)

    def over(self, under: Context) -> Context:
        """This context, with what it leaves open taken from `under`."""
        token = under.token
        if token and self.remote and under.remote:
            from ..remote.token import elsewhere

            # What stands further out belongs to the remote that stands there.
            token = elsewhere(under.token, under.remote, self.remote) or None
        return Context(
            self.home or under.home,
            self.remote or under.remote,
            self.token or token,
            self.cache_bytes or under.cache_bytes,
            self.flags | under.flags,
        )

    def edge(self) -> Edge:
        """The edge of this home, with what was committed through a mount of it; the caller closes it."""
        from ..sync.edge import open as open_edge

        mount = self.settle()
        edge = open_edge(
            home=self.home,
            remote=self.remote,
            token=self.token,
            fallback=mount.remote if mount else "",
            cache_bytes=self.cache_bytes,
        )
        edge.was_named = bool(self.remote)
        return edge

    def settle(self) -> Mounted | None:
        """The home's mount, if there is one, after all that programs committed through it is in the local store."""
        return settle(self.real_home())

    def running(self) -> Mounted | None:
        """The mount that does this home's syncing; None if the command does it."""
        return running(self.real_home(), self.remote)

    def real_home(self) -> Path:
        """The home, the default one where none was named; absolute and without links, as mounts know it."""
        return Path(os.path.realpath(self.home or default_home()))


def _context_option(name: str, metavar: str, words: str) -> Any:
    made = option(name, metavar, words)
    made.rich_help_panel = "Place"
    return made


HomeOption = Annotated[str | None, _context_option("--home", "DIR", "Where the local store lies (BUDWOOD_HOME).")]
RemoteOption = Annotated[
    str | None,
    _context_option("--remote", "URL", "http(s)://node, file:///dir or s3://bucket/prefix (BUDWOOD_REMOTE)."),
]
TokenOption = Annotated[str | None, _context_option("--token", "TEXT", "Access token (BUDWOOD_TOKEN).")]

CacheOption = Annotated[
    str | None,
    _context_option(
        "--cache-bytes",
        "N",
        "What the home keeps of pages that the remote has: 500M, 2G; 0: all (BUDWOOD_CACHE_BYTES).",
    ),
]

_OPTIONS = {"home": HomeOption, "remote": RemoteOption, "token": TokenOption, "cache_bytes": CacheOption}


def verb(body: Callable[Concatenate[Context, P], None]) -> Callable[..., None]:
    """`body` as typer sees it: without its Context, with the options that make one.

    A body with a parameter `remote` of its own takes what stood after the verb, "" for an option without a value.
    """
    own = inspect.signature(body, eval_str=True)
    takes_remote = "remote" in own.parameters
    parameters = [inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    parameters += [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in list(own.parameters.values())[1:]]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in _OPTIONS.items()
        if name not in own.parameters
    ]

    def run(
        *,
        ctx: typer.Context,
        home: str | None,
        remote: str | None,
        token: str | None,
        cache_bytes: str | None,
        **rest: Any,
    ) -> None:
        if takes_remote:
            rest["remote"] = remote
        elif remote == "":
            raise Call("--remote needs a URL here: http(s)://node, file:///dir or s3://bucket/prefix")
        before = ctx.find_root().obj
        context = Context.from_command_line(home, remote, token, cache_bytes)
        try:
            # A node's workers are forked off: each sees to that itself (serve.py).
            with nullcontext() if body.__name__ == "serve" else traced("budwood-edge"):
                body(context.over(before) if isinstance(before, Context) else context, **rest)  # type: ignore[call-arg]
            # What is still in the buffer may fail to be written: a full disk, a reader that has gone.
            sys.stdout.flush()
        except (OSError, EOFError, KeyboardInterrupt) as error:
            raise Stopped from error

    run.__name__ = body.__name__
    run.__doc__ = body.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run

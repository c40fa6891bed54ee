"""Listening at the command line: a volume's commits on the remote, a line each, as they are made. The volume need not
be here."""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..volume.byte_sizes import bytes_of
from .common_options import Context, Name, flag, option
from .output import count_of, json_of, time_of
from .syncing import on_remote

if TYPE_CHECKING:
    from ..remote.listening import HeardCommit
    from ..volume.errors import Unavailable


def listen(
    context: Context,
    name: Name,
    after: Annotated[
        int | None,
        typer.Option(
            "--after", metavar="LSN", min=0, help="Begin behind this LSN; else with what comes.", show_default=False
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="End after so many.", show_default=False)
    ] = None,
    patience: Annotated[
        float | None, option("--patience", "SECONDS", "End when nobody has answered for so long.", default="never")
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print a JSON object a line.")] = False,
) -> None:
    """Print each commit of a volume on the remote, as it is made, until you interrupt it."""
    from ..remote.blocking_listening import BlockingListener

    line = _as_json if as_json else _as_text
    with closing(context.edge()) as edge:
        remote, vid = on_remote(edge, name)
        with (
            BlockingListener(remote, vid, after=after, patience_seconds=patience, on_silence=_note) as listener,
            _watching_reader(listener.close),
        ):
            try:
                for commit in islice(listener, count):
                    print(line(commit), flush=True)
            except KeyboardInterrupt:
                print(f"budwood: stopped: --after {listener.after} goes on from here", file=sys.stderr)
                raise


VERBS: Final[dict[str, Callable[..., None]]] = {"listen": listen}


@contextmanager
def _watching_reader(gone: Callable[[], None]) -> Generator[None, None, None]:
    """Call `gone` once nobody reads this process's output any more: without it one that has nothing to print would
    never learn that. Raises BrokenPipeError at the end, if so."""
    output = _pipe()
    if output is None:
        yield
        return
    ending, ended = os.pipe()
    either = select.poll()
    either.register(output, select.POLLERR)
    either.register(ending, select.POLLIN)
    broken = False

    def watch() -> None:
        nonlocal broken
        broken = any(fd == output for fd, _ in either.poll())
        if broken:
            gone()

    watcher = threading.Thread(target=watch, name="budwood-reader", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        os.write(ended, b".")
        watcher.join()
        os.close(ending)
        os.close(ended)
    if broken:
        raise BrokenPipeError


def _pipe() -> int | None:
    """Standard output, if it is one."""
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):
        return None
    return output if stat.S_ISFIFO(os.fstat(output).st_mode) else None


def _as_text(commit: HeardCommit) -> str:
    changed = count_of(len(commit.changed), "page")
    return f"{commit.lsn}  {time_of(commit.time_ms)}  {changed} changed  {bytes_of(commit.length)}"


def _as_json(commit: HeardCommit) -> str:
    row = {
        "lsn": commit.lsn,
        "time": commit.time_ms,
        "length": commit.length,
        "floor": commit.floor,
        "pages": len(commit.changed),
        "client": str(commit.client),
    }
    return json_of(row)


def _note(error: Unavailable) -> None:
    print(f"budwood: {' '.join(str(error).split())}; waiting for it to come back", file=sys.stderr)

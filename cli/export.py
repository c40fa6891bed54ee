"""Tables of volumes into a lake, at the command line: spark-export.

It says what became of each table, in a listing; progress and errors go to standard error. A table that fails doesn't
stop the others: the listing shows it, and the command ends with the status of what failed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..volume.byte_sizes import bytes_of
from ..volume.errors import BadInput
from .common_options import At, Context, Json, Lsn, argument, flag, option
from .durations import seconds_of
from .output import Column, printable, write_json, write_table

if TYPE_CHECKING:
    from ..spark_export.export.results import Result

_Progress = Callable[[str, int, int], None]
_Session = Any
"""Spark's, whose library this room doesn't know."""


def spark_export(
    context: Context,
    names: Annotated[list[str] | None, argument("[NAME]...", "Volumes, or patterns like 'shop/*'.")] = None,
    to: Annotated[str | None, option("--to", "DIR|URL", "Each table goes to DIR/VOLUME/TABLE.")] = None,
    tables: Annotated[
        list[str] | None, option("--table", "T", "A table or view; all tables by default.", short="-t")
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", "-f", metavar="FORMAT", help="parquet, delta or iceberg.")
    ] = "parquet",
    every: Annotated[bool, flag("--all", "All volumes of the remote.")] = False,
    lsn: Lsn = None,
    at: At = None,
    incremental: Annotated[bool, flag("--incremental", "Merge what changed since the LSN that stands there.")] = False,
    verify: Annotated[bool, flag("--verify", "Read both sides back and compare.")] = False,
    replace: Annotated[bool, flag("--replace", "Also what holds a newer LSN, or another volume.")] = False,
    retain: Annotated[
        str | None,
        option("--retain", "AGE", "Of Delta and Iceberg, remove what was replaced longer ago: 30d, 12h."),
    ] = None,
    given: Annotated[
        list[str] | None,
        option(
            "--option",
            "NAME=VALUE",
            "How values are read, as in Spark: typeMismatch=null, decimals=true, type.COLUMN=text.",
        ),
    ] = None,
    catalog: Annotated[str, option("--catalog", "NAME|URL", "Iceberg's; by default a file in DIR.")] = "",
    master: Annotated[str, typer.Option("--master", metavar="URL", help="Where Spark runs.")] = "local[*]",
    as_json: Json = False,
) -> None:
    """Export tables to Parquet, Delta or Iceberg with Spark, once for each LSN however often it is run."""
    if to is None:
        raise BadInput("say where to export to: --to DIR, or --to s3://bucket/prefix")
    from ..spark_export.session import check_libraries

    check_libraries()
    from ..spark_export.export.results import Incomplete
    from ..spark_export.export.run import export
    from ..volume.as_of import moment_of

    at_ms, label = moment_of(at)
    context.settle()
    with _watched() as (progress, starting):
        try:
            results = export(
                names or (),
                to=to,
                format=format_,  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - it is checked there
                tables=tables or (),
                every=every,
                lsn=lsn,
                at_ms=at_ms,
                label=label,
                incremental=incremental,
                verify=verify,
                replace=replace,
                retain_seconds=None if retain is None else seconds_of(retain),
                options=_options(given or ()),
                catalog=catalog,
                remote=context.remote,
                home=_home(context),
                token=context.token,
                session=lambda: starting(master),
                progress=progress,
            )
            failed = None
        except Incomplete as error:
            results, failed = error.results, error
        except KeyboardInterrupt:
            # Java is interrupted as well, and what that looked like from here is not what happened.
            raise KeyboardInterrupt from None
    _write(results, as_json)
    if failed is not None:
        raise failed


VERBS: Final[dict[str, Callable[..., None]]] = {"spark-export": spark_export}


def _home(context: Context) -> str | None:
    """None if there is none, and a remote to ask instead: a pipeline's machine keeps no volumes."""
    home = context.real_home()
    needed = context.home is not None and not context.remote
    return str(home) if needed or Path(home, "store").is_dir() else None


def _options(given: list[str] | tuple[()]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise BadInput(f"--option {each!r} must be NAME=VALUE, like typeMismatch=null")
        found[name] = value
    return found


def _write(results: list[Result], as_json: bool) -> None:
    if as_json:
        write_json([_row(result) for result in results])
        return
    write_table(
        [
            Column("volume"),
            Column("table"),
            Column("done"),
            Column("lsn", "right"),
            Column("rows", "right"),
            Column("size", "right"),
            Column("seconds", "right"),
            Column("note"),
        ],
        [
            [
                result.volume,
                result.table,
                f"{result.action}, verified" if result.verified else str(result.action),
                str(result.lsn or ""),
                f"{result.rows:,}",
                bytes_of(result.size_bytes),
                f"{result.seconds:.1f}",
                result.reason,
            ]
            for result in results
        ],
        empty="nothing to export",
    )


def _row(result: Result) -> dict[str, object]:
    return {
        "volume": result.volume,
        "table": result.table,
        "action": str(result.action),
        "lsn": result.lsn,
        "rows": result.rows,
        "bytes": result.size_bytes,
        "seconds": round(result.seconds, 3),
        "url": result.url,
        "verified": result.verified,
        "reason": result.reason,
    }


@contextmanager
def _watched() -> Generator[tuple[_Progress | None, Callable[[str], _Session]]]:
    """Who is told how far it is, and who starts Spark; both draw on standard error, if someone watches."""
    from ..spark_export.export.quiet_session import start_quietly
    from ..spark_export.session import end

    sessions: list[_Session] = []

    def start(master: str) -> _Session:
        sessions.append(start_quietly("budwood spark-export", master=master))
        return sessions[-1]

    try:
        if not sys.stderr.isatty():
            yield None, start
            return
        with _bars() as (progress, waiting):
            yield progress, lambda master: waiting("starting Spark", lambda: start(master))
    finally:
        for session in sessions:
            end(session)


@contextmanager
def _bars() -> Generator[tuple[_Progress, Callable[[str, Callable[[], _Session]], _Session]]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, Task, TaskID, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Bytes(DownloadColumn):
        def render(self, task: Task) -> Text:
            return Text() if task.total is None else super().render(task)

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), Bytes(binary_units=True))
    # A descriptor of its own: while Java starts, descriptor 2 leads elsewhere (quiet_session.py).
    with (
        open(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding, errors="replace") as stream,
        Progress(*columns, TimeRemainingColumn(), console=Console(file=stream), transient=True) as bars,
    ):
        tasks: dict[str, TaskID] = {}

        def progress(doing: str, done: int, total: int) -> None:
            if doing not in tasks:
                tasks[doing] = bars.add_task(printable(doing), total=None)
            bars.update(tasks[doing], completed=done, total=total)

        def waiting(doing: str, work: Callable[[], _Session]) -> _Session:
            task = bars.add_task(doing, total=None)
            try:
                return work()
            finally:
                bars.remove_task(task)

        yield progress, waiting

"""SQL at the command line: `sql` runs statements, `shell` opens a prompt.

Statements run one after the other, each a transaction of its own unless the text says BEGIN, as in sqlite3. A
transaction that is left open at the end is rolled back and is an error. A volume that doesn't exist is an error too:
neither verb creates.

How `sql` writes rows:

- on a terminal a table for each statement that has columns, 1,000 rows at a time;
- elsewhere one line a row, values parted by tabs, no titles; NULL is empty, a blob is its hex digits. What in a text
  would break the line (tab, line feed, carriage return, backslash) is written \\t, \\n, \\r, \\\\;
- with --json one array that holds every row of every statement as an object. A blob is its hex digits, as SQLite's
  hex() gives them; an infinity is 9e999, which JSON readers take for one; a column title that comes a second time
  gets ":1", the next ":2". The array is left open when a statement fails, so that half an answer is never taken for a
  whole one.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..volume.errors import BadInput
from ..volume.ids import check_utf8
from .common_options import At, Context, Json, Lsn, Name, argument, option
from .exit_status import Call
from .output import Column, count_of, json_of, on_terminal, write_table

if TYPE_CHECKING:
    import apsw

Value = None | int | float | str | bytes
Row = tuple[Value, ...]

_PAGE_ROWS: Final = 1000
_PROGRESS_STEPS: Final = 100_000
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def sql(
    context: Context,
    name: Name,
    text: Annotated[str, argument("SQL", 'One or more statements; "-" reads them from standard input.')],
    lsn: Lsn = None,
    at: At = None,
    wait: Annotated[float, option("--wait", "SECONDS", "Wait so long for an --lsn that is still to come.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Run SQL on a volume."""
    if wait and lsn is None:
        raise Call("--wait is for an LSN that is still to come: say which with --lsn")
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("--") and "\n" not in text:
        # A comment and nothing else: what was meant is an option.
        raise Call(f"there is no option {text.split()[0]!r}, or the SQL is missing (see budwood sql --help)")
    _check_text(text)
    with closing(_connect(context, name, lsn=lsn, at=at, wait=wait)) as db:
        # Gives an interrupt a chance during a statement that never calls back into Python.
        db.set_progress_handler(lambda: False, _PROGRESS_STEPS)
        results = Results(db, text)
        if as_json:
            write_json(results)
        elif on_terminal():
            write_tables(results)
        else:
            write_lines(results)
        if db.in_transaction:
            db.execute("ROLLBACK")
            raise _left_open()


def _check_text(sql: str) -> None:
    """Raises BadInput on what SQLite can't be given: it may come from any file."""
    if "\0" in sql:
        raise BadInput("the SQL has a NUL character: is that a text?")
    check_utf8(sql, "the SQL")


def shell(context: Context, name: Name, lsn: Lsn = None, at: At = None) -> None:
    """Open a SQL prompt on a volume; .help lists its commands."""
    with closing(_connect(context, name, lsn=lsn, at=at)) as db:
        from apsw.shell import Shell

        prompt: Any = Shell(args=[], db=db)  # it carries no types
        prompt.prompt = f"{name}> "
        prompt.moreprompt = " " * len(name) + "> "
        tell, failed = prompt.handle_exception, False

        def handle_exception() -> None:
            nonlocal failed
            if not prompt.interactive and isinstance(sys.exc_info()[1], KeyboardInterrupt | BrokenPipeError):
                raise
            failed = True
            tell()

        prompt.handle_exception = handle_exception
        prompt.cmdloop(f"{name}: every statement commits here at once; `budwood push {name}` sends it. Ctrl-D ends.\n")
    if failed and not prompt.interactive:
        # The prompt has said what was wrong; a script that feeds it has to know, too.
        raise typer.Exit(1)


VERBS: Final[dict[str, Callable[..., None]]] = {"sql": sql, "shell": shell}


def _connect(context: Context, name: str, *, lsn: int | None, at: str | None, wait: float = 0.0) -> apsw.Connection:
    from ..vfs.connect import connect
    from ..volume.errors import NotFound

    context.settle()
    mode = "rw" if lsn is None and at is None else "ro"
    try:
        return connect(
            name,
            home=context.home,
            remote=context.remote,
            token=context.token,
            lsn=lsn,
            at=at,
            mode=mode,
            wait=wait,
        )
    except NotFound as error:
        if mode == "ro":
            raise
        raise NotFound(f"{error}: `budwood create {name}` makes an empty one") from None


def _left_open() -> Exception:
    from ..volume.errors import UsageError

    return UsageError("the SQL began a transaction and did not end it: it was rolled back; end it with COMMIT")


class Results:
    """For each statement that has columns, its titles and its rows. Take all rows of one before the next."""

    def __init__(self, db: apsw.Connection, text: str) -> None:
        self._begun: deque[tuple[str, ...]] = deque()
        cursor = db.cursor()
        cursor.exec_trace = self._begin
        self._rows: Iterator[Row] = iter(cursor.execute(text, can_cache=False))
        self._row = next(self._rows, None)

    def _begin(self, cursor: apsw.Cursor, _sql: str, _bindings: Any) -> bool:
        # Called as each statement is about to run: the only sign of one that has columns and no rows.
        self._begun.append(tuple(column[0] for column in cursor.get_description()))
        return True

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], Iterator[Row]]]:
        while self._begun:
            titles = self._begun.popleft()
            if titles:
                # If a later one has begun too, the row at hand is not this statement's.
                yield titles, iter(()) if self._begun else self._of_one()

    def _of_one(self) -> Iterator[Row]:
        while self._row is not None:
            yield self._row
            self._row = next(self._rows, None)
            if self._begun:
                return


def write_json(results: Results) -> None:
    write = sys.stdout.write
    start = "["
    for titles, rows in results:
        keys = [json_of(title) for title in unique(titles)]
        for row in rows:
            members = ", ".join(f"{key}: {json_of(value)}" for key, value in zip(keys, row, strict=True))
            write(f"{start}{{{members}}}")
            start = ",\n "
    write("[]\n" if start == "[" else "]\n")


def unique(titles: Sequence[str]) -> list[str]:
    taken: set[str] = set()
    unique: list[str] = []
    for title in titles:
        name, again = title, 0
        while name in taken:
            again += 1
            name = f"{title}:{again}"
        taken.add(name)
        unique.append(name)
    return unique


def write_lines(results: Results) -> None:
    write = sys.stdout.write
    for _titles, rows in results:
        for row in rows:
            write("\t".join(map(_cell, row)) + "\n")


def _cell(value: Value) -> str:
    if isinstance(value, str):
        return value.translate(_ESCAPES)
    if isinstance(value, bytes):
        return value.hex().upper()
    return "" if value is None else str(value)


def write_tables(results: Results) -> None:
    for titles, rows in results:
        total = 0
        page: list[Row] = []
        for row in rows:
            page.append(row)
            total += 1
            if len(page) == _PAGE_ROWS:
                _write_page(titles, page)
                page = []
        if page or not total:
            _write_page(titles, page)
        print(count_of(total, "row"))


def _write_page(titles: Sequence[str], rows: Sequence[Row]) -> None:
    numeric = [all(isinstance(row[i], int | float | None) for row in rows) and bool(rows) for i in range(len(titles))]
    columns = [Column(title, "right" if number else "left") for title, number in zip(titles, numeric, strict=True)]
    write_table(columns, [[shown(value) for value in row] for row in rows])


def shown(value: Value) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"x'{value.hex().upper()}'"
    return str(value)

"""Diff: what became of a volume, as rows, pages or lines.

Of two SQLite databases: statements of the schema, and the rows that came (+), went (-) or differ (~), table by table.
Of other volumes: a unified diff where both are text, else the ranges of bytes that differ. Nothing is written anywhere
but where --changeset says.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import chain, groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

from .common_options import Context, Json, argument, flag, option
from .exit_status import Call
from .output import Column, count_of, json_of, say, write_json, write_table
from .query import shown

if TYPE_CHECKING:
    from ..rows.difference import Difference
    from ..rows.row_changes import RowChange
    from ..rows.schema_changes import SchemaChange
    from ..volume.pageset import PageSet

_MARKS: Final = {"insert": "+", "delete": "-", "update": "~"}
_TEXT_BYTES: Final = 16 * 1024 * 1024
"""Longer ones are compared as bytes."""
_WIDEST: Final = 200
"""Characters of a value that are shown."""


def diff(
    context: Context,
    before: Annotated[
        str, argument("A", "NAME, or NAME@LSN, @TIME, @LABEL, @base (last synced), @remote (its newest).")
    ],
    after: Annotated[str | None, argument("B", "The later one; left out: what is unpushed of A.")] = None,
    stat: Annotated[bool, flag("--stat", "Only how many rows came, went and changed.")] = False,
    changeset: Annotated[
        Path | None, option("--changeset", "FILE", "Write the rows as a SQLite changeset.", default="none")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what changed from A to B: rows, and the schema; of other files, lines or bytes."""
    from ..rows.difference import Difference, operands
    from ..volume.errors import BadInput

    if changeset is not None and (stat or as_json):
        raise Call("a changeset is written to its file, and nothing else: leave out --stat and --json")
    with closing(context.edge()) as edge, closing(Difference(edge, *operands(before, after))) as difference:
        try:
            difference.views()
        except BadInput:
            if changeset is not None:
                raise
            _files(difference, stat=stat, as_json=as_json)
            return
        if changeset is not None:
            _write_changeset(changeset, difference)
        elif stat:
            _write_stat(difference, as_json=as_json)
        else:
            (_rows_as_json if as_json else _rows)(difference)


VERBS: Final[dict[str, Callable[..., None]]] = {"diff": diff}


def _rows(difference: Difference) -> None:
    for made in difference.schema():
        print(_schema_line(made))
        for mark, sql in (("-", made.old), ("+", made.new)):
            for line in (sql or "").splitlines():
                print(f"  {mark} {line}")
    table = ""
    for change in difference.rows():
        if change.table != table:
            table = change.table
            print(f"table {table}")
        print(f"  {line_of(change)}")


def _schema_line(made: SchemaChange) -> str:
    return f"{made.type} {made.name} {made.kind}"


def line_of(change: RowChange) -> str:
    key = f"{_MARKS[change.kind]} {', '.join(map(_value, change.key))}"
    if change.old is None or change.new is None:
        columns, row = (change.new_columns, change.new) if change.old is None else (change.old_columns, change.old)
        named = zip(columns, row or (), strict=True)
        return f"{key}  {', '.join(f'{column}={_value(value)}' for column, value in named)}"
    from ..rows.columns import places

    said = list[str]()
    before = places(change.old_columns, change.new_columns)
    for place, column, value in zip(before, change.new_columns, change.new, strict=True):
        was = _value(change.old[place]) if place is not None else "(none)"
        if place is None or repr(change.old[place]) != repr(value):
            said.append(f"{column}: {was} -> {_value(value)}")
    return f"{key}  {', '.join(said)}"


def _by_column(change: RowChange) -> tuple[dict[str, Any], dict[str, Any]]:
    old = dict(zip(change.old_columns, change.old or (), strict=change.old is not None))
    return old, dict(zip(change.new_columns, change.new or (), strict=change.new is not None))


def _value(value: Any) -> str:
    if isinstance(value, str):
        value = json_of(value)
    text = shown(value)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}… ({len(text):,} characters)"


def _rows_as_json(difference: Difference) -> None:
    start = "["
    for each in chain(map(_schema_object, difference.schema()), map(row_object, difference.rows())):
        sys.stdout.write(f"{start}{json_of(each)}")
        start = ",\n "
    sys.stdout.write("[]\n" if start == "[" else "]\n")


def _schema_object(made: SchemaChange) -> dict[str, Any]:
    return {"schema": made.type, "name": made.name, "change": made.kind, "old": made.old, "new": made.new}


def row_object(change: RowChange) -> dict[str, Any]:
    old, new = _by_column(change)
    key = dict(zip(change.key_names, change.key, strict=True))
    rows = {"old": None if change.old is None else old, "new": None if change.new is None else new}
    return {"table": change.table, "change": change.kind, "key": key, **rows}


def _write_stat(difference: Difference, *, as_json: bool) -> None:
    made = difference.schema()
    counts = dict[str, Counter[str]]()
    for change in difference.rows():
        counts.setdefault(change.table, Counter())[change.kind] += 1
    rows = [{"table": table, **{kind: of[kind] for kind in _MARKS}} for table, of in counts.items()]
    if as_json:
        write_json([*({"schema": each.type, "name": each.name, "change": each.kind} for each in made), *rows])
        return
    for each in made:
        print(_schema_line(each))
    columns = [Column("table"), *(Column(title, "right") for title in ("came", "went", "changed"))]
    write_table(columns, [[str(cell) for cell in row.values()] for row in rows], empty="no row differs")


def _write_changeset(path: Path, difference: Difference) -> None:
    # Before anything is written: what it can't read it refuses.
    made = [_schema_line(each) for each in difference.schema()]
    with written(path) as file:
        left_out = difference.changeset(file.write)
        size = file.tell()
    if made:
        left_out.append(f"the schema: {', '.join(made)}")
    for words in left_out:
        print(f"budwood: left out: {words}", file=sys.stderr)
    say(f"{size:,} bytes of changeset in {path}")


@contextmanager
def written(path: Path) -> Generator[IO[bytes]]:
    """A file that takes the place of `path` when it is complete; where that is a device or a pipe, the thing itself."""
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        with beside.open("xb") as file:
            yield file
        beside.replace(path)
    except OSError as error:
        # What was meant is `path`.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            beside.unlink()


def _files(difference: Difference, *, stat: bool, as_json: bool) -> None:
    texts = None if stat or as_json else _texts(difference)
    if texts is not None:
        names = difference.before.words, difference.after.words
        sys.stdout.writelines(_terminated(difflib.unified_diff(*texts, *names)))
        return
    pages = difference.pages()
    size = difference.before.snapshot.page_size or difference.after.snapshot.page_size
    length = max(difference.before.snapshot.length, difference.after.snapshot.length)
    ranges = [((first - 1) * size, min(last * size, length)) for first, last in _runs(pages)]
    if as_json:
        write_json([{"from": begin, "to": end} for begin, end in ranges])
        return
    if not stat:
        write_table(
            [Column("from byte", "right"), Column("to byte", "right")],
            [[f"{begin:,}", f"{end:,}"] for begin, end in ranges],
            empty="no byte differs",
        )
    lengths = [f"{moment.words}: {moment.snapshot.length:,} bytes" for moment in (difference.before, difference.after)]
    say(f"{count_of(len(pages), 'page')} of {size:,} bytes differ; {'; '.join(lengths)}")


def _runs(pages: PageSet) -> Iterator[tuple[int, int]]:
    """First and last of each run of neighbours."""
    for _, run in groupby(enumerate(pages), key=lambda at: at[1] - at[0]):
        numbers = [page for _, page in run]
        yield numbers[0], numbers[-1]


def _texts(difference: Difference) -> tuple[list[str], list[str]] | None:
    """Both by lines, where both are text of a length that can be compared by lines."""
    found = list[list[str]]()
    for moment in (difference.before, difference.after):
        snapshot = moment.snapshot
        if snapshot.length > _TEXT_BYTES:
            return None
        count = -(-snapshot.length // snapshot.page_size) if snapshot.length else 0
        data = b"".join(snapshot.read(page) for page in range(1, count + 1))[: snapshot.length]
        text = None
        with suppress(UnicodeDecodeError):
            text = None if b"\0" in data else data.decode()
        if text is None:
            return None
        # By line feeds alone, as every tool that reads such a diff does it.
        found.append([line for line in re.split(r"(?<=\n)", text) if line])
    return found[0], found[1]


def _terminated(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"

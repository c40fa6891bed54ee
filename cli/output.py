"""Output: listings as tables or JSON, and the units that people read.

Three forms, and when each is written:

- a table with ruled columns, when standard output is a terminal;
- the same columns aligned with spaces, no colours, no truncation, when it is a pipe or a file;
- with `--json`, one JSON array of objects and nothing else. Numbers stay plain there: bytes, milliseconds since 1970,
  LSNs.

Everything about progress and errors goes to standard error, so that the output of a listing is only ever the listing.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, cast

_INVALID: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    align: Literal["left", "right"] = "left"


def on_terminal() -> bool:
    return sys.stdout.isatty()


def say(text: str) -> None:
    """One line of result for a person."""
    print(text)


def json_of(value: object) -> str:
    """Of a value of SQLite, too: a blob is its hex digits, an infinity 9e999, which JSON readers take for one. In ASCII
    where the output lacks letters (launch.py): what would stand there for one is no JSON. So is a text that isn't
    valid, whose bytes are lone surrogates (sqlite/record.py)."""
    match value:
        case bytes():
            return f'"{value.hex().upper()}"'
        case float() if math.isinf(value):
            return "9e999" if value > 0 else "-9e999"
        case Mapping():
            members = cast("Mapping[str, object]", value).items()
            return f"{{{', '.join(f'{json_of(str(name))}: {json_of(each)}' for name, each in members)}}}"
        case list() | tuple():
            return f"[{', '.join(map(json_of, cast('Sequence[object]', value)))}]"
        case _:
            lacks_letters = sys.stdout.errors == "backslashreplace"
            is_invalid = isinstance(value, str) and _INVALID.search(value) is not None
            return json.dumps(value, ensure_ascii=lacks_letters or is_invalid)


def write_json(rows: Sequence[Mapping[str, object]]) -> None:
    """One array, an object a line."""
    lines = ",\n ".join(map(json_of, rows))
    print(f"[{lines}]")


def write_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, empty: str = "") -> None:
    """A listing. `empty` is said on a terminal when there are no rows; a pipe gets no rows then, only the titles."""
    if not on_terminal():
        _write_aligned(columns, rows)
    elif not rows and empty:
        print(empty)
    else:
        _write_ruled(columns, [[printable(cell) for cell in row] for row in rows])


def write_facts(facts: Sequence[tuple[str, str]]) -> None:
    """What is known of one thing, a line each: name, then value."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        print(f"{name.ljust(width)}  {_one_line(value)}")


def _write_aligned(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    lines = [[column.title for column in columns], *([_one_line(cell) for cell in row] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell.rjust(width) if column.align == "right" else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _write_ruled(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    # rich takes about 50 ms to load, so only a terminal pays for it.
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(Text(column.title), justify=column.align, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def printable(text: str) -> str:
    """`text` with its control characters spelled out, so that stored data can't drive the terminal. Line feeds stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def _one_line(text: str) -> str:
    return printable(text).replace("\n", "\\n")


def count_of(count: int, thing: str) -> str:
    """1 commit, 2 commits, 1,000 pages."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def time_of(time_ms: int) -> str:
    """Local time to the second; "" for 0, which stands for unknown."""
    if not time_ms:
        return ""
    return datetime.fromtimestamp(time_ms / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")

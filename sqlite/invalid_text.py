"""Invalid text: what SQLite keeps as a text though it isn't valid in the database's encoding. SQLite takes any bytes;
Python's text has no place for these, so that a row with one can't be asked for as it is.

    in_hex(sql, width)                # asks for the same rows, with each text in hex
    decoded(row, codec, errors)       # and makes a row of what comes
    as_parameter(value)               # the way back
"""

from __future__ import annotations

from collections.abc import Sequence

from .record import Value


def in_hex(sql: str, width: int) -> str:
    """The rows of one SELECT, of so many columns, in its order; of a text its bytes in hex."""
    names = [f"c{place}" for place in range(width)]
    values = (f"iif(typeof({name}) = 'text', hex(CAST({name} AS BLOB)), {name})" for name in names)
    return f"WITH r({', '.join(names)}) AS ({sql}) SELECT {', '.join(values)} FROM r"


def decoded(row: Sequence[Value], codec: str, errors: str) -> tuple[Value, ...]:
    """A row of what `in_hex` asks for. `codec` is Header.codec, `errors` as of bytes.decode: record.lenient keeps what
    is invalid, "backslashreplace" shows it."""
    return tuple(bytes.fromhex(value).decode(codec, errors) if isinstance(value, str) else value for value in row)


def as_parameter(value: Value) -> tuple[str, Value]:
    """What stands in a statement for a value, and what is bound there, so that a text of UTF-8 that isn't valid is one
    again. Raises UnicodeEncodeError on one of UTF-16."""
    if not isinstance(value, str) or not _is_invalid(value):
        return "?", value
    return "CAST(? AS TEXT)", value.encode("utf-8", "surrogateescape")


def _is_invalid(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False

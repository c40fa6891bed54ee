"""Record: a row's or an index entry's payload as Python values (sqlite.org/fileformat2, sections 1.6 and 2.1).

A record is a varint with the size of its header (itself included), one serial type a column as a varint, then the
values back to back.

    serial type   0     1 2 3 4 5 6        7       8  9   even ≥ 12         odd ≥ 13
    value         NULL  integer, 1 2 3 4   float   0  1   blob of           text of
                        6 or 8 bytes       64             (n - 12)/2 bytes  (n - 13)/2 bytes

What the schema says is not known here: a REAL column's whole numbers come as integers, an INTEGER PRIMARY KEY as None
(its value is the rowid), and columns added after the row was written are missing at the end.
"""

from __future__ import annotations

import struct
from typing import Final

from ..volume.errors import Corrupt
from .header import DATABASE

Value = None | int | float | str | bytes

_SIZES: Final = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)
"""Bytes of the serial types 0 … 9; 10 and 11 are SQLite's own and never stored."""

_FLOAT: Final = 7
_ZERO: Final = 8
_FIRST_BLOB: Final = 12

_unpack_float: Final = struct.Struct(">d").unpack_from


def read_varint(data: bytes, at: int, key: str = DATABASE) -> tuple[int, int]:
    """The varint at `at`, as an unsigned 64-bit number, and where the next byte lies. Raises Corrupt past the end.

    Seven bits a byte, the high bit set while more follow; a ninth byte gives all its eight.
    """
    try:
        byte = data[at]
        if byte < 0x80:
            return byte, at + 1
        value = byte & 0x7F
        for place in range(at + 1, at + 8):
            byte = data[place]
            value = value << 7 | byte & 0x7F
            if byte < 0x80:
                return value, place + 1
        return value << 8 | data[at + 8], at + 9
    except IndexError:
        raise Corrupt(key, "a number ends beyond its page") from None


def decode_record(payload: bytes, codec: str = "utf-8", key: str = DATABASE) -> tuple[Value, ...]:
    """The values of one record; `codec` is Header.codec. Raises Corrupt unless header and values fill the payload.

    Text that isn't valid in its encoding is kept, not replaced: UTF-8 by surrogate escapes, UTF-16 with its lone
    surrogates. A NaN is None, as SQLite reads it.
    """
    end, at = read_varint(payload, 0, key)
    if not at <= end <= len(payload):
        raise Corrupt(key, f"a record of {len(payload)} bytes has a header of {end}")
    values: list[Value] = []
    body = end
    while at < end:
        serial, at = read_varint(payload, at, key)
        size = _SIZES[serial] if serial < len(_SIZES) else (serial - _FIRST_BLOB) // 2
        if serial == _FIRST_BLOB - 2 or serial == _FIRST_BLOB - 1:
            raise Corrupt(key, f"a record has the serial type {serial}")
        stop = body + size
        if stop > len(payload):
            raise Corrupt(key, f"a value of {size} bytes ends beyond its record")
        values.append(_value(serial, payload[body:stop], codec, key))
        body = stop
    if at != end or body != len(payload):
        raise Corrupt(key, "a record's header and values don't fill it")
    return tuple(values)


def _value(serial: int, raw: bytes, codec: str, key: str) -> Value:
    if serial >= _FIRST_BLOB:
        return _text(raw, codec, key) if serial & 1 else raw
    if serial == 0:
        return None
    if serial == _FLOAT:
        (number,) = _unpack_float(raw)
        return number if number == number else None
    if serial >= _ZERO:
        return serial - _ZERO
    return int.from_bytes(raw, "big", signed=True)


def _text(raw: bytes, codec: str, key: str) -> str:
    try:
        return raw.decode(codec, lenient(codec))
    except UnicodeDecodeError as error:
        raise Corrupt(key, f"a text of {len(raw)} bytes is no {codec}") from error


def lenient(codec: str) -> str:
    """The name of what bytes.decode does with a text that isn't valid, so that it is kept."""
    return "surrogateescape" if codec == "utf-8" else "surrogatepass"

"""Dates, timestamps and decimals made for a whole column at once, against the same said value by value: by Python's own
calendar, by SQLite's, and by the decimal module."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from budwood.tables.datetimes import days_of, micros_of
from budwood.tables.decimals import Decimals

_DATE = re.compile(rb"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(rb"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d)(:\d\d(?:\.\d{1,6})?)?(Z|[+-]\d\d:[0-5]\d)?)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def date_of(raw: bytes) -> date | None:
    try:
        return date.fromisoformat(raw.decode()) if _DATE.fullmatch(raw) else None
    except ValueError:
        return None


def timestamp_of(raw: bytes) -> datetime | None:
    found = _TIMESTAMP.fullmatch(raw)
    if not found:
        return None
    day, minutes, seconds, zone = ((part or b"").decode() for part in found.groups())
    hours, rest = (minutes or "00:00").split(":")
    try:
        if int(hours) > 23:
            return None
        return datetime.fromisoformat(f"{day}T{hours}:{rest}{seconds}{zone or '+00:00'}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def digits(count: int) -> st.SearchStrategy[str]:
    return st.text("0123456789", min_size=count, max_size=count)


def of(*ranges: tuple[int, int, int]) -> st.SearchStrategy[str]:
    """A number from one to another, in so many digits; now and then one beyond."""
    return st.one_of(*(st.integers(low, high).map(f"{{:0{width}}}".format) for low, high, width in ranges))


DAYS = st.builds(
    "{}-{}-{}".format,
    of((1, 9999, 4), (0, 4, 4), (1896, 1904, 4), (9998, 9999, 4)),
    of((1, 12, 2), (0, 13, 2), (2, 2, 2)),
    of((1, 28, 2), (0, 32, 2), (28, 31, 2)),
)
SECONDS = st.one_of(st.just(""), of((0, 59, 2), (58, 61, 2)).map(":{}".format))
CLOCKS = st.builds(
    "{}{}:{}{}{}".format,
    st.sampled_from([" ", "T", "  ", "t", ""]),
    of((0, 23, 2), (23, 25, 2)),
    of((0, 59, 2), (58, 61, 2)),
    st.one_of(
        SECONDS,
        st.builds(":{}.{}".format, of((0, 59, 2)), st.integers(0, 7).flatmap(digits)),
    ),
    st.one_of(
        st.sampled_from(["", "", "Z", "z", "+", "+01", "+0100", " +01:00", "UTC"]),
        st.builds("{}{}:{}".format, st.sampled_from("+-"), of((0, 14, 2), (13, 25, 2)), of((0, 59, 2), (58, 61, 2))),
    ),
)


def spoilt(text: str, place: int, byte: int) -> bytes:
    raw = bytearray(text.encode())
    if raw:
        raw[place % len(raw)] = byte
    return bytes(raw)


WHOLE = st.one_of(DAYS, st.builds("{}{}".format, DAYS, CLOCKS)).map(str.encode)
ANY = st.one_of(
    WHOLE,
    WHOLE,
    st.builds(spoilt, WHOLE.map(bytes.decode), st.integers(0, 40), st.integers(0, 255)),
    st.binary(max_size=40),
    st.sampled_from([b"0001-01-01T00:00+00:01", b"9999-12-31 23:59-00:01", b"0001-01-01T00:00", b"2024-02-29 "]),
)


@given(st.lists(st.one_of(st.none(), ANY), max_size=60), st.integers(0, 3))
@example([b"2024-02-29", b"2023-02-29", b"1900-02-29", b"2000-02-29", b"0000-01-01", b"2024-02-29T12:30Z"], 0)
@example([b"2024-02-29 12:30:01.5", b"1969-12-31 23:59:59.999999+02:00", b"2024-01-01 00:00:60"], 1)
@example([b"2024-01-01T00:00+23:59", b"2024-01-01T00:00+24:00", b"2024-01-01T00:00+00:60"], 0)
@example([b"2024-01-01 10:00:00.+01:00", b"2024-01-01 10:00:00.1234567", b"2024-01-01+01:00"], 0)
@example([None], 0)
@example([], 0)
def test_a_column_of_instants_is_what_each_text_says_alone(texts: list[bytes | None], skipped: int) -> None:
    column = pa.array([*[b"2024-01-01"] * skipped, *texts], pa.binary()).slice(skipped)
    days, dates = days_of(column)
    micros, timestamps = micros_of(column)
    for row, raw in enumerate(texts):
        if raw is None:
            continue
        day = date.fromordinal(719163 + int(days[row])) if dates[row] else None
        assert day == date_of(raw), raw
        at = _EPOCH + timedelta(microseconds=int(micros[row])) if timestamps[row] else None
        assert at == timestamp_of(raw), raw


PLAIN = st.builds(
    "{}{}{}".format, DAYS, st.builds("{}{}:{}".format, st.sampled_from(" T"), of((0, 24, 2)), of((0, 60, 2))), SECONDS
)


@given(st.lists(st.one_of(DAYS, PLAIN), max_size=60))
def test_an_instant_is_the_one_that_sqlite_tells(texts: list[str]) -> None:
    """SQLite takes a 30th of February for the 1st of March and goes back to year 0: these are nobody's dates."""
    micros, good = micros_of(pa.array([text.encode() for text in texts], pa.binary()))
    asked = (
        "SELECT at, strftime('%Y-%m-%d %H:%M:%S', at, 'unixepoch') FROM (SELECT CAST(strftime('%s', ?) AS INT) AS at)"
    )
    with closing(sqlite3.connect(":memory:")) as db:
        for text, at, fine in zip(texts, micros.tolist(), good.tolist(), strict=True):
            seconds, told = db.execute(asked, (text,)).fetchone()
            whole = text.replace("T", " ") + " 00:00:00"[len(text) - 10 :]
            assert fine == (told == whole and text >= "0001"), text
            assert not fine or at == seconds * 1_000_000, text


def decimal_of(value: int | float, precision: int, scale: int) -> Decimal | None:
    try:
        found = Decimal(repr(value))
        made = found.quantize(Decimal(1).scaleb(-scale), context=Context(prec=precision))
    except InvalidOperation:
        return None
    return made if made == found else None


SHAPES = st.integers(1, 38).flatmap(lambda precision: st.tuples(st.just(precision), st.integers(0, precision)))


def scaled(number: int, scale: int) -> float:
    return float(number) / 10.0**scale


FEW_DIGITS = st.builds(scaled, st.integers(-(10**17), 10**17), st.integers(0, 24))


@given(SHAPES, st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-999, 999)), max_size=40))
@example((38, 0), [2**63 - 1, -(2**63)])
@example((18, 0), [10**18 - 1, -(10**18) + 1, 10**18, -(10**18)])
@example((38, 19), [2**63 - 1, -(2**63), 1])
@example((19, 0), [-(2**63)])
def test_integers_as_decimals_are_exact_or_refused(shape: tuple[int, int], values: list[int]) -> None:
    made = Decimals(len(values), *shape)
    made.put_integers(np.arange(len(values)), np.array(values, np.int64))
    made.array().validate(full=True)
    assert made.array().to_pylist() == [decimal_of(value, *shape) for value in values]


@given(SHAPES, st.lists(st.one_of(FEW_DIGITS, st.floats(allow_nan=False)), max_size=40))
@example((10, 2), [0.1, 0.125, 0.29, 1.1, 2.675, 99999999.99, 1e8, -0.0, 5e-324, 0.005, float("inf")])
@example((38, 23), [1e-23, 0.1, 1e15])
@example((16, 1), [999999999999999.9, 99999999999999.95, 123456789012345.6])
@example((38, 38), [1e-38, 0.5])
def test_reals_as_decimals_are_their_shortest_ones_or_refused(shape: tuple[int, int], values: list[float]) -> None:
    made = Decimals(len(values), *shape)
    made.put_reals(np.arange(len(values)), np.array(values, np.float64))
    made.array().validate(full=True)
    assert made.array().to_pylist() == [decimal_of(value, *shape) for value in values]

"""Datetimes: the dates and times that texts say, those of a whole column at once.

    date        YYYY-MM-DD
    timestamp   YYYY-MM-DD[ hh:mm[:ss[.ffffff]][zone]], T for the blank; zone: Z or ±hh:mm, below a day; else it is UTC

They are days of the calendar from year 1 to 9999, as it goes on into the past, and times of the day without leap
seconds. What says anything else is told apart from what is read, and never mended: no other length, no blank around it.

No text becomes an object: byte by byte of the form, the digits of all rows are taken out of Arrow's own buffer.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_DAY: Final = 10
_MINUTES: Final = 16
_SECONDS: Final = 19
_FRACTIONS: Final = (21, 26)
_ZONE: Final = 6
_FIRST_DAY: Final = -719162
_LAST_DAY: Final = 2932896
"""0001-01-01 and 9999-12-31, from 1970-01-01."""
_MICROS: Final = 1_000_000
_DAY_MICROS: Final = 86_400 * _MICROS


def days_of(texts: pa.BinaryArray) -> tuple[npt.NDArray[np.int32], Bools]:
    """Days since 1970-01-01, and which of the texts are dates; the others' days are 0. Of a null it isn't said."""
    found = _Texts(texts)
    rows = np.flatnonzero(found.size == _DAY)
    days, good = found.days(rows)
    answer, which = np.zeros(len(texts), np.int32), np.zeros(len(texts), np.bool_)
    answer[rows], which[rows] = np.where(good, days, 0), good
    return answer, which


def micros_of(texts: pa.BinaryArray) -> tuple[Ints, Bools]:
    """Microseconds since 1970-01-01 00:00 UTC, and which of the texts are timestamps; the others' are 0."""
    found = _Texts(texts)
    rows = np.flatnonzero((found.size >= _DAY) & (found.size <= _FRACTIONS[1] + _ZONE))
    days, good = found.days(rows)
    micros = days * _DAY_MICROS
    timed = np.flatnonzero(good & (found.size[rows] > _DAY))
    if len(timed):
        of_day, right = found.times(rows[timed])
        micros[timed] += of_day
        good[timed] &= right
    # A zone may lead out of the calendar.
    good &= (micros >= _FIRST_DAY * _DAY_MICROS) & (micros < (_LAST_DAY + 1) * _DAY_MICROS)
    answer, which = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    answer[rows], which[rows] = np.where(good, micros, 0), good
    return answer, which


class _Texts:
    """Where each text of a column lies, and how long it is."""

    def __init__(self, texts: pa.BinaryArray) -> None:
        offsets: Any
        data: Any
        _, offsets, data = texts.buffers()
        ends = np.zeros(len(texts) + 1, np.int32)
        if offsets:
            ends = np.frombuffer(offsets, np.int32, len(ends), ends.itemsize * texts.offset)
        self.at: Ints = ends[:-1].astype(np.int64)
        self.size: Ints = np.diff(ends).astype(np.int64)
        self._data: npt.NDArray[np.uint8] = np.frombuffer(data or b"", np.uint8)

    def days(self, rows: Ints) -> tuple[Ints, Bools]:
        """By the first ten bytes."""
        at = self.at[rows]
        year, good = self._number(at, 4)
        month, right = self._number(at + 5, 2)
        good &= right & self._is(at + 4, b"-") & self._is(at + 7, b"-") & (year > 0) & (month >= 1) & (month <= 12)
        day, right = self._number(at + 8, 2)
        # Anything but a month is put aside as the first one, so that the calendar isn't asked for the impossible.
        months = np.where(good, (year - 1970) * 12 + month - 1, 0)
        first, after = (some.astype("M8[M]").astype("M8[D]").astype(np.int64) for some in (months, months + 1))
        good &= right & (day >= 1) & (day <= after - first)
        return first + day - 1, good

    def times(self, rows: Ints) -> tuple[Ints, Bools]:
        """Microseconds since the day began in UTC, by what follows the date; texts that are longer than one."""
        at, size = self.at[rows], self.size[rows]
        end = at + size
        utc = self._is(end - 1, b"Z")
        zoned = ~utc & self._is(end - _ZONE, b"+-") & self._is(end - 3, b":")
        body = size - np.where(utc, 1, np.where(zoned, _ZONE, 0))
        with_seconds = body >= _SECONDS
        with_fraction = (body >= _FRACTIONS[0]) & (body <= _FRACTIONS[1])
        good = ((body == _MINUTES) | (body == _SECONDS) | with_fraction) & self._is(at + _DAY, b" T")
        hour, right = self._number(at + 11, 2)
        good &= right & (hour < 24) & self._is(at + 13, b":")
        minute, right = self._number(at + 14, 2)
        good &= right & (minute < 60)
        second, right = self._number(at + 17, 2)
        good &= ~with_seconds | (right & (second < 60) & self._is(at + 16, b":"))
        micros = (hour * 60 + minute) * 60 + np.where(with_seconds, second, 0)
        micros *= _MICROS
        if with_fraction.any():
            fraction, right = self._fraction(at + _SECONDS + 1, body - _SECONDS - 1)
            good &= ~with_fraction | (right & self._is(at + _SECONDS, b"."))
            micros += np.where(with_fraction, fraction, 0)
        if zoned.any():
            ahead, right = self._offset(end - _ZONE)
            good &= ~zoned | right
            micros -= np.where(zoned, ahead, 0)
        return micros, good

    def _fraction(self, at: Ints, digits: Ints) -> tuple[Ints, Bools]:
        """Of a second, in microseconds."""
        value, good = np.zeros(len(at), np.int64), np.ones(len(at), np.bool_)
        for place in range(6):
            digit = self._bytes(at + place) - 48
            there = place < digits
            good &= ~there | ((digit >= 0) & (digit <= 9))
            value = value * 10 + np.where(there, digit, 0)
        return value, good

    def _offset(self, at: Ints) -> tuple[Ints, Bools]:
        """Of a zone, in microseconds ahead of UTC."""
        hours, good = self._number(at + 1, 2)
        minutes, right = self._number(at + 4, 2)
        good &= right & (hours < 24) & (minutes < 60)
        return np.where(self._is(at, b"-"), -1, 1) * (hours * 60 + minutes) * 60 * _MICROS, good

    def _number(self, at: Ints, digits: int) -> tuple[Ints, Bools]:
        value, good = np.zeros(len(at), np.int64), np.ones(len(at), np.bool_)
        for place in range(digits):
            digit = self._bytes(at + place) - 48
            good &= (digit >= 0) & (digit <= 9)
            value = value * 10 + digit
        return value, good

    def _is(self, at: Ints, wanted: bytes) -> Bools:
        found = self._bytes(at)
        answer: Bools = found == wanted[0]
        for other in wanted[1:]:
            answer |= found == other
        return answer

    def _bytes(self, at: Ints) -> Ints:
        """The byte at each place; what lies outside its own text is some byte, and is judged by the text's length."""
        return self._data.take(at, mode="clip").astype(np.int64) if len(at) else np.zeros(0, np.int64)

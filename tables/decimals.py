"""Decimals: a column's numbers as whole numbers of a DECIMAL's last place, exactly or not at all.

A REAL stands for the shortest decimal that reads as it, the one that SQLite and Python print. Where that has at most 15
digits it is found by arithmetic, for all rows at once: no two decimals of so few digits read as the same double, so the
one whose quotient is the value, bit for bit, is the shortest. Longer ones are taken apart one by one.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_EXACT_DIGITS: Final = 15
"""Decimals of so many digits are told apart by doubles."""
_EXACT_POWER: Final = 22
"""The greatest power of ten that is a double."""
_WORD_DIGITS: Final = 18
"""Every number of so many digits has room in 64 bits."""


class Decimals:
    """Values of one DECIMAL(precision, scale), of so many rows; what isn't put in is not `good`."""

    def __init__(self, rows: int, precision: int, scale: int) -> None:
        self.good: Bools = np.zeros(rows, np.bool_)
        self._words: Ints = np.zeros((rows, 2), np.int64)
        self._precision = precision
        self._scale = scale

    def put_integers(self, rows: Ints, values: Ints) -> None:
        if self._precision > _WORD_DIGITS:
            self._put_each(rows, values)
            return
        most = 10 ** (self._precision - self._scale) - 1
        fits = (values <= most) & (values >= -most)
        self._put(rows[fits], values[fits] * 10**self._scale)

    def put_reals(self, rows: Ints, values: npt.NDArray[np.float64]) -> None:
        by_one = np.ones(len(rows), np.bool_)
        if self._scale <= _EXACT_POWER:
            power = 10.0**self._scale
            with np.errstate(over="ignore"):
                places = np.rint(values * power)
            near = np.abs(places) < 10.0**_EXACT_DIGITS
            fits = near & (np.abs(places) < 10.0 ** min(self._precision, _EXACT_DIGITS)) & (places / power == values)
            self._put(rows[fits], places[fits].astype(np.int64))
            by_one = ~near & np.isfinite(values)
        self._put_each(rows[by_one], values[by_one])

    def array(self) -> pa.Array[Any]:
        """Null where nothing is good."""
        type_ = pa.decimal128(self._precision, self._scale)
        valid = pa.py_buffer(np.packbits(self.good, bitorder="little").data)
        return pa.Array.from_buffers(type_, len(self.good), [valid, pa.py_buffer(self._words.data)])

    def _put(self, rows: Ints, places: Ints) -> None:
        self._words[rows, 0], self._words[rows, 1] = places, places >> 63
        self.good[rows] = True

    def _put_each(self, rows: Ints, values: npt.NDArray[Any]) -> None:
        for row, value in zip(rows.tolist(), values.tolist(), strict=True):
            places = self._places(value)
            if places is not None:
                low = places & (1 << 64) - 1
                self._words[row] = low - (low >> 63 << 64), places >> 64
                self.good[row] = True

    def _places(self, value: int | float) -> int | None:
        number = Decimal(repr(value))
        if not number.is_finite():
            return None
        sign, digits, exponent = number.as_tuple()
        assert isinstance(exponent, int)
        # Exact, whatever the context of this thread rounds to.
        shift = exponent + self._scale
        places, power = int("".join(map(str, digits))), int(10 ** abs(shift))
        if shift < 0:
            places, rest = divmod(places, power)
            if rest:
                return None
        elif len(digits) + shift > self._precision and places:
            return None
        else:
            places *= power
        if places >= 10**self._precision:
            return None
        return -places if sign else places

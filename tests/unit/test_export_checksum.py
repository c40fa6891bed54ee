"""The checksum of rows: equal exactly for the same rows, in any order, any batches, however Arrow holds them."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from budwood.spark_export.export.checksum import MODULUS, SHORT, Sum, row_hashes, total
from budwood.volume.errors import Unsupported

KINDS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "amount": pa.float64(),
    "words": pa.string(),
    "raw": pa.binary(),
    "price": pa.decimal128(12, 2),
    "sold": pa.bool_(),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
}
SCHEMA = pa.schema(KINDS)


def rows(count: int, seed: int = 7) -> list[dict[str, Any]]:
    dice = random.Random(seed)

    def some(value: Any) -> Any:
        return None if dice.random() < 0.2 else value

    return [
        {
            "id": some(dice.choice([0, 1, -1, 2**63 - 1, -(2**63), dice.getrandbits(62)])),
            "amount": some(dice.choice([0.0, 1.0, float("inf"), 5e-324, dice.random()])),
            "words": some("ä" * dice.choice([0, 1, 3, 4, 7, 60, 64, 65, 700]) + str(dice.random())),
            "raw": some(dice.randbytes(dice.choice([0, 1, 7, 8, 9, 127, 128, 129, 5000]))),
            "price": some(Decimal(dice.randrange(-(10**11), 10**11)).scaleb(-2)),
            "sold": some(dice.random() < 0.5),
            "day": some(date(2026, 1, 1 + dice.randrange(28))),
            "at": some(datetime(2026, 5, 1, 12, 30, dice.randrange(60), tzinfo=UTC)),
        }
        for _ in range(count)
    ]


def table(some: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(some, SCHEMA)


def sum_of(found: pa.Table, rows_a_batch: int | None = None) -> Sum:
    return total(found.to_batches(max_chunksize=rows_a_batch))


def column(values: list[Any], kind: pa.DataType) -> int:
    return sum_of(pa.table({"a": pa.array(values, kind)})).checksum


def test_neither_order_nor_batches_nor_the_order_of_columns_change_it() -> None:
    some = rows(500)
    expected = sum_of(table(some))
    assert expected.rows == 500
    shuffled = random.Random(3).sample(some, len(some))
    assert sum_of(table(shuffled), 17) == expected
    assert sum_of(table(some).select(list(reversed(SCHEMA.names))), 1) == expected
    assert total(table(some[200:]).to_batches()) + total(table(some[:200]).to_batches()) == expected
    assert expected - sum_of(table(some[:200])) == sum_of(table(some[200:]))


def test_a_slice_counts_what_it_shows_and_no_more() -> None:
    some = rows(100)
    assert sum_of(table(some).slice(13, 41)) == sum_of(table(some[13:54]))
    assert sum_of(table(some).slice(50, 0)) == Sum()


def test_how_a_reader_holds_the_values_does_not_change_it() -> None:
    some = table(rows(300))
    wide = {**KINDS, "words": pa.large_string(), "raw": pa.large_binary(), "at": pa.timestamp("ns", "UTC")}
    other = some.cast(pa.schema(wide))
    assert sum_of(other, 64) == sum_of(some)
    views = some.set_column(2, "words", some["words"].cast(pa.string_view()))
    assert sum_of(views) == sum_of(some)
    encoded = some.set_column(2, "words", some["words"].dictionary_encode())
    assert sum_of(encoded) == sum_of(some)
    assert column([1, None, 300], pa.int32()) == column([1, None, 300], pa.int64())
    assert column([Decimal("1.25")], pa.decimal128(5, 2)) == column([Decimal("1.25")], pa.decimal128(30, 2))


@pytest.mark.parametrize("name", SCHEMA.names)
def test_one_value_changed_changes_it(name: str) -> None:
    some = rows(50)
    expected = sum_of(table(some))
    others = {row[name] for row in rows(50, seed=8)}
    for number, row in enumerate(some):
        other = next(value for value in others if value != row[name])
        changed = [*some[:number], {**row, name: other}, *some[number + 1 :]]
        assert sum_of(table(changed)) != expected, row[name]


def test_a_row_that_is_there_twice_counts_twice() -> None:
    some = rows(3)
    assert sum_of(table([*some, some[0], some[0]])) != sum_of(table([*some, some[1], some[1]]))
    assert sum_of(table([some[0], some[0]])) != Sum(2, 0)


def test_values_that_change_their_columns_are_other_rows() -> None:
    assert sum_of(pa.table({"a": [1, 2], "b": [2, 1]})) != sum_of(pa.table({"a": [1, 1], "b": [2, 2]}))
    assert sum_of(pa.table({"a": ["x"], "b": ["y"]})) != sum_of(pa.table({"a": ["y"], "b": ["x"]}))
    assert sum_of(pa.table({"a": ["xy"], "b": [""]})) != sum_of(pa.table({"a": ["x"], "b": ["y"]}))


def test_empty_null_and_zero_bytes_are_three_things() -> None:
    kinds = [column([value], pa.binary()) for value in (None, b"", b"\0", b"\0\0", b"\0" * 8, b"\0" * 9, b"\0" * 129)]
    assert len(set(kinds)) == len(kinds)
    assert column([None], pa.int64()) != column([0], pa.int64())
    assert column([None], pa.float64()) == column([None], pa.string())


def test_minus_zero_is_zero_and_a_nan_is_a_nan() -> None:
    assert column([-0.0], pa.float64()) == column([0.0], pa.float64())
    negative = np.array([0xFFF8000000000001], np.uint64).view(np.float64)
    assert column(list(negative), pa.float64()) == column([float("nan")], pa.float64())
    assert column([float("nan")], pa.float64()) != column([None], pa.float64())


def test_every_length_of_text_counts_every_byte() -> None:
    for length in [*range(1, 40), SHORT - 1, SHORT, SHORT + 1, 1000]:
        base = bytes(range(1, 251))[:length] * (1 + length // 250)
        seen = {column([base], pa.binary())}
        places = range(len(base)) if length < 40 else (0, length - 1, length // 2)
        for place in places:
            other = bytearray(base)
            other[place] ^= 0x80
            seen.add(column([bytes(other)], pa.binary()))
        assert len(seen) == 1 + len(places), length


def test_hashes_are_spread_over_all_bits() -> None:
    """A weak one would show as a bit that is set too often or too seldom."""
    hashes = row_hashes(pa.record_batch({"a": pa.array(np.arange(20_000)), "b": pa.array(np.zeros(20_000))}))
    assert len(np.unique(hashes)) == 20_000
    for bit in range(64):
        share = float(((hashes >> np.uint64(bit)) & np.uint64(1)).mean())
        assert 0.47 < share < 0.53, bit


def test_the_numbers_stay_what_they_are() -> None:
    """Targets remember them: another way to count would take every table for another one."""
    some = pa.table(
        {"id": [1, 2, None], "words": ["one", None, "a text of more than eight bytes"], "x": [0.5, -0.0, 3.0]}
    )
    assert sum_of(some) == Sum(3, EXPECTED)
    assert 0 <= EXPECTED < MODULUS


EXPECTED = 2695541132849820548


def test_a_type_that_no_export_has_is_refused() -> None:
    with pytest.raises(Unsupported, match="column a is list"):
        column([[1]], pa.list_(pa.int64()))


def test_what_lies_under_a_null_is_not_looked_at(recwarn: pytest.WarningsRecorder) -> None:
    signalling = np.array([0x7FF0_0000_0000_0001, 0x3FF0_0000_0000_0000], np.uint64)
    buffers: list[Any] = [pa.py_buffer(bytes([0b10])), pa.py_buffer(signalling.tobytes())]
    column: Any = pa.Array.from_buffers(pa.float64(), 2, buffers)
    values: Any = pa.array([None, 1.0])
    assert total([pa.record_batch({"a": column})]) == total([pa.record_batch({"a": values})])
    assert not recwarn.list

"""Which records of a stream a read gives, in every case of a small one."""

from __future__ import annotations

from itertools import product

from budwood.server.plain.streams import Part, Stream

PARTS = (Part("a", 0, 1, (3, 0, 5), (0,) * 3), Part("b", 7, 5, (4,), (0,)), Part("c", 0, 8, (2, 2), (0,) * 2))
SIZES = {part.first + at: size for part in PARTS for at, size in enumerate(part.sizes)}
WHERE = {part.first + at: (part, at) for part in PARTS for at in range(len(part.sizes))}


def expected(after: int, most: int, most_bytes: int) -> list[int]:
    """Positions."""
    given = list[int]()
    for position, size in SIZES.items():
        if position <= after:
            continue
        if len(given) == most or (given and sum(SIZES[each] for each in given) + size > most_bytes):
            break
        given.append(position)
    return given


def test_a_read_begins_behind_a_position_and_ends_at_the_first_limit_but_gives_one_record_if_any() -> None:
    stream = Stream(list(PARTS), len(SIZES))
    for after, most, most_bytes in product(range(11), range(8), range(18)):
        slices = list(stream.slices(after, most, most_bytes))
        assert all(slice_.begin < slice_.end for slice_ in slices)
        given = [(slice_.part, at) for slice_ in slices for at in range(slice_.begin, slice_.end)]
        assert given == [WHERE[position] for position in expected(after, most, most_bytes)], (after, most, most_bytes)
        for each in slices:
            before, bytes_ = sum(each.part.sizes[: each.begin]), sum(each.part.sizes[each.begin : each.end])
            assert (each.bytes.start, len(each.bytes)) == (each.part.start + before, bytes_)

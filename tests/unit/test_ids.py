"""Gids and names: S2.2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budwood.volume.errors import BadInput
from budwood.volume.ids import ALPHABET, ClientId, SegmentId, VolumeId, check_name, check_node

moments = st.integers(0, 2**48 - 1)
noises = st.binary(min_size=9, max_size=9)


@given(moments, noises)
def test_a_gid_takes_22_characters_and_comes_back(at_ms: int, noise: bytes) -> None:
    gid = VolumeId.new(at_ms=at_ms, noise=noise)
    assert len(str(gid)) == 22
    assert VolumeId.parse(str(gid)) == gid
    assert gid.time_ms == at_ms


@given(moments, noises, moments, noises)
def test_both_forms_sort_by_time(at: int, noise: bytes, later: int, other: bytes) -> None:
    one, two = VolumeId.new(at_ms=at, noise=noise), VolumeId.new(at_ms=later, noise=other)
    assert (one < two) == (one.raw < two.raw) == (str(one) < str(two))
    if at < later:
        assert one < two


def test_ids_of_different_kinds_are_never_equal() -> None:
    volume = VolumeId.new()
    segment = SegmentId(bytes([SegmentId.TYPE]) + volume.raw[1:])
    assert volume != segment
    assert len({volume, segment, ClientId(bytes([ClientId.TYPE]) + volume.raw[1:])}) == 3


@given(st.text(ALPHABET + "0OIl é", max_size=30))
def test_text_that_is_no_gid_is_refused(text: str) -> None:
    try:
        parsed = VolumeId.parse(text)
    except BadInput:
        return
    assert str(parsed) == text


def test_the_largest_text_is_refused_in_words() -> None:
    with pytest.raises(BadInput, match="too large"):
        VolumeId.parse("z" * 22)


@pytest.mark.parametrize("name", ["inventory", "a/b/c.db", "größe", "with space", "x" * 255])
def test_ordinary_names_are_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", ".", "a/../b", "a\x00b", "a\nb", "a\\b", "x" * 256, "é/" * 600]
)
def test_odd_names_are_refused(name: str) -> None:
    with pytest.raises(BadInput):
        check_name(name)


@pytest.mark.parametrize("name", ["", "Main", "a_b", "-a", "private", "x" * 22])
def test_a_node_is_never_named_like_a_volume(name: str) -> None:
    with pytest.raises(BadInput):
        check_node(name)

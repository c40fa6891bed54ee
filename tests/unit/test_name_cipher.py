"""Name cipher: names and attributes as others see them, and the secret that they are encrypted with."""

from __future__ import annotations

import base64
import os
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from hypothesis import given
from hypothesis import strategies as st

from budwood.volume.encryption import WrappingKey
from budwood.volume.errors import BadInput, Corrupt, Unsupported
from budwood.volume.name_cipher import NameCipher, NamesHeader

HOLDER = WrappingKey(bytes(range(32)))
PART = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="/\\"), min_size=1, max_size=20).filter(
    lambda part: part not in {".", ".."}
)
WORD = st.text(max_size=9)


@given(st.lists(PART, min_size=1, max_size=4), st.dictionaries(WORD, st.integers() | WORD))
def test_names_and_attributes_come_back_and_directories_stay_prefixes(parts: list[str], said: dict[str, Any]) -> None:
    cipher, name = NameCipher.of(HOLDER), "/".join(parts)
    encrypted = cipher.encrypted(name)
    assert cipher.decrypted(encrypted) == name
    assert encrypted.startswith(cipher.encrypted(parts[0]))
    assert cipher.encrypted(f"{name}/") == f"{encrypted}/"
    assert NameCipher.of(WrappingKey(os.urandom(32))).decrypted(encrypted) is None
    assert cipher.decrypted(name) is None
    said = {key: value for key, value in said.items() if not isinstance(value, int) or abs(value) < 1 << 63}
    assert cipher.decrypted_attributes(cipher.encrypted_attributes(said)) == said
    for damaged in ({"~": b"none of these"}, {"~": 1}, {"mode": 0}):
        with pytest.raises(Corrupt, match="attributes"):
            cipher.decrypted_attributes(damaged)


@pytest.mark.parametrize("name", ["..", "a/../b", "a\nb", "\\", "", "a//b", "/a"])
def test_what_can_be_no_name_is_none_once_it_is_decrypted(name: str) -> None:
    """A node lets it pass, and a mount would take it for a path."""
    cipher = NameCipher.of(HOLDER)
    assert cipher.decrypted(cipher.encrypted(name)) is None


def test_a_part_that_holds_several_is_none() -> None:
    siv = AESSIV(HOLDER.derived(b"budwood names"))
    text = "~" + base64.b32encode(siv.encrypt(b"a/b", [b"name"])).decode().rstrip("=").lower()
    assert NameCipher.of(HOLDER).decrypted(text) is None


def test_a_secret_that_is_wrapped_is_the_same_one_to_those_alone_whom_it_is_wrapped_for() -> None:
    cipher = NameCipher.of(HOLDER)
    second, words = WrappingKey(os.urandom(32)), WrappingKey(passphrase="correct horse")
    header = NamesHeader.parse(cipher.wrapped([second, words]))
    for holders in ([second], [words], [HOLDER, second]):
        opened = NameCipher.opened(header, holders)
        assert opened is not None
        assert opened.id == cipher.id
        assert opened.encrypted("a/b") == cipher.encrypted("a/b")
        again = NameCipher.opened(NamesHeader.parse(opened.wrapped([HOLDER])), [HOLDER])
        assert again is not None
        assert again.id == cipher.id
    assert NameCipher.opened(header, [HOLDER]) is None
    assert NameCipher.opened(header, []) is None


def test_what_is_no_names_header_is_refused_in_words() -> None:
    header = NamesHeader.parse(NameCipher.of(HOLDER).wrapped([HOLDER]))
    for data in (b"", b"none of these", None, 7, {"a": b"b"}):
        with pytest.raises(Corrupt, match="no names header"):
            NamesHeader.parse(data)
    newer = msgspec.msgpack.encode(msgspec.structs.replace(header, version=2))
    with pytest.raises(Unsupported, match="newer Budwood"):
        NamesHeader.parse(newer)
    short = header.slots[0]
    damaged = msgspec.structs.replace(header, slots=(msgspec.structs.replace(short, nonce=b""),))
    with pytest.raises(BadInput):
        NameCipher.opened(damaged, [HOLDER])
    with pytest.raises(BadInput, match="64 bytes"):
        NameCipher(b"short")

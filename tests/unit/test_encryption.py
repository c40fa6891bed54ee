"""Encrypted pages by themselves (volume/encryption.py): what opens them, what refuses them, what shows of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from budwood.remote import keyring as keyrings
from budwood.remote.keyring import KEY_FILE, PASSPHRASE_FILE, keyring, read_key, write_key
from budwood.remote.page_fetch import unpack_valid
from budwood.volume import encryption
from budwood.volume.encryption import (
    EncryptionHeader,
    VolumeKeys,
    WrappingKey,
    checked_header,
    is_encrypted_skeleton,
)
from budwood.volume.errors import BadInput, Corrupt, Locked, Unsupported
from budwood.volume.frame import (
    ENCRYPTED_OVERHEAD_BYTES,
    Frame,
    check_frame,
    join_encrypted,
    pack_frame,
    page_packed,
    pages_unpacked,
    split_encrypted,
    unpack_frame,
)
from budwood.volume.ids import VolumeId
from budwood.volume.pack import Packer
from budwood.volume.pageset import PageSet
from budwood.volume.segment import ENCRYPTED_FRAMES, SegmentIndex, parse_footer
from budwood.volume.setsum import item_hash

from ..waits import LIMIT_SECONDS

PAGE = 512
HOLDER = WrappingKey(os.urandom(32))
KEYS = VolumeKeys.new(HOLDER)


def opened(header: bytes, *holders: WrappingKey) -> VolumeKeys:
    return VolumeKeys.opened(EncryptionHeader.parse(header), holders)


@given(
    st.binary(min_size=PAGE, max_size=PAGE) | st.integers(0, 255).map(lambda byte: bytes([byte]) * PAGE),
    st.integers(1, 2**32 - 1),
    st.booleans(),
)
def test_what_was_encrypted_opens_as_that_page_and_as_no_other(page: bytes, index: int, skeleton: bool) -> None:
    encrypted = KEYS.page_cipher().encrypt(index, page, skeleton=skeleton)
    again = opened(KEYS.header.encoded(), HOLDER)
    assert again.decrypt("here", index, encrypted, PAGE) == page
    assert is_encrypted_skeleton(encrypted) is skeleton
    assert len(encrypted) <= PAGE + ENCRYPTED_OVERHEAD_BYTES
    with pytest.raises(Corrupt):
        again.decrypt("here", index - 1 or 2, encrypted, PAGE)


def test_any_bit_that_was_turned_is_noticed() -> None:
    encrypted = KEYS.page_cipher().encrypt(7, b"page" * (PAGE // 4), skeleton=True)
    for bit in range(8 * len(encrypted)):
        turned = bytearray(encrypted)
        turned[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            KEYS.decrypt("here", 7, bytes(turned), PAGE)


def test_nothing_about_equal_pages_is_equal() -> None:
    page, cipher = os.urandom(PAGE), KEYS.page_cipher()
    encrypted = [cipher.encrypt(1, page), cipher.encrypt(1, page), KEYS.page_cipher().encrypt(1, page)]
    hashes = [KEYS.item_hash(1, 1, page), KEYS.item_hash(2, 1, page), KEYS.item_hash(1, 2, page), item_hash(1, page)]
    hashes.append(VolumeKeys.new(HOLDER).item_hash(1, 1, page))
    shared = {each[at : at + 8] for each in encrypted[:1] for at in range(25, len(each) - 8)}
    assert not any(each[at : at + 8] in shared for each in encrypted[1:] for at in range(25, len(each) - 8))
    assert len(set(hashes)) == len(hashes)
    assert KEYS.item_hash(1, 1, page) == opened(KEYS.header.encoded(), HOLDER).item_hash(1, 1, page)


def test_no_nonce_comes_twice_under_a_key() -> None:
    heads = {KEYS.page_cipher().encrypt(1, bytes(PAGE))[:25] for _ in range(50)}
    cipher = KEYS.page_cipher()
    heads |= {cipher.encrypt(1, bytes(PAGE))[:25] for _ in range(50)}
    assert len(heads) == 100


def test_a_cipher_that_a_fork_of_the_process_inherits_draws_another_salt() -> None:
    cipher = KEYS.page_cipher()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, cipher.encrypt(1, bytes(PAGE)))
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(read, 2 * PAGE)
    os.close(read)
    os.close(write)
    assert cipher.encrypt(1, bytes(PAGE))[:25] != theirs[:25]
    assert KEYS.decrypt("there", 1, theirs, PAGE) == bytes(PAGE)


def test_only_its_holders_open_a_volume() -> None:
    other, words = WrappingKey(os.urandom(32)), WrappingKey(passphrase="correct horse")
    both = VolumeKeys.new(HOLDER, words)
    header = both.header.encoded()
    encrypted = both.page_cipher().encrypt(1, b"x" * PAGE)
    for holder in (HOLDER, WrappingKey(passphrase="correct horse")):
        assert opened(header, other, holder).decrypt("here", 1, encrypted, PAGE) == b"x" * PAGE
    with pytest.raises(Locked, match="none of the keys that were given"):
        opened(header, other, WrappingKey(passphrase="wrong horse"))
    with pytest.raises(Locked, match="no key was given"):
        opened(header)


def test_rekeying_lets_others_in_and_those_before_out_and_old_pages_stay_readable() -> None:
    other = WrappingKey(os.urandom(32))
    before = KEYS.page_cipher().encrypt(1, b"a" * PAGE)
    after = KEYS.rewrapped(other, new_data_key=True)
    assert (after.header.id, after.header.newest) == (KEYS.header.id, 2)
    theirs = opened(after.header.encoded(), other)
    newer = theirs.page_cipher().encrypt(1, b"b" * PAGE)
    assert theirs.decrypt("here", 1, before, PAGE) == b"a" * PAGE
    assert theirs.decrypt("here", 1, newer, PAGE) == b"b" * PAGE
    assert theirs.item_hash(1, 1, b"") == KEYS.item_hash(1, 1, b"")
    with pytest.raises(Locked):
        opened(after.header.encoded(), HOLDER)
    with pytest.raises(Corrupt, match="data key 2"):
        KEYS.decrypt("here", 1, newer, PAGE)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xc1", bytes(40), b"\x81\xa1a"])
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        EncryptionHeader.parse(data)


def test_a_header_of_a_newer_version_or_of_great_size_is_refused() -> None:
    newer = EncryptionHeader(version=2, id=bytes(16), newest=1, slots=KEYS.header.slots)
    with pytest.raises(Unsupported, match="upgrade"):
        EncryptionHeader.parse(newer.encoded())
    with pytest.raises(BadInput, match="slots"):
        checked_header(KEYS.rewrapped(*[HOLDER] * 200).header.encoded())
    assert checked_header(b"") == b""


def test_a_frame_is_split_and_joined_without_a_key() -> None:
    cipher, indexes = KEYS.page_cipher(), [3, 5, 9]
    pages = [cipher.encrypt(index, bytes([index]) * PAGE) for index in indexes]
    info, stored = join_encrypted(indexes, pages)
    assert split_encrypted("here", info, stored, PAGE) == pages
    with pytest.raises(Locked):
        unpack_frame("here", info, stored, PAGE)
    kept, smaller = join_encrypted([5], split_encrypted("here", info, stored, PAGE)[1:2])
    frame = Frame(kept, PageSet([5]), smaller)
    with pytest.raises(Corrupt, match="of a volume that isn't"):
        unpack_valid("here", frame, PAGE, b"")


def test_frames_that_lie_about_their_sizes_are_refused() -> None:
    cipher = KEYS.page_cipher()
    pages = [cipher.encrypt(index, os.urandom(PAGE)) for index in (1, 2)]
    for wrong in (
        [pages[0], pages[1] + b"x"],
        [pages[0], b""],
        [pages[0][:ENCRYPTED_OVERHEAD_BYTES], pages[1]],
    ):
        info, stored = join_encrypted([1, 2], wrong)
        with pytest.raises(Corrupt):
            check_frame("here", info, stored, PAGE)
    info, stored = join_encrypted([1, 2], pages)
    shorter, _ = join_encrypted([1, 2, 3], [*pages, pages[0]])
    for told, data in ((info, stored[:-1]), (shorter, stored)):
        with pytest.raises(Corrupt):
            check_frame("here", told, data, PAGE)


@given(st.integers(0, 2), st.data())
def test_pages_that_were_packed_one_by_one_open_together_as_each_does_alone(place: int, data: st.DataObject) -> None:
    pages = [bytes([number, 1, 2, 3]) * (PAGE // 4) for number in range(3)]
    packed = [page_packed(page) for page in pages]
    assert pages_unpacked(packed, PAGE) == pages
    damaged = bytearray(packed[place])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    packed[place] = bytes(damaged)
    try:
        [alone] = pages_unpacked([packed[place]], PAGE)
    except zstandard.ZstdError:
        with pytest.raises(zstandard.ZstdError):
            pages_unpacked(packed, PAGE)
    else:
        pages[place] = alone
        assert pages_unpacked(packed, PAGE) == pages


@pytest.mark.parametrize("size", [PAGE - 1, PAGE + 1, 2 * PAGE])
def test_a_page_that_unpacks_to_another_size_is_refused_among_others(size: int) -> None:
    whole, other = page_packed(bytes(PAGE)), page_packed(bytes(size))
    for stored in ([other], [whole, other], [other, whole]):
        with pytest.raises(zstandard.ZstdError, match="another size"):
            pages_unpacked(stored, PAGE)


def test_a_packed_page_that_its_writer_damaged_is_told_with_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    cipher = KEYS.page_cipher()
    whole = cipher.encrypt(4, bytes(PAGE))

    def cut_short(data: bytes) -> bytes:
        return page_packed(data)[:-1]

    monkeypatch.setattr(encryption, "page_packed", cut_short)
    cut = cipher.encrypt(5, b"page" * (PAGE // 4))
    with pytest.raises(Corrupt, match="of pages 4 to 5 one can't be unpacked"):
        KEYS.decrypt_pages("here", [(4, whole), (5, cut)], PAGE)


def test_a_plain_frame_is_none_of_an_encrypted_volume_s() -> None:
    info, stored = pack_frame([1], [b"forged" + bytes(PAGE - 6)])
    with pytest.raises(Corrupt, match="aren't encrypted, of a volume that is"):
        unpack_valid("here", Frame(info, PageSet([1]), stored), PAGE, KEYS.header.encoded())


def test_a_segment_of_encrypted_pages_says_that_its_reader_must_know_them() -> None:
    vid = VolumeId.new()
    packer = Packer(vid, 3, PAGE, lambda index: bytes([index]) * PAGE, KEYS)
    ((data, _),) = packer.segments(PageSet([1]), PageSet([2, 3]))
    index = SegmentIndex.of_segment("here", data)
    assert index.volumes[0].is_encrypted
    hashes = index.hashes("here", data)
    assert hashes[:32] == KEYS.item_hash(3, 1, b"\x01" * PAGE)
    assert bytes([2]) * 16 not in data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("budwood.volume.segment.KNOWN_FEATURES", ENCRYPTED_FRAMES - 1)
        with pytest.raises(Unsupported, match="upgrade"):
            SegmentIndex.of_segment("here", data)
    assert parse_footer("here", data).segment_size == len(data)


def test_a_key_file_is_its_owner_s_alone_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key"
    made = write_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_key(path).holder == made.holder
    with pytest.raises(BadInput, match="there already"):
        write_key(path)
    assert read_key(path).holder == made.holder


@pytest.mark.parametrize("text", ["", "budwood-key-1:AAAA\n", "budwood-key-1:***\n", "secret\n", "\xff"])
def test_what_is_no_key_file_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(BadInput, match="key"):
        read_key(path)


def test_the_keyring_has_what_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_FILE, raising=False)
    assert keyring().new_header() == b""
    first, second = write_key(tmp_path / "1"), write_key(tmp_path / "2")
    (tmp_path / "words").write_text("correct horse\n")
    monkeypatch.setenv(KEY_FILE, f"{tmp_path / '1'}{os.pathsep}{tmp_path / '2'}")
    monkeypatch.setenv(PASSPHRASE_FILE, str(tmp_path / "words"))
    held = keyring()
    assert [holder.holder for holder in held.holders] == [first.holder, second.holder, b""]
    assert [slot.holder for slot in EncryptionHeader.parse(held.new_header()).slots] == [first.holder]
    words = VolumeKeys.new(WrappingKey(passphrase="correct horse")).header.encoded()
    assert held.keys_of(words) is held.keys_of(words)
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "nothing"))
    with pytest.raises(BadInput, match="can't be read"):
        keyring()


def test_a_forked_process_waits_for_no_lock_of_its_parent_s_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_FILE, raising=False)
    with keyrings._lock:  # pyright: ignore[reportPrivateUsage]
        child = os.fork()
        if not child:
            try:
                signal.alarm(int(LIMIT_SECONDS))
                status = len(keyring().new_header())
            except BaseException:
                status = 1
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0

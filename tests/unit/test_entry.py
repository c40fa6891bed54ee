"""Envelopes, entries, records and their keys: S4.22, S2.32, S3.10."""

import struct
from typing import Any

import msgspec
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from budwood.volume import envelope
from budwood.volume.entry import (
    GARBAGE,
    ROLLUP,
    EntryHeader,
    digest_of,
    entry_key,
    parse_entry,
    seal_entry,
    slot_of,
)
from budwood.volume.envelope import BIRTH, ENTRY, ROOT, decode, encode, head_length, seal, unseal
from budwood.volume.errors import BadInput, Corrupt, Unsupported
from budwood.volume.records import Birth, Commit, StreamRecords, Tombstone, decode_record, encode_records
from budwood.volume.setsum import Setsum
from budwood.volume.wire import CommitRequest, token_of

HEADER = EntryHeader(log="main", i=7, epoch=2, writer=b"w" * 16, n=3)
COMMIT = Commit(
    vid=b"v",
    lsn=2,
    base=1,
    length=4096,
    floor=0,
    pages=b"p",
    client=b"c",
    token=b"t",
    nonce=b"n",
    content=b"z",
    setsum=b"s",
)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_the_newest_entry_sorts_first(one: int, two: int) -> None:
    assert slot_of(entry_key("main", one)) == one
    assert (one > two) == (entry_key("main", one) < entry_key("main", two))


def test_an_entry_comes_back() -> None:
    data = seal_entry(HEADER, b"body")
    entry = parse_entry(entry_key("main", 7), data)
    assert (entry.header.n, entry.size, data[head_length(data) :]) == (3, len(data), b"body")
    assert entry.header.body_digest == digest_of(b"body")


def test_a_head_alone_is_enough_and_the_digest_is_the_heads() -> None:
    data = seal_entry(HEADER, b"body" * 500)
    head = data[: head_length(data)]
    assert parse_entry(entry_key("main", 7), head) == parse_entry(entry_key("main", 7), data)
    assert parse_entry(entry_key("main", 7), head).digest == digest_of(head)
    assert parse_entry(entry_key("main", 7), seal_entry(HEADER, b"else" * 500)).digest != digest_of(head)


def test_an_entry_under_another_key_is_refused() -> None:
    with pytest.raises(Corrupt, match="says that it is entry 7"):
        parse_entry(entry_key("main", 8), seal_entry(HEADER))


def test_a_key_that_is_no_entry() -> None:
    with pytest.raises(BadInput):
        slot_of("logs/main/entries/nonsense")


@given(st.data())
def test_one_damaged_byte_of_an_entrys_head_is_corrupt(data: st.DataObject) -> None:
    whole = seal_entry(HEADER, b"body" * 20)
    sealed = bytearray(whole)
    sealed[data.draw(st.integers(0, head_length(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Corrupt):
        parse_entry(entry_key("main", 7), bytes(sealed))


@given(st.integers(0, len(seal_entry(HEADER)) - 1))
def test_a_cut_entry_is_corrupt(size: int) -> None:
    with pytest.raises(Corrupt):
        parse_entry(entry_key("main", 7), seal_entry(HEADER)[:size])


def test_an_object_of_an_early_budwood_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "VERSION", 1)
    early = seal(ROOT, b"\x80")
    monkeypatch.undo()
    with pytest.raises(Unsupported, match=r"early Budwood .* make a new store"):
        unseal("root", ROOT, early)


def test_what_has_no_body_is_refused_with_one() -> None:
    for data in (seal(ROOT, b"\x80", b"body"), seal(ROOT, b"\x80") + b"more"):
        with pytest.raises(Corrupt, match="4 bytes follow its header"):
            unseal("root", ROOT, data)


@pytest.mark.parametrize("changes", [{"garbage": ("gc/1",)}, {"rollup": "rollups/1"}])
def test_garbage_and_rollups_must_be_known_to_whoever_reads_on(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    header = msgspec.structs.replace(HEADER, **changes)
    bits = GARBAGE if header.garbage else ROLLUP
    monkeypatch.setitem(envelope.KNOWN_FEATURES, ENTRY, (GARBAGE | ROLLUP) & ~bits)
    with pytest.raises(Unsupported, match="newer Budwood"):
        parse_entry(entry_key("main", 7), seal_entry(header))
    monkeypatch.setitem(envelope.KNOWN_FEATURES, ENTRY, GARBAGE | ROLLUP)
    assert parse_entry(entry_key("main", 7), seal_entry(header)).header == header
    with pytest.raises(Corrupt, match="does not say that its reader must know"):
        parse_entry(entry_key("main", 7), seal(ENTRY, encode(header), features=(GARBAGE | ROLLUP) & ~bits))


def test_an_entry_with_a_rollup_and_garbage_is_read() -> None:
    named = msgspec.structs.replace(HEADER, rollup=f"{3:016x}/{'0' * 64}", garbage=(f"{9:016x}",))
    assert parse_entry(entry_key("main", 7), seal_entry(named)).header == named


def test_an_unknown_required_feature_is_refused_in_words() -> None:
    with pytest.raises(Unsupported, match="newer Budwood"):
        unseal("root", ROOT, seal(ROOT, b"\x80", features=1 << 40))


def test_an_object_of_another_kind_is_refused() -> None:
    with pytest.raises(Corrupt, match="belongs"):
        unseal("root", ROOT, seal(ENTRY, b"\x80"))


def test_unknown_optional_fields_are_passed_over() -> None:
    known = Birth(vid=b"v" * 16, page_size=4096, log="main")
    fields = msgspec.msgpack.decode(encode(known)) | {"from the future": [1, 2]}
    header = unseal("b", BIRTH, seal(BIRTH, encode(fields)))
    assert decode("b", header, Birth) == known


def test_an_unknown_kind_of_record_stops() -> None:
    with pytest.raises(Unsupported, match="'melt'"):
        decode_record("e", encode({"k": "melt"}))


def test_a_streams_commits_add_up_to_its_sum() -> None:
    sums = [Setsum((1,) * 8), Setsum(tuple(range(8)))]
    commits = [msgspec.structs.replace(COMMIT, setsum=one.digest) for one in sums]
    carried = encode_records([commits[0], Tombstone(vid=b"v"), commits[1]])
    assert carried.setsum == (sums[0] + sums[1]).digest
    assert carried.decode("e") == (commits[0], Tombstone(vid=b"v"), commits[1])
    with pytest.raises(Corrupt, match="don't add up"):
        msgspec.structs.replace(carried, setsum=sums[0].digest).decode("e")
    with pytest.raises(Corrupt, match="a commit's setsum"):
        StreamRecords(records=(encode(COMMIT),)).decode("e")
    with pytest.raises(Corrupt, match="no record"):
        StreamRecords(records=()).decode("e")


@given(st.binary(max_size=60))
def test_garbage_is_no_record(data: bytes) -> None:
    with pytest.raises((Corrupt, Unsupported)):
        decode_record("e", data)


def test_a_token_names_the_whole_commit() -> None:
    """B3: a client's id alone would swallow a different commit."""
    numbers = {"base": 1, "length": 2, "floor": 3}
    parts = {"client": b"c", "pages": b"p", "setsum": b"s", "nonce": b"n"}
    base = {**numbers, **parts, "vid": b"v", "content": b"", "token": b""}
    changed = [base | change for change in ({"client": b"d"}, {"base": 2}, {"length": 3}, {"floor": 4})]
    changed += [base | change for change in ({"pages": b"ps", "setsum": b""}, {"setsum": b"t"}, {"nonce": b"m"})]
    tokens = {token_of(msgspec.convert(fields, CommitRequest)) for fields in [base, *changed]}
    assert len(tokens) == 8


def test_a_commit_of_the_first_day_still_decodes() -> None:
    """The bytes of a commit as a store holds them: a change that breaks this breaks every store there is."""
    stored = bytes.fromhex(
        "de000ca16ba6636f6d6d6974a3766964c40176a36c736e02a46261736501a66c656e677468cd1000a5666c6f6f7200a57061676573c40170"
        "a6636c69656e74c40163a5746f6b656ec40174a56e6f6e6365c4016ea7636f6e74656e74c4017aa6736574"
        "73756dc40173"
    )
    assert decode_record("e", stored) == COMMIT
    assert encode(COMMIT) == stored


@pytest.mark.parametrize("body", [b"", bytes(5000)])
@pytest.mark.parametrize("whole", [False, True])
def test_an_entry_of_before_is_refused_in_words(body: bytes, whole: bool) -> None:
    """Its checksum was of the body, too, of which a reader of heads has nothing, or a part."""
    header = encode(HEADER)
    fixed = struct.pack("<4sHHQII", ENTRY, 1, 0, 0, len(header), 0)
    data = fixed + struct.pack("<Q", xxhash.xxh3_64_intdigest(fixed + header + body)) + header + body
    with pytest.raises(Unsupported, match="made by an early Budwood"):
        parse_entry(entry_key("main", 7), data if whole else data[:1024])

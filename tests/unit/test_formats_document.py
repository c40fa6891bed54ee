"""The second reader is one: it has nothing of Budwood's. And what docs/formats.md gives as examples is so."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.second_reader import base58, unbase58
from tests.second_reader.basics import add, log_item
from tests.second_reader.envelopes import unseal

from budwood.volume.entry import EpochRecord
from budwood.volume.envelope import EPOCH, encode, seal
from budwood.volume.ids import VolumeId
from budwood.volume.setsum import Setsum, item_hash, log_sum
from budwood.volume.wire import CommitRequest, token_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests/second_reader"
PAGE = b"a" * 512


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def test_it_imports_nothing_of_ours() -> None:
    names = {name for path in FOLDER.glob("*.py") for name in imported(path)}
    own = {f".{path.stem}" for path in FOLDER.glob("*.py")}
    assert ".log" in names
    assert "xxhash" in names
    assert not [name for name in names if name.startswith((".", "tests", "budwood")) and name not in own]


@pytest.fixture(scope="module")
def examples() -> dict[str, str]:
    """Of the document: what stands behind each name, over one line or more."""
    section = (ROOT / "docs/formats.md").read_text().partition("\n## Examples\n")[2].partition("\n## ")[0]
    text = "\n".join(re.findall(r"```\n(.*?)```", section, re.DOTALL))
    return {name: re.sub(r"\s", "", value) for name, value in re.findall(r"^(\S.*?)  +(\w+(?:\n +\w+)*)$", text, re.M)}


def test_the_id(examples: dict[str, str]) -> None:
    raw, text = bytes.fromhex(examples["id"]), examples["id as text"]
    assert str(VolumeId(raw)) == base58(raw) == text
    assert VolumeId.parse(text).raw == unbase58(text) == raw


def test_the_envelope(examples: dict[str, str]) -> None:
    sealed = bytes.fromhex(examples["epoch"])
    assert seal(EPOCH, encode(EpochRecord(log="main", n=1, writer=bytes(range(16))))) == sealed
    fields = unseal("the example", b"BWEP", sealed).fields
    assert (fields.text("log"), fields.number("n"), fields.data("writer")) == ("main", 1, bytes(range(16)))
    assert fields.text("purpose", "writer") == "writer"


def test_the_sums(examples: dict[str, str]) -> None:
    vid, item = bytes.fromhex(examples["id"]), bytes.fromhex(examples["item hash"])
    content, logged = bytes.fromhex(examples["content"]), bytes.fromhex(examples["log item"])
    assert hashlib.sha3_256((1).to_bytes(4, "little") + PAGE).digest() == item_hash(1, PAGE) == item
    assert add(item) == Setsum.of(item).digest == content
    assert log_item(vid, 2, 1, item) == logged
    assert add(logged).hex() == log_sum(vid, 2, [1], item).digest.hex() == examples["setsum"]


def test_a_sum_is_reduced() -> None:
    assert (
        add(b"\xff" * 32)
        == Setsum.of(b"\xff" * 32).digest
        == bytes.fromhex("040000001000000040000000620000006a0000008600000098000000b8000000")
    )


def test_the_token(examples: dict[str, str]) -> None:
    client = b"\x82" + bytes.fromhex(examples["id"])[1:]
    pages, summed = bytes.fromhex(examples["page set"]), bytes.fromhex(examples["setsum"])
    digest = hashlib.blake2b(digest_size=32, person=b"budwood.token")
    for number in (client, *((each).to_bytes(8, "little") for each in (1, 512, 512))):
        digest.update(number)
    for part in (pages, summed, b"nonce"):
        digest.update(len(part).to_bytes(4, "little") + part)
    request = CommitRequest(
        vid=b"",
        base=1,
        length=512,
        floor=512,
        pages=pages,
        client=client,
        nonce=b"nonce",
        content=b"",
        setsum=summed,
        token=b"",
    )
    assert token_of(request).hex() == digest.hexdigest() == examples["token"]

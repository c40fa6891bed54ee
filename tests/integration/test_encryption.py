"""Encrypted volumes through every room: what a bucket holds of them, who reads them, and what goes on without a key."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import budwood.lite
from budwood.remote.keyring import KEY_FILE, write_key
from budwood.server.node import Node
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.testing.commits import commit_of
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import CREATE, REKEY, SNAPSHOT, CreateRequest, RekeyRequest, SnapshotRequest
from budwood.volume.encryption import EncryptionHeader, PageCipher, VolumeKeys, WrappingKey
from budwood.volume.entry import digest_of
from budwood.volume.errors import BadInput, Conflict, Corrupt, Locked, Unsupported
from budwood.volume.frame import split_encrypted
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.segment import SegmentIndex, parse_footer
from budwood.volume.setsum import item_hash

from ..mounts import mounted, needs_fuse
from .cli import Command
from .encrypted import KNOWN, PAGES, SIZE, everything_in, pages_of, there, write


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of every home, until a test says otherwise."""
    path = tmp_path / "key"
    write_key(path)
    monkeypatch.setenv(KEY_FILE, str(path))
    return path


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket"


@pytest.fixture
def edge(tmp_path: Path, bucket: Path, key: Path) -> Iterator[Edge]:
    with open_edge(home=tmp_path / "one", remote=bucket.as_uri()) as edge:
        yield edge


def test_a_bucket_has_nothing_of_a_page_and_no_two_things_of_equal_ones(edge: Edge, bucket: Path) -> None:
    volume = edge.create("notes")
    equal = PAGES[1].ljust(SIZE, b"\0")
    write(volume, dict.fromkeys(range(1, 9), equal))
    volume.push()
    write(volume, {1: bytes(SIZE), 2: bytes(SIZE)})
    volume.push()
    write(volume, {1: equal, 2: equal})
    volume.push()
    held = everything_in(bucket)
    assert KNOWN[:12] not in held
    assert not any(item_hash(page, data) in held for page in range(1, 9) for data in (equal, bytes(SIZE)))
    blocks: list[bytes] = []
    hashes: list[bytes] = []
    for data in (path.read_bytes() for path in bucket.rglob("*") if path.is_file()):
        if b"BWSG" in data[-4:]:
            index = SegmentIndex.of_segment("here", data)
            own = memoryview(data)[len(data) - parse_footer("here", data).segment_size :]
            told = index.hashes("here", own)
            hashes += [told[at : at + 32] for at in range(0, len(told), 32)]
            for offset, info, _ in index.volumes[0].frames:
                for page in split_encrypted("here", info, own[offset : offset + info.length], SIZE):
                    blocks += [page[at : at + 16] for at in range(25, len(page) - 15, 16)]
    assert len(hashes) == 12
    assert len(set(hashes)) == len(hashes)
    assert len(set(blocks)) == len(blocks) > 12


def test_the_same_content_reads_from_anywhere_with_the_key(edge: Edge, tmp_path: Path, bucket: Path) -> None:
    volume = edge.create("notes")
    write(volume, PAGES)
    volume.push()
    wanted = {page: data.rstrip(b"\0") for page, data in PAGES.items()}
    assert there(tmp_path, bucket) == wanted
    with closing(budwood.lite.connect(bucket.as_uri(), "notes")) as _:
        pass


def test_a_lost_key_is_one_clear_line(
    edge: Edge, tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    volume = edge.create("notes")
    write(volume, PAGES)
    volume.push()
    user = Command(capsys, tmp_path / "two", bucket.as_uri())
    monkeypatch.delenv(KEY_FILE)
    assert "no key was given" in user("export", "notes", str(tmp_path / "out")).line()
    write_key(tmp_path / "other")
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "other"))
    assert "none of the keys that were given opens it" in user("export", "notes", str(tmp_path / "out")).line()
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "nothing"))
    assert "can't be read" in user("export", "notes", str(tmp_path / "out")).line(2)
    # What is here stays readable here, and what was written meanwhile is pushed once the key is back.
    monkeypatch.delenv(KEY_FILE)
    assert pages_of(volume) == {page: data.rstrip(b"\0") for page, data in PAGES.items()}
    write(volume, {1: b"later"})
    with pytest.raises(Locked):
        volume.push()
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    volume.push()
    assert there(tmp_path, bucket)[1] == b"later"


def test_folds_relocations_and_scrub_go_on_without_a_key(
    edge: Edge, tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    volume = edge.create("notes")
    for number in range(1, 12):
        write(volume, {page: b"%d of %d" % (page, number) for page in (1, number % 4 + 2, 7)})
        volume.push()
    wanted = pages_of(volume)
    monkeypatch.delenv(KEY_FILE)
    user = Command(capsys, tmp_path / "nobody", bucket.as_uri())
    user.ok("retain", "notes", "--since", "11")
    for command in ("upkeep", "scrub"):
        said = user(command, "--store", bucket.as_uri(), *(["--once"] if command == "upkeep" else []))
        assert said.code == 0, said
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "key"))
    assert there(tmp_path, bucket) == wanted


@pytest.mark.parametrize("how", ["pages", "hashes"])
@pytest.mark.parametrize("folded", [False, True])
def test_a_scrub_with_the_key_names_what_does_not_open(
    edge: Edge,
    tmp_path: Path,
    bucket: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    how: str,
    folded: bool,
) -> None:
    """What a writer with another key made is whole, and nobody can read it."""
    volume = edge.create("notes")
    write(volume, PAGES)
    strange = VolumeKeys.new(WrappingKey(os.urandom(32)))

    def with_another_key(_: VolumeKeys) -> PageCipher:
        return PageCipher(strange)

    def no_hash(_: VolumeKeys, _lsn: int, page: int, _data: bytes) -> bytes:
        return bytes([page]) * 32

    with monkeypatch.context() as other:
        if how == "pages":
            other.setattr(VolumeKeys, "page_cipher", with_another_key)
        else:
            other.setattr(VolumeKeys, "item_hash", no_hash)
        volume.push()
    write(volume, {1: b"right"})
    volume.push()
    user = Command(capsys, tmp_path / "nobody", bucket.as_uri())
    if folded:
        user.ok("retain", "notes", "--since", "2")
        user.ok("upkeep", "--store", bucket.as_uri(), "--once")
    scrub = ("scrub", "--store", bucket.as_uri())
    with monkeypatch.context() as keyless:
        keyless.delenv(KEY_FILE)
        said = user(*scrub)
        assert (said.code, "no key at hand opens 1 encrypted volume" in said.err) == (0, True), said
    said = user(*scrub)
    wrong = [line for line in said.out.splitlines() if str(volume.id) in line]
    if how == "hashes" and not folded:
        # Sums that a commit says add up, and the pages open: it is by their LSN that the hashes are told wrong.
        assert (said.code, said.err) == (0, "")
        return
    assert (said.code, said.err) == (1, ""), said
    words = "page 2 does not match its item hash" if how == "hashes" else "does not open with its volume's key"
    assert len(wrong) == 1
    assert words in wrong[0]
    assert "spoils volume" in wrong[0]
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "nothing"))
    assert "can't be read" in user(*scrub).line(2)


def test_forks_and_restored_volumes_open_with_their_parents_key(edge: Edge, tmp_path: Path, bucket: Path) -> None:
    volume = edge.create("notes")
    write(volume, PAGES)
    volume.push()
    fork = edge.fork("notes", "mine")
    write(fork, {2: b"another"})
    fork.push()
    wanted = {page: data.rstrip(b"\0") for page, data in PAGES.items()}
    assert there(tmp_path, bucket, "mine") == wanted | {2: b"another"}
    assert KNOWN[:12] not in everything_in(bucket)
    assert b"another" not in everything_in(bucket)
    write(volume, {1: b"wrong"})
    volume.push()
    edge.volume("notes").restore(lsn=1)
    edge.volume("notes").push()
    assert there(tmp_path, bucket) == wanted


def test_a_rekeyed_volume_opens_for_those_alone_who_were_named(
    edge: Edge, tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    volume = edge.create("notes")
    write(volume, PAGES)
    volume.push()
    write_key(tmp_path / "new")
    (tmp_path / "words").write_text("correct horse battery\n")
    user = Command(capsys, tmp_path / "one", bucket.as_uri())
    asked = ["encryption", "rekey", "notes", "--key", str(tmp_path / "new"), "--passphrase", str(tmp_path / "words")]
    assert "opens with 2 keys" in user.ok(*asked, "--new-data-key")
    with pytest.raises(Locked):
        there(tmp_path, bucket)
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "new"))
    assert "with data key 2" in user.ok("encryption", "show", "notes")
    assert "which is here" in user.ok("encryption", "show", "notes")
    volume.pull()
    write(volume, {3: b"under the second key"})
    volume.push()
    wanted = {page: data.rstrip(b"\0") for page, data in PAGES.items()} | {3: b"under the second key"}
    assert there(tmp_path, bucket) == wanted
    monkeypatch.delenv(KEY_FILE)
    monkeypatch.setenv("BUDWOOD_PASSPHRASE_FILE", str(tmp_path / "words"))
    assert there(tmp_path, bucket) == wanted


def test_many_volumes_are_rekeyed_and_one_that_is_another_s_stops_none(
    edge: Edge, tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("shop/a", "shop/b", "other", "[o]ther"):
        volume = edge.create(name)
        write(volume, PAGES)
        volume.push()
    for name in ("new", "theirs"):
        write_key(tmp_path / name)
    user, old = Command(capsys, tmp_path / "one", bucket.as_uri()), os.environ[KEY_FILE]

    def with_key(file: str | None) -> None:
        monkeypatch.delenv(KEY_FILE, raising=False)
        if file is not None:
            monkeypatch.setenv(KEY_FILE, file)

    for file, name in ((str(tmp_path / "theirs"), "shop/theirs"), (None, "shop/plain")):
        with_key(file)
        with budwood.open(home=tmp_path / name, remote=bucket.as_uri()) as another:
            volume = another.create(name)
            write(volume, PAGES)
            volume.push()
    with_key(old)
    rekey = ["encryption", "rekey", "--key", str(tmp_path / "new")]
    told = user(*rekey, "shop/*")
    assert told.code == 1
    assert [line.split()[0] for line in told.out.splitlines()] == ["shop/a", "shop/b"]
    assert "shop/theirs: the volume is encrypted, and none of the keys" in told.err
    assert "1 of 4 volumes failed" in told.err
    # A volume's name may look like a pattern, and is no other's then.
    assert user.ok(*rekey, "[o]ther").startswith("[o]ther opens with 1 key")
    assert "which is here" in user.ok("encryption", "show", "other")
    # The key that opens shop/a now isn't at hand, and is named.
    assert "1 of 6 volumes failed" in user(*rekey, "--all").err
    with_key(str(tmp_path / "new"))
    for name in ("shop/a", "shop/b", "other"):
        assert there(tmp_path, bucket, name)
    assert "no volume of the remote is called like 'shop/x*'" in user(*rekey, "shop/x*").line(1)
    assert user.ok(*rekey, "shop/p*") == "nothing to rekey: none of 1 volume is encrypted\n"
    assert "shop/plain isn't encrypted" in user(*rekey, "shop/plain").line(2)
    assert "takes names of volumes, or --all" in user(*rekey).line(2)


@needs_fuse
def test_a_mount_reads_and_writes_an_encrypted_file(tmp_path: Path, bucket: Path, key: Path) -> None:
    with mounted(tmp_path, "--no-sync", remote=bucket.as_uri()) as mount:
        (mount.directory / "letter").write_bytes(KNOWN * 200)
        mount.ask("settle")
        mount.ask("push", "letter")
    assert KNOWN[:12] not in everything_in(bucket)
    assert there(tmp_path, bucket, "letter")[1].startswith(KNOWN)


def test_lite_reads_and_commits_encrypted_pages(edge: Edge, tmp_path: Path, bucket: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "db")) as db:
        db.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
        db.executemany("INSERT INTO t (b) VALUES (?)", [(f"{KNOWN.decode()} {number}",) for number in range(2000)])
        db.commit()
    edge.import_(str(tmp_path / "db"), "shop").push()
    with closing(budwood.lite.connect(bucket.as_uri(), "shop")) as db:
        assert db.execute("SELECT count(*), max(a) FROM t").fetchall() == [(2000, 2000)]
        db.execute("UPDATE t SET b = 'words of mine' WHERE a = 5")
    with closing(budwood.lite.connect(bucket.as_uri(), "shop")) as db:
        assert db.execute("SELECT b FROM t WHERE a = 5").fetchall() == [("words of mine",)]
    assert not [words for words in (KNOWN[:12], b"words of mine", b"CREATE TABLE") if words in everything_in(bucket)]


CLIENT = ClientId.new()
HOLDER = WrappingKey(os.urandom(32))
KEYS = VolumeKeys.new(HOLDER)


async def refused(node: Node, vid: VolumeId, keys: VolumeKeys | None, words: str) -> None:
    request, segment = commit_of(vid, 0, {1: bytes([1]) * 512}, client=CLIENT, page_size=512, keys=keys)
    with pytest.raises(BadInput, match=words):
        await node.commit(request, segment)
    with pytest.raises(BadInput, match=words):
        await node.write_pages(vid, segment)


@pytest.mark.anyio
async def test_a_node_takes_no_plain_page_into_an_encrypted_volume_nor_the_other_way_round() -> None:
    async with Node.open(MemoryStore()) as node:
        encrypted, plain = VolumeId.new(), VolumeId.new()
        header = KEYS.header.encoded()
        await node.ask(CREATE, CreateRequest(encrypted.raw, page_size=512, encryption=header))
        await node.ask(CREATE, CreateRequest(plain.raw, page_size=512))
        await refused(node, encrypted, None, "must have encrypted pages alone")
        await refused(node, plain, KEYS, "isn't encrypted")
        with pytest.raises(BadInput, match="no encryption header"):
            await node.ask(CREATE, CreateRequest(VolumeId.new().raw, page_size=512, encryption=b"none"))


@pytest.mark.anyio
async def test_a_header_is_changed_by_who_has_seen_it_and_survives_what_a_volume_goes_through() -> None:
    store = MemoryStore()
    async with Node.open(store) as node:
        vid = VolumeId.new()
        header = KEYS.header.encoded()
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=512, encryption=header))
        newer = KEYS.rewrapped(HOLDER, new_data_key=True).header.encoded()
        foreign = VolumeKeys.new(HOLDER).header.encoded()
        with pytest.raises(Conflict, match="other keys by now"):
            await node.ask(REKEY, RekeyRequest(vid.raw, encryption=newer, before=digest_of(foreign)))
        with pytest.raises(BadInput, match="own secret"):
            await node.ask(REKEY, RekeyRequest(vid.raw, encryption=foreign, before=digest_of(header)))
        for _ in range(2):
            await node.ask(REKEY, RekeyRequest(vid.raw, encryption=newer, before=digest_of(header)))
        with pytest.raises(BadInput, match="own secret"):
            await node.ask(REKEY, RekeyRequest(vid.raw, encryption=header, before=digest_of(newer)))
        plain = VolumeId.new()
        await node.ask(CREATE, CreateRequest(plain.raw, page_size=512))
        with pytest.raises(BadInput, match="isn't encrypted"):
            await node.ask(REKEY, RekeyRequest(plain.raw, encryption=newer, before=digest_of(header)))
    async with Node.open(store) as node:
        told = (await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))).encryption
        assert EncryptionHeader.parse(told).newest == 2


def test_a_remote_that_says_that_a_volume_was_never_encrypted_is_believed_in_nothing(
    edge: Edge, tmp_path: Path, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = edge.create("notes")
    write(volume, PAGES)
    volume.push()
    other = open_edge(home=tmp_path / "two", remote=bucket.as_uri())
    with other:
        cloned = other.clone("notes")
        monkeypatch.setattr("budwood.server.metastore.open_volume.Volume.encryption", b"")
        with pytest.raises(Corrupt, match="of a volume that isn't"):
            pages_of(cloned)
        with pytest.raises(Corrupt, match="it was encrypted"):
            cloned.pull()


def test_a_node_that_knows_nothing_of_encryption_is_sent_nothing(
    edge: Edge, bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = edge.create("notes")
    write(volume, PAGES)

    def dropped(_: bytes) -> bytes:
        return b""

    monkeypatch.setattr("budwood.server.node.checked_header", dropped)
    with pytest.raises(Unsupported, match="upgrade it"):
        volume.push()
    assert KNOWN[:12] not in everything_in(bucket)


def test_what_a_node_would_have_to_read_is_refused_in_words(
    edge: Edge, tmp_path: Path, bucket: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "db")) as db:
        db.execute("CREATE TABLE t (a INTEGER PRIMARY KEY)")
        db.commit()
    edge.import_(str(tmp_path / "db"), "shop").push()
    user = Command(capsys, tmp_path / "two", bucket.as_uri())
    user.ok("clone", "shop")
    assert "a node has none of its keys" in user("fetch", "shop", "--sql", "SELECT * FROM t").line()

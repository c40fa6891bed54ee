"""Pushes whose pages don't fit the commit: their segments, and what stays of them where the push is cut off."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from budwood.remote.keyring import KEY_FILE, keys_of, read_key, write_key
from budwood.remote.portal import BlockingRemote
from budwood.sync import push, upload
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.volume import Volume
from budwood.volume.calls import REKEY, SNAPSHOT, RekeyRequest, SnapshotRequest
from budwood.volume.entry import digest_of
from budwood.volume.errors import BadInput, Diverged, Fenced, PagesNotHere, Unavailable
from budwood.volume.ids import VolumeId
from budwood.volume.pack import Packed, Packer
from budwood.volume.pageset import PageSet
from budwood.volume.records import Location

from ..cold_nodes import node_in_a_thread
from ..waits import LIMIT_SECONDS
from .cli import Command
from .test_bulk_transfer import commit

SIZE = 4096
MIB = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


@pytest.fixture
def other(store: Path, tmp_path: Path) -> Iterator[Edge]:
    with open_edge(home=tmp_path / "other", remote=store.as_uri()) as edge:
        yield edge


@pytest.fixture
def edge(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Edge]:
    """One whose every push goes in segments."""
    monkeypatch.setattr(push, "INLINE_BYTES", 0)
    with open_edge(home=tmp_path / "first", remote=store.as_uri()) as edge:
        yield edge


def noise(count: int) -> dict[int, bytes]:
    return {page: os.urandom(SIZE) for page in range(1, count + 1)}


def test_a_large_push_goes_in_segments(edge: Edge, other: Edge) -> None:
    pages = noise(299)
    commit(edge.create("v"), pages)
    steps: list[tuple[int, int]] = []
    assert edge.volume("v").push(progress=lambda done, total: steps.append((done, total))) == "1"
    assert steps[-1] == (299, 299)
    with closing(other.volume("v").snapshot()) as snapshot:
        assert {page: snapshot.read(page) for page in pages} == pages


@pytest.mark.parametrize("failures", [1, 3])
def test_a_segment_whose_answer_is_lost_is_sent_again_and_no_other(
    edge: Edge, other: Edge, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    monkeypatch.setattr(upload, "DELAYS_SECONDS", (0.0,) * failures)
    pages = noise(5000)
    commit(edge.create("v"), pages)
    sent: list[bytes] = []
    to_lose = [None] * failures
    write_pages = BlockingRemote.write_pages

    def lossy(remote: BlockingRemote, vid: VolumeId, segment: bytes) -> Location:
        sent.append(segment)
        location = write_pages(remote, vid, segment)
        if to_lose:
            to_lose.pop()
            raise Unavailable("the answer was lost", determinate=False)
        return location

    monkeypatch.setattr(BlockingRemote, "write_pages", lossy)
    assert edge.volume("v").push() == "1"
    # 20 MB: two segments of 8 MiB, and one more.
    assert len(set(sent)) == 3
    assert len(sent) == 3 + failures
    with closing(other.volume("v").snapshot()) as snapshot:
        assert all(snapshot.read(page) == pages[page] for page in range(1, 5000, 97))


@pytest.mark.parametrize(("ends", "tries"), [(False, 3), (True, 1)])
def test_a_push_whose_segments_never_arrive_ends_and_may_be_made_again(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, ends: bool, tries: int
) -> None:
    monkeypatch.setattr(upload, "DELAYS_SECONDS", (0.0, 0.0))
    commit(edge.create("v"), noise(100))
    sent: list[bytes] = []

    def down(remote: BlockingRemote, vid: VolumeId, segment: bytes) -> Location:
        sent.append(segment)
        raise Unavailable("nobody answers", determinate=False, hopeless=ends)

    with monkeypatch.context() as patched:
        patched.setattr(BlockingRemote, "write_pages", down)
        with pytest.raises(Unavailable, match="nobody answers"):
            edge.volume("v").push()
    # A process that ends waits for nothing.
    assert len(sent) == tries
    assert edge.volume("v").push() == "1"


@dataclass
class Link:
    """Carries so many segments, and then fails: until it is mended, or once."""

    monkeypatch: pytest.MonkeyPatch
    left: int
    once: Exception | None = None
    sent: list[bytes] = field(default_factory=list[bytes])
    """Those that arrived, whole."""

    def __post_init__(self) -> None:
        write_pages, lock = BlockingRemote.write_pages, threading.Lock()

        def carry(remote: BlockingRemote, vid: VolumeId, segment: bytes) -> Location:
            with lock:
                if self.left <= 0:
                    if self.once is not None:
                        self.mend()
                        raise self.once
                    raise Unavailable("the link is down", determinate=False, hopeless=True)
                self.left -= 1
            location = write_pages(remote, vid, segment)
            self.sent.append(segment)
            return location

        self.monkeypatch.setattr(BlockingRemote, "write_pages", carry)

    def mend(self) -> None:
        self.left = 1 << 30


SEGMENTS = 12
"""Of `plain(700)`: page 1 goes first, by itself."""


def plain(count: int) -> dict[int, bytes]:
    """None looks like an interior page of a B-tree."""
    return {page: b"\0" + data[1:] for page, data in noise(count).items()}


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 pages each, noted one by one."""
    monkeypatch.setattr(Packer.segments, "__kwdefaults__", {"limit_bytes": 1})
    monkeypatch.setattr(push, "NOTED_BYTES", 1)


def interrupted(edge: Edge, link: Link, pages: dict[int, bytes]) -> Volume:
    volume = edge.volume("v")
    commit(volume, pages)
    with pytest.raises(Unavailable, match="the link is down"):
        volume.push()
    assert volume.status()["pending"]
    assert 0 < len(link.sent) < SEGMENTS
    link.mend()
    return volume


def content(edge: Edge, lsn: int | None = None) -> dict[int, bytes]:
    volume = edge.volume("v")
    with closing(volume.snapshot(lsn=lsn)) as snapshot:
        return {page: snapshot.read(page) for page in range(1, snapshot.length // SIZE + 1)}


@pytest.mark.parametrize(("arrived", "noted_bytes"), [(1, 1), (5, 1), (5, push.NOTED_BYTES), (10, 1)])
@pytest.mark.usefixtures("small_segments")
def test_a_push_that_was_cut_off_sends_the_rest(
    edge: Edge,
    other: Edge,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arrived: int,
    noted_bytes: int,
) -> None:
    monkeypatch.setattr(push, "NOTED_BYTES", noted_bytes)
    edge.create("v")
    pages, link = plain(700), Link(monkeypatch, arrived)
    volume = interrupted(edge, link, pages)
    steps: list[tuple[int, int]] = []
    # Nothing has moved there: a look at it leaves what was sent.
    assert volume.pull() == "0+1"
    assert volume.push(progress=lambda done, total: steps.append((done, total))) == "1"
    assert steps[0][0] > 64 * (arrived - 1)
    assert steps[-1] == (700, 700)
    assert len(link.sent) == SEGMENTS
    assert not volume.status()["pending"]
    assert content(other) == pages
    Command(capsys, edge.home, edge.remote).ok("scrub", "--store", edge.remote)


def test_what_landed_beside_a_segment_that_failed_is_told(edge: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = threading.Event()

    def write_pages(remote: BlockingRemote, vid: VolumeId, segment: bytes) -> Location:
        if segment == b"first":
            failed.set()
            raise Unavailable("the link is down", hopeless=True)
        assert failed.wait(LIMIT_SECONDS)
        return Location(object=segment.decode(), slot=0)

    monkeypatch.setattr(BlockingRemote, "write_pages", write_pages)
    landed, segments = list[Location](), [Packed(data, PageSet([1])) for data in (b"first", b"second", b"third")]
    with pytest.raises(Unavailable, match="the link is down"):
        upload.upload(VolumeId.new(), edge.connection(), iter(segments), landed.append)
    assert [location.object for location in landed] == ["second"]


@pytest.mark.usefixtures("small_segments")
@pytest.mark.parametrize(
    ("error", "most"), [(Fenced("another owns the log"), SEGMENTS), (PagesNotHere("they are gone"), 5 + 2 + SEGMENTS)]
)
def test_a_push_that_is_refused_among_its_segments_goes_on_by_itself(
    edge: Edge, other: Edge, monkeypatch: pytest.MonkeyPatch, error: Exception, most: int
) -> None:
    commit(edge.create("v"), pages := plain(700))
    link = Link(monkeypatch, 5, once=error)
    assert edge.volume("v").push() == "1"
    assert SEGMENTS <= len(link.sent) <= most
    assert content(other) == pages


@pytest.mark.usefixtures("small_segments")
def test_a_push_goes_on_where_the_local_store_grows_under_it(edge: Edge, other: Edge) -> None:
    commit(edge.create("v"), pages := plain(700))
    environment = edge.environment

    def grow(_done: int, _total: int) -> None:
        environment._grow(environment.map_bytes() + MIB)  # pyright: ignore[reportPrivateUsage]

    assert edge.volume("v").push(progress=grow) == "1"
    assert content(other) == pages


@pytest.mark.usefixtures("small_segments")
def test_what_was_sent_of_a_refused_commit_is_sent_again(
    edge: Edge, other: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(edge.create("v"), pages := plain(700))
    link = Link(monkeypatch, 1 << 30)

    def refused(*_: Any) -> Any:
        raise BadInput("its sums are not those of its pages")

    with monkeypatch.context() as patched:
        patched.setattr(BlockingRemote, "commit", refused)
        with pytest.raises(BadInput):
            edge.volume("v").push()
    assert edge.volume("v").push() == "1"
    assert len(link.sent) == 2 * SEGMENTS
    assert content(other) == pages


@pytest.mark.usefixtures("small_segments")
def test_what_was_committed_since_a_push_was_cut_off_goes_after_it(
    edge: Edge, other: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge.create("v")
    pages, link = plain(700), Link(monkeypatch, 5)
    volume = interrupted(edge, link, pages)
    later = {1: os.urandom(SIZE), 699: os.urandom(SIZE), 701: os.urandom(SIZE)}
    commit(volume, later)
    assert volume.push() == "2"
    assert len(link.sent) == SEGMENTS + 2
    assert content(other) == pages | later
    assert content(other, lsn=1) == pages


@pytest.mark.usefixtures("small_segments")
def test_what_the_log_s_next_writer_can_t_name_any_more_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "INLINE_BYTES", 0)
    pages, link = plain(700), Link(monkeypatch, 5)
    with node_in_a_thread(tmp_path / "store") as url, open_edge(home=tmp_path / "first", remote=url) as edge:
        edge.create("v")
        interrupted(edge, link, pages)
    with node_in_a_thread(tmp_path / "store") as url:
        with open_edge(home=tmp_path / "first", remote=url) as edge:
            assert edge.volume("v").push() == "1"
        # Two were on their way when it was noticed.
        assert 5 + SEGMENTS <= len(link.sent) <= 5 + 2 + SEGMENTS
        with open_edge(home=tmp_path / "other", remote=url) as other:
            assert content(other) == pages


@pytest.mark.usefixtures("small_segments")
def test_a_process_that_died_while_it_pushed_to_a_node_left_what_it_sent(
    store: Path, tmp_path: Path, other: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "INLINE_BYTES", 0)
    pages, link = plain(700), Link(monkeypatch, 5)
    with node_in_a_thread(tmp_path / "store") as url:
        with open_edge(home=tmp_path / "first", remote=url) as edge:
            edge.create("v")
            interrupted(edge, link, pages)
        with open_edge(home=tmp_path / "first", remote=url) as again:
            assert again.volume("v").push() == "1"
        assert len(link.sent) == SEGMENTS
        with open_edge(home=tmp_path / "third", remote=url) as third:
            assert content(third) == pages


@pytest.mark.usefixtures("small_segments")
def test_a_push_that_was_cut_off_and_outrun_diverges_and_lets_go(
    edge: Edge, other: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = noise(10)
    commit(edge.create("v"), first)
    edge.volume("v").push()
    commit(other.volume("v"), {3: bytes(SIZE)})
    link = Link(monkeypatch, 5)
    volume = interrupted(edge, link, plain(700))
    other.volume("v").push()
    for sync in (volume.pull, volume.push):
        with pytest.raises(Diverged):
            sync()
        assert not volume.status()["pending"]
    assert volume.reset(discard=True) == "2"
    assert content(edge) == first | {3: bytes(SIZE)}


@pytest.mark.usefixtures("small_segments")
def test_a_reset_lets_go_of_a_push_that_was_cut_off(edge: Edge, other: Edge, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(edge.create("v"), noise(10))
    edge.volume("v").push()
    pages, link = plain(700), Link(monkeypatch, 5)
    volume = interrupted(edge, link, pages)
    volume.reset(keep_as="kept")
    assert not volume.status()["pending"]
    edge.volume("kept").push()
    with closing(other.volume("kept").snapshot()) as snapshot:
        assert {page: snapshot.read(page) for page in pages} == pages


@pytest.mark.usefixtures("small_segments")
def test_an_encrypted_push_that_was_cut_off_goes_on_under_another_data_key(
    edge: Edge, other: Edge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old", "new"):
        write_key(tmp_path / name)
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "old"))
    edge.create("v")
    pages, link = plain(700), Link(monkeypatch, 5)
    volume = interrupted(edge, link, pages)
    remote = edge.connection().remote
    header = remote.ask(SNAPSHOT, SnapshotRequest(volume.id.raw)).encryption
    after = keys_of(header).rewrapped(read_key(tmp_path / "new"), new_data_key=True).header.encoded()
    remote.ask(REKEY, RekeyRequest(volume.id.raw, encryption=after, before=digest_of(header)))
    monkeypatch.setenv(KEY_FILE, f"{tmp_path / 'new'}:{tmp_path / 'old'}")
    volume.pull()
    assert volume.push() == "1"
    assert len(link.sent) == SEGMENTS
    monkeypatch.setenv(KEY_FILE, str(tmp_path / "new"))
    assert content(other) == pages

"""A bulk fetch: what a thread unpacks ahead of who keeps it, and what stays of it when the link breaks."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from budwood.remote import bulk_fetch, page_fetch
from budwood.remote.bulk_fetch import fetch_in_parts
from budwood.remote.portal import BlockingRemote, open_remote
from budwood.sync.edge import Edge
from budwood.sync.edge import open as open_edge
from budwood.sync.lease_keeper import LeaseKeeper
from budwood.sync.volume import Volume
from budwood.volume.errors import Corrupt, Unavailable
from budwood.volume.frame import FRAME_PAGES, Frame
from budwood.volume.ids import VolumeId
from budwood.volume.pageset import PageSet, span
from budwood.volume.protocols import Durability

from ..cold_nodes import node_in_a_thread
from ..waits import wait_until

SIZE = 4096
COUNT = 1000
PART = 64
"""Pages of a part, here: each frame makes one."""


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.setattr(bulk_fetch, "PART_BYTES", PART * SIZE)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store"


@pytest.fixture
def pages(store: Path, tmp_path: Path) -> dict[int, bytes]:
    """Of the volume `v` at LSN 1; every third is zeros."""
    pages = {page: os.urandom(SIZE) if page % 3 else bytes(SIZE) for page in range(1, COUNT + 1)}
    with open_edge(home=tmp_path / "first", remote=store.as_uri()) as edge:
        commit(edge.create("v"), pages)
        edge.volume("v").push()
    return pages


@pytest.fixture
def remote(store: Path) -> Iterator[BlockingRemote]:
    with closing(open_remote(store.as_uri())) as remote:
        yield remote


@pytest.fixture
def other(store: Path, tmp_path: Path) -> Iterator[Edge]:
    with open_edge(home=tmp_path / "other", remote=store.as_uri()) as edge:
        yield edge


def commit(volume: Volume, pages: dict[int, bytes]) -> None:
    writer = volume.writer(page_size=SIZE)
    for page, data in pages.items():
        writer.write(page, data)
    made = writer.commit(Durability.DURABLE)
    assert made is not None
    made.close()


def vid_of(edge: Edge) -> VolumeId:
    return edge.volume("v").id


def unpackers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "budwood-unpack"]


def test_the_parts_are_all_of_it_and_each_is_small(
    pages: dict[int, bytes], remote: BlockingRemote, other: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three requests, the last of them shorter.
    monkeypatch.setattr(bulk_fetch, "REQUEST_BYTES", 400 * SIZE)
    found: dict[int, bytes] = {}
    asked = span(1, COUNT)
    with closing(fetch_in_parts(remote, vid_of(other), 1, asked, SIZE)) as parts:
        for part in parts:
            # Zeros come with the head of an answer; behind them each frame fills a part.
            assert sum(any(data) for data in part.pages.values()) <= PART + FRAME_PAGES
            found.update(part.pages)
    assert found == pages
    assert not unpackers()


def test_no_more_is_unpacked_than_a_few_parts_ahead(
    pages: dict[int, bytes], remote: BlockingRemote, other: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked: list[int] = []
    unpack = page_fetch.unpack_valid

    def counted(where: str, frame: Frame, page_size: int, encryption: bytes) -> dict[int, bytes]:
        unpacked.append(len(frame.info.pages))
        return unpack(where, frame, page_size, encryption)

    monkeypatch.setattr(page_fetch, "unpack_valid", counted)
    with closing(fetch_in_parts(remote, vid_of(other), 1, span(1, COUNT), SIZE)) as parts:
        next(parts)
        # The one that is read, one more that waits, and one in hand for which there is no room.
        wait_until(lambda: sum(unpacked) >= 3 * PART)
        assert sum(unpacked) <= 3 * (PART + FRAME_PAGES)
    assert sum(unpacked) <= 3 * (PART + FRAME_PAGES)
    assert not unpackers()


@pytest.mark.parametrize("fails", [False, True])
def test_who_leaves_early_leaves_no_thread_and_no_call_behind(
    pages: dict[int, bytes], remote: BlockingRemote, other: Edge, fails: bool
) -> None:
    def keep_one() -> None:
        with closing(fetch_in_parts(remote, vid_of(other), 1, span(1, COUNT), SIZE)) as parts:
            for _ in parts:
                if fails:
                    raise OSError("the disk is full")
                break

    if fails:
        with pytest.raises(OSError, match="the disk is full"):
            keep_one()
    else:
        keep_one()
    assert not unpackers()
    # The remote serves whoever comes next.
    with closing(fetch_in_parts(remote, vid_of(other), 1, PageSet([1, 2]), SIZE)) as parts:
        assert {page for part in parts for page in part.pages} >= {1, 2}


def test_what_came_before_damage_stays_and_the_damage_is_told(
    pages: dict[int, bytes], other: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = other.volume("v")
    unpack = page_fetch.unpack_valid
    frames: list[int] = []

    def damaged(where: str, frame: Frame, page_size: int, encryption: bytes) -> dict[int, bytes]:
        frames.append(1)
        stored = frame.stored if len(frames) < 6 else bytes([frame.stored[0] ^ 1]) + frame.stored[1:]
        return unpack(where, Frame(frame.info, frame.valid, stored), page_size, encryption)

    monkeypatch.setattr(page_fetch, "unpack_valid", damaged)
    steps: list[tuple[int, int]] = []
    with pytest.raises(Corrupt):
        volume.fetch(progress=lambda done, total: steps.append((done, total)))
    monkeypatch.setattr(page_fetch, "unpack_valid", unpack)
    kept = steps[-1][0]
    assert 0 < kept < COUNT
    assert volume.fetch() == COUNT - kept
    with closing(volume.snapshot()) as snapshot:
        assert {page: snapshot.read(page) for page in pages} == pages


def test_the_lsn_is_held_from_the_first_part_on(
    pages: dict[int, bytes], other: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    volume = other.volume("v")
    kept: list[int] = []
    told: list[int] = []
    fetched = LeaseKeeper.fetched

    def telling(keeper: LeaseKeeper, *about: Any) -> None:
        told.append(len(kept))
        fetched(keeper, *about)

    monkeypatch.setattr(LeaseKeeper, "fetched", telling)
    assert volume.fetch(progress=lambda done, total: kept.append(done)) == COUNT
    assert told[0] == 0
    assert len(told) == len(kept) > 3


def test_a_volume_that_moves_while_it_is_fetched_is_fetched_as_it_stands_then(
    pages: dict[int, bytes], other: Edge, store: Path, tmp_path: Path
) -> None:
    volume = other.volume("v")
    new = os.urandom(SIZE)
    with open_edge(home=tmp_path / "first", remote=store.as_uri()) as edge:
        commit(edge.volume("v"), {COUNT: new})
        edge.volume("v").push()
    moved: list[str] = []

    def move_once(done: int, total: int) -> None:
        if not moved:
            moved.append(volume.pull())

    assert volume.fetch(progress=move_once) >= COUNT
    assert moved == ["2"]
    assert volume.fetch() == 0
    with closing(volume.snapshot()) as snapshot:
        assert {page: snapshot.read(page) for page in pages} == pages | {COUNT: new}


class CutShort:
    """A proxy that ends each connection once so many bytes of answers came through it."""

    def __init__(self, url: str, most_bytes: int) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self._node = host, int(port)
        self._most_bytes = most_bytes
        self.connections = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"

        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._accepting.join()

    def _accept(self) -> None:
        threads: list[threading.Thread] = []
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                self.connections += 1
                threads.append(threading.Thread(target=self._connect, args=(near,)))
                threads[-1].start()
        for thread in threads:
            thread.join()

    def _connect(self, near: socket.socket) -> None:
        with near, socket.create_connection(self._node) as far:
            asking = threading.Thread(target=self._pump, args=(near, far, 1 << 40))
            asking.start()
            self._pump(far, near, self._most_bytes)
            asking.join()

    def _pump(self, source: socket.socket, target: socket.socket, left: int) -> None:
        with suppress(OSError):
            while left and (data := source.recv(min(left, 1 << 16))):
                target.sendall(data)
                left -= len(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def url(pages: dict[int, bytes], store: Path) -> Iterator[str]:
    with node_in_a_thread(store) as url:
        yield url


def test_an_answer_that_breaks_off_goes_on_where_it_was(
    pages: dict[int, bytes], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No part is whole when the connection ends: what has come of it counts.
    monkeypatch.setattr(bulk_fetch, "PART_BYTES", COUNT * SIZE)
    with (
        closing(CutShort(url, 600_000)) as proxy,
        open_edge(home=tmp_path / "far", remote=proxy.url) as far,
    ):
        assert far.volume("v").fetch() == COUNT
        assert proxy.connections >= 5
        with closing(far.volume("v").snapshot()) as snapshot:
            assert {page: snapshot.read(page) for page in pages} == pages
    assert not unpackers()


def test_an_answer_that_brings_nothing_is_not_asked_for_for_ever(
    pages: dict[int, bytes], url: str, tmp_path: Path
) -> None:
    # A frame of these pages has some 170,000 bytes.
    with (
        closing(CutShort(url, 20_000)) as proxy,
        open_edge(home=tmp_path / "far", remote=proxy.url) as far,
    ):
        volume = far.volume("v")
        with pytest.raises(Unavailable, match=r"isn't here, and .* broke off in the middle of an answer"):
            volume.fetch()
    assert not unpackers()

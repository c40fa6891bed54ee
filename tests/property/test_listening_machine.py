"""Listeners of a node that dies, against a model: each hears every commit after the LSN it began at, once and in order,
and a snapshot there with what it heard is the volume, byte for byte (S3.16, S3.17).

Steps: a commit, which may shrink the volume and grow it again; a fork; a move to another log and back, which may be
cut; the node dies, between requests or at a fault point of a commit, and comes back; answers to those who wait are
lost; `since` moves on; another listener begins, at whatever LSN. Listeners are threads over one BlockingRemote, as a
program's are.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from budwood.remote import listening
from budwood.remote.blocking_listening import BlockingCommit, BlockingListener
from budwood.remote.portal import BlockingRemote
from budwood.remote.routed import Routed
from budwood.server.metastore import polling
from budwood.testing.commits import commit_of, pages_at
from budwood.volume import faults
from budwood.volume.calls import (
    ADVANCE,
    CREATE,
    FORK,
    MOVE_LOG,
    SNAPSHOT,
    WAIT,
    CreateRequest,
    ForkRequest,
    MoveRequest,
    SinceRequest,
    SnapshotRequest,
)
from budwood.volume.errors import Forgotten, Unavailable
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.pageset import PageSet, page_count
from budwood.volume.protocols import Remote

from ..waits import LIMIT_SECONDS, wait_until
from .nodes import HOME, Town

PAGE = 512
PAGES = 6
MOST_VOLUMES = 4
CUTS = ["log: entry sealed, not sent", "log: entry durable, not acknowledged"]
CUT_MOVE = "move: close written, open not"
_FIGURES = {
    (listening, "_FIRST_PAUSE_SECONDS"): 0.001,
    (listening, "_LONGEST_PAUSE_SECONDS"): 0.01,
    (listening, "MOST_COMMITS"): 3,
    (polling, "POLL_SECONDS"): 0.005,
}

Image = dict[int, bytes]


class Lossy:
    """The way to the nodes, on which answers to those who wait are lost, as many as `losses` says."""

    def __init__(self, inner: Remote) -> None:
        self.inner = inner
        self.url = inner.url
        self.losses = 0

    async def ask(self, call: Any, request: Any) -> Any:
        answer = await self.inner.ask(call, request)
        if call is WAIT and self.losses:
            self.losses -= 1
            raise Unavailable("the answer was lost", determinate=False)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Book:
    """What the model knows of a volume."""

    def __init__(self, vid: VolumeId, parent: Book | None = None, start: int = 0) -> None:
        self.vid = vid
        self.parent = parent
        self.start = start
        self.since = max(1, start)
        self.images: list[Image] = list(parent.images[: start + 1]) if parent else [{}]
        self.lengths: list[int] = list(parent.lengths[: start + 1]) if parent else [0]
        self.forks: set[int] = set()
        self.count = 0

    @property
    def head(self) -> int:
        return len(self.images) - 1

    def oldest(self) -> int:
        """As Retention.oldest has it."""
        if self.parent is None or self.since > self.start:
            return self.since
        return self.start if self.parent.since > self.start else self.parent.oldest()

    def is_held(self, lsn: int) -> bool:
        own = self
        while own.parent is not None and lsn <= own.start:
            own = own.parent
        return lsn >= own.since or lsn in own.forks


class Ear(threading.Thread):
    """One listener and all that it heard."""

    def __init__(self, remote: BlockingRemote, book: Book, after: int) -> None:
        super().__init__(name=f"ear behind {after}", daemon=True)
        self.book = book
        self.began = after
        self.heard: list[tuple[BlockingCommit, Image]] = []
        self.told: list[int] = []
        """The LSNs, those among them whose pages were still to be read."""
        self.error: BaseException | None = None
        self.listener = BlockingListener(remote, book.vid, after=after)

    def run(self) -> None:
        try:
            for commit in self.listener:
                self.told.append(commit.lsn)
                self.heard.append((commit, self._read(commit)))
        except BaseException as error:
            self.error = error

    def _read(self, commit: BlockingCommit) -> Image:
        while True:
            with suppress(Unavailable):
                return dict(commit.read())

    def has_all(self) -> bool:
        return self.error is not None or len(self.heard) >= self.book.head - self.began

    def check(self) -> None:
        assert self.error is None, self.error
        assert [commit.lsn for commit, _ in self.heard] == [*range(self.began + 1, self.book.head + 1)]
        image = self.book.images[self.began]
        for commit, pages in self.heard:
            assert PageSet(pages) == commit.changed
            kept = page_count(commit.floor, PAGE)
            image = {page: data for page, data in image.items() if page <= kept} | pages
            assert without_zeros(image) == self.book.images[commit.lsn]
            assert commit.length == self.book.lengths[commit.lsn]

    def end(self) -> None:
        self.listener.close()
        self.join(LIMIT_SECONDS)
        assert not self.is_alive()


def without_zeros(image: Mapping[int, bytes]) -> Image:
    return {page: data for page, data in image.items() if any(data)}


class Listening(RuleBasedStateMachine):
    log: str | None

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for (module, name), figure in _FIGURES.items():
            self.patch.setattr(module, name, figure)
        self.town = Town(self.log)
        assert self.town.start()
        wire = self.town._wire  # pyright: ignore[reportPrivateUsage]
        self.way = Lossy(cast("Remote", Routed(wire(HOME), wire, lambda refused: refused.owner)))

        async def connect() -> Remote:
            return cast("Remote", self.way)

        self.remote = BlockingRemote(HOME, connect)
        self.client = ClientId.new()
        self.books: list[Book] = []
        self.ears: list[Ear] = []
        self.alive = True

    @initialize()
    def begin(self) -> None:
        vid = VolumeId.new()
        self.remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        self.books.append(Book(vid))

    def teardown(self) -> None:
        try:
            if self.books:
                self._drain()
                for ear in self.ears:
                    ear.check()
                self._check_snapshots()
        finally:
            for ear in self.ears:
                ear.end()
            self.town.kill()
            self.remote.close()
            self.patch.undo()

    def _book(self, data: st.DataObject) -> Book:
        return data.draw(st.sampled_from(self.books), label="volume")

    @rule(data=st.data(), cut=st.sampled_from(["", "", "", *CUTS]), repeated=st.integers(1, 4))
    def commit(self, data: st.DataObject, cut: str, repeated: int) -> None:
        book = self._book(data)
        for _ in range(repeated):
            before, book.count = book.lengths[-1], book.count + 1
            length = data.draw(st.integers(1, PAGES)) * PAGE
            floor = data.draw(st.sampled_from([0, PAGE, min(before, length)]))
            floor = min(floor, before, length)
            chosen = data.draw(st.sets(st.integers(1, length // PAGE), max_size=3))
            pages = {page: data.draw(st.sampled_from([b"\0", b"a", b"b"])) * PAGE for page in chosen}
            request, segment = commit_of(
                book.vid, book.head, pages, client=self.client, page_size=PAGE, length=length, floor=floor
            )
            self._back()
            if cut:
                faults.arm(cut, self.town.cut)
                try:
                    self.remote.commit(request, segment)
                except Unavailable:
                    self._restart()
                finally:
                    faults.disarm(cut)
            # What landed though nobody was told is the same one.
            assert self.remote.commit(request, segment).lsn == book.head + 1
            kept = {at: page for at, page in book.images[-1].items() if at <= floor // PAGE}
            book.images.append(without_zeros(kept | pages))
            book.lengths.append(length)

    @precondition(lambda self: len(self.books) < MOST_VOLUMES)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        book = self._book(data)
        lsns = [lsn for lsn in range(1, book.head + 1) if book.is_held(lsn)]
        if not lsns:
            return
        lsn, child = data.draw(st.sampled_from(lsns), label="lsn"), VolumeId.new()
        self._back()
        self.remote.ask(FORK, ForkRequest(book.vid.raw, child=child.raw, lsn=lsn))
        own = book
        while own.parent is not None and lsn <= own.start:
            own = own.parent
        own.forks.add(lsn)
        self.books.append(Book(child, book, lsn))

    @rule(data=st.data(), cut=st.booleans())
    def move(self, data: st.DataObject, cut: bool) -> None:
        book = self._book(data)
        self._back()
        log = self.remote.ask(SNAPSHOT, SnapshotRequest(book.vid.raw)).log
        request = MoveRequest(book.vid.raw, to="private" if log == self.log else self.log or "private")
        if cut and self.log:
            faults.arm(CUT_MOVE, self.town.cut)
        try:
            self.remote.ask(MOVE_LOG, request)
        except Unavailable:
            self._restart()
            # Whoever moves it again finishes the move.
            self.remote.ask(MOVE_LOG, request)
        finally:
            faults.disarm(CUT_MOVE)

    @rule(back=st.booleans())
    def the_node_dies(self, back: bool) -> None:
        self.town.kill()
        self.alive = False
        if back:
            self._back()

    @rule(losses=st.integers(1, 4))
    def answers_are_lost(self, losses: int) -> None:
        self.way.losses = losses

    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        """Whoever lags behind would be told that its commits are forgotten, and rightly."""
        book = self._book(data)
        if book.head < book.since:
            return
        self._drain()
        since = data.draw(st.integers(book.since, book.head), label="since")
        assert self.remote.ask(ADVANCE, SinceRequest(book.vid.raw, since=since)).since == since
        book.since = since

    @precondition(lambda self: len(self.ears) < 6)
    @rule(data=st.data())
    def listen(self, data: st.DataObject) -> None:
        book = self._book(data)
        after = data.draw(st.integers(0, book.head), label="after")
        self._back()
        ear = Ear(self.remote, book, after)
        lost = [lsn for lsn in range(after + 1, book.head + 1) if not book.is_held(lsn)]
        ear.start()
        if not lost:
            self.ears.append(ear)
            return
        wait_until(lambda: ear.error is not None)
        try:
            assert isinstance(ear.error, Forgotten), ear.error
            assert ear.error.oldest == book.oldest()
            assert ear.told == [*range(after + 1, after + 1 + len(ear.told))]
            assert len(ear.told) < lost[0] - after
        finally:
            ear.end()

    @invariant()
    def nobody_hears_what_is_not_there(self) -> None:
        for ear in self.ears:
            heard = [commit.lsn for commit, _ in [*ear.heard]]
            assert heard == [*range(ear.began + 1, ear.began + 1 + len(heard))]
            assert ear.began + len(heard) <= ear.book.head

    def _restart(self) -> None:
        self.town.kill()
        self.alive = False
        self._back()

    def _back(self) -> None:
        if not self.alive:
            assert self.town.start()
            self.alive = True

    def _drain(self) -> None:
        """Until everybody has heard all there is."""
        self._back()
        for ear in self.ears:
            wait_until(ear.has_all)
            assert ear.error is None, ear.error

    def _check_snapshots(self) -> None:
        """By what the node reads, too, where an ear began and ended."""
        for book in self.books:
            for lsn in {book.head, *(ear.began for ear in self.ears if ear.book is book)}:
                if lsn and book.is_held(lsn):
                    assert self._pages_at(book.vid, lsn) == book.images[lsn]

    def _pages_at(self, vid: VolumeId, lsn: int) -> Image:
        async def read(remote: Remote) -> Image:
            return await pages_at(remote, vid, lsn)

        return self.remote.call(read)


class OwnedListening(Listening):
    log = "main"


class EmbeddedListening(Listening):
    log = None


TestOwnedListening = OwnedListening.TestCase
TestEmbeddedListening = EmbeddedListening.TestCase
TestOwnedListening.settings = settings(stateful_step_count=20)
TestEmbeddedListening.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=20)

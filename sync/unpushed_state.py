"""Unpushed state: which of a volume's unpushed commits can still be read, out of what a home image has. No I/O.

Of a page one version is kept, the newest, and in the journal's tail one for each commit. So the state after a commit
can be had if each page that the commits up to it wrote is there as the newest of them wrote it. `whole` is the last
such commit; what later ones wrote is there page by page, or gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..volume.pageset import PageSet, decode_pages
from .home_image import HomeImage, Row
from .rows import AVAILABLE, EMPTY
from .tables import HERE, CommitRecord, Head
from .unpushed_index import UnpushedIndex


@dataclass(slots=True)
class UnpushedState:
    """Of one volume. Filled by `note` with every row of it that is sound, then `judge`."""

    head: Head
    """With the journal's commits."""
    commits: dict[int, CommitRecord]
    """By local LSN; one that is missing is gone."""
    journal: dict[int, dict[int, bytes]]
    """Of the journal's commits: pages by LSN."""
    held: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """By page the LSNs at which a sound row stands that a commit may have written."""
    whole: int = 0
    """The local LSN of the last commit after which everything can be read; the sync point's if there is none."""
    gone: tuple[int, ...] = ()
    """Commits whose records are gone."""
    lost: dict[int, int] = field(default_factory=dict[int, int])
    """Pages that can't be read any more, as of the head: the LSN of the commit that wrote each."""

    @property
    def is_whole(self) -> bool:
        return self.whole == self.head.lsn

    def note(self, row: Row) -> None:
        if row.state in (AVAILABLE, EMPTY) and self.head.sync_local < row.lsn <= self.head.lsn:
            self.held.setdefault(row.page, []).append(row.lsn)

    def has(self, page: int, lsn: int) -> bool:
        return page in self.journal.get(lsn, ()) or lsn in self.held.get(page, ())

    def judge(self) -> UnpushedState:
        head = self.head
        self.whole = head.sync_local
        index, missing = UnpushedIndex(head.sync_local, head.page_size or 4096), PageSet()
        self.gone = tuple(lsn for lsn in range(head.sync_local + 1, head.lsn + 1) if lsn not in self.commits)
        last = (self.gone or (head.lsn + 1,))[0]
        for lsn in range(head.sync_local + 1, last):
            pages = index.add(lsn, self.commits[lsn])
            missing = PageSet([page for page in missing if index.lsn(page) and not self.has(page, index.lsn(page))])
            missing |= PageSet([page for page in pages if index.lsn(page) and not self.has(page, lsn)])
            if not missing:
                self.whole = lsn
        if last <= head.lsn:
            # Which pages the commits behind the one that is gone wrote is known of those whose records stand.
            for lsn in range(last, head.lsn + 1):
                pages = decode_pages(HERE, self.commits[lsn].pages) if lsn in self.commits else PageSet()
                self.lost.update((page, lsn) for page in pages if not self.has(page, lsn))
        self.lost.update((page, index.lsn(page)) for page in missing)
        return self

    def readable(self) -> dict[int, int]:
        """Of every page that unpushed commits wrote, and that is there: its newest LSN."""
        found = {page: max(lsns) for page, lsns in self.held.items() if lsns}
        for lsn, pages in self.journal.items():
            found.update((page, lsn) for page in pages if lsn >= found.get(page, 0))
        return {page: lsn for page, lsn in found.items() if page not in self.lost}

    def label(self, lsn: int) -> str:
        return f"{self.head.sync_remote}+{lsn - self.head.sync_local}"


def unpushed_states(image: HomeImage) -> dict[bytes, UnpushedState]:
    """Of every volume whose head is known, nothing noted yet."""
    found: dict[bytes, UnpushedState] = {}
    for vid in image.heads:
        head = image.head(vid)
        assert head is not None
        commits, journal = dict(image.commits.get(vid, {})), dict[int, dict[int, bytes]]()
        for record in image.journal.get(vid, ()):
            commits[record.lsn], journal[record.lsn] = record.commit, record.pages
        found[vid] = UnpushedState(head, commits, journal)
    return found

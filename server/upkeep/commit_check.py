"""Commit check: what a commit says of its pages against the pages themselves, wherever they lie."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from ...volume.errors import BadInput, Corrupt
from ...volume.pageset import PageSet, decode_pages, page_count
from ...volume.records import Commit, Location, sources_of
from ...volume.setsum import Setsum, log_sum
from ...volume.wire import CommitRequest, token_of
from .segment_check import CheckedSegment

Fetch: TypeAlias = Callable[[Location], Awaitable[CheckedSegment]]
"""The segment that a location names; one without parts where it is missing or can't be read."""


@dataclass(slots=True)
class CheckedCommit:
    problems: list[str] = field(default_factory=list[str])
    """With the record itself; what is wrong with objects is said of those."""
    bad: dict[str, PageSet] = field(default_factory=dict[str, PageSet])
    """Pages that can't be had, by the object ("": the entry) that should hold them."""
    sums: dict[str, Setsum] = field(default_factory=dict[str, Setsum])
    """Of log items, by the object that they were taken from."""


async def check_commit(commit: Commit, page_size: int, fetch: Fetch) -> CheckedCommit:
    """`page_size` is 0 where the volume's isn't known."""
    checked = CheckedCommit()
    try:
        pages = decode_pages("a commit", commit.pages)
        placed = _placed(commit, pages)
    except Corrupt as error:
        checked.problems.append(f"LSN {commit.lsn}: {error.what}")
        return checked
    content, setsum = Setsum(), Setsum()
    for location, wanted in placed:
        part = (await fetch(location)).part(location.slot, commit.vid)
        if part is None or (page_size and part.page_size != page_size):
            held = PageSet()
        else:
            held = wanted & PageSet(part.hashes)
            hashes = b"".join(part.hashes[page] for page in held)
            added = log_sum(commit.vid, commit.lsn, held, hashes)
            checked.sums[location.object] = checked.sums.get(location.object, Setsum()) + added
            content, setsum = content + Setsum.of(hashes), setsum + added
        if len(held) < len(wanted):
            checked.bad[location.object] = checked.bad.get(location.object, PageSet()) | (wanted - held)
    checked.problems += [f"LSN {commit.lsn}: {problem}" for problem in _problems(commit, pages, placed, page_size)]
    if not checked.bad and (content.digest, setsum.digest) != (commit.content, commit.setsum):
        checked.problems.append(f"LSN {commit.lsn}: its pages add up to other sums than it says")
    return checked


def _placed(commit: Commit, pages: PageSet) -> list[tuple[Location, PageSet]]:
    if len(commit.locations) == 1 and not commit.locations[0].pages:
        return [(commit.locations[0], pages)]
    return [(location, decode_pages("a location", location.pages)) for location in commit.locations]


def _problems(commit: Commit, pages: PageSet, placed: list[tuple[Location, PageSet]], page_size: int) -> list[str]:
    problems: list[str] = []
    named = PageSet().union(*(wanted for _, wanted in placed)) if placed else PageSet()
    if named != pages or sum(len(wanted) for _, wanted in placed) != len(pages):
        problems.append("its locations do not name each of its pages once")
    if page_size and pages and pages.max() > page_count(commit.length, page_size):
        problems.append("it has a page beyond its length")
    try:
        token = token_of(_request(commit))
    except (BadInput, OverflowError) as error:
        problems.append(f"it has no token: {error}")
    else:
        if token != commit.token:
            problems.append("its token is another commit's")
    return problems


def _request(commit: Commit) -> CommitRequest:
    return CommitRequest(
        vid=commit.vid,
        base=commit.base,
        length=commit.length,
        floor=commit.floor,
        pages=commit.pages,
        client=commit.client,
        nonce=commit.nonce,
        content=commit.content,
        setsum=commit.setsum,
        token=commit.token,
        sources=sources_of(commit),
    )

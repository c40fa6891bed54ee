"""Entry scrub: what an entry that counts names and carries: its body, its fragments, its epoch, its commits' pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ...volume.entry import Entry, EpochRecord, Fragment, digest_of, epoch_key
from ...volume.envelope import EPOCH, decode, head_length, unseal
from ...volume.errors import BadInput, Corrupt, Unsupported
from ...volume.fragments import fragment_name
from ...volume.ids import VolumeId
from ...volume.lru_cache import LruCache
from ...volume.pageset import PageSet, decode_pages
from ...volume.records import Commit, Location
from ...volume.rollup import RolledCommit
from ...volume.segment import SegmentIndex
from ...volume.setsum import Setsum
from .births import Births
from .commit_check import check_commit
from .findings import Span, Wrong, words_of
from .objects import Objects
from .reach import Reach
from .segment_check import NOTHING, CheckedSegment, checked_segment

_KEPT: Final = 2
"""Fragments whose hashes are kept: more than one commit of an entry may take pages from one."""


class EntryScrub:
    """Of one log."""

    def __init__(self, objects: Objects, log: str, reach: Reach, births: Births) -> None:
        self._objects = objects
        self._log = log
        self._reach = reach
        self._births = births
        self._epoch: tuple[int, EpochRecord | None] = (0, None)
        self._fragments = LruCache[str, CheckedSegment](_KEPT)

    def check_bytes(self, entry: Entry, data: bytes, wrong: Wrong) -> bytes:
        """That it is as long as it says, and its body the one that it names; the body."""
        body = data[head_length(data) : entry.size]
        if len(data) != entry.size:
            wrong.add(f"it has {len(data)} bytes where {entry.size} belong")
        if entry.header.body_digest != (digest_of(body) if body else b""):
            wrong.add("its body does not match its digest")
        return body

    async def check(
        self, entry: Entry, data: bytes, commits: Sequence[tuple[str, Commit]], wrong: Wrong
    ) -> list[Wrong]:
        """Adds to `wrong` what is wrong with the entry, and answers with what is wrong with other objects."""
        body = self.check_bytes(entry, data, wrong)
        inline = NOTHING
        if body:
            inline = await self._checked(entry.key, body)
            for problem in inline.problems:
                wrong.add(problem)
        others = {fragment.key: Wrong(fragment.key) for fragment in entry.header.fragments}
        named = {fragment.key: fragment for fragment in entry.header.fragments}
        sums: dict[str, Setsum] = {}
        commits, gone = await self._without_gone(commits, named)

        async def fetch(location: Location) -> CheckedSegment:
            if not location.object:
                return inline
            fragment = named.get(location.object)
            if fragment is None:
                wrong.add(f"a commit takes pages from {location.object}, which it doesn't name")
                return NOTHING
            if fragment.length != location.size:
                wrong.add(f"a commit says that {fragment.key} has another length than it names")
            return await self._fragment(fragment, others[fragment.key])

        bad: set[str] = set()
        for stream, commit in commits:
            birth = await self._births.get(stream)
            checked = await check_commit(commit, birth.page_size if birth else 0, fetch)
            for problem in checked.problems:
                wrong.add(problem, await self._reach.of_all(stream, commit.lsn))
            for key, added in checked.sums.items():
                sums[key] = sums.get(key, Setsum()) + added
            for key, pages in checked.bad.items():
                bad.add(key)
                spans = await self._reach.of_pages(stream, commit.lsn, pages, in_entry=not key)
                holder = others.get(key, wrong)
                if holder is wrong and not wrong.problems:
                    wrong.add(f"LSN {commit.lsn}: its pages do not lie where it says")
                holder.spoils += spans
        for key, fragment in named.items():
            if key in gone:
                continue
            await self._fragment(fragment, others[key])
            if key not in bad and not others[key].problems and sums.get(key, Setsum()).digest != fragment.setsum:
                wrong.add(f"what its commits take from {key} adds up to another sum than it says")
        epoch = await self.check_epoch(entry, wrong)
        return [*others.values(), *([epoch] if epoch else [])]

    async def _without_gone(
        self, commits: Sequence[tuple[str, Commit]], named: Mapping[str, Fragment]
    ) -> tuple[list[tuple[str, Commit]], set[str]]:
        """Those whose pages may all be asked for, and fragments that were deleted since their commits are folded: what
        of them is still read, the checkpoints lead to."""
        needed, folded = list[tuple[str, Commit]](), list[tuple[str, Commit]]()
        for stream, commit in commits:
            named_by = {location.object for location in commit.locations} & named.keys()
            upto = await self._reach.folded_to(stream) if named_by else None
            (needed if upto is None or commit.lsn > upto else folded).append((stream, commit))
        wanted = {location.object for _, commit in needed for location in commit.locations}
        gone = {
            location.object
            for _, commit in folded
            for location in commit.locations
            if location.object in named.keys() - wanted and not await self._objects.stands(location.object)
        }
        still = [each for each in folded if not gone & {location.object for location in each[1].locations}]
        return [*needed, *still], gone

    async def spoilt_of(
        self, commits: Sequence[tuple[RolledCommit, Commit]], key: str, data: bytes | None
    ) -> list[Span]:
        """Of an entry whose head can't be read: what its commits, as a rollup has them, lose with its bytes."""
        inline = NOTHING
        if data is not None and any(rolled.size == len(data) for rolled, _ in commits):
            # It ends the object, and so is found without a head.
            inline = await self._checked(key, data)
        spans: list[Span] = []
        for _, commit in commits:
            stream = str(VolumeId(commit.vid))
            for location in (each for each in commit.locations if not each.object):
                part = inline.part(location.slot, commit.vid)
                wanted = decode_pages(key, location.pages or commit.pages)
                bad = wanted - PageSet(part.hashes if part is not None else ())
                if bad:
                    spans += await self._reach.of_pages(stream, commit.lsn, bad, in_entry=True)
        return spans

    def volumes_in(self, key: str, data: bytes) -> set[str]:
        """Whose pages lie in the body of an entry whose head can't be read: the segment that its bytes end with."""
        try:
            return {str(volume.vid) for volume in SegmentIndex.of_segment(key, data).volumes}
        except (Corrupt, Unsupported):
            return set()

    async def _fragment(self, fragment: Fragment, wrong: Wrong) -> CheckedSegment:
        known = self._fragments.get(fragment.key)
        if known is not None:
            return known
        checked = await self._read_fragment(fragment, wrong)
        self._fragments.put(fragment.key, checked)
        return checked

    async def _read_fragment(self, fragment: Fragment, wrong: Wrong) -> CheckedSegment:
        try:
            data = await self._objects.get(fragment.key)
        except BadInput as error:
            data = None
            wrong.add(str(error))
        if data is None:
            wrong.add("it is missing, though an entry names it")
            return NOTHING
        if len(data) != fragment.length:
            wrong.add(f"it has {len(data)} bytes where {fragment.length} belong")
            # Whoever reads it goes by the length that its commit names.
            data = data[: fragment.length]
        checked = await self._checked(fragment.key, data)
        for problem in checked.problems:
            wrong.add(problem)
        if digest_of(data) != fragment.digest:
            wrong.add("it is not the object that its entry names")
            if not checked.problems:
                # Whole, and another's.
                return NOTHING
        if checked.segment and not self._is_named_so(fragment, checked.segment):
            wrong.add("it is another segment's, or of another epoch or log, than its key says")
        return checked

    def _is_named_so(self, fragment: Fragment, segment: str) -> bool:
        try:
            name = fragment_name(self._log, fragment.key)
        except BadInput:
            return False
        return (name.epoch, str(name.segment)) == (fragment.epoch, segment)

    async def check_epoch(self, entry: Entry, wrong: Wrong) -> Wrong | None:
        epoch = entry.header.epoch
        if not epoch:
            return None
        found: Wrong | None = None
        if self._epoch[0] != epoch:
            found = Wrong(epoch_key(self._log, epoch))
            self._epoch = epoch, await self._read_epoch(epoch, found)
        record = self._epoch[1]
        if record is not None and record.writer != entry.header.writer:
            wrong.add(f"epoch {epoch} was taken by another writer")
        return found

    async def _read_epoch(self, epoch: int, wrong: Wrong) -> EpochRecord | None:
        data = await self._objects.get(wrong.key)
        if data is None:
            wrong.add("it is missing, though entries carry its number")
            return None
        try:
            record = decode(wrong.key, unseal(wrong.key, EPOCH, data), EpochRecord)
        except (Corrupt, Unsupported) as error:
            wrong.add(words_of(wrong.key, error))
            return None
        if (record.log, record.n) != (self._log, epoch):
            wrong.add(f"it says that it is epoch {record.n} of log {record.log!r}")
            return None
        return record

    async def _checked(self, key: str, data: bytes) -> CheckedSegment:
        return await checked_segment(self._reach, key, data)

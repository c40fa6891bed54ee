"""Covered scrub: what a log still has of the slots that its oldest rollup covers, and what that leads to.

The entries from the boundary up to that rollup's slot stay since commits have their pages in one of them. Which of them
count follows from the rollup, backwards: each names the one before it. Of those that are gone the rollup has the
commits; and where their pages lie in fragments these stand. What a volume has folded is looked at there
(fold_scrub.py).

Some of these slots may be looked at apart from the rest: from a guess at which entry counts before those that follow
them. Whoever looks at those knows it, and so whether the guess was right.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ...volume.checkpoint import Deadlist
from ...volume.entry import entry_key, parse_entry
from ...volume.envelope import decode
from ...volume.errors import BadInput, Corrupt, Unsupported
from ...volume.ids import VolumeId
from ...volume.records import Commit, Location
from ...volume.rollup import RolledCommit, RolledState, Rollup, rollup_key
from ..metastore.rolled_stream import RolledLog, RolledStream, commit_in
from ..store.tree_nodes import AT_ONCE, loading
from .births import NO_BIRTH, Births, key_of
from .commit_check import check_commit
from .entry_scrub import EntryScrub
from .findings import Findings, Wrong, words_of
from .fold_scrub import check_deadlist
from .objects import Objects
from .reach import Reach
from .rollup_check import RollupCheck
from .segment_check import CheckedSegment, read_segment


class Link(NamedTuple):
    """An entry that counts, as the one behind it names it."""

    slot: int
    digest: bytes


class Walked(NamedTuple):
    """Entries, from the last to the first."""

    link: Link | None
    """What they were walked from."""
    left: Link | None = None
    """The one that counts before them; None where that isn't known any more."""
    whole: bool = False
    """Whether each of them counts: then the same is found where `link` isn't known."""


class CoveredScrub:
    """Of one log."""

    def __init__(
        self,
        objects: Objects,
        log: str,
        rollups: RollupCheck,
        entries: EntryScrub,
        births: Births,
        reach: Reach,
        findings: Findings,
    ) -> None:
        self._objects = objects
        self._log = log
        self._rollups = rollups
        self._entries = entries
        self._births = births
        self._reach = reach
        self._findings = findings

    async def anchor(self) -> None:
        """Slot 0, which stays."""
        key = entry_key(self._log, 0)
        data = await self._objects.get(key)
        wrong = Wrong(key)
        try:
            if data is None:
                raise Corrupt(key, "it is missing, and a log's anchor stays")
            self._entries.check_bytes(parse_entry(key, data), data, wrong)
        except (Corrupt, Unsupported) as error:
            wrong.add(words_of(key, error))
        self._findings.tell(wrong)

    async def entries(self, name: str, rollup: Rollup, slots: range, link: Link | None) -> Walked:
        """Those of these slots, which the rollup covers. `link` is the newest that counts, by what stands behind them;
        None where that isn't known. Raises Unavailable, Unauthorized."""
        counts, known, left = await self._canonical(slots, link)
        for start in range(slots.start, slots.stop, AT_ONCE):
            few = range(start, min(start + AT_ONCE, slots.stop))
            found = await self._objects.get_all([entry_key(self._log, slot) for slot in few])
            for slot, data in zip(few, found, strict=True):
                is_void = slot >= known and slot not in counts
                await self._entry(slot, data, name, rollup, counts.get(slot), is_void=is_void)
        return Walked(link, left, left is not None and len(counts) == len(slots))

    async def guess(self, slot: int, rollup: Rollup) -> Link:
        """What the first entry from that slot on that tells, or else the rollup, names as the one that counts before
        it. Raises Unavailable, Unauthorized."""
        for start in range(slot, rollup.slot + 1, AT_ONCE):
            keys = [entry_key(self._log, each) for each in range(start, min(start + AT_ONCE, rollup.slot + 1))]
            for key, data in zip(keys, await self._objects.heads(keys), strict=True):
                try:
                    header = parse_entry(key, data or b"").header
                except (Corrupt, Unsupported):
                    continue
                if header.previous < slot:
                    return Link(header.previous, header.previous_digest)
        return Link(rollup.canonical, rollup.digest)

    async def _canonical(self, slots: range, link: Link | None) -> tuple[dict[int, bytes], int, Link | None]:
        """The digests of those that count, by slot; how far back that is known, since before one that can't be read
        each is taken at its word; and the one that counts before them, where that is known."""
        counts = dict[int, bytes]()
        if link is None:
            return counts, slots.stop, None
        while link.slot >= slots.start:
            counts[link.slot] = link.digest
            key = entry_key(self._log, link.slot)
            (data,) = await self._objects.heads([key])
            try:
                entry = parse_entry(key, data or b"")
            except (Corrupt, Unsupported):
                return counts, link.slot, None
            if entry.digest != link.digest:
                return counts, link.slot, None
            link = Link(entry.header.previous, entry.header.previous_digest)
        return counts, slots.start, link

    async def _entry(
        self, slot: int, data: bytes | None, name: str, rollup: Rollup, digest: bytes | None, *, is_void: bool
    ) -> None:
        key = entry_key(self._log, slot)
        wrong = Wrong(key)
        try:
            if data is None:
                raise Corrupt(key, "it is missing, though it is not below the boundary")
            entry = parse_entry(key, data)
            if digest is not None and entry.digest != digest:
                raise Corrupt(key, "it is another entry than the one behind it names")
        except (Corrupt, Unsupported) as error:
            wrong.add(words_of(key, error))
            try:
                lost = await self._rollups.lost(slot, rollup)
                wrong.spoils += await self._entries.spoilt_of(lost.commits, key, data)
            except (Corrupt, Unsupported):
                # The rollup is damaged itself, which is told with what that spoils.
                wrong.add(f"what it carried can't be told by {name}")
            self._findings.tell(wrong)
            return
        if is_void:
            self._entries.check_bytes(entry, data or b"", wrong)
            self._findings.tell(wrong)
            return
        took = list[tuple[str, Commit]]()
        for stream, part in entry.header.streams.items():
            try:
                took += [(stream, record) for record in part.decode(key) if isinstance(record, Commit)]
            except (Corrupt, Unsupported):
                # It is kept as it stands, and no pages of it are read.
                continue
        for found in await self._entries.check(entry, data or b"", took, wrong):
            self._findings.tell(found)
        self._findings.tell(wrong)

    async def streams(self, base: RolledLog, boundary: int) -> None:
        """What the rollup leads to, and no entry that stands: births, fragments, and deadlists of folds."""
        key = b""
        while key := await self._next_stream(base, key):
            stream = RolledStream(base, key)
            try:
                vid = VolumeId(key)
                state = await loading(stream.state)
                if state is not None:
                    await self._birth(str(vid))
                    await self._deadlist(vid, state)
                    await self._commits(vid, stream, state, boundary)
            except (BadInput, Corrupt, Unsupported):
                # No volume's; or a node is damaged, which is told of the rollup.
                pass

    async def _next_stream(self, base: RolledLog, key: bytes) -> bytes:
        try:
            return await loading(partial(base.next_stream, key))
        except (Corrupt, Unsupported):
            # So is this.
            return b""

    async def _birth(self, stream: str) -> None:
        """Of a volume that is in the log, and wasn't removed."""
        key = key_of(stream)
        if not await self._births.is_missing(stream) or self._findings.knows(key):
            return
        state = await self._reach.rolled_state(self._log, stream)
        if state is not None and not state.finished and state.stays[-1].closed is None:
            self._findings.tell(Wrong(key, [NO_BIRTH], await self._reach.of_all(stream, 1, whole=True)))

    async def _deadlist(self, vid: VolumeId, state: RolledState) -> Deadlist | None:
        """Of a volume's fold that was in the log when the rollup was made, and is there."""
        stay = state.stays[-1]
        volume = await self._reach.volume(str(vid)) if stay.fold is not None and stay.closed is None else None
        if stay.fold is None or volume is None or volume.log != self._log:
            return None
        if any(place.log == self._log and place.slot > 0 for place in volume.closes[len(state.stays) - 1 :]):
            # It has left since, and come back: another log may have carried it out.
            return None
        return await check_deadlist(self._objects, stay.fold, self._findings)

    async def _commits(self, vid: VolumeId, stream: RolledStream, state: RolledState, boundary: int) -> None:
        volume = await self._reach.volume(str(vid))
        if volume is None:
            return
        folded_to, settled_to = volume.history.folded_to, volume.history.settled_to
        key = rollup_key(self._log, stream.log.name)
        behind = await loading(lambda: list(stream.commits_behind(folded_to)))
        for _, value in behind:
            rolled = decode(key, value, RolledCommit)
            commit = commit_in(key, rolled)
            # What was relocated from its entry is looked at with the checkpoint.
            is_moved = commit.lsn <= settled_to and any(not each.object for each in commit.locations)
            if rolled.slot < boundary and not is_moved:
                await self._commit(str(vid), commit, state.page_size)

    async def _commit(self, stream: str, commit: Commit, page_size: int) -> None:
        wrongs: dict[str, Wrong] = {}

        async def fetch(location: Location) -> CheckedSegment:
            wrong = wrongs.setdefault(location.object, Wrong(location.object))
            return await read_segment(self._objects, self._reach, location.size, wrong, "a commit has pages there")

        checked = await check_commit(commit, page_size, fetch)
        for key, pages in checked.bad.items():
            wrong = wrongs.setdefault(key, Wrong(key))
            wrong.add(f"it lacks pages of LSN {commit.lsn} of volume {stream}")
            wrong.spoils += await self._reach.of_pages(stream, commit.lsn, pages)
        for wrong in wrongs.values():
            self._findings.tell(wrong)

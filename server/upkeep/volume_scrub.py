"""Volume scrub: what lies under a volume's own key: its birth, the chains of its pins, and how those ended that are
gone; and its checkpoint. Between revision 0 of a pin and the newest any may be collected.

What its log says of it is the log's (log_scrub.py). Whether a fork begins with what its parent has at that LSN is asked
of the parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from ...volume.errors import BadInput, BudwoodError, Corrupt, NotFound, Unsupported
from ...volume.ids import PinId, VolumeId
from ...volume.page import check_page_size
from ...volume.pins import (
    TRANSITIONS,
    Pin,
    ended_key,
    ended_prefix,
    id_for_fork,
    parse_ended,
    parse_pin,
    pin_key,
    pins_prefix,
)
from ...volume.records import Birth
from ..metastore.births import birth_key
from ..metastore.open_volume import Volume
from ..store.tree_nodes import loading
from .births import Births
from .findings import Findings, Wrong, words_of
from .fold_scrub import FoldScrub
from .objects import Objects
from .reach import Reach

_NEXT: Final = {(before, after) for (before, _), after in TRANSITIONS.items()}
_LAST_REVISION: Final = 2**64 - 1


class VolumeScrub:
    def __init__(self, objects: Objects, births: Births, reach: Reach, findings: Findings) -> None:
        self._objects = objects
        self._births = births
        self._reach = reach
        self._findings = findings

    async def run(self, vid: str) -> None:
        """All that lies below `volumes/{vid}/`. Raises Unavailable, Unauthorized."""
        try:
            volume = VolumeId.parse(vid)
        except BadInput:
            self._findings.tell(Wrong(f"volumes/{vid}", ["it stands among the volumes and is none"]))
            return
        await self._birth(volume)
        await self._pins(volume)
        await self._ended(volume)
        await FoldScrub(self._objects, self._reach, self._findings).run(volume)

    async def _birth(self, vid: VolumeId) -> None:
        wrong = Wrong(birth_key(vid))
        try:
            birth = await self._births.read(str(vid))
            self._objects.count += 1
            check_page_size(birth.page_size)
            if birth.kind != "pages":
                raise Unsupported(f"it is of the unknown kind {birth.kind!r}")
        except NotFound:
            # Its log tells, if it has anything of the volume.
            if await self._births.forks_of(str(vid)):
                wrong.add("it is missing, though the volume was forked")
        except (Corrupt, Unsupported, BadInput) as error:
            wrong.add(words_of(wrong.key, error))
        else:
            if birth.parent:
                wrong.problems += await self._parent_problems(birth)
        if wrong.problems:
            wrong.spoils += await self._reach.of_all(str(vid), 1, whole=True)
        self._findings.tell(wrong)

    async def _pins(self, vid: VolumeId) -> None:
        chain: _Chain | None = None
        key = ""
        async for key in self._objects.keys(pins_prefix(vid)):
            rev = _revision_of(key)
            if rev is None:
                self._findings.tell(Wrong(key, ["it stands among the pins of a volume and is none"]))
                continue
            pin = key.split("/")[3]
            newest = chain is None or chain.pin != pin
            if chain is None or newest:
                await self._end(vid, chain)
                chain = _Chain(pin, Wrong)
            stands = await self._pin(vid, key, newest=newest)
            self._tell_all(chain.take(key, rev, stands))
        await self._end(vid, chain)

    async def _end(self, vid: VolumeId, chain: _Chain | None) -> None:
        """Of a pin: it has ended where revision 0 isn't there, and that must have been kept."""
        if chain is None or chain.begins or not chain.holds:
            return
        pin = PinId.parse(chain.pin)
        if await self._objects.stands(ended_key(vid, pin)):
            # Somebody slept, and made one anew.
            return
        wrong = Wrong(f"{pins_prefix(vid, pin)}{_LAST_REVISION:016x}", spoils=await self._reach.below_since(str(vid)))
        wrong.add("it is missing, though a later revision of the pin stands")
        self._findings.tell(wrong)

    async def _ended(self, vid: VolumeId) -> None:
        async for key in self._objects.keys(ended_prefix(vid)):
            data = await self._objects.get(key)
            try:
                if data is not None:
                    parse_ended(key, data)
            except (Corrupt, Unsupported) as error:
                self._findings.tell(Wrong(key, [words_of(key, error)]))

    def _tell_all(self, wrongs: Iterable[Wrong]) -> None:
        for wrong in wrongs:
            self._findings.tell(wrong)

    async def _pin(self, vid: VolumeId, key: str, *, newest: bool) -> Pin | None:
        data = await self._objects.get(key)
        if data is None:
            # Collected since it was listed.
            return None
        try:
            return parse_pin(key, data)
        except (Corrupt, Unsupported) as error:
            spoilt = await self._reach.below_since(str(vid)) if newest else []
            self._findings.tell(Wrong(key, [words_of(key, error)], spoilt))
            return None

    async def _parent_problems(self, birth: Birth) -> list[str]:
        try:
            parent = str(VolumeId(birth.parent))
            stands = await self._births.read(parent)
        except NotFound:
            key = birth_key(VolumeId(birth.parent))
            spoilt = await self._reach.of_all(str(VolumeId(birth.parent)), 1, whole=True)
            self._findings.tell(Wrong(key, ["it is missing, though the volume was forked"], spoilt))
            return []
        except BadInput as error:
            return [f"its parent is none: {error}"]
        except (Corrupt, Unsupported):
            return []
        if stands.page_size != birth.page_size:
            return [f"its pages have {birth.page_size} bytes, and its parent's {stands.page_size}"]
        volume = await self._reach.volume(parent)
        if volume is None:
            return []
        problems = await self._hold_problems(birth, volume) if 0 < birth.parent_lsn <= stands.parent_lsn else []
        if problems or birth.parent_lsn < volume.history.start:
            return problems
        if birth.parent_lsn > volume.state.head:
            return [f"it was forked at LSN {birth.parent_lsn}, and its parent's newest is {volume.state.head}"]
        try:
            length = await loading(lambda: volume.history.length_at(birth.parent_lsn))
        except BudwoodError:
            return []
        if length != birth.parent_length:
            return [f"its parent has {length} bytes at LSN {birth.parent_lsn}, and not {birth.parent_length}"]
        return []

    async def _hold_problems(self, birth: Birth, parent: Volume) -> list[str]:
        """Of a fork of an LSN that its parent shares: only a pin there holds that for it (retention.py)."""
        child, owner = VolumeId(birth.vid), VolumeId(birth.parent)
        fork = await self._reach.volume(str(child))
        if fork is None or fork.state.is_forgotten or not await loading(partial(parent.state.forks.get, birth.vid)):
            # It was removed; or whoever began it was cut off.
            return []
        while (stands := await self._births.get(str(owner))) is not None and birth.parent_lsn <= stands.parent_lsn:
            owner = VolumeId(stands.parent)
        if stands is None:
            # Told where it is missing.
            return []
        newest = await self._objects.listed(pins_prefix(owner, id_for_fork(child)), limit=1)
        data = await self._objects.get(newest[0]) if newest else None
        try:
            if data is not None and parse_pin(newest[0], data).holds:
                return []
        except (Corrupt, Unsupported):
            # Told where it stands.
            return []
        return [f"it was forked at LSN {birth.parent_lsn}, which is {owner}'s, and nothing holds it there"]


class _Chain:
    """One pin's revisions, as a listing gives them: the newest first."""

    def __init__(self, pin: str, wrong_of: Callable[[str], Wrong]) -> None:
        self.pin = pin
        self._wrong_of = wrong_of
        self._after: Pin | None = None
        """The revision behind the one that comes next, if it could be read."""
        self.begins = False
        """Whether revision 0 has come."""
        self.holds = False
        """Whether the newest says so."""

    def take(self, key: str, rev: int, pin: Pin | None) -> Iterator[Wrong]:
        """What is wrong with the one that came before."""
        after = self._after
        self.begins = self.begins or rev == 0
        self.holds = self.holds or (after is None and pin is not None and pin.holds)
        if pin is not None and after is not None and after.rev == pin.rev + 1 and not _follows(pin, after):
            wrong = self._wrong_of(pin_key(after))
            wrong.add(f"revision {after.rev} can't follow revision {pin.rev}")
            yield wrong
        self._after = pin


def _follows(before: Pin, after: Pin) -> bool:
    return (before.state, after.state) in _NEXT and _said_once(before) == _said_once(after)


def _said_once(pin: Pin) -> tuple[bytes, bytes, int, str, str, str]:
    return pin.id, pin.vid, pin.lsn, pin.kind, pin.owner, pin.label


def _revision_of(key: str) -> int | None:
    """Of a key `volumes/{vid}/pins/{pin}/{revision}`; None where it is none."""
    parts = key.split("/")
    try:
        PinId.parse(parts[3])
        return _LAST_REVISION - int(parts[4], 16) if len(parts) == 5 and len(parts[4]) == 16 else None
    except (BadInput, IndexError, ValueError):
        return None

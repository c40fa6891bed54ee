"""Holders: who needs an object of a store, or why nobody does (`budwood gc --explain`).

What an object is, its key says; whose, the object itself or the number that it lies under. So one volume, or one log,
is looked at, as those who read it look.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from anyio.lowlevel import checkpoint as let_others

from ...volume.checkpoint import deadlist_key
from ...volume.entry import entry_key, parse_entry, slot_of
from ...volume.errors import BadInput, BudwoodError, NotFound
from ...volume.fragments import fragment_name
from ...volume.garbage import plan_name
from ...volume.ids import VolumeId
from ...volume.pins import revision_of
from ...volume.records import Commit
from ...volume.rollup import rollup_key
from ...volume.segment import SegmentIndex
from ..log.boundary import OVER, LogIsOver, boundary_key
from ..log.chain import slot_covered_by
from ..log.term import find_epoch
from ..metastore.folded import Folded
from ..metastore.logs import Log, Logs
from ..metastore.open_volume import Volume
from ..metastore.open_volumes import Volumes
from ..metastore.retention import Retention
from ..store.retrying import get_retried, retried
from ..store.tree_nodes import loading
from .collector import Collector

_MOST: Final = 8
"""LSNs that are named for one volume."""


class Held(NamedTuple):
    what: str
    """The object, as its key tells."""
    by: list[str]
    """Empty where nobody needs it."""
    otherwise: str = ""
    """What becomes of it then."""


@dataclass(frozen=True, slots=True)
class Holders:
    logs: Logs
    volumes: Volumes
    retention: Retention
    collector: Collector

    async def of(self, key: str) -> Held:
        """Raises BadInput for what is no key of a store, NotFound, Corrupt, Unavailable."""
        if (await retried(f"list {key}", partial(self.logs.store.list, key, limit=1), self.logs.patience))[:1] != [key]:
            raise NotFound(f"there is no object {key!r} in this store")
        match key.split("/"):
            case ["root"] | ["roots", _]:
                return Held("the store's root", ["the store"])
            case ["nodes", node, "retired"]:
                return Held(f"that node {node} was taken out for good", ["that node, if it comes back"])
            case ["access", "organisations", name]:
                return Held("an organisation", [f"whoever has a key of {name}"])
            case ["access", "keys", key_id]:
                return Held("a key's public half", [f"whoever has key {key_id}"])
            case ["access", "revoked", key_id]:
                return Held("that a key was revoked", [f"whoever shows key {key_id}"])
            case ["volumes", vid, "birth"]:
                return Held("a volume's birth", [f"volume {vid}"])
            case ["volumes", vid, "pins", *_]:
                return await self._pin(key, VolumeId.parse(vid))
            case ["volumes", _, "ended", pin]:
                return Held(f"how pin {pin} has ended", ["whoever asks for that id again"])
            case ["logs", log, *rest]:
                held = await self._of_log(key, log, rest)
                return held if held.by else held._replace(otherwise=await self._otherwise(key, log))
            case _:
                raise _no_key(key)

    async def _of_log(self, key: str, name: str, rest: list[str]) -> Held:
        try:
            log = await self.logs.get(name)
        except LogIsOver:
            if key == boundary_key(name, OVER):
                return Held("what says that the log is over", ["readers that slept: it stays"])
            return Held("of a log that is over", [], "its volume was removed: the next upkeep deletes it")
        await self.logs.refresh(log, confirm=True)
        match rest:
            case ["entries", _]:
                return await self._entry(key, log)
            case ["rollups", *_]:
                begins = ["whoever opens the log: it is the newest that is named"]
                return Held("a rollup", begins if key == rollup_key(name, log.rolled.name) else [])
            case ["nodes", *_]:
                has = key in await log.rolled.tree.node_keys()
                return Held("a node of rollups", ["the newest rollup that is named"] if has else [])
            case ["epochs", number]:
                return await self._number(log, int(number, 16))
            case ["t", number, *_]:
                return await self._of_transaction(key, log, int(number, 16))
            case ["shards", _, _, _]:
                return await self._of_transaction(key, log, fragment_name(name, key).epoch)
            case ["boundary", _]:
                prefix = f"logs/{name}/boundary/"
                newest = await retried(prefix, partial(self.logs.store.list, prefix, limit=1), self.logs.patience)
                return Held("a boundary", ["readers that slept: it is the newest"] if newest == [key] else [])
            case ["gc", plan, _]:
                stands = plan == log.reader.chain.garbage
                return Held("a garbage plan", ["collectors: it is being carried out"] if stands else [])
            case _:
                raise _no_key(key)

    async def _pin(self, key: str, vid: VolumeId) -> Held:
        for pin in await self.retention.list(vid):
            if str(pin.pin_id) in key and revision_of(key) not in (0, pin.rev):
                return Held(
                    f"of a pin of LSN {pin.lsn}, {pin.kind}", [], "a collection takes it out: a later one says it"
                )
            if str(pin.pin_id) in key:
                return Held(f"of a pin of LSN {pin.lsn}, {pin.kind}", [f"{pin.owner or 'somebody'}, of volume {vid}"])
        return Held("of a pin that has ended", [], "a collection takes it out, unless the pin is its label's newest")

    async def _number(self, log: Log, number: int) -> Held:
        record = await find_epoch(self.logs.store, log.name, number, patience=self.logs.patience)
        if record is None:
            return Held("a number that nobody has, any more or yet", [])
        if record.purpose != "transaction":
            return Held("an owner's epoch", [f"log {log.name}: its entries carry the number"])
        whose = f"a fold of volume {VolumeId(record.stream)}" if record.stream else "a garbage plan"
        plan = await self.collector.planned(log.name)
        settled = plan is not None and number in plan.settled
        return Held(f"the number of {whose}", [] if settled else [f"log {log.name}, until a later plan"])

    async def _entry(self, key: str, log: Log) -> Held:
        slot, what = slot_of(key), "an entry"
        if slot == 0:
            return Held(what, [f"log {log.name}: its anchor stays"])
        if slot > slot_covered_by(log.rolled.name):
            return Held(what, [f"log {log.name}: no rollup that is named has its records yet"])
        by = list[str]()
        entry = parse_entry(key, await get_retried(self.logs.store, key, patience=self.logs.patience))
        for stream, part in entry.header.streams.items():
            try:
                commits = [record for record in part.decode(key) if isinstance(record, Commit)]
                lsns = [each.lsn for each in commits if any(not location.object for location in each.locations)]
                volume = await self.volumes.get(VolumeId.parse(stream)) if lsns else None
            except BudwoodError as error:
                by.append(f"{stream}, which can't be followed: {error}")
                continue
            if volume is not None:
                by += await self._commits(volume, key, lsns)
        if not by:
            by = await self._cut(log, slot)
        return Held(what, by)

    async def _cut(self, log: Log, slot: int) -> list[str]:
        """Entries go from below, so that one may stay for another's sake."""
        survey = await self.collector.survey(log.name)
        if not survey.holds or survey.holds[0].slot > slot:
            return []
        hold = survey.holds[0]
        return [
            f"volume {VolumeId(hold.stream)}, for whom entry {entry_key(log.name, hold.slot)} stays, and with it all "
            "that came later"
        ]

    async def _of_transaction(self, key: str, log: Log, number: int) -> Held:
        vids = set[VolumeId]()
        record = await find_epoch(self.logs.store, log.name, number, patience=self.logs.patience)
        if record is not None and record.stream:
            vids.add(VolumeId(record.stream))
        data = await get_retried(self.logs.store, key, patience=self.logs.patience)
        what = "of a checkpoint"
        try:
            vids |= {volume.vid for volume in SegmentIndex.of_segment(key, data).volumes}
            what = "a segment"
        except BudwoodError:
            # A node of its tree, or a deadlist.
            pass
        by = list[str]()
        for vid in sorted(vids):
            try:
                volume = await self.volumes.get(vid, fresh=True)
            except NotFound:
                continue
            by += [*await self._folded(volume, key), *await self._commits(volume, key)]
        return Held(what, by)

    async def _folded(self, volume: Volume, key: str) -> list[str]:
        folding = volume.history.folding
        if not isinstance(folding, Folded):
            return []
        if key == deadlist_key(folding.name) or key in await folding.tree.node_keys():
            return [f"volume {volume.vid}: its checkpoint up to LSN {folding.lsn}"]
        for number, segment in (await loading(folding.segments)).items():
            if segment.object == key:
                lsns = await self._lsns_with(folding, number)
                return [f"volume {volume.vid}, at {await self._words_of(volume, lsns)}"]
        return []

    async def _lsns_with(self, folding: Folded, segment: int) -> list[int]:
        """Those of the regions that have pages in it."""
        found = list[int]()
        lsns, regions = await loading(folding.regions)
        for lsn, region in zip(lsns, regions, strict=True):
            for place in await loading(partial(folding.places, region.number)):
                if segment in await loading(partial(folding.range_at, region.number, place)):
                    found.append(lsn)
                    break
        return found

    async def _commits(self, volume: Volume, key: str, lsns: Iterable[int] | None = None) -> list[str]:
        """The commits that weren't folded and have pages in it."""
        history, found = volume.history, list[int]()
        for lsn in lsns or range(history.folded_to + 1, history.head + 1):
            await let_others()
            if not history.folded_to < lsn <= history.head:
                continue
            landed = await loading(partial(history.at, lsn))
            if any(location.object == key for location in landed.locations):
                found.append(lsn)
        return [f"volume {volume.vid}, at {await self._words_of(volume, found)}"] if found else []

    async def _words_of(self, volume: Volume, lsns: list[int]) -> str:
        """The LSNs, and who holds them."""
        holders = defaultdict[int, list[str]](list)
        for pin in await self.retention.list(volume.vid):
            holders[pin.lsn].append(f"{pin.kind} {pin.owner}".strip())
        words = list[str]()
        for lsn in lsns[:_MOST]:
            own = holders[lsn] or (["from since on"] if lsn >= volume.state.since else ["what lies above"])
            words.append(f"LSN {lsn} ({', '.join(own)})")
        more = f" and {len(lsns) - _MOST} more" if len(lsns) > _MOST else ""
        return ", ".join(words) + more

    async def _otherwise(self, key: str, name: str) -> str:
        """What becomes of an object that nobody needs."""
        found = list[str]()

        async def look(keys: list[str], why: str) -> None:
            if key in keys:
                found.append(why)

        plan = await self.collector.planned(name)
        if plan is not None:
            await self.collector.garbage.each(plan, look)
        log = await self.logs.get(name)
        if plan is None or not found:
            return "the next rollup or fold decides, or nothing has named it: then it goes once it is three days old"
        if plan_name(plan.number) == log.reader.chain.garbage:
            return f"plan {plan.number} takes it out: {found[0]}"
        return f"the next collection takes it out: {found[0]}"


def _no_key(key: str) -> BadInput:
    return BadInput(f"{key!r} is no key of a store")

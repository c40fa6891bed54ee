"""Garbage: the objects that a plan takes out, in the order in which they go (volume/garbage.py; S1.16, S1.17).

They are handed out in batches: what is in one may go in any order, or at once, and a batch goes only after the one
before it. So whoever is cut off may begin anew, and finds what is left:

- Of a volume's folds the oldest goes first, and its deadlist with the objects of the one after.
- A node goes after those below it that go, and a rollup after all nodes; so a rollup that stands leads to what is left.
- Entries go by their slots, the lowest first, so many at once.
- Of a pin that has ended, what it ended with is kept apart first, by whoever deletes; then goes revision 0, with which
  it counts no more, then the others, and the newest last.
- The plan itself goes last.

Of what lies in memory at once: a deadlist, the pointers of one path of a tree, the new nodes of the oldest rollup that
stays, or a listing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from ...volume.checkpoint import deadlist_key, transaction_prefix
from ...volume.entry import entry_key, epoch_key
from ...volume.errors import Corrupt
from ...volume.garbage import GarbagePlan, PlannedFold, PlannedPin, due_key, plan_key, plan_name
from ...volume.ids import PinId, VolumeId
from ...volume.pins import ended_prefix, pins_prefix, revision_key
from ...volume.rollup import Rollup, nodes_folder, rollup_key, slot_of_rollup
from ...volume.tree_node import Pointer, node_key
from ..log.boundary import boundary_key
from ..log.reader import read_rollup
from ..metastore.births import birth_key
from ..store.protocol import Store
from ..store.retrying import Patience, retried
from ..store.tree_nodes import Nodes
from .deadlists import read_deadlist

BATCH: Final = 64
"""Entries that go at once."""
_LISTED: Final = 1000
_OLDER: Final = "of rollups that are older than the one that stays, and of no other"

Take: TypeAlias = Callable[[list[str], str], Awaitable[None]]
"""Is given each batch, and why it is garbage, and done with it when it returns. One may be empty."""


@dataclass(frozen=True, slots=True)
class Garbage:
    store: Store
    nodes: Nodes
    patience: Patience

    async def each(self, plan: GarbagePlan, take: Take) -> None:
        """Raises Corrupt, Unavailable, and what `take` does."""
        for fold in plan.folds:
            await self.each_of_folds(fold.checkpoint, take)
            if fold.last:
                await self._each_of_removed(fold, take)
        await self._each_of_rollups(plan, take)
        for first in range(plan.first, plan.slot, BATCH):
            keys = [entry_key(plan.log, slot) for slot in range(first, min(first + BATCH, plan.slot))]
            await take(keys, f"rollup {plan.rollup} has its records, and its pages were folded")
        for number in plan.rejected:
            why = f"transaction {number} was never granted"
            await self._each_listed(f"{transaction_prefix(plan.log, number)}/", why, take)
        for fragments in plan.fragments:
            keys = fragments.keys(plan.log)
            for first in range(0, len(keys), _LISTED):
                await take(keys[first : first + _LISTED], "pages that no commit has named, and none will")
        for pin in plan.pins:
            await self.each_of_pin(pin, take)
        if plan.settled:
            why = "the number of a transaction that is settled, or of a plan that is done"
            await take([epoch_key(plan.log, number) for number in plan.settled], why)
        if plan.slot:
            behind = f"{boundary_key(plan.log, plan.slot)}\0"
            await self._each_listed(f"logs/{plan.log}/boundary/", "an older boundary", take, start=behind)
        await take([plan_key(plan.log, plan_name(plan.number))], "the plan itself")
        await take([due_key(plan.log, plan_name(plan.number))], "when the plan was due")

    async def each_of_folds(self, newest: str, take: Take) -> None:
        """What the folds up to that checkpoint's have left out, oldest first."""
        row, checkpoint = list[str](), newest
        while checkpoint:
            deadlist = await read_deadlist(self.store, checkpoint, self.patience)
            if deadlist is None:
                break
            row.append(checkpoint)
            checkpoint = deadlist.base
        for checkpoint in reversed(row):
            deadlist = await read_deadlist(self.store, checkpoint, self.patience)
            if deadlist is None:
                continue
            before = deadlist_key(deadlist.base) if deadlist.base else ""
            why = f"a fold of volume {VolumeId(deadlist.vid)} has left it out, into {checkpoint}"
            await take([key for key in deadlist.objects if key != before], why)
            if before:
                await take([before], why)

    async def each_of_pin(self, planned: PlannedPin, take: Take) -> None:
        vid, pin = VolumeId(planned.vid), PinId(planned.pin)
        newest, first = revision_key(vid, pin, planned.upto), revision_key(vid, pin, 0)
        if not planned.ended:
            await self._each_listed(pins_prefix(vid, pin), "another revision says it", take, start=newest, end=first)
            return
        why = f"pin {pin} of volume {vid} has ended"
        await take([first], why)
        await self._each_listed(pins_prefix(vid, pin), why, take, start=f"{newest}\0", end=first)
        await take([newest], why)

    async def _each_of_removed(self, fold: PlannedFold, take: Take) -> None:
        """What is no log's. The deadlist leads here, and goes last."""
        vid = VolumeId(fold.vid)
        why = f"volume {vid} was removed"
        await self._each_listed(pins_prefix(vid), why, take)
        await self._each_listed(ended_prefix(vid), why, take)
        await take([birth_key(vid)], why)
        await take([deadlist_key(fold.checkpoint)], why)

    async def _each_of_rollups(self, plan: GarbagePlan, take: Take) -> None:
        """All that are older than the one that stays, and what of their trees that one hasn't."""
        stays = await read_rollup(self.store, plan.log, plan.rollup, self.patience)
        prefix = rollup_key(plan.log, "")
        keys = await retried(f"list {prefix}", lambda: self.store.list(prefix, limit=1), self.patience)
        oldest = keys[0].removeprefix(prefix) if keys else ""
        if not oldest or slot_of_rollup(oldest) >= stays.slot:
            return
        folder = nodes_folder(plan.log)
        await self._each_of_tree(folder, await self._root(plan.log, oldest), stays.tree, take)
        await self._each_of_new_nodes(folder, slot_of_rollup(oldest), stays, take)
        await self._each_listed(prefix, _OLDER, take, end=f"{prefix}{stays.slot:016x}/")

    async def _root(self, log: str, rollup: str) -> Pointer | None:
        try:
            return (await read_rollup(self.store, log, rollup, self.patience)).tree
        except Corrupt:
            # What it leads to can't be told any more; what no rollup leads to costs room alone.
            return None

    async def _each_of_tree(self, folder: str, old: Pointer | None, stays: Pointer | None, take: Take) -> None:
        if old is None or await self._has(folder, stays, old):
            return
        if old.level:
            try:
                children = (await self.nodes.load(folder, old)).children
            except Corrupt:
                # It is gone, and so is all below it that was to go; or it is damaged.
                children = ()
            for child in children:
                await self._each_of_tree(folder, child, stays, take)
        await take([node_key(folder, old)], _OLDER)

    async def _has(self, folder: str, tree: Pointer | None, wanted: Pointer) -> bool:
        """Whether the tree has that node: then it lies where its first key does."""
        while tree is not None and tree.level > wanted.level:
            node = await self.nodes.load(folder, tree)
            tree = node.children[node.child_for(wanted.first)]
        return tree is not None and (tree.number, tree.digest) == (wanted.number, wanted.digest)

    async def _each_of_new_nodes(self, folder: str, after: int, stays: Rollup, take: Take) -> None:
        """Those that rollups after slot `after` made, up to the one that stays, and that this one hasn't."""
        needed = set[str]()
        await self._add_newer(folder, after, stays.tree, needed)

        async def take_others(keys: list[str], why: str) -> None:
            await take([key for key in keys if key not in needed], why)

        start, end = f"{folder}/{after + 1:016x}/", f"{folder}/{stays.slot:016x}0"
        await self._each_listed(f"{folder}/", _OLDER, take_others, start=start, end=end)

    async def _add_newer(self, folder: str, after: int, pointer: Pointer | None, needed: set[str]) -> None:
        """The nodes of a tree that are newer. None lies below one that isn't."""
        if pointer is None or pointer.number <= after:
            return
        needed.add(node_key(folder, pointer))
        if pointer.level:
            for child in (await self.nodes.load(folder, pointer)).children:
                await self._add_newer(folder, after, child, needed)

    async def _each_listed(self, prefix: str, why: str, take: Take, *, start: str = "", end: str = "") -> None:
        """All keys from `start` on, and below `end`."""
        while True:
            keys = await retried(
                f"list {prefix}", partial(self.store.list, prefix, start=start, limit=_LISTED), self.patience
            )
            here = [key for key in keys if not end or key < end]
            await take(here, why)
            if len(here) < _LISTED:
                return
            start = f"{keys[-1]}\0"

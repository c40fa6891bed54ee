"""Fold: a volume's commits leave its log for segments of its own and a checkpoint (DESIGN §5; S0.37, S3.29).

A fold is a transaction (S1.3, S1.13). It takes a number; writes everything under its prefix, a deadlist last; and asks
for the grant, which is a record of the volume's stream: that names the checkpoint it began with, and is refused once
another stands. So of two folds that are made at once one counts, whoever makes them. Commits go on meanwhile: what is
folded is what nobody can write to any more.

    announce what may be forgotten → list who holds what of it → number → segments → nodes → deadlist → grant

What is kept: every LSN from the announced one on, and each that a pin or a fork holds; of a volume that was removed the
latter alone. An announcement is a record, so that whoever pins a forgotten LSN from then on is refused (retention.py).
The commits from there on stay as they are; but the pages that they brought in entries are relocated on request, so that
a volume which forgets nothing holds no log back (relocation.py).

One transaction copies `MOST_BYTES` of entries' pages, about, and what is left is for the next: so no more than that is
lost where it is cut off, or is rejected, however long nobody has folded (S1.12, S1.24).

To begin is to have a number and the checkpoint that was granted last (S1.6). That dooms nobody: of all that began with
that checkpoint the first to ask is granted. A fold that misses what it reads asks what became of itself (S1.18): the
checkpoint that it began with, or what it wrote, goes once another was granted, or once the log has rejected it.

Crash windows (each a fault point): fold: number taken, nothing written · fold: segments written, checkpoint not · fold:
deadlist written, not granted · fold: granted, caller not told.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from ...volume import faults
from ...volume.checkpoint import (
    Deadlist,
    deadlist_key,
    nodes_folder,
    seal_deadlist,
    transaction_prefix,
)
from ...volume.errors import Conflict, Corrupt, Forgotten, NotFound
from ...volume.ids import SegmentId, VolumeId
from ...volume.records import Fold, FoldRelocating, Location
from ...volume.setsum import Setsum
from ...volume.tree_node import node_key
from ..log.log_writer import LogWriter
from ..log.term import take_transaction
from ..metastore.admission import change_in, fate_of_fold, judge_fold, rejected
from ..metastore.appender import Appender
from ..metastore.entry_draft import Change
from ..metastore.folded import Folded, weigh
from ..metastore.history import History, Landed
from ..metastore.open_volume import Volume
from ..metastore.retention import Collecting, Retention
from ..metastore.state import StreamState, folded_by_another
from ..pagestore.pagestore import Pagestore
from ..store.retrying import create_settled
from ..store.tree import Tree
from ..store.tree_change import Splice, put
from ..store.tree_nodes import AT_ONCE, Nodes, loading
from .checkpoint_builder import CheckpointBuilder, Next
from .ended_forks import EndedForks
from .page_copies import PageCopies
from .relocation import Relocation

_NUMBERED: Final = faults.point("fold: number taken, nothing written")
_COPIED: Final = faults.point("fold: segments written, checkpoint not")
_WRITTEN: Final = faults.point("fold: deadlist written, not granted")
_GRANTED: Final = faults.point("fold: granted, caller not told")


MOST_BYTES: Final = 64 << 20
"""Of pages in entries, that one transaction folds or relocates; a commit at least."""


class Began(NamedTuple):
    """A transaction that was begun."""

    number: int
    checkpoint: str
    """Its own: what it writes lies below."""
    base: str
    """The checkpoint that was granted last; "" before the first."""


class Done(NamedTuple):
    fold: Fold
    copied_pages: int
    whole: bool
    """Whether nothing is left for another transaction."""


class _Task(NamedTuple):
    upto: int
    """The commits up to that LSN are folded;"""
    relocated: int
    """and pages of those behind it relocated, up to that one."""
    held: frozenset[int]
    keeps_end: bool
    ended: frozenset[bytes]
    """Forks for which nothing is held any more."""
    whole: bool


@dataclass(frozen=True, slots=True)
class Folder:
    """Folds volumes of one node."""

    retention: Retention
    appender: Appender
    pagestore: Pagestore
    nodes: Nodes
    forks: EndedForks

    async def fold(self, vid: VolumeId, *, relocate: bool = False) -> Done | None:
        """Fold what lies below the volume's `since`, and with `relocate` take what follows out of entries; None where
        there is nothing to be done, which costs no write. Raises NotOwner, Conflict (another was quicker), Corrupt,
        Unavailable."""
        await self.retention.volumes.get(vid, fresh=True)
        volume, writer = await self.appender.writable(vid)
        relocate = relocate and not volume.state.is_forgotten and volume.history.settled_to < volume.state.head
        ended = frozenset[bytes]()
        if folds(volume):
            ended = await self.forks.of(volume, volume.state.since)
            collecting = await self.retention.begin_collect(vid, ended)
            if pinned := await self.forks.pinned_for(volume):
                await self.retention.release_of_ended(vid, pinned)
                collecting = await self.retention.begin_collect(vid, ended)
            volume, writer = await self.appender.writable(vid)
        elif relocate:
            collecting = None
        else:
            return None
        base = volume.history.folding
        assert base is None or isinstance(base, Folded)
        try:
            task = await _task(volume, base, collecting, ended, relocate=relocate)
        except (Corrupt, Forgotten, NotFound) as error:
            stands = (await self.retention.volumes.get(vid, confirm=True)).state
            if stands.fold != (base.fold if base else None):
                raise folded_by_another(stands) from error
            raise
        return None if task is None else await self._fold(volume, writer, base, task)

    async def _fold(self, volume: Volume, writer: LogWriter, base: Folded | None, task: _Task) -> Done:
        began = await self._begin(volume, writer, base)
        checkpoint, patience = began.checkpoint, self.pagestore.patience
        _NUMBERED()

        async def save(segment: SegmentId, data: bytes) -> Location:
            key = f"{checkpoint}/{segment}"
            if await create_settled(self.pagestore.store, key, data, patience) is not None:
                raise Corrupt(key, "other bytes stand there than were written")
            await self.pagestore.seed(key, data)
            return Location(object=key, size=len(data), slot=0)

        copies = PageCopies(self.pagestore, volume.vid, volume.page_size)
        builder = CheckpointBuilder(volume.history, base, copies, save)
        relocation = Relocation(self.pagestore, volume.vid, volume.page_size, volume.history, base, save)
        try:
            after = await builder.build(task.upto, task.held, keeps_end=task.keeps_end)
            moves = await relocation.run(task.upto, task.relocated)
            after = after._replace(
                splices=sorted([*after.splices, *moves.splices]), unused=sorted({*after.unused, *moves.unused})
            )
            _COPIED()
            fold = await self._write(volume, base, checkpoint, began.number, task, after)
        except (Corrupt, Forgotten, NotFound) as error:
            refusal = await self._fate(volume.vid, began)
            if refusal is not None:
                # What was to be read has gone for another's checkpoint, or with its own: nothing is damaged.
                raise refusal from error
            raise
        _WRITTEN()

        async def change(volume: Volume, writer: LogWriter) -> Change[StreamState]:
            return change_in(writer.log, volume, judge_fold(fold, writer.log, lambda: writer.reader.chain.garbage))

        granted = await self.appender.change(volume.vid, change)
        assert isinstance(granted, Fold)
        _GRANTED()
        return Done(granted, after.copied_pages, task.whole)

    async def _begin(self, volume: Volume, writer: LogWriter, base: Folded | None) -> Began:
        """Take a number, that nobody ever had."""
        above, logs = _number_above(writer.log, volume.state.fold), self.appender.logs
        while True:
            at = logs.patience.boot()
            number = await take_transaction(
                self.pagestore.store,
                writer.log,
                above=above,
                writer=writer.term.writer,
                now_ms=self.retention.pins.now_ms(),
                node=logs.claim.name,
                stream=volume.vid.raw,
                patience=self.pagestore.patience,
            )
            if not logs.is_old(at):
                return Began(number, transaction_prefix(writer.log, number), base.name if base else "")
            # It took so long that the number may have been another's, who is settled, and whose number is gone: create
            # forgets deleted names. That of the plan which settled it stands, so the next one is higher.
            above = number

    async def _fate(self, vid: VolumeId, began: Began) -> Conflict | None:
        """Why it never will be granted, as its volume and its log say now; None if it may be. Raises Corrupt,
        Unavailable."""
        volume = await self.retention.volumes.get(vid, confirm=True)
        plan = (await self.appender.logs.get(volume.log)).reader.chain.garbage
        return rejected(volume.state, fate_of_fold(volume.state, volume.log, began.checkpoint, began.base, plan))

    async def _write(
        self, volume: Volume, base: Folded | None, checkpoint: str, number: int, task: _Task, after: Next
    ) -> Fold:
        """The nodes and the deadlist."""
        folder = nodes_folder(checkpoint)
        tree, splices, gone = Tree(self.nodes, folder, None, weigh), after.splices, list[str]()
        if base is not None and nodes_folder(base.name) == folder:
            tree = base.tree
        elif base is not None:
            # It was made in another log, whose numbers are others.
            splices = await _all_of(base.tree, splices)
            gone += await base.tree.node_keys()
        changed = await tree.changed(splices, number)
        gone += [node_key(tree.folder, pointer) for pointer in changed.gone]
        await self.nodes.save(folder, changed.made)
        stood = Setsum.of_sums([base.fold.superseded]) if base is not None else Setsum()
        deadlist = Deadlist(
            vid=volume.vid.raw,
            checkpoint=checkpoint,
            base=base.name if base else "",
            objects=tuple(sorted({*gone, *after.unused, *([deadlist_key(base.name)] if base else [])})),
        )
        digest, data = seal_deadlist(deadlist)
        key = deadlist_key(checkpoint)
        if await create_settled(self.pagestore.store, key, data, self.pagestore.patience) is not None:
            raise Corrupt(key, "other bytes stand there than were written")
        make = partial(FoldRelocating, relocated=task.relocated) if task.relocated > task.upto else Fold
        return make(
            vid=volume.vid.raw,
            checkpoint=checkpoint,
            base=base.name if base else "",
            lsn=task.upto,
            tree=changed.root,
            superseded=(stood + after.superseded).digest,
            deadlist=digest,
            ended=tuple(sorted(task.ended)),
        )


def folds(volume: Volume) -> bool:
    """Whether anything lies below `since` that could be folded, or was; or the volume was removed. The first LSN alone
    is what it is: relocated, if it holds a log back."""
    state, start = volume.state, volume.history.start
    return state.is_forgotten or min(state.since, state.head) > max(start, 1)


async def _task(
    volume: Volume, base: Folded | None, collecting: Collecting | None, ended: frozenset[bytes], *, relocate: bool
) -> _Task | None:
    """What one transaction is to do; None where there is nothing."""
    history, head = volume.history, volume.state.head
    upto = folded = base.fold.lsn if base is not None else 0
    held, keeps_end = frozenset[int](), False
    if collecting is not None:
        upto, keeps_end = min(collecting.since, head), not volume.state.is_forgotten
        held = collecting.held
        if upto < folded:
            # Who holds what was asked for up to there alone, and another has gone further since.
            raise folded_by_another(volume.state)
    is_last = volume.state.is_forgotten and (base is None or bool(ended))
    if upto == folded and not (is_last or (base is not None and collecting and await _frees(base, held, keeps_end))):
        if not relocate:
            return None
        # The regions stay as they are, the last one too.
        held, keeps_end = frozenset((await loading(base.regions))[0] if base is not None else ()), False
    budget = _Budget(history, {each.object for _, each in await loading(base.relocations)} if base else set())
    last = await budget.reach(history.folded_to, upto) if keeps_end else upto
    settled = max(last, history.settled_to)
    if not relocate or last < upto:
        return _Task(last, settled, held, keeps_end, ended, whole=last == upto)
    relocated = await budget.reach(settled, head)
    return _Task(last, relocated, held, keeps_end, ended, whole=relocated == head)


class _Budget:
    """What one transaction may copy."""

    def __init__(self, history: History, relocated: set[str]) -> None:
        self._history = history
        self._relocated = relocated
        self._left = MOST_BYTES

    async def reach(self, after: int, to: int) -> int:
        """The last of the commits (after, to] that it is enough for; the first one at least, unless others came
        before."""
        is_first = self._left == MOST_BYTES
        for first in range(after + 1, to + 1, AT_ONCE):
            lsns = range(first, min(first + AT_ONCE, to + 1))
            for lsn, size in zip(lsns, await loading(partial(self._sizes, lsns)), strict=True):
                if size > self._left and not (is_first and lsn == after + 1):
                    return lsn - 1
                self._left -= size
        return to

    def _sizes(self, lsns: range) -> list[int]:
        """Of the pages of each that came in its entry."""
        return [
            len(each.pages) * self._history.page_size * self._is_copied(each) for each in map(self._history.at, lsns)
        ]

    def _is_copied(self, landed: Landed) -> bool:
        return landed.is_inline or any(location.object in self._relocated for location in landed.locations)


async def _frees(base: Folded, held: frozenset[int], keeps_end: bool) -> bool:
    """Whether the checkpoint keeps an LSN that nobody holds any more."""
    lsns, _ = await loading(base.regions)
    return any(lsn not in held for lsn in (lsns[:-1] if keeps_end else lsns))


async def _all_of(tree: Tree, splices: list[Splice]) -> list[Splice]:
    """What the tree is after the splices, as if nothing had been there."""
    items = dict(await tree.between())
    for splice in splices:
        items.pop(splice.start, None)
        items.update(splice.items)
    return [put(key, value) for key, value in sorted(items.items())]


def _number_above(log: str, fold: Fold | None) -> int:
    """A number of that log which was taken, so that the search for a free one begins there."""
    if fold is None or nodes_folder(fold.checkpoint) != f"logs/{log}/t":
        return 0
    return int(fold.checkpoint.rpartition("/")[2], 16)

"""Node: the parts of the server wired into one `Remote` (DESIGN §2, §6).

    async with Node.open(store, name="main", address="http://…") as node:    # owns the shared log `main`
    async with Node.open(store) as node:                                     # embedded: owns none

- A named node takes a fresh epoch on its log when it opens, and refuses while a living node owns it. Volumes that it
  makes are born there. Fenced by another it gets its log back once that one is gone (log_ownership.py).
- An embedded one makes volumes with private logs, appends to private logs, reads every log, and never fences one,
  unless told to take over a dead owner's for a move. A change to a volume in a shared log raises NotOwner with the
  owner's address.

What is promised of reads: the newest is what stood when it was asked for, except on a node that owns the log and was
deposed without knowing it (rule 7); `confirm` asks the log first. A known LSN needs no look at any log.

Crash windows (each a fault point): node: birth written, log not anchored · node: fork born, parent not told.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import anyio

from ..volume import calls, faults
from ..volume.calls import A, Call, Q
from ..volume.encryption import checked_header
from ..volume.errors import BadInput, BudwoodError, Forgotten, NotFound, NotOwner
from ..volume.ids import PinId, VolumeId, check_node, check_region
from ..volume.pageset import PageSet, encode_pages, pages_asked_for
from ..volume.pins import Pin
from ..volume.records import Birth, Location
from ..volume.rules import check_mode
from ..volume.store_report import Heat, SharedLogs, StoreCosts
from ..volume.wire import (
    Changes,
    CommitRequest,
    Committed,
    Located,
    NameDelta,
    NameList,
    NameRequest,
    Outcome,
    OwnedLog,
    SnapshotInfo,
    StoreInfo,
)
from .answers import Answers
from .log.listing import check_log
from .log.log_writer import LogWriter
from .log.term import Claim, Term
from .log.waiting import Batching, allowed
from .metastore import polling
from .metastore.admission import (
    change_in,
    judge_commit,
    judge_fork,
    judge_mode,
    judge_rekey,
    judge_writer_epoch,
    landed,
)
from .metastore.appender import Appender
from .metastore.content import check_request
from .metastore.decommission import Decommissioner
from .metastore.entry_draft import AlreadyStands, Change
from .metastore.kept_open import MEMORY_BYTES
from .metastore.left_behind import take_left_behind
from .metastore.lineage import (
    changed_between,
    commit_by,
    commits_between,
    lsn_at_time,
    snapshot_at,
    time_of_commit,
)
from .metastore.log_ownership import LivenessProbe, Takeover, assume_gone
from .metastore.logs import Logs
from .metastore.move import Mover
from .metastore.naming import Naming
from .metastore.open_volume import Volume
from .metastore.open_volumes import Volumes
from .metastore.organisations import Organisations
from .metastore.pin_store import SKEW_SECONDS, Pins
from .metastore.regions import node_in
from .metastore.retention import Retention
from .metastore.share import Share
from .metastore.standby import Standby
from .metastore.state import removed
from .opening import opened
from .pagestore.fingerprint import Fingerprints
from .pagestore.ingest import Ingest, Target
from .pagestore.locate import locate
from .pagestore.pagestore import Pagestore
from .pagestore.plan import Plan, Reads, open_reads, plan_reads
from .pagestore.read_heat import ReadHeat
from .query_plan import QueryPlanner
from .store.counted import CountedStore
from .store.probe import probed_root
from .store.protocol import Store
from .store.retrying import PATIENT, Patience
from .store.root import GC_INTERVAL_SECONDS, Root
from .store.store_clock import StoreClock
from .store.tree_nodes import loading
from .upkeep.collector import Collector, Verify
from .upkeep.ended_forks import EndedForks
from .upkeep.fold import Folder
from .upkeep.retainer import Retainer
from .upkeep.shared_logs import told as shared_logs_told
from .upkeep.surveys import Surveys
from .upkeep.transactions import Transactions
from .upkeep.upkeep import CALM, Pace, Upkeep

_VERSION: Final = version("budwood")
"""Read once: looking it up takes longer than the rest of a `hello`."""

MOST_COMMITS: Final = 1000
"""In one answer of pull_commits."""

_logger: Final = logging.getLogger(__name__)

_BORN: Final = faults.point("node: birth written, log not anchored")
_FORKED: Final = faults.point("node: fork born, parent not told")


answers: Final = Answers["Node"]()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _stood(node: Node, log: str, streams: list[str]) -> None:
    node.counted.shared(log, streams)
    node.upkeep.stood(log, streams)


async def _take_back(logs: Logs, share: Share | None) -> None:
    try:
        await logs.take_back((lambda _: True) if share is None else share.watches)
    except BudwoodError as error:
        _logger.warning("what this node has owned of others' logs isn't taken back: %s", error)
    except Exception:
        # Its own log is served all the same.
        _logger.exception("what this node has owned of others' logs isn't taken back")


async def _running(scope: anyio.CancelScope, work: Callable[[], Awaitable[None]]) -> None:
    with scope:
        await work()


class Node:
    """See volume.protocols.Remote. Belongs to one event loop."""

    def __init__(
        self,
        root: Root,
        logs: Logs,
        pagestore: Pagestore,
        counted: CountedStore,
        surveys: Surveys,
        *,
        skew_seconds: float,
        pace: Pace,
        verify: Verify | None = None,
        share: Share | None = None,
    ) -> None:
        self.store = logs.store
        self.counted = counted
        self.root = root
        self.name = logs.claim.log
        self.address = logs.claim.address
        self.logs = logs
        self.pagestore = pagestore
        self.volumes = Volumes(logs)
        self._mover = Mover(logs, self.volumes)
        self._appender = Appender(logs, self.volumes, self._mover)
        self.clock = StoreClock(logs.store, logs.now_ms, logs.patience, skew_seconds=skew_seconds)
        pins = Pins(
            logs.store,
            now_ms=logs.now_ms,
            clock=self.clock,
            patience=logs.patience,
            skew_seconds=skew_seconds,
            gc_interval_seconds=root.gc_interval_seconds,
        )
        self.retention = Retention(self.volumes, pins, self._appender)
        self._ingest = Ingest(pagestore, logs.patience, now_ms=logs.now_ms)
        self._fingerprints = Fingerprints(self.volumes, pagestore)
        self._queries = QueryPlanner()
        self._heat = ReadHeat(logs.now_ms)
        self._surveys = surveys
        self._naming = Naming(logs, root.names_id)
        self._organisations = Organisations(logs.store, logs.patience)
        self._namings: dict[VolumeId, Naming] = {}
        """Of organisations that were asked for."""
        self.retainer = Retainer(self.retention, self._appender, self._naming)
        ended_forks = EndedForks(logs, self.retention.pins)
        self.folder = Folder(self.retention, self._appender, pagestore, logs.nodes, ended_forks)
        self.collector = Collector(logs, self.volumes, pins, root.gc_interval_seconds, verify)
        self.transactions = Transactions(logs, self.volumes, self.collector)
        self._decommissioner = Decommissioner(logs, self._mover.ready_for, self.transactions.reject_all, share)
        self.upkeep = Upkeep(
            logs, self.volumes, self.retainer, self.folder, self.collector, root.names_id, self.clock, pace=pace
        )

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        store: Store,
        *,
        name: str | None = None,
        address: str = "",
        stack: str = "",
        cache_dir: Path | None = None,
        cache_bytes: int | None = None,
        memory_bytes: int | None = None,
        now_ms: Callable[[], int] = now_ms,
        probe_owner: LivenessProbe = assume_gone,
        takeover: bool = False,
        yields: bool = False,
        patience: Patience = PATIENT,
        skew_seconds: float = SKEW_SECONDS,
        create: bool = True,
        gc_interval_seconds: int = GC_INTERVAL_SECONDS,
        upkeep: bool = False,
        pace: Pace = CALM,
        verify: Verify | None = None,
        batching: Batching | None = None,
        standby: bool = False,
        takes_back: bool = False,
        region: str = "",
        share: Share | None = None,
        shards: int = 1,
    ) -> AsyncGenerator[Node, None]:
        """Make the store's root where it has none, unless `create` is false (then NotFound), and take the log `name`.
        What is planned to go from a store that is made here waits for `gc_interval_seconds`.
        On the way out, entries in flight are waited for. `stack` says whose the address is (volume/owner.py). Of the
        volumes, logs and names that nobody uses just now, about `memory_bytes` are kept open (128 MiB unless told).
        With `upkeep` what it appends to is looked after meanwhile, at that pace (upkeep/upkeep.py). `verify` is who has
        a garbage plan verified (upkeep/collector.py). `batching` is how its entries form (log/waiting.py). A `standby`
        takes over the logs of nodes that can't be reached any more (metastore/standby.py). With `takes_back` it owns
        again, a moment later, the logs of others that it owned when it ended. `region` is where it runs
        (metastore/regions.py). `share` is what is this process's where several are one node (metastore/share.py). Large
        batches are spread over `shards` prefixes of their log (volume/fragments.py).

        Raises NotOwner if a node owns that log that may be alive, unless told to take it over, or to serve without it
        until that one is gone (`yields`); BadInput where more is
        to be in flight than the store allows; Unsupported, Corrupt, Unavailable.
        """
        if name is not None:
            share = share or Share(check_node(name))
        check_region(region)
        store = counted = CountedStore(store, now_ms)
        root = await probed_root(
            store,
            patience,
            now_ms,
            probing=name is not None,
            create=create,
            gc_interval_seconds=gc_interval_seconds,
        )
        batching = allowed(batching or Batching(), root.max_alpha)
        pagestore = Pagestore(
            store,
            store_id=str(root.store_id),
            cache_dir=cache_dir,
            cache_bytes=cache_bytes,
            shards=shards,
            patience=patience,
        )
        failure: BaseException | None = None
        upkeeping, standing_by, taking_back, warning = (anyio.CancelScope() for _ in range(4))
        async with anyio.create_task_group() as tasks:
            surveys = Surveys(store, tasks, patience, now_ms)
            logs = Logs(
                store,
                tasks=tasks,
                now_ms=now_ms,
                seed=pagestore.seed,
                gc_interval_seconds=root.gc_interval_seconds,
                claim=Claim(address=address, stack=stack, region=region)
                if share is None
                else Claim(log=share.log, node=share.node, address=address, stack=stack, region=region),
                probe_owner=probe_owner,
                patience=patience,
                memory_bytes=MEMORY_BYTES if memory_bytes is None else memory_bytes,
                batching=batching,
            )
            try:
                if share is not None:
                    await logs.own(takeover=takeover, yields=yields)
                    await take_left_behind(logs, share)
                node = cls(
                    root,
                    logs,
                    pagestore,
                    counted,
                    surveys,
                    skew_seconds=skew_seconds,
                    pace=pace,
                    verify=verify,
                    share=share,
                )
                logs.on_stood = counted.shared
                if share is not None:
                    tasks.start_soon(_running, warning, node.clock.warn)
                if upkeep:
                    logs.on_stood = partial(_stood, node)
                    node.retention.pins.on_change = node.upkeep.pinned
                    tidies = share is None or share.number == 1
                    tasks.start_soon(_running, upkeeping, partial(node.upkeep.run, node.name, tidies=tidies))
                if takes_back:
                    tasks.start_soon(_running, taking_back, partial(_take_back, logs, share))
                if standby:
                    mine = Standby(logs) if share is None else Standby(logs, share.watches)
                    tasks.start_soon(_running, standing_by, mine.run)
                yield node
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:
                # Kept from the group, which would wrap it in an ExceptionGroup.
                failure = error
                if not isinstance(error, Exception):
                    tasks.cancel_scope.cancel()
            finally:
                upkeeping.cancel()
                standing_by.cancel()
                taking_back.cancel()
                warning.cancel()
                surveys.close()
                logs.close()
        if failure is not None:
            raise failure

    @property
    def url(self) -> str:
        return self.address or self.store.url

    async def ask(self, call: Call[Q, A], request: Q) -> A:
        return await answers.ask(self, call, request)

    @answers(calls.HELLO)
    async def hello(self, _: calls.Done) -> StoreInfo:
        self.logs.look_behind()
        held = {log: _owned(log, term) for log, term in self.logs.held()}
        return StoreInfo(
            store=str(self.root.store_id),
            node=self.logs.claim.node,
            log=self.name,
            epoch=held[self.name].epoch if self.name in held else 0,
            logs=tuple(held.values()),
            region=self.logs.claim.region,
            version=_VERSION,
        )

    @answers(calls.FINGERPRINT)
    async def fingerprint(self, request: calls.SnapshotRequest) -> calls.Fingerprint:
        snapshot = await self.snapshot(request)
        content = await self._fingerprints.content(await self.volumes.get(VolumeId(snapshot.vid)), snapshot)
        return calls.Fingerprint(
            lsn=snapshot.lsn, length=snapshot.length, page_size=snapshot.page_size, content=content.digest
        )

    @answers(calls.REQUESTS)
    async def requests(self, _: calls.Done) -> calls.RequestCounts:
        return self.counted.told()

    @answers(calls.SHARED_LOGS)
    async def shared_logs(self, request: calls.SharedLogsRequest) -> SharedLogs:
        return await shared_logs_told(self.logs, self.collector, after=request.after, limit=request.limit)

    @answers(calls.STORE_COSTS)
    async def store_costs(self, _: calls.Done) -> StoreCosts:
        return await self._surveys.last()

    @answers(calls.HEAT)
    async def heat(self, request: calls.VolumeRequest) -> Heat:
        return self._heat.of((await self.volumes.get(VolumeId(request.vid))).vid)

    @answers(calls.CREATE)
    async def create(self, request: calls.CreateRequest) -> calls.Done:
        self.logs.check_retired()
        vid = VolumeId(request.vid)
        log, region = self.name or str(vid), check_region(request.region)
        if self.name and region not in {"", self.logs.claim.region}:
            nearer = await node_in(self.logs, region, but=self.name)
            if nearer is not None:
                raise NotOwner(f"node {nearer.node} serves region {region}", owner=nearer.address, log=nearer.log)
        birth = Birth(
            vid=vid.raw,
            page_size=request.page_size,
            log=log,
            region=region,
            org=request.org,
            maker=request.maker,
            encryption=checked_header(request.encryption),
            time=self.logs.now_ms(),
        )
        if await self.volumes.make(birth) and not self.name:
            _BORN()
            private = self.logs.new_private(vid)
            assert private.writer is not None
            await private.writer.anchor()
        return calls.Done()

    @answers(calls.SNAPSHOT)
    async def snapshot(self, request: calls.SnapshotRequest) -> SnapshotInfo:
        vid, lsn, at_ms, confirm = VolumeId(request.vid), request.lsn, request.at_ms, request.confirm
        if (lsn is not None) + (at_ms is not None) + bool(request.label) > 1:
            raise BadInput("a snapshot is asked for by LSN, by time or by label, and not by two of them")
        if request.label:
            lsn = (await self.retention.labelled(vid, request.label)).lsn
        if at_ms is not None:
            volume = await self.volumes.get(vid)
            if at_ms >= volume.state.time or confirm:
                volume = await self.volumes.get(vid, fresh=True, confirm=confirm)
            lsn = await self._at_time(volume, at_ms)
        elif lsn is not None:
            volume = await self._with(vid, lsn, confirm=confirm)
        else:
            volume = await self.volumes.get(vid, fresh=True, confirm=confirm)
            lsn = volume.state.head
        return await self._snapshot_at(volume, lsn)

    @answers(calls.PULL_CHANGES)
    async def pull_changes(self, request: calls.RangeRequest) -> Changes:
        after = request.after
        volume, to = await self._range(request)
        await self.retention.check(volume, after)
        snapshot = await self._snapshot_at(volume, to)
        pages = encode_pages(await changed_between(self.volumes, volume, after, to))
        before = await snapshot_at(self.volumes, volume, after) if after else None
        return Changes(snapshot=snapshot, pages=pages, after_time=0 if before is None else before.time)

    @answers(calls.PULL_COMMITS)
    async def pull_commits(self, request: calls.RangeRequest) -> calls.CommitList:
        after = request.after
        volume, to = await self._range(request)
        if after == 0:
            # From the beginning: from as far back as anything is remembered.
            after = min(to, await self.retention.oldest(volume)) - (to > 0)
        await self.retention.check_all(volume, after + 1, min(to, after + MOST_COMMITS))
        return calls.CommitList(commits=tuple(await commits_between(self.volumes, volume, after, to, MOST_COMMITS)))

    async def write_pages(self, vid: VolumeId, segment: bytes) -> Location:
        volume, writer = await self._appender.writable(vid)
        return await self._ingest.write(target_of(volume, writer), segment)

    async def commit(self, request: CommitRequest, segment: bytes = b"") -> Committed:
        vid = VolumeId(request.vid)

        async def change(volume: Volume, writer: LogWriter) -> Change[Any] | AlreadyStands:
            pages = check_request(request, volume.page_size)
            stands = await loading(partial(landed, volume, request))
            if stands is not None:
                return AlreadyStands(stands)
            content = await self._ingest.content(target_of(volume, writer), request, pages, segment)
            judge = judge_commit(volume, request, content, lambda: writer.reader.chain.fragments_since)
            return change_in(writer.log, volume, judge, inline=content.inline, fragments=content.fragments)

        committed = await self._appender.change(vid, change)
        assert isinstance(committed, Committed)
        return committed

    @answers(calls.OUTCOME)
    async def outcome(self, request: calls.OutcomeRequest) -> Outcome:
        vid, client, token = VolumeId(request.vid), request.client, request.token
        volume = await self.volumes.get(vid)
        log = await self.logs.get(volume.log)
        if log.writer is not None:
            await log.writer.settle()
        volume = await self.volumes.get(vid, confirm=True)
        head = volume.state.head
        stands = await commit_by(volume, client, token, base=request.base)
        if stands is None and volume.state.is_forgotten:
            raise removed(volume.state)
        return Outcome(head=head) if stands is None else Outcome(lsn=stands.lsn, time=stands.time, head=head)

    @asynccontextmanager
    async def read_pages(
        self, vid: VolumeId, lsn: int, pages: PageSet, *, extra_bytes: int = 0
    ) -> AsyncGenerator[Reads, None]:
        snapshot, plan = await self._planned(vid, lsn, pages)
        self._heat.read(vid, pages)

        async def again(left: PageSet) -> Plan:
            """Raises Forgotten if nobody holds that LSN any more."""
            volume = await self.volumes.get(vid, confirm=True)
            await self.retention.check(volume, snapshot.lsn)
            return await plan_reads(self.volumes, volume, snapshot.lsn, left)

        async with open_reads(self.pagestore, snapshot, plan, extra_bytes, again) as reads:
            yield reads

    @answers(calls.LOCATE)
    async def locate(self, request: calls.LocateRequest) -> Located:
        snapshot, plan = await self._planned(VolumeId(request.vid), request.lsn, pages_asked_for(request.pages))
        return await locate(self.pagestore, snapshot, plan, measure=request.measure)

    @answers(calls.PLAN_QUERY)
    async def plan_query(self, request: calls.PlanRequest) -> calls.QueryPages:
        return await self._queries.pages(self, request)

    @answers(calls.WAIT)
    async def wait(self, request: calls.WaitRequest) -> calls.Head:
        vid, after = VolumeId(request.vid), request.after

        def waits(volume: Volume) -> bool:
            ended = volume.state.finished and request.commits > 0
            return volume.ended or (volume.state.head <= after and not ended)

        volume = await self.volumes.get(vid)
        with anyio.move_on_after(request.timeout_seconds):
            volume = await self.volumes.get(vid, fresh=True)
            # From here to `changed` nothing else runs, so that no commit is missed.
            while waits(volume):
                if not volume.ended:
                    # Nobody tells of a volume that is on its way to another log.
                    seconds = None if volume.attached else polling.POLL_SECONDS
                    await self.logs.watches.changed(volume.log, volume, seconds)
                if waits(volume):
                    volume = await self.volumes.get(vid, fresh=True, glance=True)
        return (
            await self._told(volume, after, request.commits) if request.commits else calls.Head(lsn=volume.state.head)
        )

    @answers(calls.FORK)
    async def fork(self, request: calls.ForkRequest) -> SnapshotInfo:
        vid, child, lsn = VolumeId(request.vid), VolumeId(request.child), request.lsn

        async def change(volume: Volume, writer: LogWriter) -> Change[Any]:
            parent = await snapshot_at(self.volumes, volume, lsn)
            pin = await self.retention.hold_for_fork(volume, lsn, child)
            birth = Birth(
                vid=child.raw,
                page_size=parent.page_size,
                log=self.name or str(child),
                org=volume.birth.org,
                maker=request.maker,
                parent=vid.raw,
                parent_lsn=lsn,
                parent_length=parent.length,
                encryption=volume.encryption,
                time=self.logs.now_ms(),
            )
            await self.volumes.make(birth)
            _FORKED()
            return change_in(writer.log, volume, judge_fork(child, lsn, pin))

        if child == vid:
            raise BadInput(f"volume {vid} can't be a fork of itself")
        await self._with(vid, lsn)
        try:
            await self._appender.change(vid, change)
        except Forgotten:
            # A collection has passed the LSN that this process did not know of. A pin may hold it all the same.
            await self._appender.change(vid, change)
        return await self._snapshot_at(await self._with(child, lsn), lsn)

    @answers(calls.LOOKUP)
    async def lookup(self, request: calls.LookupRequest) -> calls.NameAnswer:
        return calls.NameAnswer(
            entry=await (await (await self._names(request.org)).get(fresh=True)).lookup(request.name)
        )

    @answers(calls.OPEN)
    async def open_by_name(self, request: calls.OpenRequest) -> calls.Opened:
        return await opened(self, str(self.root.store_id), request)

    @answers(calls.LIST_NAMES)
    async def list_names(self, request: calls.NamesRequest) -> NameList:
        return await (await (await self._names(request.org)).get(fresh=True)).listed(
            request.prefix, request.after, request.limit, request.at
        )

    @answers(calls.PULL_NAMES)
    async def pull_names(self, request: calls.PullNamesRequest) -> NameDelta:
        return await (await (await self._names(request.org)).get(fresh=True)).delta(
            request.since, request.after, request.limit
        )

    @answers(calls.WAIT_NAMES)
    async def wait_names(self, request: calls.WaitNamesRequest) -> calls.Head:
        return calls.Head(lsn=await (await self._names(request.org)).wait(request.after, request.timeout_seconds))

    @answers(calls.CHANGE_NAME)
    async def change_name(self, request: NameRequest) -> calls.Revision:
        return calls.Revision(lsn=await (await self._names(request.org)).change(request))

    @answers(calls.MOVE_LOG)
    async def move_log(self, request: calls.MoveRequest) -> calls.LogName:
        vid, to = VolumeId(request.vid), request.to
        return calls.LogName(log=await self._mover.move(vid, to, takeover=request.takeover, ready=request.ready))

    @answers(calls.READY)
    async def ready(self, request: calls.MoveRequest) -> calls.Ready:
        log, slot = await self._mover.ready(VolumeId(request.vid), request.to)
        return calls.Ready(log=log, slot=slot)

    @answers(calls.TAKE_LOG)
    async def take_log(self, request: calls.LogName) -> OwnedLog:
        """Raises NotFound where there is no such log; NotOwner where another was quicker."""
        self._check_listens()
        await check_log(self.store, check_node(request.log), self.logs.patience)
        log = await self.logs.get(request.log)
        # Whoever was deposed may not know it yet.
        await self.logs.refresh(log, confirm=True)
        if not log.owned:
            await self._mover.ready_for(log)
            await self.logs.take_over(log, Takeover.ALWAYS, stays=True)
        term = (await self.logs.writer(log)).term
        return _owned(log.name, term)

    @answers(calls.DECOMMISSION)
    async def decommission(self, request: calls.DecommissionRequest) -> calls.Decommissioned:
        self._check_listens()
        node = check_node(request.node)
        heir = None if request.here else await self._decommissioner.nearer(node)
        if heir is not None:
            words = f"node {heir.node} is in the region of {node}: ask it, or say that this one is to have its logs"
            raise NotOwner(words, owner=heir.address, log=heir.log)
        done = await self._decommissioner.run(node, force=request.force)
        held = dict(self.logs.held())
        return calls.Decommissioned(
            node=done.mark.node,
            by=done.mark.by,
            time=done.mark.time,
            heir=self.address,
            taken=tuple(_owned(name, held[name]) for name in done.taken if name in held),
            rejected=tuple((name, number) for name, found in done.rejected.items() for number in found),
            left=done.left,
            says=done.says,
        )

    @answers(calls.PIN)
    async def pin(self, request: calls.PinRequest) -> Pin:
        return await self.retention.pin(request)

    @answers(calls.RENEW)
    async def renew(self, request: calls.RenewRequest) -> Pin:
        return await self.retention.renew(VolumeId(request.vid), PinId(request.pin), request.seconds)

    @answers(calls.UNPIN)
    async def unpin(self, request: calls.UnpinRequest) -> calls.Done:
        await self.retention.unpin(VolumeId(request.vid), PinId(request.pin))
        return calls.Done()

    @answers(calls.PINS)
    async def pins(self, request: calls.VolumeRequest) -> calls.PinList:
        return calls.PinList(pins=tuple(await self.retention.list(VolumeId(request.vid))))

    @answers(calls.REMOVE)
    async def remove(self, request: calls.VolumeRequest) -> calls.Done:
        await self.retention.remove(VolumeId(request.vid))
        return calls.Done()

    @answers(calls.RETAIN)
    async def retain(self, request: calls.RetainRequest) -> calls.Done:
        await self.retention.retain(VolumeId(request.vid), request.policy)
        return calls.Done()

    @answers(calls.RETAINED)
    async def retained(self, request: calls.VolumeRequest) -> calls.Retained:
        volume = await self.volumes.get(VolumeId(request.vid), fresh=True)
        if volume.state.is_forgotten:
            raise removed(volume.state)
        return calls.Retained(
            policy=volume.state.policy,
            default=await self._naming.default_policy(),
            since=volume.state.since,
            oldest=await self.retention.oldest(volume),
            head=volume.state.head,
        )

    @answers(calls.RULES)
    async def rules(self, request: calls.VolumeRequest) -> calls.Ruled:
        state = (await self.volumes.get(VolumeId(request.vid), confirm=True)).state
        if state.finished:
            raise removed(state)
        ruled = state.ruled
        return calls.Ruled(mode=ruled.mode, writer_epoch=ruled.writer_epoch, sources=ruled.sources, head=state.head)

    @answers(calls.SET_MODE)
    async def set_mode(self, request: calls.ModeRequest) -> calls.Done:
        # Another process may have changed it: what stands is judged by what it says now.
        await self.volumes.get(VolumeId(request.vid), fresh=True)
        await self._appender.submit(VolumeId(request.vid), judge_mode(check_mode(request.mode)))
        return calls.Done()

    @answers(calls.REKEY)
    async def rekey(self, request: calls.RekeyRequest) -> calls.Done:
        volume = await self.volumes.get(VolumeId(request.vid), fresh=True)
        header = checked_header(request.encryption)
        await self._appender.submit(volume.vid, judge_rekey(volume, header, request.before))
        return calls.Done()

    @answers(calls.TAKE_EPOCH)
    async def take_epoch(self, request: calls.VolumeRequest) -> calls.Epoch:
        return calls.Epoch(epoch=await self._appender.submit(VolumeId(request.vid), judge_writer_epoch))

    @answers(calls.RETAIN_DEFAULT)
    async def retain_default(self, request: calls.RetainDefaultRequest) -> calls.Done:
        await self._naming.retain(request.policy)
        return calls.Done()

    @answers(calls.RETAINED_DEFAULT)
    async def retained_default(self, _: calls.Done) -> calls.DefaultRetained:
        return calls.DefaultRetained(policy=await self._naming.default_policy())

    @answers(calls.ADVANCE)
    async def advance(self, request: calls.SinceRequest) -> calls.Since:
        return calls.Since(since=await self.retention.advance(VolumeId(request.vid), request.since))

    async def _names(self, org: str) -> Naming:
        """Those of an organisation; the store's own for "". Raises NotFound where there is no such."""
        if not org:
            return self._naming
        vid = VolumeId((await self._organisations.get(org)).names)
        naming = self._namings.get(vid)
        if naming is None:
            naming = self._namings[vid] = Naming(self.logs, vid)
        return naming

    def _check_listens(self) -> None:
        if not self.address:
            raise BadInput("a log is owned by a node that listens: ask one with --remote http://HOST:PORT")

    async def aclose(self) -> None:
        """Accept no more changes. What is in flight is waited for where the node was opened."""
        self.logs.close()

    async def _told(self, volume: Volume, after: int, most: int) -> calls.Head:
        """What whoever listens from `after` on is told. Raises Forgotten, and NotFound where no more will come."""
        if volume.ended:
            volume = await self.volumes.get(volume.vid)
        head = volume.state.head
        to = min(head, after + most)
        if after >= head and volume.state.finished:
            raise removed(volume.state)
        await self.retention.check_all(volume, after + 1, to)
        commits = await commits_between(self.volumes, volume, after, to, most) if after < head else []
        known = volume.state.since <= after <= head
        time = await time_of_commit(self.volumes, volume, after) if known else 0
        return calls.Head(lsn=head, commits=tuple(commits), after_time=time)

    async def _snapshot_at(self, volume: Volume, lsn: int) -> SnapshotInfo:
        """Raises NotFound, Forgotten."""
        if lsn <= volume.state.head:
            # What was folded can't be looked at any more, and doesn't know what can.
            await self.retention.check(volume, lsn)
        return await snapshot_at(self.volumes, volume, lsn)

    async def _at_time(self, volume: Volume, at_ms: int) -> int:
        """The last LSN that is not later. Raises NotFound, Forgotten."""
        try:
            return await lsn_at_time(self.volumes, volume, at_ms)
        except Forgotten:
            # Commits that were folded tell it no more; what a policy has kept of them does.
            return await self.retention.kept_at(volume, at_ms)

    async def _planned(self, vid: VolumeId, lsn: int, pages: PageSet) -> tuple[SnapshotInfo, Plan]:
        """Where these pages lie at that LSN, or at the newest if it is 0."""
        if lsn:
            volume = await self._with(vid, lsn)
        else:
            volume = await self.volumes.get(vid, fresh=True)
            lsn = volume.state.head
        snapshot = await self._snapshot_at(volume, lsn)
        return snapshot, await plan_reads(self.volumes, volume, lsn, PageSet(pages))

    async def _with(self, vid: VolumeId, lsn: int, *, confirm: bool = False) -> Volume:
        """The volume, with that LSN if it has it by now."""
        volume = await self.volumes.get(vid, confirm=confirm)
        if lsn > volume.state.head:
            volume = await self.volumes.get(vid, confirm=True)
        return volume

    async def _range(self, request: calls.RangeRequest) -> tuple[Volume, int]:
        """The volume, and the LSN that the range ends at."""
        vid, after, to = VolumeId(request.vid), request.after, request.to
        if to is None:
            volume = await self.volumes.get(vid, fresh=True)
            if after > volume.state.head:
                # The caller has seen more than this node, which may have been deposed without knowing it.
                volume = await self.volumes.get(vid, confirm=True)
            to = volume.state.head
        else:
            volume = await self._with(vid, to)
        if after < 0 or not after <= to <= volume.state.head:
            raise NotFound(f"volume {vid} has no LSNs from {after} to {to}; its newest is {volume.state.head}")
        return volume, to


answers.complete()


def _owned(log: str, term: Term) -> OwnedLog:
    return OwnedLog(log=log, epoch=term.epoch, writer=term.writer)


def target_of(volume: Volume, writer: LogWriter) -> Target:
    """Where pages of the volume go, as long as that writer writes its log."""
    since = writer.reader.chain.fragments_since
    encrypted = bool(volume.birth.encryption)
    return Target(volume.vid, volume.page_size, writer.log, writer.term.epoch, since, encrypted=encrypted)

"""Handlers: each call of the protocol, from its message to the Remote and back.

Those that carry pages stand in `pages.py`; test_http.py holds this table and volume/calls.py together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from ...volume.calls import (
    MAX_WAIT_SECONDS,
    CommitList,
    Done,
    Head,
    LogName,
    LookupRequest,
    NameAnswer,
    NamesRequest,
    OutcomeRequest,
    PinList,
    PinRequest,
    RangeRequest,
    RenewRequest,
    Revision,
    Since,
    SinceRequest,
    SnapshotRequest,
    UnpinRequest,
    VolumeRequest,
    WaitNamesRequest,
    WaitRequest,
)
from ...volume.ids import PinId, VolumeId
from ...volume.pins import Pin
from ...volume.protocols import Remote
from ...volume.wire import (
    Changes,
    CreateRequest,
    ForkRequest,
    Located,
    LocateRequest,
    MoveRequest,
    NameList,
    NameRequest,
    Outcome,
    SnapshotInfo,
    StoreInfo,
)
from .pages import pages_of

__all__ = ["HANDLERS"]


async def _hello(remote: Remote, _: Done) -> StoreInfo:
    return await remote.hello()


async def _create(remote: Remote, request: CreateRequest) -> Done:
    await remote.create(VolumeId(request.vid), request.page_size)
    return Done()


async def _snapshot(remote: Remote, request: SnapshotRequest) -> SnapshotInfo:
    return await remote.snapshot(VolumeId(request.vid), lsn=request.lsn, at_ms=request.at_ms, confirm=request.confirm)


async def _pull_changes(remote: Remote, request: RangeRequest) -> Changes:
    return await remote.pull_changes(VolumeId(request.vid), request.after, request.to)


async def _pull_commits(remote: Remote, request: RangeRequest) -> CommitList:
    return CommitList(commits=tuple(await remote.pull_commits(VolumeId(request.vid), request.after, request.to)))


async def _outcome(remote: Remote, request: OutcomeRequest) -> Outcome:
    return await remote.outcome(VolumeId(request.vid), request.client, request.token)


async def _locate(remote: Remote, request: LocateRequest) -> Located:
    return await remote.locate(VolumeId(request.vid), request.lsn, pages_of(request), measure=request.measure)


async def _wait(remote: Remote, request: WaitRequest) -> Head:
    seconds = min(request.timeout_seconds, MAX_WAIT_SECONDS)
    return Head(lsn=await remote.wait(VolumeId(request.vid), request.after, seconds))


async def _fork(remote: Remote, request: ForkRequest) -> SnapshotInfo:
    return await remote.fork(VolumeId(request.vid), VolumeId(request.child), request.lsn)


async def _pin(remote: Remote, request: PinRequest) -> Pin:
    return await remote.pin(
        VolumeId(request.vid),
        request.lsn,
        seconds=request.seconds,
        owner=request.owner,
        kind=request.kind,
        pin=PinId(request.pin),
    )


async def _renew(remote: Remote, request: RenewRequest) -> Pin:
    return await remote.renew(VolumeId(request.vid), PinId(request.pin), request.seconds)


async def _unpin(remote: Remote, request: UnpinRequest) -> Done:
    await remote.unpin(VolumeId(request.vid), PinId(request.pin))
    return Done()


async def _pins(remote: Remote, request: VolumeRequest) -> PinList:
    return PinList(pins=tuple(await remote.pins(VolumeId(request.vid))))


async def _advance(remote: Remote, request: SinceRequest) -> Since:
    return Since(since=await remote.advance(VolumeId(request.vid), request.since))


async def _lookup(remote: Remote, request: LookupRequest) -> NameAnswer:
    return NameAnswer(entry=await remote.lookup(request.name))


async def _list_names(remote: Remote, request: NamesRequest) -> NameList:
    return await remote.list_names(request.prefix, request.after, request.limit)


async def _wait_names(remote: Remote, request: WaitNamesRequest) -> Head:
    seconds = min(request.timeout_seconds, MAX_WAIT_SECONDS)
    return Head(lsn=await remote.wait_names(request.after, seconds))


async def _change_name(remote: Remote, request: NameRequest) -> Revision:
    return Revision(lsn=await remote.change_name(request))


async def _move_log(remote: Remote, request: MoveRequest) -> LogName:
    return LogName(log=await remote.move_log(VolumeId(request.vid), request.to, takeover=request.takeover))


HANDLERS: Final[dict[str, Callable[[Remote, Any], Awaitable[msgspec.Struct]]]] = {
    "hello": _hello,
    "create": _create,
    "snapshot": _snapshot,
    "pull_changes": _pull_changes,
    "pull_commits": _pull_commits,
    "outcome": _outcome,
    "locate": _locate,
    "wait": _wait,
    "fork": _fork,
    "pin": _pin,
    "renew": _renew,
    "unpin": _unpin,
    "pins": _pins,
    "advance": _advance,
    "lookup": _lookup,
    "list_names": _list_names,
    "wait_names": _wait_names,
    "change_name": _change_name,
    "move_log": _move_log,
}

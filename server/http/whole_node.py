"""WholeNode: what is asked of one worker and is about all of them: who this is, what it has asked of its store, and to
take another node out of it.

A worker that doesn't answer at once is left out: who asks whether the owner of its log lives hears that it does not.
Where each has its part to do they do it one after the other, so that the last one sees whether anything is left.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeVar, cast

import anyio
import msgspec

from ...volume.calls import (
    DECOMMISSION,
    HEAT,
    HELLO,
    MSGPACK,
    REQUESTS,
    STORE_COSTS,
    A,
    Call,
    Decommissioned,
    Done,
    ErrorBody,
    Q,
    RequestCounts,
    Requested,
    VolumeRequest,
)
from ...volume.decoded_kinds import decodable
from ...volume.entry import EpochRecord
from ...volume.errors import Unavailable
from ...volume.ids import VolumeId
from ...volume.owner import Liveness, base_url
from ...volume.pageset import PageSet
from ...volume.protocols import PagesRead, Remote
from ...volume.records import Location
from ...volume.store_report import Heat
from ...volume.wire import CommitRequest, Committed, StoreInfo, from_wire
from ..metastore.log_ownership import LivenessProbe
from ..metastore.share import Share
from ..pagestore.read_heat import summed as summed_heat
from .siblings import ABSENT_SECONDS, Broken, Question, Siblings

ANSWER_SECONDS: Final = 1.0

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class WholeNode:
    """See volume.protocols.Remote."""

    node: Remote
    siblings: Siblings
    share: Share

    @property
    def url(self) -> str:
        return self.node.url

    async def ask(self, call: Call[Q, A], request: Q) -> A:
        answer: Any
        if call.name == HELLO.name:
            answer = await self._hello()
        elif call.name == REQUESTS.name:
            answer = summed((await self.counted()).values())
        elif call.name == HEAT.name:
            answer = await self._heat(cast("VolumeRequest", request))
        elif call.name == STORE_COSTS.name and self.share.number != 1:
            # One survey of the store is enough.
            answer = await asked_for_part(self.siblings, 1, STORE_COSTS, Done())
        elif call.name == DECOMMISSION.name:
            answer = await self._decommission(request)
        else:
            return await self.node.ask(call, request)
        return cast("A", answer)

    async def counted(self) -> dict[int, RequestCounts]:
        """What each worker has asked of its store since it began, as far as it answers."""
        own = await self.node.ask(REQUESTS, Done())
        return {self.share.number: own} | await asked_of(self.siblings, self.share, REQUESTS, Done())

    async def write_pages(self, vid: VolumeId, segment: bytes) -> Location:
        return await self.node.write_pages(vid, segment)

    async def commit(self, request: CommitRequest, segment: bytes = b"") -> Committed:
        return await self.node.commit(request, segment)

    def read_pages(
        self, vid: VolumeId, lsn: int, pages: PageSet, *, extra_bytes: int = 0
    ) -> AbstractAsyncContextManager[PagesRead]:
        return self.node.read_pages(vid, lsn, pages, extra_bytes=extra_bytes)

    async def aclose(self) -> None:
        await self.node.aclose()

    async def _decommission(self, request: Any) -> Decommissioned:
        """Raises what any of them has refused it with; Unavailable where one is being started again: asked anew, all
        go on where they were."""
        first = await self.node.ask(DECOMMISSION, request)
        each = [first]
        for number in range(1, self.share.count + 1):
            if number != self.share.number:
                each.append(await asked_for_part(self.siblings, number, DECOMMISSION, request))
        return msgspec.structs.replace(
            each[-1],
            taken=tuple(own for done in each for own in done.taken),
            rejected=tuple(number for done in each for number in done.rejected),
        )

    async def _heat(self, request: VolumeRequest) -> Heat:
        own = await self.node.ask(HEAT, request)
        return summed_heat([own, *(await asked_of(self.siblings, self.share, HEAT, request)).values()])

    async def _hello(self) -> StoreInfo:
        own = await self.node.ask(HELLO, Done())
        others = await asked_of(self.siblings, self.share, HELLO, Done())
        logs = {log.log: log for info in (*others.values(), own) for log in info.logs}
        first = self.share.node
        epoch = logs[first].epoch if first in logs else 0
        return msgspec.structs.replace(own, log=first, epoch=epoch, logs=tuple(logs[log] for log in sorted(logs)))


async def asked_for_part(siblings: Siblings, number: int, call: Call[Q, A], request: Q) -> A:
    """What one worker answers for itself. Raises what it raised, and Unavailable where it isn't there."""
    question, body = _question(call, request)
    try:
        answered = await siblings.ask(number, question, body, ABSENT_SECONDS)
        if answered is None:
            raise Unavailable(f"worker {number} of this node is being started again: ask for the same once more")
        try:
            data = await answered.rest()
        finally:
            answered.close()
    except Broken:
        words = f"worker {number} of this node ended in the middle of it: ask for the same once more"
        raise Unavailable(words, determinate=False) from None
    if answered.head.status != HTTPStatus.OK:
        refused = msgspec.msgpack.decode(data, type=decodable(ErrorBody))
        raise from_wire(refused.code, refused.message, refused.details)
    return msgspec.msgpack.decode(data, type=decodable(call.answer))


def _question(call: Call[Any, Any], request: msgspec.Struct) -> tuple[Question, bytes]:
    body = msgspec.msgpack.encode(request)
    headers = [(b"accept", MSGPACK.encode()), (b"content-type", MSGPACK.encode())]
    return Question(f"/v1/{call.name}", headers=headers, body_bytes=len(body)), body


async def asked_of(siblings: Siblings, share: Share, call: Call[R, T], request: R) -> dict[int, T]:
    """What the other workers answer, each for itself."""
    question, body = _question(call, request)
    told = await answers_of(siblings, share, question, body)
    return {number: msgspec.msgpack.decode(data, type=decodable(call.answer)) for number, data in told.items()}


async def answers_of(siblings: Siblings, share: Share, question: Question, body: bytes = b"") -> dict[int, bytes]:
    """The same, as it comes, of those who answer and don't refuse."""
    found = dict[int, bytes]()

    async def ask(number: int) -> None:
        try:
            with anyio.move_on_after(ANSWER_SECONDS):
                answer = await siblings.ask(number, question, body, ANSWER_SECONDS)
                if answer is not None:
                    try:
                        if answer.head.status == HTTPStatus.OK:
                            found[number] = await answer.rest()
                    finally:
                        answer.close()
        except (Broken, Unavailable):
            # It is being started again.
            return

    async with anyio.create_task_group() as tasks:
        for number in range(1, share.count + 1):
            if number != share.number:
                tasks.start_soon(ask, number)
    return found


def sibling_probe(siblings: Siblings, share: Share, own: str, elsewhere: LivenessProbe) -> LivenessProbe:
    """Whether the owner of a log lives, for a worker at the address `own`: where another worker listens too, who is
    asked at its door."""

    async def probe(owner: EpochRecord) -> Liveness:
        at = share.of_log(owner.log)
        if at == share.number or not owner.address or base_url(owner.address) != base_url(own):
            return await elsewhere(owner)
        held = (await asked_of(siblings, share, HELLO, Done())).get(at)
        logs = () if held is None else held.logs
        term = (owner.log, owner.n, owner.writer)
        return Liveness.ANSWERS if term in {(log.log, log.epoch, log.writer) for log in logs} else Liveness.GONE

    return probe


def summed(each: Iterable[RequestCounts]) -> RequestCounts:
    """Those of several processes."""
    every = list(each)
    figures = dict[str, float]()
    for counts in every:
        for name, figure in counts.figures.items():
            figures[name] = figures.get(name, 0.0) + figure
    return RequestCounts(
        since_ms=min(counts.since_ms for counts in every),
        now_ms=max(counts.now_ms for counts in every),
        days=_added(line for counts in every for line in counts.days),
        owners=_added(line for counts in every for line in counts.owners),
        figures=figures,
    )


def _added(lines: Iterable[Requested]) -> tuple[Requested, ...]:
    """One line for each day and owner."""
    found = dict[tuple[int, str], Requested]()
    for line in lines:
        key = (line.day, line.owner)
        before = found.get(key)
        found[key] = line if before is None else _sum_of(before, line)
    return tuple(sorted(found.values(), key=lambda line: (line.day, -line.creates - line.entries, -line.gets)))


def _sum_of(one: Requested, other: Requested) -> Requested:
    counts = {name: getattr(one, name) + getattr(other, name) for name in _COUNTS}
    return msgspec.structs.replace(one, **counts)


_COUNTS: Final = tuple(name for name in Requested.__struct_fields__ if name not in {"day", "owner"})

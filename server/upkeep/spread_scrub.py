"""Spread scrub: a scrub whose parts are done elsewhere, many at a time, and put together again.

    async with open_scrub(store, watcher) as scrub:
        await SpreadScrub(scrub, watcher, spread, wave=64).run()

It finds what the scrub finds that does one part after another (scrub.py), each wrong object once, with the same words:

- Parts are taken in their order, so many at a time (a wave), and what one has found counts once those before it do. So
  what is told of an object is what was found first, and a position is a place where all before it is done.
- A part of a log begins behind a rollup, and assumes that this was found right. The part before it looks at that
  rollup: where it was found wrong, the part is done again, from the last one that was right. Only then is what it found
  worth anything.
- Moves of which one part met one side and another the other meet here.
- The nodes of a log that nothing can be read to lead to are a part of their own, behind the log's.

Whoever does the parts may do one twice, or elsewhere again: nothing is written, and one answer is taken. What holds no
answer is an error, and ends the scrub.

Memory: the parts of a wave, and what they found; and the key of each object that is wrong, as any scrub's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final, TypeAlias

from ...volume.errors import BudwoodError, Corrupt, NotFound, Unavailable, Unsupported
from ...volume.ids import VolumeId
from ...volume.rollup import slot_of_rollup
from ..store.protocol import Store
from ..store.retrying import PATIENT, Patience
from .covered_scrub import Link
from .findings import Finding
from .position import Position
from .reach import Unlock
from .scrub import Scrub, Watcher, open_scrub
from .scrub_part import CoveredPart, LogPart, NodesPart, Outcome, Part

Spread: TypeAlias = Callable[[Sequence[Part]], Awaitable[list[Outcome | BudwoodError]]]
"""Does these parts (`do_part`), anywhere and in any order, and answers in their order."""


SLOTS: Final = 1024
"""That a part of a log has at least: enough to be worth a task."""


class SpreadScrub:
    def __init__(self, scrub: Scrub, watcher: Watcher, spread: Spread, *, wave: int) -> None:
        self._scrub = scrub
        self._watcher = watcher
        self._spread = spread
        self._wave = wave
        self.objects = scrub.objects
        self.locked = scrub.locked
        self.bytes = scrub.bytes
        self._head: LogPart | None = None
        """The first part of the log that is looked at in parts just now."""
        self._base = ""
        """The newest rollup of it that was found right."""
        self._blind = False
        self._link: Link | None = None
        """The entry that counts before those that were walked last; None where that isn't known."""

    async def run(self, vids: Collection[VolumeId] = (), start: Position | None = None, *, slots: int = SLOTS) -> None:
        """The whole store from that position on, or what belongs to those volumes (`Scrub.of_volumes`); logs in parts
        of so many slots at least. Raises what a part failed of, once all before it is told."""
        scrub = self._scrub
        wave, parts = (
            list[Part](),
            scrub.parts_of_volumes(vids, start, slots=slots) if vids else scrub.parts(start, slots=slots),
        )
        async with aclosing(parts):
            async for part in parts:
                wave.append(part)
                if len(wave) >= self._wave:
                    await self._do(wave)
                    wave = []
        await self._do(wave)
        await self._end_log(None)

    async def _do(self, wave: Sequence[Part]) -> None:
        if not wave:
            return
        answers = await self._spread(wave)
        for part, answer in zip(wave, answers, strict=True):
            if isinstance(part, LogPart) and part.outline is not None:
                if self._head is None or part.log != self._head.log:
                    await self._end_log(part)
                outcome = await self._settled(part, answer)
            elif isinstance(part, CoveredPart):
                outcome = await self._settled_covered(part, answer)
            else:
                await self._end_log(None)
                outcome = _whole(answer)
            await self._take(part, outcome)

    async def _settled(self, part: LogPart, answer: Outcome | BudwoodError) -> Outcome:
        """What a part of a log has found, once it began as it should."""
        assert self._head is not None
        if part.behind == self._base and not isinstance(answer, Corrupt | Unsupported):
            outcome = _whole(answer)
        else:
            again = replace(self._head, upto=part.upto)
            if self._base and part.behind != self._base:
                first = slot_of_rollup(self._base) + 1
                again = replace(part, behind=self._base, first=first)
            outcome = _whole((await self._spread([again]))[0])
        self._base = outcome.left.base
        self._blind = self._blind or outcome.left.blind
        if part.covered_by:
            self._link = outcome.left.walked.left
            if outcome.left.covered_by != part.covered_by:
                message = (
                    f"log {part.log} was collected while it was looked at: begin again, with --from where it stopped"
                )
                raise Unavailable(message)
        return outcome

    async def _settled_covered(self, part: CoveredPart, answer: Outcome | BudwoodError) -> Outcome:
        """The same of entries that are covered: what counts among them follows from those behind."""
        outcome = _whole(answer)
        walked = outcome.left.walked
        if walked.link != self._link and not (walked.whole and self._link is None):
            again = replace(part, link=self._link, guessed=False)
            outcome = _whole((await self._spread([again]))[0])
            walked = outcome.left.walked
        self._link = walked.left if self._link is not None else None
        return outcome

    async def _end_log(self, head: LogPart | None) -> None:
        """The parts of a log are done; `head` is the first of another's."""
        ended, blind = self._head, self._blind
        self._head, self._base, self._blind = head, "", False
        if ended is not None and ended.outline is not None and blind:
            nodes = NodesPart(ended.outline)
            await self._take(nodes, _whole((await self._spread([nodes]))[0]))

    async def _take(self, part: Part, outcome: Outcome) -> None:
        self.objects += outcome.objects
        self.bytes += outcome.bytes
        self.locked |= outcome.locked
        await self._scrub.meet(outcome.unmet)
        for finding in outcome.findings:
            self._scrub.findings.pass_on(finding)
        if part.end is not None:
            self._watcher.passed(replace(part.end, blind=self._blind), self.objects, self.bytes)


async def do_part(
    store: Store, store_id: str, part: Part, patience: Patience = PATIENT, *, unlock: Unlock | None = None
) -> Outcome:
    """One part, by whoever has nothing else of the scrub; `store_id` is what the root says, "" where that
    can't be read. Raises NotFound where another store stands there, or none; and what `Scrub.do` does."""
    found = _Found()
    async with open_scrub(store, found, patience=patience, unlock=unlock) as scrub:
        try:
            if scrub.store_id != store_id:
                raise NotFound(f"another store stands at {store.url} than where the scrub was started")
            left = await scrub.do(part)
            return Outcome(tuple(found.findings), left, scrub.unmet, scrub.objects, scrub.bytes, scrub.locked)
        except BudwoodError as error:
            # Else the group would wrap it.
            failure = error
    raise failure


def _whole(answer: Outcome | BudwoodError) -> Outcome:
    if isinstance(answer, BudwoodError):
        raise answer
    return answer


class _Found:
    """See scrub.Watcher."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def found(self, finding: Finding) -> None:
        self.findings.append(finding)

    def passed(self, position: Position, objects: int, size_bytes: int) -> None:
        pass

"""Mutants of what lets a store grow old: each must be caught by the simulation within its first 1,000 schedules
(testing/simulation). docs/design/0083-simulation.md names the first that does."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

SCHEDULES: Final = ("tests/property/test_simulation.py", "-k", "schedules_hold")

STORE_CLOCK: Final = "tests/integration/test_store_clock.py"

_HELD: Final = "        held = {pin.lsn for pin in pins if pin.holds} | forks\n"

MUTANTS: Final = (
    Mutant(
        "upkeep: policies go by a clock that runs ahead",
        "server/upkeep/upkeep.py",
        "        await self.clock.check()\n        known, failures",
        "        known, failures",
        (STORE_CLOCK, "-k", "policy"),
    ),
    Mutant(
        "upkeep: pins end by a clock that runs ahead",
        "server/metastore/pin_store.py",
        "                    await self._clock.check()\n",
        "                    pass\n",
        (STORE_CLOCK, "-k", "pin"),
    ),
    Mutant(
        "upkeep: a clock that was set meanwhile is believed",
        "server/store/store_clock.py",
        " or abs(was_set) > self._skew_seconds / 2",
        "",
        (STORE_CLOCK, "-k", "set"),
    ),
    Mutant(
        "upkeep: a clock that was wrong stays wrong",
        "server/store/store_clock.py",
        " or known.ahead_seconds > self._skew_seconds",
        "",
        (STORE_CLOCK, "-k", "set"),
    ),
    Mutant(
        "upkeep: a volume that came unseen holds back where it was",
        "server/upkeep/upkeep.py",
        "return stay.opened is not None and settled_by(stay.fold) < stay.start",
        "return False",
        ("tests/integration/test_upkeep.py", "-k", "came_unseen"),
    ),
    Mutant(
        "upkeep: a volume that moved and was removed holds back where it was",
        "server/upkeep/garbage_plan.py",
        "        return stay.head if volume is None else volume.history.settled_to\n",
        "        return 0 if volume is None else volume.history.settled_to\n",
        ("tests/integration/test_upkeep.py", "-k", "moved_away_and_was_removed"),
    ),
    Mutant(
        "upkeep: a volume that was written once holds its log back",
        "server/upkeep/upkeep.py",
        "min(state.since, state.head) if folds(volume) else 0)",
        "min(state.since, state.head))",
        ("tests/integration/test_upkeep.py", "-k", "quiet_ever_since and volume-1-True"),
    ),
    Mutant(
        "upkeep: a collection ignores forks",
        "server/metastore/retention.py",
        _HELD,
        "        held = {pin.lsn for pin in pins if pin.holds}\n",
        SCHEDULES,
    ),
    Mutant(
        "upkeep: a collection ignores pins",
        "server/metastore/retention.py",
        _HELD,
        "        held = forks\n",
        SCHEDULES,
    ),
    Mutant(
        "upkeep: a collection ignores sync leases",
        "server/metastore/retention.py",
        _HELD,
        '        held = {pin.lsn for pin in pins if pin.holds and pin.kind != "sync"} | forks\n',
        SCHEDULES,
    ),
    Mutant(
        "upkeep: a fold drops a version that an LSN below its newest needs",
        "server/upkeep/checkpoint_builder.py",
        "            own = landed.pages - taken - beyond(landed.pages, floor)\n",
        "            own = landed.pages - taken - beyond(landed.pages, floor) if lsn > after + 1 else PageSet()\n",
        SCHEDULES,
    ),
    Mutant(
        "upkeep: the boundary is not read",
        "server/log/boundary.py",
        "        return self.now() - self._clear_at >= self._half_seconds\n",
        "        return False\n",
        SCHEDULES,
    ),
    Mutant(
        "upkeep: a lease is trusted past its expiry, which another has enacted",
        "server/metastore/pin_store.py",
        "        if seen is None or seen.rev != pin.rev - 1 or self._is_old(seen.at):\n"
        "            return await self.settled(vid, pin.pin_id)\n"
        "        stands = pin if found is None else parse_pin(key, found)\n",
        "        stands = pin\n",
        SCHEDULES,
    ),
    Mutant(
        "upkeep: what a deadlist names is deleted before the grant",
        "server/upkeep/fold.py",
        "        _WRITTEN()\n",
        "        _WRITTEN()\n"
        "        from .deadlists import read_deadlist\n\n"
        "        deadlist = await read_deadlist(self.pagestore.store, checkpoint, patience)\n"
        "        for gone in deadlist.objects if deadlist else ():\n"
        "            await self.pagestore.store.delete(gone)\n",
        SCHEDULES,
    ),
    Mutant(
        "upkeep: a log is read, and rolled up, past what is acknowledged",
        "server/log/log_writer.py",
        "            self._in_flight.send(flight, tasks)\n",
        """            self.reader.take(flight.sent.entry, flight.sent.records)
            if await create_settled(self.reader.store, flight.sent.entry.key, flight.sent.data, self._patience) is None:
                draft.acknowledge()
                self._stood(flight.streams)
            else:
                self._waiting.put_back(flight.taken)
""",
        SCHEDULES,
    ),
    Mutant(
        "upkeep: a create whose answer was lost is taken to have happened",
        "server/store/retrying.py",
        "            determinate = determinate and error.determinate\n",
        "            if not error.determinate:\n                return None\n",
        SCHEDULES,
    ),
)

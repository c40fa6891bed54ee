"""Mutants of what several nodes share a store by: each must be caught by the simulation within its first 1,000
schedules (testing/simulation). docs/design/0083-simulation.md names the first that does."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

SCHEDULES: Final = ("tests/property/test_simulation.py", "-k", "schedules_hold")

MUTANTS: Final = (
    Mutant(
        "failover: acknowledged out of order",
        "server/log/in_flight.py",
        "            self.error = None\n        finally:\n",
        "            self.error = None\n"
        "            if self.found is None:\n"
        "                self.draft.acknowledge()\n"
        "        finally:\n",
        SCHEDULES,
    ),
    Mutant(
        "failover: the fence is skipped",
        "server/metastore/log_ownership.py",
        "        await writer.fence()\n",
        "",
        SCHEDULES,
    ),
    Mutant(
        "failover: a deposed owner acknowledges what stands behind the fence",
        "server/log/log_writer.py",
        "        self._waiting.put_back(submission for flight in self._flights for submission in flight.taken)\n",
        "        for flight in [each for each in known if each.found is None]:\n"
        "            flight.draft.acknowledge()\n"
        "            flight.taken = []\n"
        "        self._waiting.put_back(submission for flight in self._flights for submission in flight.taken)\n",
        SCHEDULES,
    ),
    Mutant(
        "failover: tokens are forgotten",
        "server/metastore/streams.py",
        "        return self.carried.decode(self.key) if self.decoded is None else self.decoded\n",
        """        from msgspec.structs import replace

        if self.decoded is not None:
            return self.decoded
        read = self.carried.decode(self.key)
        return tuple(replace(each, token=bytes(32)) if hasattr(each, "token") else each for each in read)
""",
        SCHEDULES,
    ),
    Mutant(
        "failover: a draft is judged without the one before",
        "server/log/log_writer.py",
        "[flight.draft for flight in self._flights]",
        "[]",
        SCHEDULES,
    ),
    Mutant(
        "failover: behind a lost slot as many are sent again as beside it",
        "server/log/in_flight.py",
        "(1 if self.alone else self.alpha)",
        "self.alpha",
        SCHEDULES,
    ),
    Mutant(
        "failover: twice as many are in flight as an entry says",
        "server/log/in_flight.py",
        "(1 if self.alone else self.alpha)",
        "(1 if self.alone else 2 * self.alpha)",
        SCHEDULES,
    ),
    Mutant(
        "failover: records consulted late",
        "server/store/two_phase_store.py",
        """        # In this order: see above.
        written = await self.records.written(prefix, start=start, limit=limit)
        found = await _visible(self.plain.list, _same, prefix, start, limit)
""",
        """        found = await _visible(self.plain.list, _same, prefix, start, limit)
        written = await self.records.written(prefix, start=start, limit=limit)
""",
        SCHEDULES,
    ),
)

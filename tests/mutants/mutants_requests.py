"""Mutants of what stands between a caller and a bucket: hedges, deadlines, rates, options of its URL."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

HEDGE: Final = "tests/unit/test_store_hedge.py"
RATES: Final = "tests/unit/test_store_rates.py"
DOCTOR: Final = "tests/integration/test_doctor_store.py"
DEADLINES: Final = "tests/integration/test_deadlines.py"

MUTANTS: Final = (
    Mutant(
        "hedge: no share is kept",
        "server/store/hedge.py",
        "if now < self._next_at or self._left < 1:",
        "if now < self._next_at:",
        (HEDGE, "-k", "share"),
    ),
    Mutant(
        "hedge: what is large is sent twice",
        "server/store/hedge.py",
        "return None if size > _MOST_BYTES else",
        "return None if size < 0 else",
        (HEDGE, "-k", "large"),
    ),
    Mutant(
        "hedge: a bucket is opened without",
        "server/store/open_store.py",
        "return HedgedStore(rated, creates=creates) if hedging and given.hedging else rated",
        "return rated",
        (HEDGE, "-k", "bucket"),
    ),
    Mutant(
        "rates: a prefix may have twice what a bucket takes",
        "server/store/rates.py",
        "self._per_second = per_second - self._most",
        "self._per_second = 2 * per_second - self._most",
        (RATES, "-k", "no_second"),
    ),
    Mutant(
        "rates: who comes later goes before those who wait",
        "server/store/rates.py",
        "if not self._queue.locked() and self._taken():",
        "if self._taken():",
        (RATES, "-k", "order"),
    ),
    Mutant(
        "rates: a long listing is one read",
        "server/store/rates.py",
        "        self._left -= count\n",
        "        self._left -= 0 * count\n",
        (RATES, "-k", "listing"),
    ),
    Mutant(
        "doctor: two may win a race",
        "server/store/examine.py",
        "if len(won) > 1:",
        "if len(won) > RACERS:",
        (DOCTOR, "-k", "race"),
    ),
    Mutant(
        "doctor: what was tried is left behind",
        "server/store/examine.py",
        "                for key in self._made:\n",
        "                for key in ():\n",
        (DOCTOR, "-k", "keeps_the_rules"),
    ),
    Mutant(
        "s3: what the URL says goes behind the environment",
        "server/store/aws.py",
        "given.endpoint or s3_endpoint()",
        "s3_endpoint() or given.endpoint",
        (DOCTOR, "-k", "endpoint_and_region"),
    ),
    Mutant(
        "deadline: a node works on for who has given up",
        "server/http/caller_patience.py",
        "self._scope.deadline = anyio.current_time() + self.seconds",
        "self._scope.deadline = anyio.current_time() + 1e9",
        (DEADLINES, "-k", "no_longer"),
    ),
    Mutant(
        "deadline: a client tells a node nothing of it",
        "remote/exchange.py",
        ', TIMEOUT_HEADER: f"{left * _TOLD:.3f}", HEADER',
        ", HEADER",
        (DEADLINES, "-k", "tells"),
    ),
    Mutant(
        "deadline: a part of a call ends after it",
        "remote/deadline.py",
        "max(0.0, min(most, end - anyio.current_time()))",
        "most",
        (DEADLINES, "-k", "one_deadline"),
    ),
)

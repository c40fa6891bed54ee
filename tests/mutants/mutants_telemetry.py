"""Mutants of what a node tells of itself, and of what one caller may take (docs/design/0121, 0122)."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

METRICS: Final = "tests/integration/test_metrics.py"
LOGS: Final = "tests/integration/test_node_logs.py"
LIMITS: Final = "tests/integration/test_caller_limits.py"
TRACES: Final = "tests/integration/test_traces.py"
SLOW: Final = "tests/attack/test_slow.py"
STORE_FAILURES: Final = ("tests/unit/test_store_failures.py",)

MUTANTS: Final = (
    Mutant(
        "telemetry: a path that leads nowhere is a series",
        "server/http/observed.py",
        'seconds, call = perf_counter() - begun, _CALLS.get(scope["path"], OTHER)',
        'seconds, call = perf_counter() - begun, _CALLS.get(scope["path"], scope["path"])',
        (METRICS, "-k", "no_more_series"),
    ),
    Mutant(
        "telemetry: an entry is told of as if it had one change",
        "server/log/log_writer.py",
        "self._landed(Landed(len(flight.taken), len(flight.sent.data), seconds))",
        "self._landed(Landed(0, len(flight.sent.data), seconds))",
        (METRICS, "-k", "are_measured"),
    ),
    Mutant(
        "telemetry: an entry is appended under whoever came before",
        "server/log/submission.py",
        "        self.span = tracing.here()\n",
        "        self.span = None\n",
        (TRACES, "-k", "down_to_the_store"),
    ),
    Mutant(
        "telemetry: an audit that was moved away is anybody's",
        "server/telemetry/logs.py",
        "return open(os.open(self.baseFilename, flags, 0o600)",
        "return open(os.open(self.baseFilename, flags, 0o644)",
        (LOGS, "-k", "moved_away"),
    ),
    Mutant(
        "telemetry: a call fails since its audit can't be written",
        "server/telemetry/logs.py",
        "        except OSError:\n            # It is made anew",
        "        except ValueError:\n            # It is made anew",
        (LOGS, "-k", "told_elsewhere"),
    ),
    Mutant(
        "upkeep: a node that ends says that it looks after its logs later",
        "server/upkeep/upkeep.py",
        "            await checkpoint_if_cancelled()\n            self.done.failures",
        "            self.done.failures",
        ("tests/integration/test_upkeep.py", "-k", "says_nothing"),
    ),
    Mutant(
        "limits: what was under way stays so",
        "server/http/caller_limits.py",
        "            caller.under_way -= 1\n",
        "            caller.under_way -= 0\n",
        (LIMITS, "-k", "under_way and many"),
    ),
    Mutant(
        "limits: a caller who was away has all that it did not use",
        "server/http/caller_limits.py",
        "            begun = max(caller.read_until, now - BURST_SECONDS)\n",
        "            begun = min(caller.read_until, now - BURST_SECONDS)\n",
        (LIMITS, "-k", "bytes_come"),
    ),
    Mutant(
        "limits: small bodies wait behind large ones",
        "server/http/app.py",
        "        return self.small_bodies if small else self.bodies\n",
        "        return self.bodies\n",
        (SLOW, "-k", "small_ones"),
    ),
    Mutant(
        "telemetry: a store that fails for a moment is told in the log",
        "server/telemetry/store_failures.py",
        "now - failing.since >= LASTED_SECONDS if failing.told is None",
        "failing.told is None if failing.told is None",
        STORE_FAILURES,
    ),
    Mutant(
        "telemetry: a store that goes on failing is told once for each request",
        "server/telemetry/store_failures.py",
        " else now - failing.told >= AGAIN_SECONDS",
        " else True",
        STORE_FAILURES,
    ),
    Mutant(
        "telemetry: a store that was never told to fail is told to answer again",
        "server/telemetry/store_failures.py",
        "            if failing is not None and failing.told is not None:\n",
        "            if failing is not None:\n",
        STORE_FAILURES,
    ),
    Mutant(
        "telemetry: a store that failed long ago is what calls wait for",
        "server/telemetry/store_failures.py",
        " and now - each.latest < _LATELY_SECONDS\n",
        "\n",
        STORE_FAILURES,
    ),
    Mutant(
        "telemetry: a failure of hours ago and one of now are an outage",
        "server/telemetry/store_failures.py",
        "        if failing is None or now - failing.latest > _FORGOTTEN_SECONDS:\n",
        "        if failing is None:\n",
        STORE_FAILURES,
    ),
    Mutant(
        "telemetry: whoever waited for a store that fails isn't told so",
        "server/http/app.py",
        "store_fails=self.counted.failures.is_failing()",
        "store_fails=False",
        ("tests/integration/test_deadlines.py", "-k", "store_that_fails"),
    ),
    Mutant(
        "telemetry: an answer of 500 and above is logged without its reason",
        "server/http/body.py",
        "        request.scope[REASON] = str(error)\n",
        "",
        ("tests/fault/test_failing_store.py", "-k", "disk_is_full"),
    ),
)

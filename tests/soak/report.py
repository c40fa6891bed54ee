"""Report: what the soak did and found, from all its threads; one line at intervals, and all of it at the end."""

from __future__ import annotations

import threading
import time
from collections import Counter


class Report:
    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.checks: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        """Errors that may come, as programs were told them: a remote that is away, a mount that was killed."""
        self.acknowledged = 0
        self.violations: list[str] = []
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def fault(self, what: str) -> None:
        with self._lock:
            self.faults[what] += 1

    def check(self, what: str, count: int = 1) -> None:
        with self._lock:
            self.checks[what] += count

    def error(self, what: str) -> None:
        with self._lock:
            self.errors[what] += 1

    def commits(self, count: int) -> None:
        with self._lock:
            self.acknowledged += count

    def violation(self, what: str) -> None:
        with self._lock:
            self.violations.append(what)
        print(f"VIOLATION after {self._elapsed()}: {what}", flush=True)

    def line(self) -> str:
        with self._lock:
            return (
                f"{self._elapsed()}  {self.acknowledged:,} commits acknowledged  {self.faults.total():,} faults  "
                f"{self.checks.total():,} checks  {len(self.violations)} violations"
            )

    def summary(self) -> str:
        lines = [self.line()]
        for title, counter in (("faults", self.faults), ("checks", self.checks), ("errors told", self.errors)):
            told = ", ".join(f"{what} {count:,}" for what, count in sorted(counter.items()))
            lines.append(f"{title}: {told or 'none'}")
        lines += [f"violation: {what}" for what in self.violations]
        return "\n".join(lines)

    def _elapsed(self) -> str:
        minutes, seconds = divmod(round(time.monotonic() - self._began), 60)
        return f"{minutes}:{seconds:02}"

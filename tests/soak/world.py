"""World: what all actors of a soak share: the folder, the clock's end, what was promised, and how it is judged."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .children import Child, Children
from .report import Report

AWAY: Final = frozenset({"Unavailable", "Busy"})
"""Errors of a network that is cut, a node that is down, and a lock that somebody else has."""


@dataclass
class Writer:
    """One that writes entries; its name is its own for ever."""

    name: str
    volume: str
    acknowledged: int = 0
    child: Child | None = None
    errors: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What it ended of, if it was told an error."""
    is_known: bool = True
    """Whether somebody has looked since it wrote last: of the commit that was under way then, it knows nothing."""


class World:
    def __init__(self, folder: Path, seed: int, report: Report) -> None:
        self.folder = folder
        self.report = report
        self.children = Children(folder, report)
        self.over = threading.Event()
        self.writers: dict[str, Writer] = {}
        """Everyone who ever wrote, by name."""
        self._seed = seed

    @property
    def store(self) -> str:
        return f"file://{self.folder / 'store'}"

    def dice(self, actor: str) -> random.Random:
        """An actor's own, so that what the others do changes nothing of what it draws."""
        return random.Random(f"{self._seed} {actor}")

    def rest(self, seconds: float) -> bool:
        """Whether the soak goes on after that time."""
        return not self.over.wait(seconds)

    def writer(self, name: str, volume: str) -> Writer:
        return self.writers.setdefault(name, Writer(name, volume))

    def gather(self, writer: Writer) -> None:
        """Its child has ended: what it was told is committed."""
        child, writer.child = writer.child, None
        assert child is not None
        writer.errors, writer.is_known = [], False
        numbers = [int(line) for line in child.lines if line.isdecimal()]
        if numbers:
            self.report.commits(len(numbers))
            writer.acknowledged = numbers[-1]
        for line in child.lines:
            if line.startswith("{"):
                writer.errors.append(error := json.loads(line))
                self.report.error(error["error"])

    def tell(self, where: str, found: dict[str, Any], may: frozenset[str]) -> None:
        """If what was found is an error, it is counted, or is a violation where it may not come."""
        if "error" not in found:
            return
        if found["error"] in may:
            self.report.error(found["error"])
        else:
            self.report.violation(f"{where}: {found['error']}: {found['said']}")

    def judge(self, where: str, found: dict[str, Any], *writers: Writer, may: frozenset[str] = frozenset()) -> bool:
        """Whether something could be read. Then it must be all that these were told of, and at most the one entry more
        that was under way; who has one more goes on from there. An error is a violation unless it may come.
        """
        if "error" in found:
            self.tell(where, found, may)
            return False
        self.report.check("bank")
        for writer in writers:
            count = found["counts"].get(writer.name, 0)
            if not writer.acknowledged <= count <= writer.acknowledged + 1:
                self.report.violation(
                    f"{where}: {writer.name} was told of {writer.acknowledged} commits, and {count} are there"
                )
            writer.acknowledged, writer.is_known = max(writer.acknowledged, count), True
        return True

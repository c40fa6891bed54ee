"""Disk: what may be on it when the power fails, given what was done to it until then.

A file's sectors hold what they held when it was flushed last, or any version that was written since, each by itself:
so writes are torn, reordered and lost, as far as no flush stands between. A folder's names are there as far as some
point between its last flush and the cut, if its own name is. What is never read again by who has a home to itself isn't
put there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

SECTOR: Final = 512
_NEEDLESS: Final = ("lock.mdb", "sound", "control")
_ANYTHING: Final = "shared"
"""Its pages are mapped: what is on the disk of them says nothing."""

Step = tuple[Any, ...]


def read_log(path: Path) -> list[Step]:
    data, steps, at = path.read_bytes(), list[Step](), 0
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4])
        steps.append(tuple(msgspec.msgpack.decode(data[at + 4 : at + 4 + size])))
        at += 4 + size
    return steps


class DiskFile:
    """What is sure, and what was written since."""

    def __init__(self, data: bytes = b"") -> None:
        self.sure = bytearray(data)
        self.pending: list[tuple[int, bytes]] = []

    def write(self, offset: int, data: bytes) -> None:
        self.pending.append((offset, data))

    def cut(self, size: int) -> None:
        """At once and for ever, as is what was written before: homes cut nothing that matters."""
        self.sync()
        del self.sure[size:]
        self.sure.extend(bytes(size - len(self.sure)))

    def sync(self) -> None:
        for offset, data in self.pending:
            _put(self.sure, offset, data)
        self.pending.clear()

    def state(self, way: random.Random | None) -> bytes:
        """One of those that it may be in; without a way to draw, all that was written."""
        data = bytearray(self.sure)
        if way is None:
            for offset, written in self.pending:
                _put(data, offset, written)
            return bytes(data)
        versions: dict[int, list[bytes]] = {}
        latest: dict[int, bytes] = {}
        for offset, written in self.pending:
            for sector in range(offset // SECTOR, (offset + len(written) - 1) // SECTOR + 1):
                before = latest.get(sector, bytes(self.sure[sector * SECTOR : (sector + 1) * SECTOR]))
                whole = bytearray(before.ljust(SECTOR, b"\0"))
                start = sector * SECTOR - offset
                if start >= 0:
                    part = written[start : start + SECTOR]
                    whole[: len(part)] = part
                else:
                    part = written[: SECTOR + start]
                    whole[-start : -start + len(part)] = part
                latest[sector] = bytes(whole)
                versions.setdefault(sector, []).append(latest[sector])
        # Whole writes that are lost, single sectors, or nearly all: each finds faults that the others don't.
        share = way.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        together = way.choice((1, 8, 8, 16))
        chosen: dict[int, bool] = {}
        for sector, found in versions.items():
            if chosen.setdefault(sector // together, way.random() < share):
                _put(data, sector * SECTOR, found[-1] if way.random() < 0.8 else way.choice(found))
        if way.random() < 0.5 and versions:
            data.extend(bytes(max(0, (max(versions) + 1) * SECTOR - len(data))))
        return bytes(data)


class Disk:
    """A folder's files, as they were before, and step by step since."""

    def __init__(self, before: Path, inodes: dict[str, int]) -> None:
        """A copy of the folder, and the inodes that its files and folders had themselves."""
        self.files: dict[int, DiskFile] = {}
        self.sure: dict[str, int] = {}
        """Inodes by path."""
        self.pending: dict[str, list[Step]] = {}
        """By folder, changes of its names since it was flushed."""
        self.folders: dict[int, str] = {}
        """Paths by inode."""
        for name, inode in inodes.items():
            path = before / name
            if path.is_dir():
                self.folders[inode] = name
            else:
                self.files[inode] = DiskFile(path.read_bytes())
            self.sure[name] = inode

    def take(self, step: Step) -> None:
        match step:
            case ("write", int(inode), int(offset), bytes(data)):
                self.files.setdefault(inode, DiskFile()).write(offset, data)
            case ("sync", int(inode)):
                if inode in self.folders:
                    folder = self.folders[inode]
                    self._change(self.sure, self.pending.pop(folder, []))
                else:
                    self.files.setdefault(inode, DiskFile()).sync()
            case ("cut", int(inode), int(size)):
                self.files.setdefault(inode, DiskFile()).cut(size)
            case ("name", int(inode), str(path)):
                self.files.setdefault(inode, DiskFile())
                self._later(path, step)
            case ("folder", int(inode), str(path)):
                self.folders[inode] = path
                self._later(path, step)
            case ("gone", str(path)):
                self._later(path, step)
            case _:
                raise AssertionError(f"no step: {step}")

    def _later(self, path: str, step: Step) -> None:
        self.pending.setdefault(_above(path), []).append(step)

    def _change(self, names: dict[str, int], steps: list[Step]) -> None:
        for step in steps:
            if step[0] == "gone":
                names.pop(step[1], None)
            else:
                names[step[2]] = step[1]

    def _names(self, way: random.Random | None) -> dict[str, int]:
        names = dict(self.sure)
        for steps in self.pending.values():
            some = way is not None and way.random() < 0.5
            self._change(names, steps[: way.randrange(len(steps) + 1)] if way is not None and some else steps)
        return names

    def put(self, folder: Path, way: random.Random | None) -> None:
        """One of its states into an empty folder; without a way to draw, the last."""
        names = self._names(way)
        for name, inode in sorted(names.items()):
            path = folder / name
            if inode in self.folders and path.parent.is_dir():
                path.mkdir(exist_ok=True)
            if inode in self.folders or path.name in _NEEDLESS or not path.parent.is_dir():
                continue
            if path.name == _ANYTHING:
                path.write_bytes(b"\xff" * 4096 if way is not None and way.random() < 0.5 else bytes(4096))
                continue
            path.write_bytes(self.files[inode].state(way))


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "."


def notes_of(steps: list[Step], inode: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """What a program noted, each with the number of the step."""
    rest = b""
    for number, step in enumerate(steps):
        if step[0] == "write" and step[1] == inode:
            # The kernel cuts a write where a page ends.
            *lines, rest = (rest + step[3]).split(b"\n")
            for line in lines:
                yield number, msgspec.json.decode(line)


def _put(data: bytearray, offset: int, written: bytes) -> None:
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(written)] = written

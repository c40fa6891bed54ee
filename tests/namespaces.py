"""Two homes over one store, and what programs do with their names: for tests of the namespace."""

from __future__ import annotations

import stat
from pathlib import Path

from budwood.sync.attributes import Attributes
from budwood.sync.edge import open as open_edge
from budwood.sync.namespace import Entry, Namespace
from budwood.sync.volume import Volume
from budwood.volume.calls import LIST_NAMES, NamesRequest
from budwood.volume.errors import AlreadyExists, Busy, NotFound
from budwood.volume.protocols import Durability

PAGE = 4096
FILE = Attributes(mode=stat.S_IFREG | 0o640, uid=7, gid=8, mtime_ns=5)
DIRECTORY = Attributes(mode=stat.S_IFDIR | 0o750, uid=7, gid=8)


def link(to: str) -> Attributes:
    return Attributes(mode=stat.S_IFLNK | 0o777, link=to)


class Side:
    """A home, its names, and what a program would do with them."""

    def __init__(self, home: Path, store: str) -> None:
        self.edge = open_edge(home=home, remote=store)
        self.names = Namespace(self.edge)

    def write(self, name: str, text: bytes) -> Volume:
        """A file with that content, made if it isn't there."""
        entry = self.names.entry(name)
        volume = self.names.make_file(name, FILE) if entry is None else self.names.adopt(name)
        writer = volume.writer(page_size=PAGE)
        writer.write(1, text.ljust(PAGE, b"."))
        made = writer.commit(Durability.ORDERED)
        assert made is not None
        made.close()
        return volume

    def read(self, name: str) -> bytes:
        snapshot = self.names.adopt(name).snapshot()
        try:
            # One that was made and never written to has no pages, and no size of them.
            return snapshot.read(1).rstrip(b".\0") if snapshot.length else b""
        finally:
            snapshot.close()

    def push(self) -> list[str]:
        """As a mount does it: names, contents, and names again where a content was refused its name."""
        said = self.names.push()
        for _ in range(3):
            refused = False
            for entry in self.names.entries():
                if entry.kind == "file" and entry.here and entry.unpushed:
                    try:
                        self.edge.volume(entry.name).push()
                    except (AlreadyExists, Busy):
                        refused = True
                    except NotFound:
                        # Renamed or removed meanwhile.
                        continue
            self.names.pull()
            said += self.names.push()
            if not refused:
                break
        return said

    def pull(self) -> set[str]:
        return self.names.pull()

    def tree(self) -> dict[str, str]:
        return {entry.name: entry.kind for entry in self.names.entries()}

    def entry(self, name: str) -> Entry:
        entry = self.names.entry(name)
        assert entry is not None
        return entry

    def bound(self) -> dict[str, bytes]:
        return {
            entry.name: entry.target for entry in self.edge.connection().remote.ask(LIST_NAMES, NamesRequest()).entries
        }


def sync(*sides: Side) -> None:
    """Until nobody has anything to say."""
    for _ in range(2):
        for side in sides:
            side.push()
            side.pull()

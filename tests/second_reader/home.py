"""A home: what an edge keeps in LMDB."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import lmdb
import msgspec
import xxhash

from .basics import CLIENT, Damaged, Fields, TooNew, check_id, digest, page_count, page_set, unpack_map, xxh3
from .journals import read_journal

if TYPE_CHECKING:
    from .store import Store

TABLES = ["meta", "names", "volumes", "heads", "commits", "pushes", "stages", "tails", "bodies", "places", "known"]
HEAD = struct.Struct("<QQQQQIIII")
HERE, PENDING, EMPTY = 1, 2, 3
SPLIT_FROM, TAIL = 4096, 16


class Unpushed(NamedTuple):
    lsn: int
    pages: set[int]
    length: int
    floor: int


class Home:
    """Read while no process has it open."""

    def __init__(self, folder: Path) -> None:
        said = msgspec.json.decode((folder / "home.json").read_bytes())
        if said.get("budwood") != "home" or said.get("format") not in (1, 2):
            raise TooNew(f"home.json says {said}")
        self.folder = folder
        self._tables = _read(folder / "store")
        meta = self._row("meta", b"format")
        if meta is None:
            raise Damaged("meta", "the home says nothing of itself")
        if meta.number("version") not in (1, 2):
            raise TooNew(f"a home of version {meta.number('version')}")
        moved = self._row("meta", b"journal")
        at = (0, 0, 0)
        if moved is not None:
            at = moved.number("position"), moved.number("link"), moved.number("generation")
        self.journal = {} if meta.number("version") == 1 else read_journal(folder / "store" / "journal", *at)
        self.client = check_id("meta", meta.data("client"), CLIENT)

    def volumes(self) -> dict[str, bytes]:
        """Volumes by name; those that are being removed too."""
        return {record.text("name"): vid for vid, record in self._rows("volumes")}

    def kind(self, entry: bytes) -> str:
        """Of the volume or place by its id: file, directory or link."""
        place = self._row("places", entry)
        return "file" if place is None else place.text("kind")

    def known(self) -> dict[str, tuple[bytes, int]]:
        """The remote's names as they were last seen: what they lead to, and their revision."""
        rows = (record for _, record in self._rows("known"))
        return {record.text("name"): (record.data("target"), record.number("revision")) for record in rows}

    def names(self) -> dict[str, bytes]:
        """Every name but of what was removed, and the id of the volume or place that it stands for."""
        ids = {self._name_key(name): (name, vid) for name, vid in self.volumes().items()}
        ids |= {self._name_key(record.text("name")): (record.text("name"), key) for key, record in self._rows("places")}
        found: dict[str, bytes] = {}
        for key, value in self._tables["names"].items():
            if key not in ids or ids[key][1] != value:
                raise Damaged("names", f"the name {key!r} leads to nothing that is called so")
            found[ids[key][0]] = value
        return {name: entry for name, entry in found.items() if not name.startswith(".budwood/gone/")}

    def volume(self, vid: bytes) -> HomeVolume:
        return HomeVolume(self, vid)

    def check(self) -> None:
        """Every row. Raises Damaged."""
        for table in set(TABLES) - {"names", "heads", "tails", "bodies"}:
            for key, value in self._tables[table].items():
                _open(table, key, value)
        self.names()
        for vid in self.volumes().values():
            self.volume(vid)

    def raw(self, table: str) -> dict[bytes, bytes]:
        return self._tables[table]

    def _rows(self, table: str) -> list[tuple[bytes, Fields]]:
        return [(key, _open(table, key, value)) for key, value in self._tables[table].items()]

    def _row(self, table: str, key: bytes) -> Fields | None:
        value = self._tables[table].get(key)
        return None if value is None else _open(table, key, value)

    def row(self, table: str, key: bytes) -> Fields:
        found = self._row(table, key)
        if found is None:
            raise Damaged(table, f"it has no row {key.hex()}")
        return found

    @staticmethod
    def _name_key(name: str) -> bytes:
        raw = name.encode()
        return raw if len(raw) <= 400 else raw[:400] + b"\0" + digest(raw)


class HomeVolume:
    """A volume as this home has it."""

    def __init__(self, home: Home, vid: bytes) -> None:
        self.vid, self._home = vid, home
        record = home.row("volumes", vid)
        self.name = record.text("name")
        self.created, self.parent = record.flag("created"), record.data("parent", b"")
        head = home.raw("heads").get(vid)
        if head is None or len(head) != 8 + HEAD.size or head[:8] != _checksum(head[8:], xxh3(vid)):
            raise Damaged("heads", f"the head of {self.name!r} does not match its checksum")
        values = HEAD.unpack(head[8:])
        self.lsn, self.length, self.sync_remote, self.sync_local, self.floor = values[:5]
        self.page_size, self.generation, unpushed, state = values[5:]
        self.diverged = state == 1
        self.fresh: dict[int, bytes] = {}
        """Pages that the journal has newer than the tables."""
        stored = unpushed
        journaled = list[Unpushed]()
        for entry in home.journal.get(vid, ()):
            if (entry.lsn, entry.generation, entry.page_size) != (self.lsn + 1, self.generation, self.page_size):
                raise Damaged("journal", f"commit {entry.lsn} of {self.name!r} follows {self.lsn}")
            fields = Fields("journal", unpack_map("journal", entry.commit))
            pages = page_set("journal", fields.data("pages"))
            journaled.append(Unpushed(entry.lsn, pages, fields.number("length"), fields.number("floor")))
            if len(entry.pages) != len(journaled[-1].pages):
                raise Damaged("journal", "a record has not the pages that it says")
            self.fresh |= dict(zip(sorted(journaled[-1].pages), entry.pages, strict=True))
            self.lsn, self.length, unpushed = entry.lsn, journaled[-1].length, unpushed + 1
        self.unpushed = [self._commit(lsn) for lsn in range(self.sync_local + 1, self.sync_local + stored + 1)]
        self.unpushed += journaled
        if unpushed and self.sync_local + unpushed != self.lsn:
            raise Damaged("heads", "unpushed commits end at the head")

    @property
    def label(self) -> str:
        return f"{self.sync_remote}+{len(self.unpushed)}" if self.unpushed else str(self.sync_remote)

    def page(self, number: int, store: Store | None) -> bytes:
        """What a program reads now; `store` is the remote's."""
        if not 0 < number <= page_count(self.length, self.page_size):
            return bytes(self.page_size)
        if number in self.fresh:
            return self.fresh[number]
        lsn, state, data = self._newest(number)
        wrote = self._wrote(number)
        if wrote and lsn != wrote:
            raise Damaged("tails", f"page {number} of {self.name!r} was written at {wrote} and is gone")
        if state == HERE:
            return data
        if state == EMPTY or number > page_count(self.floor, self.page_size) or not self.sync_remote:
            return bytes(self.page_size)
        assert store is not None, "the page is the remote's"
        return store.volume(self.vid if self.created else self.parent).page(number, self.sync_remote)

    def pages(self, store: Store | None) -> dict[int, bytes]:
        """Every page that is not all zeros."""
        numbers = range(1, page_count(self.length, self.page_size) + 1 if self.page_size else 1)
        return {number: page for number in numbers if any(page := self.page(number, store))}

    def _commit(self, lsn: int) -> Unpushed:
        row = self._home.row("commits", self.vid + struct.pack(">Q", lsn))
        return Unpushed(lsn, page_set("commits", row.data("pages")), row.number("length"), row.number("floor"))

    def _wrote(self, number: int) -> int:
        """The local LSN of the unpushed commit that the page is of."""
        wrote = 0
        for commit in self.unpushed:
            if number > page_count(commit.floor, self.page_size):
                wrote = 0
            if number in commit.pages:
                wrote = commit.lsn
        return wrote

    def _newest(self, number: int) -> tuple[int, int, bytes]:
        """LSN, state and page of the newest version that is not above the head; (0, 0, b"") where there is none."""
        tails, prefix = self._home.raw("tails"), self.vid + struct.pack(">I", number)
        keys = sorted(key for key in tails if key.startswith(prefix))
        key = next((key for key in keys if _lsn(key) <= self.lsn), None)
        if key is None:
            return 0, 0, b""
        value, inverse = tails[key], int.from_bytes(key[20:], "big")
        state, checksum, page = value[0], value[1:9], value[9:]
        if state == HERE and self.page_size >= SPLIT_FROM:
            if len(page) != TAIL:
                raise Damaged("tails", f"page {number} of {self.name!r} has a tail of {len(page)} bytes")
            page = self._home.raw("bodies").get(key, b"") + page
        seed = xxh3(self.vid) ^ inverse ^ number << 24
        if checksum != _checksum(page if state == HERE else value[:1], seed):
            raise Damaged("tails", f"page {number} of {self.name!r} does not match its checksum")
        if state not in (HERE, PENDING, EMPTY) or (state == HERE and len(page) != self.page_size):
            raise Damaged("tails", f"page {number} of {self.name!r} has the state {state}")
        return _lsn(key), state, page


def _read(folder: Path) -> dict[str, dict[bytes, bytes]]:
    with lmdb.open(str(folder), readonly=True, lock=False, max_dbs=len(TABLES), create=False) as environment:
        found: dict[str, dict[bytes, bytes]] = {}
        for name in TABLES:
            table = environment.open_db(name.encode(), create=False)
            with environment.begin(db=table) as txn:
                found[name] = {bytes(key): bytes(value) for key, value in txn.cursor()}
        return found


def _open(table: str, key: bytes, value: bytes) -> Fields:
    if value[:8] != _checksum(value[8:], xxh3(key)):
        raise Damaged(table, f"the row {key.hex()} does not match its checksum")
    if (table, key) == ("meta", b"names"):
        return Fields(table, {"version": msgspec.msgpack.decode(value[8:], type=int)})
    return Fields(table, unpack_map(table, value[8:]))


def _checksum(data: bytes, seed: int) -> bytes:
    return xxhash.xxh3_64_digest(data, seed=seed)


def _lsn(key: bytes) -> int:
    return 2**64 - 1 - int.from_bytes(key[20:], "big")

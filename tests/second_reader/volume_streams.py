"""A volume: its birth, its stream through the logs it was in, and its pages at each LSN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, cast

from .basics import (
    EMPTY_SUM,
    NO_RULES,
    VOLUME,
    Damaged,
    Fields,
    Policy,
    Rules,
    add,
    base58,
    check_id,
    log_item,
    page_count,
    page_set,
    sum_of,
    unpack_map,
)
from .checkpoints import Checkpoint, Region, row_of
from .envelopes import object_of, unseal
from .log import Entry, Log, Placed
from .read_rollups import State, Stay
from .rolled_streams import OPENS, kind_of_open
from .segments import Segment

if TYPE_CHECKING:
    from .store import Store


@dataclass
class Commit:
    lsn: int
    length: int
    floor: int
    time: int
    record: Fields
    log: str
    entry: Entry | None
    """What carries it, if it was read there."""
    slot: int
    """That of the entry."""
    pages: dict[int, bytes] | None = None
    """As it brought them; None where they are gone, since it was folded."""

    @property
    def bindings(self) -> bytes:
        return self.record.data("bindings", b"")

    @property
    def inline(self) -> bool:
        """Whether some of its pages lie in its entry."""
        return any(not place.text("object") for place in self.record.maps("locations"))

    @property
    def objects(self) -> list[str]:
        return [place.text("object") for place in self.record.maps("locations") if place.text("object")]


class Volume:
    def __init__(self, store: Store, vid: bytes) -> None:
        self.vid = check_id(f"volumes/{vid.hex()}", vid, VOLUME)
        self.id = base58(vid)
        key = f"volumes/{self.id}/birth"
        birth = unseal(key, b"BWVB", object_of(store.objects, key)).fields
        if birth.data("vid") != vid or birth.text("kind", "pages") != "pages":
            raise Damaged(key, "it is the birth of something else")
        self.page_size = birth.number("page_size")
        if self.page_size not in {512 << shift for shift in range(8)}:
            raise Damaged(key, f"pages of {self.page_size} bytes")
        parent = birth.data("parent", b"")
        self.parent = store.volume(parent) if parent else None
        self.start = birth.number("parent_lsn", 0)
        self.start_length = birth.number("parent_length", 0)
        self.time = birth.number("time", 0)
        # One that its parent was never told of may have been born at an LSN that is forgotten since: nobody reads it.
        known = self.parent is not None and self.parent.has(self.start)
        if self.parent is not None and known and self.parent.length_at(self.start) != self.start_length:
            raise Damaged(key, "its parent has another length there")
        self.commits: dict[int, Commit] = {}
        """By LSN: those that logs still have."""
        self.head, self._length, self._newest = self.start, self.start_length, self.time
        """As it stands: the newest LSN, the length, and the time of the newest commit."""
        self.since, self.collect, self.collected = max(1, self.start), 0, 0
        self.forks: dict[bytes, int] = {}
        self.finished = False
        self.fold: dict[str, Any] = {}
        """The newest record of one."""
        self.policy: Policy | None = None
        self.rules: Rules = NO_RULES
        self.checkpoint: Checkpoint | None = None
        """Of that."""
        self._folds: list[tuple[Fields, str]] = []
        """All that were met, and where."""
        self._needed: list[str] = []
        """The checkpoints of those whose deadlists must stand: in its newest log, as far as that is read."""
        self._folded: dict[str, bytes] = {}
        """By log: the sum of commits that it has no more."""
        self.log = birth.text("log")
        self.moving_to = ""
        self._clients: dict[bytes, list[object]] | None = {}
        """None where it isn't known: in the midst of a rollup's stays."""
        self._follow(store)
        collected = any(store.log(log).garbage for log in self._logs)
        newest = Checkpoint(store.objects, self.vid, self._folds[-1][0]) if self._folds else None
        self._rows = {lsn: row for lsn, row in newest.rows.items() if lsn > newest.lsn} if newest else {}
        """Where the pages lie that commits had in entries, and have no more."""
        for commit in self.commits.values():
            self._load(store, commit, collected=collected)
        self._check_folds(store.objects, collected=collected)

    @property
    def folded_to(self) -> int:
        """The LSN behind which commits are needed."""
        return max(self.checkpoint.lsn, self.start) if self.checkpoint else self.start

    @property
    def settled_to(self) -> int:
        """The LSN behind which commits may have pages in entries."""
        return max(self.folded_to, self.checkpoint.relocated if self.checkpoint else 0)

    def has(self, lsn: int) -> bool:
        """Whether anything tells what that LSN was."""
        if lsn <= self.start:
            return self.parent is None or lsn == self.start or self.parent.has(lsn)
        return lsn in self.commits or (
            self.checkpoint is not None and any(region.lsn == lsn for region in self.checkpoint.regions)
        )

    def length_at(self, lsn: int) -> int:
        if lsn < self.start:
            assert self.parent is not None
            return self.parent.length_at(lsn)
        if lsn == self.start:
            return self.start_length
        return self.commits[lsn].length if lsn in self.commits else self._region(lsn).length

    def time_at(self, lsn: int) -> int:
        return self.commits[lsn].time if lsn in self.commits else self._region(lsn).time

    def pages_at(self, lsn: int) -> dict[int, bytes]:
        """Every page that is not all zeros."""
        if lsn < self.start or (lsn == self.start and self.parent is not None):
            assert self.parent is not None
            return self.parent.pages_at(lsn)
        pages = self.parent.pages_at(self.start) if self.parent is not None else {}
        first = self.start
        if not self._has_commits(lsn):
            assert self.checkpoint is not None
            first = min(lsn, self.folded_to)
            self._region(first)
            pages = self.checkpoint.pages_at(first, pages)
        return _nonzero(self._with_commits(pages, first, lsn))

    def _has_commits(self, lsn: int) -> bool:
        """Whether all up to that LSN are still there."""
        own = (self.commits.get(each) for each in range(self.start + 1, lsn + 1))
        return all(commit is not None and commit.pages is not None for commit in own)

    def _with_commits(self, pages: dict[int, bytes], after: int, to: int) -> dict[int, bytes]:
        for lsn in range(after + 1, to + 1):
            commit = self.commits[lsn]
            assert commit.pages is not None
            last = page_count(commit.floor, self.page_size)
            pages = {page: data for page, data in pages.items() if page <= last} | commit.pages
        return pages

    def _region(self, lsn: int) -> Region:
        assert self.checkpoint is not None, f"LSN {lsn} is nowhere"
        return self.checkpoint.region(lsn)

    def page(self, number: int, lsn: int) -> bytes:
        return self.pages_at(lsn).get(number, bytes(self.page_size))

    def _follow(self, store: Store) -> None:
        """From its birth through every log that it was in: stay by stay in rollups, and record by record."""
        self._logs = {self.log}
        to, origin = self.log, tuple[object, ...]()
        while True:
            log = store.log(to)
            state = log.base.state(self.vid) if log.base is not None else None
            stays = state[1] if state is not None else ()
            stay = next((stay for stay in stays if stay.opened == origin), None)
            placed = log.stream(self.id)
            if stay is None and origin:
                placed = placed[
                    next((at for at, each in enumerate(placed) if _origin(each.record) == origin), len(placed)) :
                ]
                if not placed:
                    # A move that was cut off: whoever goes on with it writes the `open`.
                    return
            self.log, self._logs, self._needed = to, self._logs | {to}, []
            closed: int | None = None
            if stay is not None:
                assert state is not None
                self._enter(log, state, stay)
                closed = cast("int", stay.closed[1]) if stay.closed else None
            if closed is None:
                closed = next((slot for each in placed if (slot := self._apply(each)) is not None), None)
            if closed is None:
                return
            to, origin = self.moving_to, (self.log, closed)

    def _enter(self, log: Log, state: State, stay: Stay) -> None:
        """A stay as a rollup has it."""
        base, (page_size, stays, finished, folded) = log.base, state
        assert base is not None
        if (stay.start, stay.start_length, page_size) != (self.head, self._length, self.page_size):
            raise Damaged(base.key, f"volume {self.id} comes to it otherwise than it was left")
        self.moving_to = cast("str", stay.closed[0]) if stay.closed else ""
        # A fold in this log takes the commits of the stays before it out as well.
        upto = max(Fields.of(base.key, each.fold).number("lsn", 0) for each in stays)
        for lsn in range(stay.start + 1, stay.head + 1):
            kept = base.commit(self.vid, lsn)
            if kept is not None:
                slot, size, before, raw = kept
                if before != self._length and (lsn - 1 in self.commits or lsn == stay.start + 1):
                    raise Damaged(base.key, f"LSN {lsn} of volume {self.id} was made on another length")
                self._length = before
                self._commit(Fields(base.key, unpack_map(base.key, raw)), base.key, log.name, slot, None)
                self._check_size(log, slot, size)
            elif lsn > upto:
                raise Damaged(base.key, f"it lacks LSN {lsn} of volume {self.id}")
            else:
                self.head = lsn
        if self.head != stay.head or (stay.head > upto and self._length != stay.length):
            raise Damaged(base.key, f"a stay of volume {self.id} ends otherwise than its commits")
        self._length, self._newest = stay.length, max(self._newest, stay.time)
        self.since, self.collect, self.collected = stay.since, stay.collect, stay.collected
        self.policy, self.rules = stay.policy, stay.rules
        self.fold = stay.fold
        if self.fold:
            self._folds.append((Fields.of(base.key, self.fold), base.key))
            self._needed.append(cast("str", self.fold["checkpoint"]))
        last = stay is stays[-1]
        self._folded[log.name] = folded
        self.finished = finished and last
        if last:
            forks = base.all_of(self.vid, b"f").items()
            self.forks = {child: cast("int", lsn) for child, lsn in forks}
        clients = {
            client: cast("tuple[bytes, int, int, int]", each) for client, each in base.all_of(self.vid, b"k").items()
        }
        self._clients = {client: [client, *each[:3]] for client, each in clients.items()} if last else None

    def _check_size(self, log: Log, slot: int, size: int) -> None:
        key = log.key(slot)
        if slot >= log.boundary and len(log.entry_bytes(slot)) != size:
            raise Damaged(key, "it has another length than a rollup says")

    def _apply(self, placed: Placed) -> int | None:
        """The entry's slot where this record closed the stream."""
        record, entry = placed
        kind = record.text("k")
        if record.data("vid") != self.vid:
            raise Damaged(entry.key, "a record stands under another volume's id")
        if self.finished and kind not in {"since", "collect", "collected", "fold", "fold-relocating"}:
            raise Damaged(entry.key, "it changes a volume that was finished")
        if (kind in OPENS) != bool(self.moving_to):
            raise Damaged(entry.key, f"volume {self.id} can't {kind} there")
        match kind:
            case "commit" | "commit-bound":
                self._rule(record, entry)
                self._commit(record, entry.key, self.log, entry.slot, entry)
            case kind if kind in OPENS:
                self._check_open(record, entry)
                self.moving_to = ""
                self._needed = [self.fold["checkpoint"]] if self.fold else []
            case "close":
                self._check_head(record, entry)
                self.moving_to = record.text("to")
                return entry.slot
            case "fork":
                self._fork(record, entry)
            case "since" | "collect" | "collected":
                self._retain(kind, record.number("since"), entry)
            case "retain":
                self.policy = record.policy()
            case "mode" | "writer-epoch":
                self._rule(record, entry)
            case "fold" | "fold-relocating":
                self._take_fold(record, entry)
            case "tombstone":
                self.finished = True
            case _:
                raise Damaged(entry.key, f"a volume's stream has no {kind}")
        return None

    def _rule(self, record: Fields, entry: Entry) -> None:
        rules = record.ruling(self.rules)
        if rules is None:
            raise Damaged(entry.key, "it carries what the volume's rules don't allow")
        self.rules = rules

    def _commit(self, record: Fields, key: str, log: str, slot: int, entry: Entry | None) -> None:
        lsn, length, floor = record.number("lsn"), record.number("length"), record.number("floor")
        time = record.number("time", 0)
        follows = record.number("base") == lsn - 1 == self.head
        if not follows or (time <= self._newest and lsn - 1 in self.commits):
            raise Damaged(key, f"LSN {lsn} can't follow LSN {self.head}")
        if floor > min(self._length, length) and (lsn - 1 in self.commits or lsn == self.start + 1):
            raise Damaged(key, f"LSN {lsn} has a floor above its length, or the one before")
        named = page_set(key, record.data("pages"))
        if named and max(named) > page_count(length, self.page_size):
            raise Damaged(key, f"LSN {lsn} has a page beyond its length")
        if record.data("token") != _token(record):
            raise Damaged(key, f"the token of LSN {lsn} is another commit's")
        self.commits[lsn] = Commit(lsn, length, floor, time, record, log, entry, slot)
        self.head, self._length, self._newest = lsn, length, time
        if self._clients is not None and not record.data("client").endswith(bytes(4)):
            self._clients[record.data("client")] = [record.data("client"), record.data("token"), lsn - 1, lsn]

    def _load(self, store: Store, commit: Commit, *, collected: bool) -> None:
        """Its pages: those of a commit that was folded may be gone."""
        lsn, record, log = commit.lsn, commit.record, store.log(commit.log)
        own = [log.key(commit.slot)] if commit.inline and lsn not in self._rows else []
        gone = not all(key in store.objects for key in (*own, *commit.objects))
        if gone and collected and lsn <= Fields(record.key, self.fold).number("lsn", 0):
            return
        key = log.key(commit.slot)
        body = b""
        if commit.inline and (lsn not in self._rows or key in store.objects):
            # What still stands is as good as what was made of it.
            body = (commit.entry or log.entry(commit.slot)).body
        named = page_set(key, record.data("pages"))
        pages, items = self._located(store.objects, record, key, body, named)
        if set(pages) != named:
            raise Damaged(key, f"LSN {lsn} names other pages than its locations hold")
        if add(*items.values()) != sum_of(key, record.data("content")):
            raise Damaged(key, f"the content of LSN {lsn} is another")
        logged = (log_item(self.vid, lsn, page, item) for page, item in items.items())
        if add(*logged) != sum_of(key, record.data("setsum")):
            raise Damaged(key, f"the setsum of LSN {lsn} is another")
        commit.pages = pages

    def _located(
        self, objects: Mapping[str, bytes], record: Fields, carrier: str, body: bytes, named: set[int]
    ) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Pages and their item hashes."""
        pages: dict[int, bytes] = {}
        items: dict[int, bytes] = {}
        places = record.maps("locations")
        for place in places:
            key = place.text("object")
            wanted = page_set(carrier, place.data("pages", b"")) if place.data("pages", b"") else named
            if (wanted is named and len(places) > 1) or wanted & set(pages):
                raise Damaged(carrier, "a commit's locations are not disjoint")
            data = object_of(objects, key) if key else body
            row, relocated = self._rows.get(record.number("lsn")) if not key else None, dict[int, bytes]()
            if row is not None:
                moved, at = Segment(row.key, object_of(objects, row.key)), row.number
                if any(lsn != record.number("lsn") for frame in moved.parts[at].frames for lsn in frame.lsns):
                    raise Damaged(row.key, "a row has pages of another LSN than its commit's")
                if moved.parts[at].vid != self.vid:
                    raise Damaged(row.key, "it has another volume's pages")
                relocated = moved.pages(at, wanted)
                if not body:
                    pages |= relocated
                    items |= moved.parts[at].hashes
                    continue
            if key and len(data) != place.number("size"):
                raise Damaged(key, f"it has {len(data)} bytes, and its commit names {place.number('size')}")
            segment, slot = Segment(key or carrier, data), place.number("slot")
            if slot >= len(segment.parts) or segment.parts[slot].vid != self.vid:
                raise Damaged(carrier, f"volume {self.id} has no slot {slot} in its segment")
            if segment.parts[slot].page_size != self.page_size:
                raise Damaged(segment.key, "its pages are of another size")
            found = segment.pages(slot, wanted)
            if row is not None and relocated != found:
                raise Damaged(row.key, "it has other pages than the entry that they came from")
            pages |= found
            items |= {page: item for page, item in segment.parts[slot].hashes.items() if page in wanted}
        return pages, items

    def _check_open(self, record: Fields, entry: Entry) -> None:
        self._check_head(record, entry)
        told = record.number("since", 1), record.number("collect", 0), record.number("collected", 0)
        if told != (self.since, self.collect, self.collected):
            raise Damaged(entry.key, "a stream goes on with another since than it had")
        if Fields.of(entry.key, record.map("fold")).all() != self.fold:
            raise Damaged(entry.key, "a stream goes on with another checkpoint than it had")
        if record.text("k") != kind_of_open(self.rules, self.policy, self.fold):
            raise Damaged(entry.key, "its kind doesn't say what its reader must know")
        if (record.policy(), record.rules()) != (self.policy, self.rules):
            raise Damaged(entry.key, "a stream goes on with another policy, or other rules, than it had")
        if record.number("newest", 0) not in {0, self._newest}:
            raise Damaged(entry.key, "a stream goes on with another newest commit than it had")
        known, clients = self._clients, record.items("clients")
        if known is None:
            self.forks, self._clients = dict(record.items("forks")), {client[0]: client for client in clients}
            return
        if record.items("forks") != sorted([child, lsn] for child, lsn in self.forks.items()):
            raise Damaged(entry.key, "a stream goes on with other forks than it had")
        if clients != [known[client] for client in sorted(known)]:
            raise Damaged(entry.key, "a stream goes on with other clients than it had")

    def _check_head(self, record: Fields, entry: Entry) -> None:
        if (record.number("head"), record.number("length")) != (self.head, self._length):
            raise Damaged(entry.key, "a stream goes on from where it never was")

    def _fork(self, record: Fields, entry: Entry) -> None:
        lsn, child = record.number("lsn"), record.data("child")
        if lsn > self.head or self.forks.get(child, lsn) != lsn:
            raise Damaged(entry.key, f"a fork at LSN {lsn} can't be")
        if lsn < self.collect and not record.data("pin", b"") and lsn not in self.forks.values():
            raise Damaged(entry.key, f"a fork at LSN {lsn}, which was collected")
        self.forks[child] = lsn

    def _take_fold(self, record: Fields, entry: Entry) -> None:
        lsn, before = record.number("lsn"), Fields.of(entry.key, self.fold)
        if record.text("base", "") != before.text("checkpoint", ""):
            raise Damaged(entry.key, "it was folded from another checkpoint than the one that stands")
        if not before.number("lsn", 0) <= lsn <= min(self.collect, self.head):
            raise Damaged(entry.key, f"it can't be folded up to LSN {lsn}")
        settled = max(lsn, record.number("relocated", 0))
        if not max(before.number("lsn", 0), before.number("relocated", 0)) <= settled <= self.head:
            raise Damaged(entry.key, f"it can't be settled up to LSN {settled}")
        if (record.text("k") == "fold-relocating") != (record.number("relocated", 0) > lsn):
            raise Damaged(entry.key, "it says otherwise whether it has relocated pages")
        for child in record.items("ended"):
            self.forks.pop(child, None)
        self.fold = record.all()
        self._folds.append((record, entry.key))
        self._needed.append(record.text("checkpoint"))

    def _check_folds(self, objects: Mapping[str, bytes], *, collected: bool) -> None:
        """Of those before the newest the objects may be gone, once anything was collected."""
        for record, key in self._folds if not collected else self._folds[-1:]:
            self.checkpoint = self._read_fold(objects, record, key)
        row = [deadlist.checkpoint for deadlist in row_of(objects, self.vid, self.fold.get("checkpoint", ""))]
        for checkpoint in self._needed:
            if checkpoint not in row:
                raise Damaged(f"{checkpoint}/deadlist", "it is missing, and nothing of its fold was collected")

    def _read_fold(self, objects: Mapping[str, bytes], record: Fields, key: str) -> Checkpoint:
        """Where all commits are still there, what the checkpoint says of every LSN that it has is what they come to."""
        lsn, checkpoint = record.number("lsn"), Checkpoint(objects, self.vid, record)
        regions = checkpoint.regions
        end = regions[-1].lsn if regions else self.start
        # Of a volume that was removed the rest is left out.
        is_all = end == max(lsn, self.start) or (self.since > self.head and end < lsn)
        if not is_all or (regions and regions[0].after != self.start):
            raise Damaged(checkpoint.key, "it has other commits than were folded")
        for region in checkpoint.regions if self._has_commits(lsn) else ():
            shared = self.parent.pages_at(self.start) if self.parent is not None else {}
            pages = _nonzero(checkpoint.pages_at(region.lsn, shared))
            expected = _nonzero(self._with_commits(shared, self.start, region.lsn))
            if (pages, region.length) != (expected, self.commits[region.lsn].length):
                raise Damaged(checkpoint.key, f"LSN {region.lsn} reads otherwise than its commits")
        own = (sum_of(key, self.commits[each].record.data("setsum")) for each in self.commits if each <= lsn)
        if self._folded and record is not self._folds[-1][0]:
            # A rollup has put together what more was folded since.
            return checkpoint
        folded = add(*self._folded.values(), *own)
        if add(checkpoint.setsum, sum_of(key, record.data("superseded", EMPTY_SUM))) != folded:
            raise Damaged(checkpoint.key, "what it keeps and what it leaves out is not what was folded")
        return checkpoint

    def _retain(self, kind: str, since: int, entry: Entry) -> None:
        most = {"since": self.head + self.finished, "collect": self.since, "collected": self.collect}[kind]
        if not getattr(self, kind) < since <= most:
            raise Damaged(entry.key, f"{kind} can't be {since}")
        setattr(self, kind, since)


def _nonzero(pages: Mapping[int, bytes]) -> dict[int, bytes]:
    return {page: data for page, data in pages.items() if any(data)}


def _origin(record: Fields) -> tuple[str, int] | None:
    return (record.text("log"), record.number("slot")) if record.text("k") in OPENS else None


def _token(record: Fields) -> bytes:
    made = blake2b(record.data("client"), digest_size=32, person=b"budwood.token")
    for name in ("base", "length", "floor"):
        made.update(record.number(name).to_bytes(8, "little"))
    for name in ("pages", "setsum", "nonce"):
        part = record.data(name)
        made.update(len(part).to_bytes(4, "little") + part)
    for each in record.maps("sources"):
        source = each.text("source").encode()
        made.update(len(source).to_bytes(4, "little") + source + each.number("offset").to_bytes(8, "little"))
    return made.digest()

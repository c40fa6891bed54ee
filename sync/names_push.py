"""Names push: the remote's names become what they are here.

What is owed is read off the difference between the names here and `known`, so that nothing is kept in a queue: names
that were made and removed, or renamed over, in between leave no trace. In this order, each change one call:

    unbind    dropped names that nothing here takes, but for directories with something in them
    move      renamed entries; a renamed directory is one move, where all that the remote has below it went along.
              What the entry replaced here it replaces there, in the same change
    unbind    those directories: what was moved out of them has gone
    bind      directories, links, and files whose content the remote has without a name. A file whose content it doesn't
              have is bound by its first push (push.py), but for an empty one, which has nothing else to push. An empty
              one that had to make room for another and was never written to goes
    bind      again, over the same target, where only attributes changed

Two entries that swapped their names can't be moved past each other: one is moved aside first (docs/design/0130).

Each call states the revisions that were last seen; for a directory its own, so that what went along is looked at again
where others have made changes since. A refusal is answered by a pull, which says what stands there now
and moves what is in its way here to a conflict name; then the difference is read anew. After each call its outcome is
recorded; what a crash in between, or a lost answer, leaves unknown is settled first (asked_names.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

from ..volume.errors import AlreadyExists, Busy, Conflict, Corrupt, NotFound, UsageError
from ..volume.ids import VolumeId
from ..volume.wire import NameRequest
from .asked_names import ask_change, asked_changes, forget_changes
from .attributes import Attributes
from .conflict_names import conflict_names, is_conflict_name
from .connection import Connection
from .environment import Environment
from .local_volume import Local
from .name_table import NameTable, Record, namespace_of
from .names_mirror import NamesMirror, Note, may_push
from .names_pull import Pulled, check_store, pull_names
from .publish import publish
from .tables import AskedChange, KnownRecord, Txn, VolumeRecord

_ROUNDS: Final = 12
_EMPTY_PAGE_SIZE: Final = 4096
"""Of a volume that the remote learns of before its first commit has settled one."""


def push_names(environment: Environment, connection: Connection) -> list[str]:
    """A line for each entry that had to take a conflict name, or that the remote would not take. Raises Unavailable,
    WrongStore; Corrupt of a remote that has lost changes of names, which it makes again.
    """
    record = namespace_of(environment)
    said: list[str] = []
    step = _Round(environment, connection, ())
    if step.mirror.asked or record is None or record.head == 0 or step.may_have_names():
        said += pull_settled_names(environment, connection).conflicts
        step = _Round(environment, connection, ())
    refused: set[tuple[str, ...]] = set()
    given_up: dict[tuple[str, ...], str] = {}
    for _ in range(_ROUNDS):
        try:
            if not step.run():
                break
        except _Behind:
            said += pull_names(environment, connection).conflicts
        except (Conflict, AlreadyExists, NotFound) as error:
            # The same change twice: what is in its way is nothing that a pull could tell of.
            if step.sending in refused:
                given_up[step.sending] = f"{step.sending[1]!r} stays as it is on the remote: {error}"
            refused.add(step.sending)
            said += pull_names(environment, connection).conflicts
        step = _Round(environment, connection, given_up.keys())
    return [*said, *given_up.values()]


def pull_settled_names(environment: Environment, connection: Connection) -> Pulled:
    """Pull the names, once it is known what became of changes whose outcome isn't recorded (asked_names.py). Those are
    asked again; none is the usual case, and asks nothing. Raises as `pull_names` does."""
    with environment.view() as txn:
        is_settled = not NameTable(environment, txn).asked()
    try:
        left = [] if is_settled else _settle(environment, connection)
    except NotFound:
        # There is no store, or none any more: the pull says what that means for this home.
        left = []
    pulled = pull_names(environment, connection)
    # What it came to is in what was pulled. Asked again later, it might undo what others made of that.
    forget_changes(environment, left)
    return pulled


def _settle(environment: Environment, connection: Connection) -> list[AskedChange]:
    """Those that were refused, since whoever asks may not do this any more. Where a refusal is of the change itself,
    others have changed the name since, and the next pull says how the names stand."""
    left: list[AskedChange] = []
    for asked in asked_changes(environment, connection.store):
        mirror = NamesMirror(environment, asked.store)
        if asked not in mirror.asked:
            continue
        try:
            lsn = ask_change(environment, connection, asked)
        except UsageError:
            left.append(asked)
        else:
            _record(environment, connection, asked, _outcome(mirror, asked)(lsn), lsn)
    return left


def _outcome(mirror: NamesMirror, asked: AskedChange) -> Callable[[int], Note]:
    request = asked.request
    if request.op == "move":
        return partial(mirror.moved, request.name, request.new)
    if request.op == "unbind":
        return partial(mirror.unbound, request.name)
    attributes = Attributes.from_wire(request.attributes)
    row = KnownRecord(name=request.name, target=request.target, revision=0, attributes=attributes)
    return partial(mirror.bound, mirror.bearer(row), row, alias=asked.alias)


def _record(environment: Environment, connection: Connection, asked: AskedChange, note: Note, lsn: int) -> None:
    """Unless another process did."""
    url, store = connection.url, connection.store

    def record(txn: Txn) -> None:
        names = NameTable(environment, txn)
        if names.forget_asked(asked):
            note(names)
            names.note_change(url, store, lsn)

    environment.update(record)


class _Behind(Exception):
    """What a directory took along may be other than what was last seen in it: others have made changes since."""


class _Round:
    """The difference as it was read once, kept up with what is sent."""

    def __init__(self, environment: Environment, connection: Connection, skipped: Iterable[tuple[str, ...]]) -> None:
        self.environment = environment
        self.connection = connection
        self.sending: tuple[str, ...] = ()
        self.sent = 0
        self._skipped = set(skipped)
        self.mirror = NamesMirror(environment, "")
        self.rows, self.records = self.mirror.rows, self.mirror.records
        self.called, self.claims = self.mirror.called, self.mirror.claims
        self._namespace = self.mirror.namespace
        self._head = 0 if self._namespace is None else self._namespace.head
        self._is_behind = False
        """Whether others had made changes, unseen here, when the last one was sent."""

    def may_have_names(self) -> bool:
        """Whether the remote has files without a name, as far as is known: others may have named them since."""
        volumes = (each for each in self.records.values() if isinstance(each, VolumeRecord) and may_push(each))
        return any(each.created and not each.bound for each in volumes)

    def run(self) -> bool:
        """Whether anything was sent."""
        self._unbind()
        self._move()
        self._unbind(emptied=True)
        self._bind()
        self._bind_attributes()
        return self.sent > 0

    # What is owed, in order.

    def _unbind(self, *, emptied: bool = False) -> None:
        """A directory after what lies below it: whoever pulls in between would take it for one still in use."""
        dropped = [row for row in self.rows.values() if row.dropped]
        for row in sorted(dropped, key=lambda row: row.name, reverse=True):
            is_directory = row.attributes.kind == "directory"
            if is_directory and not emptied and len(self.mirror.at_and_below(row.name)) > 1:
                continue
            key = self.called.get(row.name)
            if key is None or self.records[key].is_alias:
                request = NameRequest(op="unbind", name=row.name, revision=row.revision)
                self._send(request, partial(self.mirror.unbound, row.name))

    def _move(self) -> None:
        """Whole directories before their parts, and what was moved out of them before them. Where no move can be made,
        one entry is bound over another.

        Each step brings one nearer to its place: what was moved aside is in nobody's way.
        """
        while pending := list(self._pending()):
            if not (self._break_circle(pending) or self._move_some(pending) or self._bind_over(pending)):
                return

    def _move_some(self, pending: list[Record]) -> bool:
        steps = [list(_prefixes(record.bound, record.name)) for record in pending]
        for level in range(max(len(prefixes) for prefixes in steps)):
            before = self.sent
            # Each once: most entries of a directory wait for the same move.
            for old, new in dict.fromkeys(prefixes[level] for prefixes in steps if level < len(prefixes)):
                self._move_one(old, new)
            if self.sent > before:
                return True
        return False

    def _pending(self) -> Iterator[Record]:
        for record in sorted(self.records.values(), key=lambda record: record.bound):
            if record.moved and record.bound != record.name and may_push(record) and record.bound in self.claims:
                yield record

    def _move_one(self, old: str, new: str) -> None:
        if self._can_move(old, new, self.mirror.at_and_below(old)):
            self._send_move(old, new)

    def _send_move(self, old: str, new: str) -> bool:
        first, last = self.rows.get(old), self.rows.get(new)
        request = NameRequest(
            op="move",
            name=old,
            revision=0 if first is None else first.revision,
            new=new,
            new_revision=0 if last is None else last.revision,
        )
        has_more = len(self.mirror.at_and_below(old)) > 1
        was_sent = self._send(request, partial(self.mirror.moved, old, new))
        if has_more and self._is_behind:
            raise _Behind
        return was_sent

    def _can_move(self, old: str, new: str, moving: list[str]) -> bool:
        """Whether one move brings all of `moving` where it belongs, and the remote would take it."""
        if f"{new}/".startswith(f"{old}/") or not moving:
            return False
        for name in moving:
            key = self.claims.get(name)
            if key is None:
                return False
            record = self.records[key]
            if record.name != new + name[len(old) :] or not record.moved or not may_push(record):
                return False
        taken = self.rows.get(new)
        if taken is not None and not taken.dropped:
            return False
        return set(self.mirror.at_and_below(new)) - {new} <= set(moving)

    def _break_circle(self, pending: list[Record]) -> bool:
        """Where entries wait for each other's names, move one aside, the highest first, which takes along what is below
        it. It has a name all the while: a home that looks in between doesn't lose sight of it.
        """
        waiting = {record.id: self.claims.get(record.name) for record in pending}
        circular = [record for record in pending if _leads_back(record.id, waiting)]
        circular.sort(key=lambda record: record.bound.count("/"))
        return any(map(self._move_aside, circular))

    def _bind_over(self, pending: list[Record]) -> bool:
        """Bind one of them where it belongs, over what has to leave as well, if anything is there. What lies below it
        and doesn't come along stays."""
        keys = {record.id for record in pending}
        for record in pending:
            row = self.rows.get(record.name)
            leaving = row is None or row.dropped or self.claims.get(row.name) in keys
            if leaving and self._send_bind(record):
                return True
        return False

    def _move_aside(self, record: Record) -> bool:
        moving = self.mirror.at_and_below(record.bound)
        if not all(name in self.claims and may_push(self.records[self.claims[name]]) for name in moving):
            return False
        aside = next(
            name
            for name in conflict_names(self.environment, record.bound, why="moving")
            if name not in self.called and not self.mirror.at_and_below(name)
        )
        return self._send_move(record.bound, aside)

    def _bind(self) -> None:
        for record in sorted(self.records.values(), key=lambda record: record.name):
            row = self.rows.get(record.name)
            if record.bound or (row is not None and not row.dropped) or not may_push(record):
                continue
            if not isinstance(record, VolumeRecord):
                self._send_bind(record)
                continue
            local = Local(self.environment, VolumeId(record.vid), record.name)
            head = local.peek()
            if head.sync_remote:
                if record.created:
                    self._send_bind(record)
            elif not head.unpushed and (record.created or record.attributes != Attributes()):
                self._publish_empty(record, local)

    def _publish_empty(self, record: VolumeRecord, local: Local) -> None:
        """A file that was never written to: unless someone is about to."""
        self.sending = ("bind", record.name, "")
        if self.sending in self._skipped:
            return

        def settle(txn: Txn) -> bool:
            """Whether there still is something to publish."""
            now, names = local.record(txn), NameTable(self.environment, txn)
            if not names.is_untouched(now):
                return False
            if is_conflict_name(self.environment, now.name) and not now.bound:
                names.retire(now)
                names.touch()
                return False
            head = local.head(txn)
            if head.page_size == 0:
                local.put_head(txn, head._replace(page_size=_EMPTY_PAGE_SIZE))
            return True

        try:
            with local.sync_lock():
                with local.write_lock():
                    still_empty = self.environment.update(settle)
                if still_empty:
                    publish(local, self.connection, local.record(), local.peek())
                    self.sent += 1
        except Busy:
            return

    def _bind_attributes(self) -> None:
        for name, key in list(self.claims.items()):
            record, row = self.records[key], self.rows[name]
            if may_push(record) and not record.attributes.says_as(row.attributes) and not record.moved:
                self._send_bind(record, name)

    # One change: sent, then recorded here and in the store.

    def _send(self, request: NameRequest, outcome: Callable[[int], Note]) -> bool:
        self.sending = (request.op, request.name, request.new)
        if self.sending in self._skipped:
            return False
        self._see_that_there_is_a_store()
        own = msgspec.structs.replace(request, client=self.environment.client.raw)
        asked = AskedChange(store=self.connection.store, request=own)
        lsn = ask_change(self.environment, self.connection, asked)
        if self._was_lost(lsn):
            raise Corrupt(
                f"the names at {self.connection.url}",
                f"a change made there now is revision {lsn}, which was seen before: bring back what they lost",
            )
        self._is_behind = lsn != self._head + 1
        if not self._is_behind:
            self._head = lsn
        self.sent += 1
        _record(self.environment, self.connection, asked, outcome(lsn), lsn)
        return True

    def _was_lost(self, lsn: int) -> bool:
        """Whether another change was seen at the revision of one that was asked for now. One of before, of which an
        older version has noted nothing, is answered with its own: that is behind the last pull, and nobody else's.
        """
        namespace = self._namespace
        if namespace is None or lsn > namespace.seen:
            return False
        return lsn <= namespace.head or any(row.revision == lsn for row in self.rows.values())

    def _send_bind(self, record: Record, name: str | None = None) -> bool:
        name = record.name if name is None else name
        before = self.rows.get(name)
        row = KnownRecord(name=name, target=record.target, revision=0, attributes=record.attributes)
        request = NameRequest(
            op="bind",
            name=name,
            revision=0 if before is None else before.revision,
            target=record.target,
            attributes=record.attributes.to_wire(),
        )
        return self._send(request, partial(self.mirror.bound, record.id, row))

    def _see_that_there_is_a_store(self) -> None:
        if self._namespace is None and not self.sent:
            self.connection.make(self.environment)
        check_store(self.connection, self._namespace)


def _leads_back(start: bytes, waiting: Mapping[bytes, bytes | None]) -> bool:
    """Whether it waits, by way of others, for itself."""
    at, seen = waiting[start], set[bytes]()
    while at is not None and at not in seen and at != start:
        seen.add(at)
        at = waiting.get(at)
    return at == start


def _prefixes(old: str, new: str) -> Iterator[tuple[str, str]]:
    """The renames that would bring `old` to `new`, of the highest directory first."""
    pairs = [(old, new)]
    while True:
        above_old, _, last_old = old.rpartition("/")
        above_new, _, last_new = new.rpartition("/")
        if last_old != last_new or not above_old or not above_new:
            return iter(pairs[::-1])
        old, new = above_old, above_new
        if old != new:
            pairs.append((old, new))

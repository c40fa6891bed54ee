"""The LMDB environment of a home: one per process and path, shared by every process on the machine.

Rules, and why:
  - LMDB forbids opening a file twice in one process, so environments are counted in a registry by path.
  - After `os.fork` a child must neither use nor *close* what it inherited: closing would clear the parent's slots in
    the shared table of readers. The child drops its references instead and opens afresh at the next use; snapshots made
    before the fork are dead in it. No spare transactions are kept, since their slots would be shared with the child
    too.
  - What is newest lies in the journal (tail_keeper.py). A write transaction moves it into LMDB first; so within one,
    LMDB is all there is. `view` is for what commits don't touch; what they do is seen by `look`.
  - `data.mdb` is looked at before LMDB maps it, and walked if it may have been damaged (store_file.py).
  - A home that may not be written (a file system that is read-only, somebody else's files) can be read while no other
    process has it open: without LMDB's table of readers, what is read might be written over (`read_only`).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar

import lmdb

from ..volume import faults
from ..volume.errors import Busy, Corrupt, Full, StoreError
from ..volume.ids import ClientId, check_utf8
from . import clean_shutdown, home_permissions
from .afterfork import ForkSafeLock, forgets
from .ballast import Ballast
from .commit_journal import CommitJournal
from .file_locks import IdleFiles
from .journal_format import JournalRecord
from .journal_tail import NO_TAIL, Tail
from .lmdb_errors import located, system_errors, translate, translated
from .lmdb_file import check_data_file
from .lmdb_open import Tables, create_if_new, open_mapped, open_tables
from .recency import Recency
from .room_watch import RoomWatch
from .shared_words import GENERATION, PUBLISHED
from .store_file import StoreFile
from .tables import BEFORE_JOURNAL, HERE, Format, Txn, open_row, seal_row

MOVED = faults.point("journal: moved into LMDB, the caller not told")

_T = TypeVar("_T")

_CHECK_READERS_EVERY: Final = 256
_ROUNDS: Final = 24
"""Doublings of the map before giving up; far more than any disk takes."""


class Keeper(Protocol):
    """The journal's tail, kept for all views of a process: tail_keeper.py, which reads through this module."""

    journal: CommitJournal
    newest: tuple[int, Tail]

    def continued(self, txn: Txn, number: int, published: int) -> Tail | None: ...
    def within(self, txn: Txn) -> Tail: ...
    def appended(self, txn: Txn, tail: Tail, record: JournalRecord) -> None: ...
    def move(self, txn: Txn) -> bool: ...
    def damaged(self) -> Corrupt: ...


class Cache(Protocol):
    """What the home keeps of the pages that the remote has too: eviction.py, which reads through this module."""

    recency: Recency | None

    def limit_bytes(self, txn: Txn) -> int: ...
    def set_limit(self, limit_bytes: int) -> None: ...
    def check_fits(self, size_bytes: int) -> None: ...
    def note(self, limit_bytes: int) -> None: ...
    def evict(self) -> None: ...
    def make_room(self, txn: Txn, saved: tuple[bytes, dict[int, bytes]] = ...) -> int: ...
    def held_bytes(self, txn: Txn) -> int: ...
    def close(self) -> None: ...


_MOST_IDLE: Final = 64
"""Volumes whose write locks' files stay open."""


class Environment:
    """Made by `open_environment`; `close` as often as opened."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "store"
        self.data_path = self.path / "data.mdb"
        self.file = StoreFile(self.data_path)
        self.spill = home / "tmp"
        """Where transactions lie that don't fit in memory."""
        self.growths = 0
        """Times that the map grew, or LMDB was opened anew, which ended every read transaction of this process."""
        self.users = 0
        self.read_only = home_permissions.is_foreign(home)
        """Nothing here may be written."""
        self._env: lmdb.Environment | None = None
        self._tables: Tables | None = None
        self._format: Format | None = None
        self._keeper: Keeper | None = None
        self._cache: Cache | None = None
        self._idle: dict[str, IdleFiles] = {}
        """Of the write locks, by volume."""
        self._verified: tuple[int, dict[bytes, int]] = 0, {}
        self._updates = 0
        self.ballast = Ballast(self.path)
        self.room = RoomWatch(self._give_back)
        self.compacts = False
        """Whoever closes it makes the file as short as can be, however long that takes."""
        self._lock = threading.RLock()
        forgets(self)

    @property
    def tables(self) -> Tables:
        return self._tables or self._open()[1]

    @property
    def format(self) -> Format:
        if self._format is None:
            self._open()
        assert self._format is not None
        return self._format

    @property
    def keeper(self) -> Keeper | None:
        """None in a home that has no journal."""
        keeper = self._keeper
        if keeper is None:
            with self._lock:
                if self._env is None:
                    self._open()
                keeper = self._keeper
        return keeper

    @property
    def cache(self) -> Cache:
        if self._cache is None:
            # Imported here: it reads through this environment.
            from .eviction import PageCache

            cache = self._cache = PageCache(self)
            with self.view() as txn:
                limit = cache.limit_bytes(txn)
            if not self.read_only:
                cache.note(limit)
        return self._cache

    @property
    def handle(self) -> lmdb.Environment:
        return self._env or self._open()[0]

    @property
    def client(self) -> ClientId:
        return ClientId(self.format.client)

    def read(self) -> Txn:
        """A read transaction; end it with `abort`. Raises Unavailable."""
        if self.read_only:
            self.file.refuse_in_use()
        env = self._env or self._open()[0]
        # Not by `translated`, which would cost a reader's transaction as much as its beginning.
        try:
            return env.begin()
        except lmdb.MapResizedError:
            self._grow(0)
        except lmdb.ReadersFullError:
            env.reader_check()
        except lmdb.Error as error:
            if not self._is_replaced(env, error):
                raise translate(error, self.data_path) from error
        with translated(self.data_path):
            return self.handle.begin()

    @contextmanager
    def view(self) -> Generator[Txn]:
        """A read transaction for the length of a block; LMDB's errors within it become ours."""
        txn = self.read()
        try:
            with translated(self.data_path):
                yield txn
        finally:
            txn.abort()

    def read_with_tail(self) -> tuple[Txn, Tail]:
        """A read transaction, as `read` begins it, and the journal's tail that continues it. Raises Corrupt too."""
        keeper, env = self._keeper, self._env
        if keeper is not None and env is not None and not self.read_only:
            # Spelled out: here every transaction of every reader begins, and nearly always nothing has changed.
            published = keeper.journal.words[PUBLISHED]
            try:
                txn = env.begin()
                number, newest = keeper.newest
                if number == txn.id() and newest.end >= published and keeper.journal.is_shared:
                    return txn, newest
                txn.abort()
            except lmdb.Error:
                # What it means, and what is to be done, is found out below.
                pass
        keeper = self.keeper
        if keeper is None:
            return self.read(), NO_TAIL
        seen: object = None
        while True:
            published = keeper.journal.published
            txn = self.read()
            try:
                number = txn.id()
                tail = keeper.continued(txn, number, published)
            except lmdb.Error as error:
                txn.abort()
                raise translate(error, self.data_path) from error
            except BaseException:
                txn.abort()
                raise
            if tail is not None:
                return txn, tail
            txn.abort()
            now = number, published, keeper.journal.words[GENERATION]
            if now == seen:
                # Nothing has moved meanwhile that could be the reason.
                raise keeper.damaged()
            seen = now

    @contextmanager
    def look(self) -> Generator[tuple[Txn, Tail]]:
        """`view`, and the tail that continues it."""
        txn, tail = self.read_with_tail()
        try:
            with translated(self.data_path):
                yield txn, tail
        finally:
            txn.abort()

    def lock(self) -> Txn:
        """The home's one write lock: a write transaction, to which nothing may be written; end it with `abort`."""
        env = self._env or self._open()[0]
        try:
            return env.begin(write=True)
        except lmdb.MapResizedError:
            self._grow(0)
        except lmdb.Error as error:
            if not self._is_replaced(env, error):
                raise translate(error, self.data_path) from error
        with translated(self.data_path):
            return self.handle.begin(write=True)

    def settle(self) -> None:
        """All that was committed before is in LMDB."""
        keeper = self.keeper
        if keeper is None:
            return
        with self.look() as (_, tail):
            is_settled = tail.is_empty
        if not is_settled:
            self.update(lambda _: None)

    def update(self, action: Callable[[Txn], _T], *, durable: bool = False) -> _T:
        """`action` in one write transaction: it lands whole, or not at all if it raises.

        `action` runs again if the map had to grow, so it changes nothing but through its transaction. Keep it short: it
        holds the home's one write lock, and must not wait for a network. Raises Full, Corrupt.
        """
        keeper = self.keeper
        for _ in range(_ROUNDS):
            env = self._env or self._open()[0]
            try:
                with env.begin(write=True) as txn:
                    moved = keeper is not None and keeper.move(txn)
                    result = action(txn)
                if moved:
                    MOVED()
                break
            except Corrupt as error:
                if error.key != HERE:
                    raise
                raise located(error, self.data_path) from error
            except lmdb.MapFullError:
                self._grow(env.info()["map_size"] * 2)
            except lmdb.MapResizedError:
                self._grow(0)
            except lmdb.Error as error:
                if self._is_replaced(env, error):
                    continue
                found = translate(error, self.data_path)
                if not (isinstance(found, Full) and self.ballast.gives_room()):
                    raise found from error
        else:
            raise Full(f"the local store at {self.path} can't grow any further")
        if durable:
            try:
                self.flush_store()
            except StoreError as error:
                # It stands and is seen already; only whether a power loss would take it back is not known.
                error.determinate = False
                raise
        self._updates += 1
        if self._updates % _CHECK_READERS_EVERY == 0:
            env.reader_check()
        self.room.updated(moved=moved)
        return result

    def _give_back(self, spare_bytes: int) -> bool:
        # Imported here: it reads through this environment.
        from .free_room import give_back_if_due

        is_due = give_back_if_due(self, spare_bytes)
        self._lay_ballast()
        return is_due

    def _lay_ballast(self) -> None:
        with suppress(OSError):
            self.ballast.lay(os.path.getsize(self.data_path))

    def get(self, txn: Txn, table: str, key: bytes, kind: type[_T]) -> _T | None:
        """The record under this key of one of `Tables`. Raises Corrupt unless it is what `put` wrote there."""
        raw = txn.get(key, db=getattr(self.tables, table))
        return None if raw is None else open_row(table, key, raw, kind)

    def put(self, txn: Txn, table: str, key: bytes, record: object) -> None:
        txn.put(key, seal_row(key, record), db=getattr(self.tables, table))

    def records(self, txn: Txn, table: str, kind: type[_T]) -> Iterator[_T]:
        """Every record of a table, by key. Raises Corrupt, as `get` does."""
        for key, value in txn.cursor(getattr(self.tables, table)):
            yield open_row(table, key, value, kind)

    def last_change(self) -> int:
        """A number that moves with everything that any process writes into the home."""
        # Both only ever grow.
        return sum(self.position())

    def position(self) -> tuple[int, int]:
        """LMDB's newest transaction, and how far the journal goes: as long as they stand, the home does."""
        keeper = self.keeper
        txn = self.read() if keeper is None or keeper.journal.is_shared else self.read_with_tail()[0]
        number = txn.id()
        txn.abort()
        return number, 0 if keeper is None else keeper.journal.published

    def verified(self, number: int) -> dict[bytes, int]:
        """By the key of a row, how many rows behind it were found whole in LMDB's transaction of this number
        (readahead.py).
        """
        seen, found = self._verified
        if seen != number:
            found = dict[bytes, int]()
            self._verified = number, found
        return found

    def map_bytes(self) -> int:
        """The address space that the store may fill before it has to grow."""
        return int((self._env or self._open()[0]).info()["map_size"])

    def flush(self) -> None:
        """What was committed survives a power loss once this returns."""
        if self.keeper is not None:
            self.keeper.journal.flush()
        self.flush_store()

    def flush_store(self) -> None:
        """The same of what is in LMDB."""
        with translated(self.data_path):
            (self._env or self._open()[0]).sync(True)

    def idle_files(self, volume: str) -> IdleFiles:
        """Those of the volume's write lock: closed with the environment, or when many others have been written."""
        with self._lock:
            found = self._idle.pop(volume, None) or IdleFiles()
            if len(self._idle) >= _MOST_IDLE:
                self._idle.pop(next(iter(self._idle))).forget()
            self._idle[volume] = found
            return found

    def close(self) -> None:
        with _opening.held:
            self.users -= 1
            if self.users > 0:
                return
            idle, self._idle = self._idle, {}
            for files in idle.values():
                files.forget()
            if _open.get(self.home) is self:
                del _open[self.home]
            with self._lock:
                try:
                    if self._env is not None and not self.read_only:
                        # A home that nobody has open is all in LMDB, unless there is no room: then the journal has it.
                        with suppress(StoreError):
                            self.settle()
                        self._shrink()
                finally:
                    self._close_files()
                    self._env = self._tables = self._keeper = None

    def _close_files(self) -> None:
        """Each of them, though another can't be closed."""
        env = self._env
        if env is None:
            return
        with ExitStack() as each:
            if not self.read_only:
                each.callback(self.file.closed, int(env.info()["last_txnid"]))
            each.callback(env.close)
            if self._cache is not None:
                each.callback(self._cache.close)
            if self._keeper is not None:
                each.callback(self._keeper.journal.close)

    def _shrink(self) -> None:
        """By the last of the process to close it: the file becomes as short as what it holds, or at least less room."""
        if sys.is_finalizing() or not os.path.exists(self.data_path):
            # Nothing can be imported any more; or somebody has removed the home.
            return
        # Imported here: they read through this environment.
        from .compaction import MOST_BYTES, compact
        from .free_room import give_back, room

        with suppress(Busy, StoreError):
            found = room(self)
            if (self.compacts and found.length > found.used) or (found.is_long and found.used <= MOST_BYTES):
                compact(self)
                self.file.replaced()
                return
        if not self.compacts:
            self.room.look()
            return
        with suppress(StoreError):
            give_back(self)

    def forget(self) -> None:
        """In a child after fork: let go, close nothing, open anew at the next use."""
        if self._keeper is not None:
            # Its file is the child's own copy.
            self._keeper.journal.close()
        self._env = self._tables = self._keeper = None
        self._lock = threading.RLock()

    def _grow(self, size_bytes: int) -> None:
        with self._lock:
            self.growths += 1
            with translated(self.data_path):
                (self._env or self._open()[0]).set_mapsize(size_bytes)

    def _is_replaced(self, env: lmdb.Environment, error: lmdb.Error) -> bool:
        """Whether another one is in the place of an environment that raised this. LMDB does nothing more in one that
        couldn't write its meta page, as on a full disk whose file system writes nothing over: it is opened anew, which
        ends all transactions of this process.
        """
        with self._lock:
            if self._env is env and isinstance(error, lmdb.PanicError):
                self.growths += 1
                self._env = self._tables = None
                # Waits for what others of its transactions are doing.
                env.close()
                with translated(self.data_path):
                    check_data_file(self.data_path)
                    fresh = open_mapped(self.path, read_only=self.read_only)[0]
                    try:
                        tables = open_tables(self.home, fresh, read_only=self.read_only, is_alone=False)[0]
                    except BaseException:
                        # Whoever tries next opens it: LMDB lets a process do that once at a time.
                        fresh.close()
                        raise
                    self._env, self._tables = fresh, tables
            return self._env is not env

    def _open(self) -> tuple[lmdb.Environment, Tables]:
        with self._lock:
            if self._env is None or self._tables is None:
                is_new = not self.read_only and create_if_new(self.home)
                unclean, is_alone = self.file.check(read_only=self.read_only, is_new=is_new)
                env, self.read_only = open_mapped(self.path, read_only=self.read_only)
                try:
                    if self.read_only:
                        self.file.refuse_in_use()
                    else:
                        env.reader_check()
                    self._tables, self._format = open_tables(
                        self.home, env, read_only=self.read_only, is_alone=is_alone
                    )
                    self._env, self._verified = env, (0, {})
                    self.file.opened(env)
                    if unclean:
                        # Imported here: it reads through this environment.
                        from .record_check import check_records

                        check_records(self)
                    if self._format.version != BEFORE_JOURNAL:
                        self._keeper = self._open_journal(is_alone=is_alone, was_left=unclean)
                except BaseException:
                    self._env = self._tables = self._keeper = None
                    env.close()
                    raise
                if not self.read_only:
                    clean_shutdown.remove_stamp(self.data_path)
                    self._lay_ballast()
            return self._env, self._tables

    def _open_journal(self, *, is_alone: bool, was_left: bool) -> Keeper:
        # Imported here: it reads through this environment.
        from .tail_keeper import TailKeeper

        assert self._format is not None
        journal = CommitJournal(
            self.data_path, self._format.home, is_alone=is_alone, was_left=was_left, can_write=not self.read_only
        )
        keeper = TailKeeper(self, journal)
        if journal.is_shared and journal.needs_recovery:
            txn = self.lock()
            try:
                with translated(self.data_path):
                    journal.recover(keeper.moved(txn))
            finally:
                txn.abort()
        return keeper


_open: Final[dict[Path, Environment]] = {}
"""The environments that this process has open."""
_opening: Final = ForkSafeLock()


def open_environment(home: Path) -> Environment:
    """The environment of this home, made if it isn't there. Raises Unsupported for a newer or foreign store, Corrupt
    for a damaged one, Unauthorized for what somebody else has laid out.
    """
    home = Path(os.path.realpath(home))
    check_utf8(str(home), f"the path of the home {home}")
    with _opening.held:
        environment = _open.get(home)
        if environment is None:
            with system_errors(f"the home {home} can't be made"):
                home_permissions.make_home(home)
                home_permissions.make_private_dir(home / "store")
                home_permissions.check_permissions(home)
            environment = Environment(home)
            assert environment.format
            _open[home] = environment
        environment.users += 1
        return environment


def opened_here(home: Path) -> Environment | None:
    """The environment of this home, if this process has it open."""
    with _opening.held:
        return _open.get(Path(os.path.realpath(home)))


def lmdb_version() -> str:
    """Of the library itself; py-lmdb's is its own."""
    return ".".join(map(str, lmdb.version()))

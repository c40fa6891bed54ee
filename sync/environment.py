"""The LMDB environment of a home: one per process and path, shared by every process on the machine.

Rules, and why:
  - LMDB forbids opening a file twice in one process, so environments are counted in a registry by path.
  - After `os.fork` a child must neither use nor *close* what it inherited: closing would clear the parent's slots in
    the shared table of readers. The child drops its references instead and opens afresh at the next use; snapshots made
    before the fork are dead in it. No spare transactions are kept, since their slots would be shared with the child
    too.
  - `data.mdb` is looked at before LMDB maps it (lmdb_file.py), and walked if it may have been damaged
    (clean_shutdown.py).
  - A home that may not be written (a file system that is read-only, somebody else's files) can be read while no other
    process has it open: without LMDB's table of readers, what is read might be written over (`read_only`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import lmdb

from ..volume.errors import Corrupt, Full, StoreError, Unavailable
from ..volume.ids import ClientId
from . import clean_shutdown, home_permissions
from .afterfork import ForkSafeLock, forgets
from .clean_shutdown import NOTHING
from .lmdb_errors import located, os_error, translate, translated
from .lmdb_file import check_data_file
from .lmdb_open import Tables, open_mapped, open_tables
from .lmdb_tree_check import check_trees
from .tables import HERE, Format, Txn, open_row, seal_row

_T = TypeVar("_T")

_CHECK_READERS_EVERY: Final = 256
_ROUNDS: Final = 24
"""Doublings of the map before giving up; far more than any disk takes."""


class Environment:
    """Made by `open_environment`; `close` as often as opened."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "store"
        self.data_path = self.path / "data.mdb"
        self.growths = 0
        """Times that the map grew, which ended every read transaction of this process."""
        self.users = 0
        self.read_only = home_permissions.is_foreign(home)
        """Nothing here may be written."""
        self._env: lmdb.Environment | None = None
        self._tables: Tables | None = None
        self._format: Format | None = None
        self._updates = 0
        self._begun = 0, NOTHING
        """The transaction that the store was opened at, and what the file was."""
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
    def client(self) -> ClientId:
        return ClientId(self.format.client)

    def read(self) -> Txn:
        """A read transaction; end it with `abort`. Raises Unavailable."""
        if self.read_only:
            self._refuse_in_use()
        env = self._env or self._open()[0]
        # Not by `translated`, which would cost a reader's transaction as much as its beginning.
        try:
            return env.begin()
        except lmdb.MapResizedError:
            self._grow(0)
        except lmdb.ReadersFullError:
            env.reader_check()
        except lmdb.Error as error:
            raise translate(error, self.data_path) from error
        with translated(self.data_path):
            return env.begin()

    @contextmanager
    def view(self) -> Generator[Txn]:
        """A read transaction for the length of a block; LMDB's errors within it become ours."""
        txn = self.read()
        try:
            with translated(self.data_path):
                yield txn
        finally:
            txn.abort()

    def update(self, action: Callable[[Txn], _T], *, durable: bool = False) -> _T:
        """`action` in one write transaction: it lands whole, or not at all if it raises.

        `action` runs again if the map had to grow, so it changes nothing but through its transaction. Keep it short: it
        holds the home's one write lock, and must not wait for a network. Raises Full, Corrupt.
        """
        for _ in range(_ROUNDS):
            env = self._env or self._open()[0]
            try:
                with env.begin(write=True) as txn:
                    result = action(txn)
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
                raise translate(error, self.data_path) from error
        else:
            raise Full(f"the local store at {self.path} can't grow any further")
        if durable:
            try:
                self.flush()
            except StoreError as error:
                # It stands and is seen already; only whether a power loss would take it back is not known.
                error.determinate = False
                raise
        self._updates += 1
        if self._updates % _CHECK_READERS_EVERY == 0:
            env.reader_check()
        return result

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
        txn = self.read()
        try:
            return txn.id()
        finally:
            txn.abort()

    def map_bytes(self) -> int:
        """The address space that the store may fill before it has to grow."""
        return int((self._env or self._open()[0]).info()["map_size"])

    def flush(self) -> None:
        """What was committed survives a power loss once this returns."""
        with translated(self.data_path):
            (self._env or self._open()[0]).sync(True)

    def close(self) -> None:
        with _opening:
            self.users -= 1
            if self.users > 0:
                return
            if _open.get(self.home) is self:
                del _open[self.home]
            with self._lock:
                if self._env is not None:
                    self._leave(self._env)
                self._env = self._tables = None

    def forget(self) -> None:
        """In a child after fork: let go, close nothing, open anew at the next use."""
        self._env = self._tables = None
        self._lock = threading.RLock()

    def _grow(self, size_bytes: int) -> None:
        with self._lock:
            self.growths += 1
            with translated(self.data_path):
                (self._env or self._open()[0]).set_mapsize(size_bytes)

    def _open(self) -> tuple[lmdb.Environment, Tables]:
        with self._lock:
            if self._env is None or self._tables is None:
                unclean = self._look()
                env, self.read_only = open_mapped(self.path, read_only=self.read_only)
                try:
                    if self.read_only:
                        self._refuse_in_use()
                    else:
                        env.reader_check()
                    self._tables, self._format = open_tables(self.home, env, read_only=self.read_only)
                    self._env = env
                    self._begun = env.info()["last_txnid"], clean_shutdown.stamp_of(self.data_path)
                    if unclean:
                        # Imported here: it reads through this environment.
                        from .record_check import check_records

                        check_records(self)
                except BaseException:
                    self._env = self._tables = None
                    env.close()
                    raise
                if not self.read_only:
                    clean_shutdown.remove_stamp(self.data_path)
            return self._env, self._tables

    def _refuse_in_use(self) -> None:
        """Raises Unavailable where what is read might be written over meanwhile."""
        if clean_shutdown.is_in_use(self.data_path):
            raise Unavailable(
                f"the home {self.home} can't be written by this process, and another one has it open: "
                "it can be read when that one has closed it"
            )

    def _look(self) -> bool:
        """What LMDB is about to take on trust is checked. Whether it was not cleanly closed."""
        data = self.data_path
        check_data_file(data)
        if not data.exists() or not os.path.getsize(data):
            # LMDB makes it; if it was made before, its tables are missed then.
            return False
        if clean_shutdown.is_in_use(data) or clean_shutdown.was_left_clean(data, clean_shutdown.stamp_of(data)):
            return False
        check_trees(data)
        return True

    def _leave(self, env: lmdb.Environment) -> None:
        """End it, and leave word that it is sound, unless others use it still, who will. What changed while nothing
        was committed was none of LMDB's doing.
        """
        transaction, before = self._begun
        committed = env.info()["last_txnid"] != transaction
        env.close()
        try:
            now = clean_shutdown.stamp_of(self.data_path)
        except FileNotFoundError:  # The home was removed under its users.
            return
        if not self.read_only and (committed or now == before) and not clean_shutdown.is_in_use(self.data_path):
            clean_shutdown.write_stamp(self.data_path, now)


_open: Final[dict[Path, Environment]] = {}
"""The environments that this process has open."""
_opening: Final = ForkSafeLock()


def open_environment(home: Path) -> Environment:
    """The environment of this home, made if it isn't there. Raises Unsupported for a newer or foreign store, Corrupt
    for a damaged one, Unauthorized for what somebody else has laid out.
    """
    home = Path(os.path.realpath(home))
    with _opening:
        environment = _open.get(home)
        if environment is None:
            try:
                home_permissions.make_home(home)
                home_permissions.make_private_dir(home / "store")
                home_permissions.check_permissions(home)
            except OSError as error:
                raise os_error(error, f"the home {home} can't be made") from error
            environment = Environment(home)
            assert environment.format
            _open[home] = environment
        environment.users += 1
        return environment


def lmdb_version() -> str:
    """Of the library itself; py-lmdb's is its own."""
    return ".".join(map(str, lmdb.version()))

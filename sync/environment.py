"""The LMDB environment of a home: one per process and path, shared by every process on the machine.

Rules, and why:
  - LMDB forbids opening a file twice in one process, so environments are counted in a registry by path.
  - After `os.fork` a child must neither use nor *close* what it inherited: closing would clear the parent's slots in
    the shared table of readers. The child drops its references instead and opens afresh at the next use; snapshots made
    before the fork are dead in it. No spare transactions are kept, since their slots would be shared with the child
    too.
  - `sync=True, metasync=False`: a commit flushes its pages before it writes the meta page, and doesn't flush that. So a
    power loss may undo the last commits but never tears one (ORDERED); one more flush makes it DURABLE. `sync=False`
    could tear the whole file.
  - The map is as large as the address space allows without asking (1 TiB costs nothing), since growing it ends every
    transaction of the process.
  - `data.mdb` is looked at before LMDB maps it (datafile.py), and walked if it may have been damaged (doubt.py).
  - `home.json` says that the store was made once: if the store's first record is gone afterwards, that is damage and
    not a new home.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import lmdb

from ..volume.errors import Busy, Corrupt, Full, StoreError, Unavailable, Unsupported
from ..volume.ids import ClientId
from . import doubt
from .afterfork import forgets
from .datafile import check_data_file
from .doubt import NOTHING
from .structure import check_structure
from .tables import FORMAT_VERSION, HERE, LATER_TABLES, TABLES, Format, open_row, seal_row
from .translation import located, os_error, translate, translated

if TYPE_CHECKING:
    Txn = lmdb.Transaction[bytes]
    Cursor = lmdb.Cursor[bytes]
    Table = lmdb._Database  # pyright: ignore[reportPrivateUsage]

__all__ = ["Environment", "Tables", "lmdb_version", "open_environment"]

_T = TypeVar("_T")

MAP_BYTES: Final = 1 << 40
SMALLEST_MAP_BYTES: Final = 1 << 28
MAX_READERS: Final = 8192
"""Snapshots of all processes: a mount has one for each file that is open. 64 bytes each."""
_CHECK_READERS_EVERY: Final = 256
_ROUNDS: Final = 24
"""Doublings of the map before giving up; far more than any disk takes."""

_FORMAT_KEY: Final = b"format"


class Tables(NamedTuple):
    """LMDB's handles, in the order of tables.TABLES."""

    meta: Table
    names: Table
    volumes: Table
    heads: Table
    commits: Table
    pushes: Table
    stages: Table
    tails: Table
    bodies: Table
    places: Table
    known: Table


class Environment:
    """Made by `open_environment`; `close` as often as opened."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "store"
        self.growths = 0
        """Times that the map grew, which ended every read transaction of this process."""
        self.users = 0
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

    @property
    def data_path(self) -> Path:
        return self.path / "data.mdb"

    def read(self) -> Txn:
        """A read transaction; end it with `abort`."""
        env = self._env or self._open()[0]
        try:
            return env.begin()
        except lmdb.MapResizedError:
            self._grow(0)
        except lmdb.ReadersFullError:
            env.reader_check()
        except lmdb.Error as error:
            raise translate(error, self.data_path) from error
        try:
            return env.begin()
        except lmdb.Error as error:
            raise translate(error, self.data_path) from error

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
        with _registry.lock:
            self.users -= 1
            if self.users > 0:
                return
            if _registry.open.get(self.home) is self:
                del _registry.open[self.home]
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
                doubtful = self._look()
                env = _open_mapped(self.path)
                try:
                    self._tables, self._format = _open_tables(self.home, env)
                    env.reader_check()
                    self._env = env
                    self._begun = env.info()["last_txnid"], doubt.stamp_of(self.data_path)
                    if doubtful:
                        # Imported here: it reads through this environment.
                        from .census import check_records

                        check_records(self)
                except BaseException:
                    self._env = self._tables = None
                    env.close()
                    raise
                doubt.take_away(self.data_path)
            return self._env, self._tables

    def _look(self) -> bool:
        """What LMDB is about to take on trust is checked. Whether the store was in doubt."""
        data = self.data_path
        check_data_file(data)
        if not data.exists() or doubt.is_in_use(data) or doubt.is_sound(data, doubt.stamp_of(data)):
            return False
        check_structure(data)
        return True

    def _leave(self, env: lmdb.Environment) -> None:
        """End it, and leave word that it is sound, unless others use it still, who will. What changed while nothing
        was committed was none of LMDB's doing.
        """
        transaction, before = self._begun
        committed = env.info()["last_txnid"] != transaction
        env.close()
        try:
            now = doubt.stamp_of(self.data_path)
        except FileNotFoundError:  # The home was removed under its users.
            return
        if (committed or now == before) and not doubt.is_in_use(self.data_path):
            doubt.leave(self.data_path, now)


class _Registry:
    """The environments that this process has open."""

    def __init__(self) -> None:
        self.open: dict[Path, Environment] = {}
        self.lock = threading.RLock()
        """One that its holder may take again: the garbage collector closes homes in whatever thread it runs in."""
        forgets(self)

    def forget(self) -> None:
        self.lock = threading.RLock()


_registry: Final = _Registry()


def open_environment(home: Path) -> Environment:
    """The environment of this home, made if it isn't there. Raises Unsupported for a newer or foreign store, Corrupt
    for a damaged one.
    """
    home = Path(os.path.realpath(home))
    with _registry.lock:
        environment = _registry.open.get(home)
        if environment is None:
            try:
                (home / "store").mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise os_error(error, f"the home {home} can't be made") from error
            environment = Environment(home)
            assert environment.format
            _registry.open[home] = environment
        environment.users += 1
        return environment


def lmdb_version() -> str:
    """Of the library itself; py-lmdb's is its own."""
    return ".".join(map(str, lmdb.version()))


def _open_mapped(path: Path) -> lmdb.Environment:
    """With the largest map that the address space has room for."""
    size = MAP_BYTES
    while True:
        try:
            return lmdb.open(
                str(path),
                map_size=size,
                max_dbs=len(TABLES),
                max_readers=MAX_READERS,
                metasync=False,
                readahead=False,
                create=False,
            )
        except lmdb.MemoryError as error:
            failure: lmdb.Error = error
        except lmdb.Error as error:
            if getattr(error, "code", 0) != errno.ENOMEM:
                if "already open" in str(error):
                    raise Busy(
                        "this process was forked while a thread was reading: open the volume after the fork"
                    ) from error
                raise translate(error, path) from error
            failure = error
        size //= 2
        if size < SMALLEST_MAP_BYTES:
            raise Unavailable(f"no address space is left to map the local store at {path}") from failure


def _open_tables(home: Path, env: lmdb.Environment) -> tuple[Tables, Format]:
    marker = home / "home.json"
    with translated(home / "store" / "data.mdb"):
        tables = _existing_tables(env)
        if tables is None:
            if marker.exists():
                raise Corrupt(HERE, f"{marker} says that it was made, but its tables are gone")
            tables = Tables(*(env.open_db(name.encode()) for name in TABLES))
        record = _format(env, tables, made=marker.exists())
    if not marker.exists():
        _write_marker(marker, record)
    return tables, record


def _existing_tables(env: lmdb.Environment) -> Tables | None:
    try:
        return Tables(*(_existing_table(env, name) for name in TABLES))
    except lmdb.NotFoundError:
        return None


def _existing_table(env: lmdb.Environment, name: str) -> Table:
    try:
        return env.open_db(name.encode(), create=False)
    except lmdb.NotFoundError:
        if name not in LATER_TABLES:
            raise
        return env.open_db(name.encode())


def _format(env: lmdb.Environment, tables: Tables, *, made: bool) -> Format:
    with env.begin() as txn:
        raw = txn.get(_FORMAT_KEY, db=tables.meta)
    if raw is None:
        if made:
            raise Corrupt(HERE, "its first record is gone")
        fresh = Format(version=FORMAT_VERSION, home=os.urandom(16), client=ClientId.new().raw)
        with env.begin(write=True) as txn:
            txn.put(_FORMAT_KEY, seal_row(_FORMAT_KEY, fresh), overwrite=False, db=tables.meta)
            raw = txn.get(_FORMAT_KEY, db=tables.meta)
        assert raw is not None
    record = open_row("meta", _FORMAT_KEY, raw, Format)
    if record.version != FORMAT_VERSION:
        raise Unsupported(
            f"the local store is of format {record.version}, and this Budwood knows {FORMAT_VERSION}: "
            "upgrade it, or take another home"
        )
    return record


def _write_marker(marker: Path, record: Format) -> None:
    temporary = marker.with_name(f".home.{os.getpid()}")
    temporary.write_text(json.dumps({"budwood": "home", "format": record.version, "home": record.home.hex()}) + "\n")
    temporary.rename(marker)

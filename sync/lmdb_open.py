"""LMDB open: the environment and the tables of a home.

- `sync=True, metasync=False`: a commit flushes its pages before it writes the meta page, and doesn't flush that. So a
  power loss may undo the last commits but never tears one (ORDERED); one more flush makes it DURABLE. `sync=False`
  could tear the whole file.
- The map is as large as the address space allows without asking (1 TiB costs nothing), since growing it ends every
  transaction of the process.
- `home.json` says that the store was made once (lmdb_create.py): if its first record is gone afterwards, that is damage
  and not a new home.
- What may not be written is opened without LMDB's table of readers, which would have to be.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final, NamedTuple

import lmdb

from ..volume.errors import Busy, Corrupt, Unavailable, Unsupported
from ..volume.ids import ClientId
from .lmdb_create import create_store
from .lmdb_errors import translate, translated
from .migration import FORMAT_KEY, is_marked, migrate, write_marker
from .tables import BEFORE_JOURNAL, FORMAT_VERSION, HERE, LATER_TABLES, Format, Table, Txn, open_row, seal_row

MAP_BYTES: Final = 1 << 40
SMALLEST_MAP_BYTES: Final = 1 << 28
MAX_READERS: Final = 8192
"""Snapshots of all processes: a mount has one for each file that is open. 64 bytes each."""

_UNWRITABLE: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


class Tables(NamedTuple):
    """LMDB's handles, by the tables' names (tables.py)."""

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


def open_mapped(path: Path, *, read_only: bool) -> tuple[lmdb.Environment, bool]:
    """With the largest map that the address space has room for; and whether it can only be read, as what may not be
    written.
    """
    size = MAP_BYTES
    while True:
        try:
            env = lmdb.open(
                str(path),
                map_size=size,
                max_dbs=len(Tables._fields),
                max_readers=MAX_READERS,
                metasync=False,
                readahead=False,
                mode=0o600,
                create=False,
                readonly=read_only,
                lock=not read_only,
            )
            return env, read_only
        except lmdb.MemoryError as error:
            failure: lmdb.Error = error
        except lmdb.Error as error:
            code = getattr(error, "code", 0)
            if not read_only and code in _UNWRITABLE and (path / "data.mdb").exists():
                read_only = True
                continue
            if code != errno.ENOMEM:
                if "already open" in str(error):
                    raise Busy(
                        "this process was forked while a thread was reading: open the volume after the fork"
                    ) from error
                raise translate(error, path) from error
            failure = error
        size //= 2
        if size < SMALLEST_MAP_BYTES:
            raise Unavailable(f"no address space is left to map the local store at {path}") from failure


def create_if_new(home: Path) -> bool:
    """A home that never was one gets its store; whether it was such a home. Raises Full, Unavailable."""
    data = home / "store" / "data.mdb"
    if data.exists() or (home / "home.json").exists():
        return False

    def fill(txn: Txn, tables: dict[str, Table]) -> None:
        _put_format(txn, tables["meta"])

    create_store(data, Tables._fields, fill)
    return True


def open_tables(home: Path, env: lmdb.Environment, *, read_only: bool, is_alone: bool) -> tuple[Tables, Format]:
    """`is_alone`: no other process has it open, which might know no journal."""
    marker = home / "home.json"
    with translated(home / "store" / "data.mdb"):
        tables = _existing_tables(env, read_only=read_only)
        if tables is None:
            if read_only:
                raise Unsupported(f"the home {home} can't be written, and isn't whole: open it once where it can be")
            if marker.exists():
                raise Corrupt(HERE, f"{marker} says that it was made, but its tables are gone")
            tables = Tables(*(env.open_db(name.encode()) for name in Tables._fields))
        record = _format(env, tables, made=marker.exists())
        if record.version == BEFORE_JOURNAL and is_alone and not read_only:
            record = migrate(env, tables.meta, record)
    if not read_only and not is_marked(marker, record):
        write_marker(marker, record)
    return tables, record


def _put_format(txn: Txn, meta: Table) -> None:
    """Unless it is there."""
    fresh = Format(version=FORMAT_VERSION, home=os.urandom(16), client=ClientId.new().raw)
    txn.put(FORMAT_KEY, seal_row(FORMAT_KEY, fresh), overwrite=False, db=meta)


def _existing_tables(env: lmdb.Environment, *, read_only: bool) -> Tables | None:
    try:
        return Tables(*(_existing_table(env, name, read_only=read_only) for name in Tables._fields))
    except lmdb.NotFoundError:
        return None


def _existing_table(env: lmdb.Environment, name: str, *, read_only: bool) -> Table:
    try:
        return env.open_db(name.encode(), create=False)
    except lmdb.NotFoundError:
        if read_only or name not in LATER_TABLES:
            raise
        return env.open_db(name.encode())


def _format(env: lmdb.Environment, tables: Tables, *, made: bool) -> Format:
    with env.begin() as txn:
        raw = txn.get(FORMAT_KEY, db=tables.meta)
    if raw is None:
        if made:
            raise Corrupt(HERE, "its first record is gone")
        with env.begin(write=True) as txn:
            _put_format(txn, tables.meta)
            raw = txn.get(FORMAT_KEY, db=tables.meta)
        assert raw is not None
    record = open_row("meta", FORMAT_KEY, raw, Format)
    if record.version not in (BEFORE_JOURNAL, FORMAT_VERSION):
        raise Unsupported(
            f"the local store is of format {record.version}, and this Budwood knows {FORMAT_VERSION}: "
            "upgrade it, or take another home"
        )
    return record

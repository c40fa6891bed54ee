"""Stdlib: the same VFS for Python's own `sqlite3`.

apsw brings its own SQLite, and `sqlite3` another; a VFS is registered with one of them. Its table of functions
works for both, so a copy of the table is given to the other library. A copy, since a table is also a link of its
library's list: the original in two lists would break the first.

What differs there: sqlite3 knows nothing of errors that a callback raises. A StandardConnection (standard.py) tells
them as sqlite3's own; another one is left with SystemError, with ours as its cause, or with SQLite's bare words.
"""

from __future__ import annotations

import ctypes
from typing import Final

import apsw

from ..volume.errors import NotFound, Unsupported
from .system import VolumeVFS, named

_LAST_VERSION: Final = 3
_FUNCTIONS: Final = 16


class _Table(ctypes.Structure):
    """sqlite3_vfs, version 3 (sqlite.org/c3ref/vfs.html)."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_size", ctypes.c_int),
        ("longest_path", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("functions", ctypes.c_void_p * _FUNCTIONS),
    )
    version: int
    next: int | None


_given: Final[dict[str, tuple[_Table, VolumeVFS]]] = {}
"""The other library holds pointers to both for as long as the process lives, or until another VFS takes the name."""


def register_stdlib(name: str = "budwood") -> None:
    """Make the VFS `name`, registered with apsw before, known to the standard library's sqlite3.

    Then `sqlite3.connect("file:inventory?vfs=budwood", uri=True, factory=budwood.vfs.StandardConnection)` opens a
    volume. Raises NotFound if there is no such VFS, Unsupported where sqlite3 can't be reached.
    """
    vfs = named.get(name)
    if vfs is None or name not in apsw.vfs_names():
        raise NotFound(f"no VFS is named {name!r}: call budwood.vfs.register(name={name!r}) first")
    library = _library()
    before = _given.pop(name, None)
    if before is not None:
        library.sqlite3_vfs_unregister(ctypes.byref(before[0]))
    table = _Table.from_buffer_copy(_Table.from_address(_address_of(name)))
    if table.version < _LAST_VERSION:
        raise Unsupported(f"the VFS {name!r} is of version {table.version}, not {_LAST_VERSION}: update apsw")
    table.next = None
    code = library.sqlite3_vfs_register(ctypes.byref(table), 0)
    if code:
        raise Unsupported(f"the standard library's SQLite refused the VFS {name!r} (error {code})")
    _given[name] = table, vfs
    for kept in _given[name]:
        # A connection that is still open when Python ends is closed after this module is gone.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))


def _address_of(name: str) -> int:
    """A database without a name opens no file, but knows its VFS."""
    pointer = ctypes.c_void_p()
    nameless = apsw.Connection("", vfs=name)
    try:
        nameless.file_control("main", apsw.SQLITE_FCNTL_VFS_POINTER, ctypes.addressof(pointer))
    finally:
        nameless.close()
    assert pointer.value
    return pointer.value


def _library() -> ctypes.CDLL:
    try:
        import _sqlite3

        # Looked up through the module, so that it is the library that the module itself is linked with.
        library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        assert library.sqlite3_vfs_register
        return library
    except (ImportError, OSError, AttributeError) as error:
        raise Unsupported(f"this Python's sqlite3 can't be given a VFS ({error}): use apsw") from error

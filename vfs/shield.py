"""Shield: a VFS's callbacks for a SQLite that isn't apsw's.

apsw's callbacks leave the Python error that was raised in them pending, and apsw itself raises it when SQLite has
returned. Another caller of SQLite doesn't look for one: the standard library's sqlite3 ends in a SystemError. So here
each callback is wrapped: what was raised in it is taken away, kept for `last_error`, and SQLite is told its number, as
any VFS written in C would. The caller makes its own error of that.

An error of a PRAGMA is given to SQLite in words, too: it is the one callback that has a place for them. An interrupt
(^C) is set again, so that it is raised as soon as the caller is back in Python.
"""

from __future__ import annotations

import _thread
import ctypes
import threading
from collections.abc import Callable
from typing import Any, Final

import apsw

__all__ = ["FUNCTIONS", "Table", "last_error", "shielded"]

FUNCTIONS: Final = 16
_IO_FUNCTIONS: Final = 18
_OPEN: Final = 0

_pointer, _int, _long = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_last = threading.local()


class Table(ctypes.Structure):
    """sqlite3_vfs, version 3 (sqlite.org/c3ref/vfs.html)."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_size", ctypes.c_int),
        ("longest_path", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("functions", ctypes.c_void_p * FUNCTIONS),
    )
    version: int
    next: int | None
    functions: Any


class _Methods(ctypes.Structure):
    """sqlite3_io_methods, version 3 (sqlite.org/c3ref/io_methods.html)."""

    _fields_ = (("version", ctypes.c_int), ("functions", ctypes.c_void_p * _IO_FUNCTIONS))
    version: int
    functions: Any


# By position in the table: what follows the first argument, which is the VFS or the file, and the number that stands
# for an error that brings none.
_VFS_CALLS: Final[dict[int, tuple[tuple[Any, ...], int]]] = {
    _OPEN: ((_pointer, _pointer, _int, _pointer), apsw.SQLITE_CANTOPEN),
    1: ((_pointer, _int), apsw.SQLITE_IOERR_DELETE),
    2: ((_pointer, _int, _pointer), apsw.SQLITE_IOERR_ACCESS),
    3: ((_pointer, _int, _pointer), apsw.SQLITE_CANTOPEN_FULLPATH),
    # xSleep answers how long it slept.
    9: ((_int,), 0),
}
_FILE_CONTROL: Final = 9
_FILE_CALLS: Final[dict[int, tuple[tuple[Any, ...], int]]] = {
    0: ((), apsw.SQLITE_IOERR_CLOSE),
    1: ((_pointer, _int, _long), apsw.SQLITE_IOERR_READ),
    2: ((_pointer, _int, _long), apsw.SQLITE_IOERR_WRITE),
    3: ((_long,), apsw.SQLITE_IOERR_TRUNCATE),
    4: ((_int,), apsw.SQLITE_IOERR_FSYNC),
    5: ((_pointer,), apsw.SQLITE_IOERR_FSTAT),
    6: ((_int,), apsw.SQLITE_IOERR_LOCK),
    7: ((_int,), apsw.SQLITE_IOERR_UNLOCK),
    8: ((_pointer,), apsw.SQLITE_IOERR_CHECKRESERVEDLOCK),
    _FILE_CONTROL: ((_int, _pointer), apsw.SQLITE_IOERR),
}

_methods: Final[dict[int, tuple[_Methods, int]]] = {}
"""By the address of apsw's table of a file's methods: ours, and its address."""


def last_error() -> BaseException | None:
    """What was raised last in a callback of this thread under the standard library's SQLite."""
    return getattr(_last, "error", None)


def shielded(table: Table, library: ctypes.CDLL) -> None:
    """Wrap the functions of a copy of apsw's table, which `library` is to be given."""
    for place, (arguments, code) in _VFS_CALLS.items():
        original = table.functions[place]
        wrapped = _wrapped(original, arguments, code)
        if place == _OPEN:
            wrapped = _with_methods(wrapped, library)
        table.functions[place] = _lasting(wrapped, arguments)


def _wrapped(address: int, arguments: tuple[Any, ...], code: int) -> Callable[..., int]:
    # After such a call ctypes looks for a pending error, and raises it here.
    call = ctypes.PYFUNCTYPE(_int, _pointer, *arguments)(address)

    def wrapped(*given: Any) -> int:
        try:
            return int(call(*given))
        except BaseException as error:
            return _taken(error, code)

    return wrapped


def _taken(error: BaseException, code: int) -> int:
    _last.error = error
    if isinstance(error, KeyboardInterrupt):
        _thread.interrupt_main()
    return int(getattr(error, "extendedresult", 0)) or code


def _with_methods(opened: Callable[..., int], library: ctypes.CDLL) -> Callable[..., int]:
    """The file that was opened gets shielded methods."""

    def wrapped(vfs: int, name: int, file: int, flags: int, out: int) -> int:
        code = opened(vfs, name, file, flags, out)
        address = _pointer.from_address(file)
        if not code and address.value:
            if address.value not in _methods:
                ours = _shielded_methods(address.value, library)
                _methods[address.value] = ours, ctypes.addressof(ours)
            address.value = _methods[address.value][1]
        return code

    return wrapped


def _shielded_methods(address: int, library: ctypes.CDLL) -> _Methods:
    methods = _Methods.from_buffer_copy(_Methods.from_address(address))
    for place, (arguments, code) in _FILE_CALLS.items():
        wrapped = _wrapped(methods.functions[place], arguments, code)
        if place == _FILE_CONTROL:
            wrapped = _with_words(wrapped, library)
        methods.functions[place] = _lasting(wrapped, arguments)
    return methods


def _with_words(control: Callable[..., int], library: ctypes.CDLL) -> Callable[..., int]:
    print_text = library.sqlite3_mprintf
    print_text.restype = _pointer
    print_text.argtypes = [ctypes.c_char_p, ctypes.c_char_p]

    def wrapped(file: int, op: int, pointer: int) -> int:
        before = last_error()
        code = control(file, op, pointer)
        error = last_error()
        if op == apsw.SQLITE_FCNTL_PRAGMA and error is not before:
            # SQLite frees it.
            _pointer.from_address(pointer).value = print_text(b"%s", str(error).encode())
        return code

    return wrapped


def _lasting(function: Callable[..., int], arguments: tuple[Any, ...]) -> int:
    """The address of a C function that calls it, for as long as the process lives: a connection that is still open when
    Python ends is closed after this module.
    """
    thunk = ctypes.CFUNCTYPE(_int, _pointer, *arguments)(function)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thunk))
    address = ctypes.cast(thunk, _pointer).value
    assert address is not None
    return address

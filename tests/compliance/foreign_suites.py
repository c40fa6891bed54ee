"""Suites that others made for SQLite, over volumes: `make suites`.

    apsw       apsw's own, with a home's volumes where it would open files
    sqlite3    CPython's, of the module that `budwood.dbapi` hands connections of

Each runs in a process and a folder of its own. What may fail is listed with the reason; anything else that fails ends
with status 1. Django's own is run by scripts/suites.sh.
"""

# The suites have no types.
# pyright: basic
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call"

from __future__ import annotations

import hashlib
import importlib
import io
import itertools
import os
import sqlite3
import sys
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import apsw

import budwood.vfs
from budwood.sync.edge import open as open_edge
from budwood.vfs import dbapi

_EXTENSION: Final = "it loads an extension that only a checkout of apsw's has"
_OF_APSW: Final = {
    "testLoadExtension": _EXTENSION,
    "testVFS": _EXTENSION,
    "testVFSWithWAL": _EXTENSION,
}
_A_PATH: Final = "it looks for the file, or names one that can't be opened; a volume has a name"
_PASSED_ON: Final = "arguments come by their names here, which are deprecated by their places"
_OUR_LINE: Final = "the warning names a line of StandardConnection's"
_OF_SQLITE3: Final = {
    "test_failed_open": _A_PATH,
    "test_error_code_on_exception": _A_PATH,
    "test_open_with_path_like_object": _A_PATH,
    "test_open_with_undecodable_path": _A_PATH,
    "test_open_undecodable_uri": _A_PATH,
    "test_open_uri_readonly": _A_PATH,
    "test_ctx_mgr_rollback_if_commit_failed": "another process opens the file by its path",
    "test_database_keyword": "a connection is a StandardConnection",
    "test_factory_database_arg": "a connection is opened by a URI",
    "test_connect_positional_arguments": _PASSED_ON,
    "test_connection_factory_as_positional_arg": _PASSED_ON,
    "test_execute_named_param_and_sequence": _OUR_LINE,
    "test_sqlite_date": _OUR_LINE,
    "test_sqlite_timestamp": _OUR_LINE,
    "test_modifying_progress": "it counts the steps of a memory database, and a file takes one less with SQLite too",
}


def apsw_suite(folder: Path) -> tuple[unittest.TestSuite, dict[str, str]]:
    budwood.vfs.register(home=folder / "home", name="budwood")
    apsw.set_default_vfs("budwood")
    os.environ.setdefault("APSW_HEAVY_DURATION", "1")
    tests: Any = importlib.import_module("apsw.tests.__main__")
    remove_files = tests.deltempfiles

    def remove_all() -> None:
        remove_files()
        with open_edge(home=folder / "home") as edge:
            for volume in edge.ls():
                edge.rm(volume["name"], discard=True)

    tests.deltempfiles = remove_all
    return unittest.defaultTestLoader.loadTestsFromTestCase(tests.APSW), _OF_APSW


def sqlite3_suite(folder: Path) -> tuple[unittest.TestSuite, dict[str, str]]:
    numbers, plain = itertools.count(), cast("Callable[..., sqlite3.Connection]", sqlite3.connect)
    positional = (
        "timeout",
        "detect_types",
        "isolation_level",
        "check_same_thread",
        "factory",
        "cached_statements",
        "uri",
    )

    def volume_of(database: Any) -> str:
        path = os.fsdecode(database)
        if path in ("", ":memory:"):
            return f"memory{next(numbers)}"
        return hashlib.md5(os.path.abspath(path).encode("utf-8", "surrogateescape"), usedforsecurity=False).hexdigest()

    def connect(database: Any, *arguments: Any, **named: Any) -> sqlite3.Connection:
        named.update(zip(positional, arguments, strict=False))
        if named.get("uri"):
            return plain(database, **named)
        return plain(**dbapi.sqlite3_arguments(volume_of(database), home=folder / "home", **named))

    def unlink(path: Any) -> None:
        Path(os.fsdecode(path)).unlink(missing_ok=True)
        with open_edge(home=folder / "home") as edge:
            if volume_of(path) in {volume["name"] for volume in edge.ls()}:
                edge.rm(volume_of(path), discard=True)

    os_helper: Any = importlib.import_module("test.support.os_helper")
    sqlite3.connect = sqlite3.dbapi2.connect = connect  # type: ignore[assignment]
    os_helper.unlink = unlink
    parts = ("dbapi", "regression", "transactions", "types", "userfunctions", "hooks", "factory", "dump", "backup")
    loaded = [importlib.import_module(f"test.test_sqlite3.test_{part}") for part in parts]
    return unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromModule, loaded)), _OF_SQLITE3


_SUITES: Final[dict[str, Callable[[Path], tuple[unittest.TestSuite, dict[str, str]]]]] = {
    "apsw": apsw_suite,
    "sqlite3": sqlite3_suite,
}


def _name(test: unittest.TestCase) -> str:
    # A part of a test is called by the test's name and what it is about.
    return test.id().split()[0].rpartition(".")[2]


def main(which: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        suite, may_fail = _SUITES[which](Path(folder))
        result = unittest.TextTestRunner(io.StringIO(), verbosity=0).run(suite)
        os.chdir("/")
    all_failed = [*result.failures, *result.errors]
    failed = {_name(test) for test, _ in all_failed}
    for test, trace in all_failed:
        if _name(test) not in may_fail:
            print(f"{test.id()}\n{trace}")
    for name in sorted(failed & may_fail.keys()):
        print(f"{which}: {name} fails, as it may: {may_fail[name]}")
    for name in sorted(failed - may_fail.keys()):
        print(f"{which}: {name} FAILS")
    print(f"{which}: {result.testsRun} tests, {len(failed & may_fail.keys())} fail as they may")
    return 1 if failed - may_fail.keys() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

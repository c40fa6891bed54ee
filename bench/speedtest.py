"""apsw.speedtest's tests on fresh volumes, against plain SQLite files (WAL, same statements, taking turns).

The tool's own runner deletes a file between its runs, which a volume isn't, so its statements are taken from
`--dump-sql` and run here: as one big statement, and one by one. Scale 1 is about 20,000 inserts and 6,000 selects;
`python -m bench.speedtest 10` takes ten times that.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw

import budwood

from .harness import compare, report, scratch


def statements(folder: Path, scale: int) -> str:
    dump = folder / "speedtest.sql"
    command = [sys.executable, "-m", "apsw.speedtest", "--apsw", "--scale", str(scale), "--dump-sql", str(dump)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return dump.read_text()


def big_statement(connection: apsw.Connection, text: str) -> None:
    for _ in connection.execute(text):
        pass


def one_by_one(connection: apsw.Connection, text: str) -> None:
    cursor = connection.cursor()
    for statement in text.split(";\n"):
        for _ in cursor.execute(statement):
            pass


def fresh(
    open_: Callable[[int], apsw.Connection], run: Callable[[apsw.Connection, str], None], text: str
) -> Callable[[], None]:
    number = 0

    def once() -> None:
        nonlocal number
        number += 1
        connection = open_(number)
        run(connection, text)
        connection.close()

    return once


def main(scale: int = 1) -> None:
    with scratch() as folder:
        text = statements(folder, scale)

        def plain(name: str) -> Callable[[int], apsw.Connection]:
            def open_(number: int) -> apsw.Connection:
                connection = apsw.Connection(str(folder / f"{name}{number}.db"))
                connection.pragma("journal_mode", "wal")
                return connection

            return open_

        def volume(name: str) -> Callable[[int], apsw.Connection]:
            return lambda number: budwood.connect(f"{name}{number}", home=folder / "home")

        note = f"scale {scale}"
        figures = [
            compare(name, fresh(volume(name), run, text), fresh(plain(name), run, text), 1.2, rounds=5, note=note)
            for name, run in (("bigstmt", big_statement), ("statements", one_by_one))
        ]
    report("speedtest: apsw.speedtest on fresh volumes", figures)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)

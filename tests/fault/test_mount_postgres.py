"""A database server whose files lie in a mount: PostgreSQL, which writes its log and its tables by several processes,
each with descriptors of its own, and relies on every `fsync` of one for what the others wrote.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Event
from typing import Final

import psycopg
import pytest

from ..mounts import Mount, mounted, needs_fuse
from ..postgres import PostgresServer, programs, reachable
from ..waits import LIMIT_SECONDS, wait_until

pytestmark = [
    needs_fuse,
    pytest.mark.skipif(
        programs() is None and "CI_HAS_POSTGRES" not in os.environ, reason="PostgreSQL is not installed"
    ),
]

CLIENTS: Final = 3
TRANSFERS: Final = 100
"""Acknowledged between two kills."""
ACCOUNTS: Final = 2000
"""Many enough that a table has pages which no transfer since the last checkpoint has touched."""

OPTIONS: Final = ["--no-sync", *(["--allow-other"] if os.geteuid() == 0 else [])]


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Where the server's user can reach it."""
    with tempfile.TemporaryDirectory(dir=reachable(), prefix="budwood-") as folder:
        os.chmod(folder, 0o755)
        with mounted(Path(folder), *OPTIONS) as mount:
            yield mount


def transfer(server: PostgresServer, client: int, told: list[int], ends: Event) -> None:
    """Until the server is gone: one after the other, each noted once it is acknowledged."""
    dice = Random(client)
    try:
        with server.connect() as connection:
            while True:
                number, amount = len(told) * CLIENTS + client, dice.randrange(100)
                with connection.transaction():
                    for sign in (1, -1):
                        connection.execute(
                            "UPDATE account SET balance = balance + %s WHERE id = %s",
                            (sign * amount, dice.randrange(ACCOUNTS // CLIENTS) * CLIENTS + client),
                        )
                    connection.execute("INSERT INTO done VALUES (%s)", (number,))
                told.append(number)
    except psycopg.Error:
        assert ends.is_set(), "nobody has ended it yet"


def transfer_until_killed(mount: Mount, server: PostgresServer, told: list[list[int]]) -> None:
    """Mount and server, within transactions of every client."""
    ends, wanted = Event(), sum(map(len, told)) + TRANSFERS
    with ThreadPoolExecutor(CLIENTS) as clients:
        works = [clients.submit(transfer, server, client, told[client], ends) for client in range(CLIENTS)]
        wait_until(lambda: sum(map(len, told)) >= wanted or any(work.done() for work in works))
        ends.set()
        assert mount.process is not None
        mount.process.kill()
        server.kill()
        for work in works:
            work.result(LIMIT_SECONDS)
    mount.kill()


def found(server: PostgresServer) -> set[int]:
    """The transfers that are there; money is neither made nor lost, by the table or by its index."""
    with server.connect() as connection:
        for way in ("enable_seqscan", "enable_indexscan"):
            connection.execute(f"SET {way} = off".encode())
            total = connection.execute("SELECT count(*), sum(balance) FROM account WHERE id >= 0").fetchone()
            assert total == (ACCOUNTS, 0)
            connection.execute("RESET ALL")
        return {number for (number,) in connection.execute("SELECT number FROM done").fetchall()}


def test_postgresql_finds_each_transaction_that_it_acknowledged(mount: Mount) -> None:
    told: list[list[int]] = [[] for _ in range(CLIENTS)]
    with PostgresServer(mount.directory / "data") as server:
        with server.connect() as connection:
            connection.execute("CREATE TABLE account (id int PRIMARY KEY, balance int)")
            connection.execute(b"INSERT INTO account SELECT i, 0 FROM generate_series(0, %d) s(i)" % (ACCOUNTS - 1))
            connection.execute("CREATE TABLE done (number int PRIMARY KEY)")
        for _ in range(2):
            transfer_until_killed(mount, server, told)
            mount.start(*OPTIONS)
            server.start()
            there = found(server)
            assert there >= {number for numbers in told for number in numbers}
            assert len(there) <= sum(map(len, told)) + CLIENTS, "what was asked for by nobody"
            for client in range(CLIENTS):
                # One whose answer was lost may be there.
                told[client] = sorted(number for number in there if number % CLIENTS == client)

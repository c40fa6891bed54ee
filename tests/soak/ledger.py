"""The bank: accounts, and entries that move money between them; all of an entry follows from its writer and number.

So whoever reads the database can say of every row whether it is right, and of the whole whether it is one moment:
numbers without a gap, amounts that add up to the balances, balances that add up to what there was at first. Works over
apsw and the standard library's sqlite3, which both have `execute`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

ACCOUNTS: Final = 20
BALANCE: Final = 1_000_000
NO_BANK: Final = "no bank"

_SCHEMA: Final = """
CREATE TABLE account (id INTEGER PRIMARY KEY, balance INT NOT NULL);
CREATE TABLE entry (
    writer TEXT, number INT, source INT, target INT, amount INT, pad BLOB, PRIMARY KEY (writer, number)
);
"""


class Wrong(Exception):
    """The rows are not what any writer wrote."""


@dataclass(frozen=True, slots=True)
class Found:
    counts: dict[str, int]
    """By writer: how many of its entries are there, the first ones."""
    digest: str
    """Of every row: equal if and only if the rows are; `NO_BANK` before it was made."""


def entry(writer: str, number: int) -> tuple[int, int, int, bytes]:
    """Source, target, amount and pad."""
    drawn = hashlib.sha256(f"{writer} {number}".encode()).digest()
    source, step = drawn[0] % ACCOUNTS, 1 + drawn[1] % (ACCOUNTS - 1)
    pad = drawn * (int.from_bytes(drawn[2:4], "little") % 90)
    return source + 1, (source + step) % ACCOUNTS + 1, 1 + drawn[4], pad


def make(db: Any) -> None:
    """The bank, if it isn't there; one transaction."""
    db.execute("begin immediate")
    try:
        if not _is_made(db):
            for statement in filter(str.strip, _SCHEMA.split(";")):
                db.execute(statement)
            for number in range(1, ACCOUNTS + 1):
                db.execute("insert into account values (?, ?)", (number, BALANCE))
        db.execute("commit")
    except BaseException:
        db.execute("rollback")
        raise


def _is_made(db: Any) -> bool:
    return bool(db.execute("select 1 from sqlite_schema where name = 'entry'").fetchall())


def transfer(db: Any, writer: str, number: int) -> None:
    """One entry, one transaction. If it raises, whether it is there is told by who looks."""
    source, target, amount, pad = entry(writer, number)
    db.execute("begin immediate")
    db.execute("update account set balance = balance - ? where id = ?", (amount, source))
    db.execute("update account set balance = balance + ? where id = ?", (amount, target))
    db.execute("insert into entry values (?, ?, ?, ?, ?, ?)", (writer, number, source, target, amount, pad))
    db.execute("commit")


def audit(db: Any) -> Found:
    """Read and judge everything, within one read transaction. Raises Wrong."""
    balances = dict.fromkeys(range(1, ACCOUNTS + 1), BALANCE)
    counts: dict[str, int] = {}
    digest = hashlib.sha256()
    db.execute("begin")
    try:
        if not _is_made(db):
            return Found({}, NO_BANK)
        accounts = db.execute("select id, balance from account order by id").fetchall()
        for row in db.execute("select writer, number, source, target, amount, pad from entry order by writer, number"):
            writer, number, source, target, amount, pad = row
            if number != counts.get(writer, 0) + 1:
                raise Wrong(f"after entry {counts.get(writer, 0)} of {writer} comes {number}")
            if (source, target, amount, bytes(pad)) != entry(writer, number):
                raise Wrong(f"entry {number} of {writer} is not what was written")
            counts[writer] = number
            balances[source] -= amount
            balances[target] += amount
            digest.update(repr(row).encode())
    finally:
        db.execute("rollback")
    if accounts != list(balances.items()):
        raise Wrong(f"the balances are {accounts}, and the entries make them {balances}")
    digest.update(repr(accounts).encode())
    return Found(counts, digest.hexdigest())

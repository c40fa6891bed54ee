"""A bank in the pages of a volume, without SQLite: a page for each account, two pages for each transfer.

Each page says who wrote it, and the how-manieth transfer of theirs it was. So whoever reads an LSN can tell which
transfer made it, and the balances of each LSN add up to what there was at first. Clients and the audit run
`python -m tests.soak.page_bank VERB URL …`.
"""

from __future__ import annotations

import json
import random
import select
import struct
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

import anyio

from budwood.remote.moving import move_volume
from budwood.remote.open import open_remote
from budwood.testing.commits import commit_of, pages_at
from budwood.volume.calls import (
    CREATE,
    PULL_COMMITS,
    SNAPSHOT,
    CreateRequest,
    RangeRequest,
    SnapshotRequest,
)
from budwood.volume.errors import BudwoodError, Conflict, NotOwner, Unavailable
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.protocols import Remote

PAGE: Final = 512
ACCOUNTS: Final = 8
BALANCE: Final = 1000
PACE_SECONDS: Final = 0.02
AGAIN_SECONDS: Final = 0.1

_PAGE: Final = struct.Struct("<qIQ")


class Account(NamedTuple):
    balance: int
    writer: int
    transfer: int

    def page(self) -> bytes:
        return _PAGE.pack(*self).ljust(PAGE, b"$")


def accounts_of(pages: dict[int, bytes]) -> dict[int, Account]:
    return {page: Account(*_PAGE.unpack_from(data)) for page, data in pages.items()}


def say(what: object) -> None:
    print(json.dumps(what), flush=True)


def stopped() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


async def make(remote: Remote, *logs: str) -> None:
    """A bank in each log."""
    vids: list[str] = []
    for log in logs:
        vid = VolumeId.new()
        await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        first = {number: Account(BALANCE, 0, 0).page() for number in range(1, ACCOUNTS + 1)}
        await remote.commit(*commit_of(vid, 0, first, client=ClientId.new(), page_size=PAGE))
        await move_volume(remote, vid, log)
        vids.append(str(vid))
    say(vids)


async def move(remote: Remote, vid: str, log: str) -> None:
    await move_volume(remote, VolumeId.parse(vid), log)
    say("moved")


async def transfer(remote: Remote, name: str, writer: str, seed: str) -> None:
    """Until told to end: says of each transfer that was acknowledged when, its number, and the LSN; and the number of
    each that was refused. One whose outcome isn't known is sent again, the same, until it is."""
    vid, me, dice, number = VolumeId.parse(name), ClientId.new(), random.Random(seed), 0
    say([time.monotonic(), 0, 0])
    while not stopped():
        number += 1
        try:
            lsn = (await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, confirm=True))).lsn
            accounts = accounts_of(await pages_at(remote, vid, lsn))
        except (Unavailable, NotOwner) as error:
            say({"error": type(error).__name__, "said": str(error), "at": time.monotonic()})
            await anyio.sleep(AGAIN_SECONDS)
            continue
        source, target = dice.sample(range(1, ACCOUNTS + 1), 2)
        amount = dice.randrange(1, 50)
        changed = {
            source: Account(accounts[source].balance - amount, int(writer), number).page(),
            target: Account(accounts[target].balance + amount, int(writer), number).page(),
        }
        length = ACCOUNTS * PAGE
        request, segment = commit_of(vid, lsn, changed, client=me, page_size=PAGE, length=length)
        while not stopped():
            try:
                say([time.monotonic(), number, (await remote.commit(request, segment)).lsn])
                break
            except Conflict:
                say([time.monotonic(), number, 0])
                break
            except (Unavailable, NotOwner) as error:
                say({"error": type(error).__name__, "said": str(error), "at": time.monotonic()})
                await anyio.sleep(AGAIN_SECONDS)
        await anyio.sleep(dice.uniform(0, 2 * PACE_SECONDS))


async def audit(remote: Remote, name: str) -> None:
    """Which transfer made each LSN, from 2 on: [writer, number]. Raises AssertionError for what no bank holds."""
    vid = VolumeId.parse(name)
    head = await remote.ask(SNAPSHOT, SnapshotRequest(vid.raw, confirm=True))
    lsns: list[int] = []
    while found := (await remote.ask(PULL_COMMITS, RangeRequest(vid.raw, after=lsns[-1] if lsns else 0))).commits:
        lsns += [info.lsn for info in found]
    assert lsns == list(range(1, head.lsn + 1)), "an LSN is missing, or stands twice"
    made: list[tuple[int, int]] = []
    before: dict[int, Account] = {}
    for lsn in range(1, head.lsn + 1):
        accounts = accounts_of(await pages_at(remote, vid, lsn))
        total = sum(account.balance for account in accounts.values())
        assert total == ACCOUNTS * BALANCE, f"at LSN {lsn} there are {total}"
        writers = {account[1:] for number, account in accounts.items() if account != before.get(number)}
        assert len(writers) == 1, f"LSN {lsn} is of {writers}"
        if lsn > 1:
            made.append(writers.pop())
        before = accounts
    say(made)


VERBS: Final[dict[str, Callable[..., Coroutine[Any, Any, None]]]] = {
    "make": make,
    "move": move,
    "transfer": transfer,
    "audit": audit,
}


async def main(verb: str, url: str, *arguments: str) -> None:
    remote = await open_remote(url)
    try:
        await VERBS[verb](remote, *arguments)
    finally:
        await remote.aclose()


if __name__ == "__main__":
    verb, url, *rest = sys.argv[1:]
    try:
        anyio.run(main, verb, url, *rest)
    except BudwoodError as error:
        told: dict[str, Any] = {"error": type(error).__name__, "said": str(error)}
        say(told)

"""`budwood transactions`: what folds are under way or were left, and how a log rejects one."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from budwood.server.log.term import take_transaction
from budwood.server.store.open_store import open_store
from budwood.volume.checkpoint import transaction_prefix

from .cli import Command
from .test_cli_upkeep import Clock, Upkeep, clock, edge, objects, store, upkeep

__all__ = ["clock", "edge", "store", "upkeep"]

LEFT = b"left of a fold"


@pytest.fixture
def log(edge: Command, upkeep: Upkeep, store: Path) -> str:
    """That of a volume, in which one fold was granted, and another is begun: it has written one object."""
    upkeep("upkeep", "--once")
    (volume,) = [row for row in json.loads(edge.ok("ls", "--remote", "--json")) if row["name"] == "inventory"]

    async def begin() -> None:
        from budwood.volume.ids import VolumeId

        opened = await open_store(store.as_uri(), create=False)
        stream = VolumeId.parse(volume["id"]).raw
        number = await take_transaction(
            opened, volume["id"], above=0, writer=bytes(16), now_ms=1_700_000_000_000, stream=stream
        )
        await opened.create(f"{transaction_prefix(volume['id'], number)}/one", LEFT)
        await opened.aclose()

    anyio.run(begin)
    return str(volume["id"])


def test_a_fold_is_listed_rejected_and_gone(log: str, upkeep: Upkeep, store: Path, clock: Clock, edge: Command) -> None:
    """S1.8: what an operator sees, and what he can do."""
    head, *lines = upkeep("transactions").splitlines()
    assert head.split() == ["log", "number", "volume", "state", "began", "age"]
    granted, begun = (line.split() for line in lines)
    assert granted[:4] == [log, "1", "inventory", "committed"]
    assert begun[:4] == [log, "3", "inventory", "open"]
    (row,) = [each for each in json.loads(upkeep("transactions", log, "--sizes", "--json")) if each["number"] == 3]
    assert (row["names"], row["state"], row["objects"], row["bytes"]) == (["inventory"], "open", 1, len(LEFT))
    assert row["began"] == 1_700_000_000_000
    assert row["age_ms"] > 0
    assert "1 object" not in upkeep("transactions", "--sizes")
    before = objects(store)
    said = upkeep("transactions", log, "--reject", "3")
    assert said.startswith(f"log {log} has rejected transaction 3: what it wrote may go from 20")
    assert before <= objects(store)
    *_, line = upkeep("transactions", log).splitlines()
    assert line.split()[3] == "reject-acknowledged"
    stood = objects(store)
    assert upkeep("transactions", log, "--reject", "3") == f"log {log} had rejected transaction 3 before\n"
    assert objects(store) == stood
    clock.ahead_seconds = 7200
    upkeep("gc")
    assert f"logs/{log}/t/{3:016x}/one" not in objects(store)
    *_, line = upkeep("transactions", log).splitlines()
    assert line.split()[3] == "garbage-collected"
    assert edge.sql("inventory", "SELECT count(*) FROM t") == ["12"]
    assert upkeep("scrub").endswith(": nothing is wrong\n")


def test_what_makes_no_sense_is_one_line(
    log: str, store: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before, command = objects(store), Command(capsys, tmp_path / "nobody")
    usage = "--reject takes one LOG and nothing else: budwood transactions --store URL LOG --reject N"
    for arguments, code, words in (
        (["--reject", "3"], 2, usage),
        (["a", "b", "--reject", "3"], 2, usage),
        ([log, "--reject", "3", "--json"], 2, usage),
        (["nowhere", "--reject", "3"], 1, "there is no log 'nowhere' in this store"),
        (["nowhere"], 1, "there is no log 'nowhere' in this store"),
        ([log, "--reject", "9"], 1, f"log {log} has no transaction 9: budwood transactions lists those that it has"),
        ([log, "--reject", "1"], 3, f"transaction 1 of log {log} was granted: it is what volume {log} is read by"),
    ):
        assert command("transactions", "--store", store.as_uri(), *arguments).line(code) == words
    assert objects(store) == before
    nothing = (tmp_path / "nothing").as_uri()
    assert "there is no store" in command("transactions", "--store", nothing).line()


def test_of_a_log_without_any_there_is_the_head_alone(
    tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str], upkeep: Upkeep
) -> None:
    edge = Command(capsys, tmp_path / "home", store.as_uri())
    edge.sql_made("inventory")
    edge.ok("push", "inventory")
    assert upkeep("transactions") == "log  number  volume  state  began  age\n"
    assert json.loads(upkeep("transactions", "--json")) == []

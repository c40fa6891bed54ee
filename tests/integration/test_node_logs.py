"""What a node logs: lines that programs read, each with the request that it is about; and an audit of who did what."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from budwood.remote.http import HttpRemote
from budwood.server.telemetry.logs import AUDIT, FIELDS, LineFormatter, audit_to, json_line, logfmt_line
from budwood.testing.commits import commit_of
from budwood.volume.calls import (
    CHANGE_NAME,
    CREATE,
    FORK,
    REMOVE,
    RETAIN,
    TAKE_LOG,
    CreateRequest,
    ForkRequest,
    LogName,
    RetainRequest,
    VolumeRequest,
)
from budwood.volume.errors import Conflict
from budwood.volume.ids import ClientId, VolumeId
from budwood.volume.retention_policy import RetentionPolicy
from budwood.volume.wire import NameRequest

from ..waits import LIMIT_SECONDS
from .cli import started_node

PAGE = 512
ANN = ClientId.new()


async def changes(remote: HttpRemote) -> tuple[VolumeId, VolumeId]:
    """What an operator would ask about afterwards."""
    vid, child = VolumeId.new(), VolumeId.new()
    await remote.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
    await remote.commit(*commit_of(vid, 0, {1: b"a" * PAGE}, client=ANN, page_size=PAGE))
    await remote.ask(CHANGE_NAME, NameRequest(op="bind", name="shop", target=vid.raw, client=ANN.raw))
    with pytest.raises(Conflict):
        await remote.ask(CHANGE_NAME, NameRequest(op="bind", name="shop", target=child.raw, client=ANN.raw))
    await remote.ask(FORK, ForkRequest(vid.raw, child=child.raw, lsn=1))
    await remote.ask(RETAIN, RetainRequest(vid.raw, policy=RetentionPolicy(all_ms=3_600_000)))
    await remote.ask(REMOVE, VolumeRequest(child.raw))
    await remote.ask(TAKE_LOG, LogName(log="main"))
    return vid, child


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("options", [(), ("--workers", "2")])
async def test_who_did_what_is_told(tmp_path: Path, options: tuple[str, ...]) -> None:
    audit, log = tmp_path / "audit.jsonl", tmp_path / "log.jsonl"
    told = ["--audit-log", str(audit), "--log-format", "json", "--log-level", "debug"]
    with (
        log.open("w") as errors,
        started_node(tmp_path / "store", "127.0.0.1:0", *told, *options, stderr=errors) as (process, address),
    ):
        remote = HttpRemote(address)
        vid, child = await changes(remote)
        await remote.aclose()
        async with httpx.AsyncClient(base_url=address, verify=False) as web:
            given = await web.get("/nowhere", headers={"x-request-id": "ours-1"})
            assert given.headers["x-request-id"] == "ours-1"
            for wrong in (b"", b"a b", b"x" * 65, "é".encode(), b'"\\'):
                made = (await web.get("/healthz", headers=[(b"x-request-id", wrong)])).headers["x-request-id"]
                assert re.fullmatch("[0-9a-f]{8}-[0-9a-f]+", made)
        process.terminate()
        assert process.wait(LIMIT_SECONDS) == 0
    assert stat.S_IMODE(audit.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    found = [(line["what"], line.get("volume"), line["outcome"]) for line in lines]
    assert found == [
        ("change_name", str(vid), "done"),
        ("change_name", str(child), "Conflict"),
        ("fork", str(vid), "done"),
        ("retain", str(vid), "done"),
        ("remove", str(child), "done"),
        ("take_log", None, "done"),
    ]
    assert lines[1]["name"] == "shop"
    assert lines[2]["child"] == str(child)
    assert {(line["who"], line["from"]) for line in lines} == {("-", "127.0.0.1")}
    calls: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    by_request = {line["request"]: line for line in calls if line["logger"] == "budwood.calls"}
    assert by_request["ours-1"]["status"] == 404
    assert by_request["ours-1"]["path"] == "/nowhere"
    # One id leads from the audit to the call.
    assert [by_request[line["request"]]["call"] for line in lines] == [line["what"] for line in lines]
    assert sum(line["call"] == "commit" for line in by_request.values()) == 1


@pytest.fixture
def audit(tmp_path: Path) -> Iterator[Path]:
    """Where audits go, in a folder of its own."""
    path, logger, before = tmp_path / "audits" / "audit.jsonl", logging.getLogger(AUDIT), os.umask(0o022)
    path.parent.mkdir()
    audit_to(path)
    yield path
    os.umask(before)
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


def audited(words: str) -> None:
    logging.getLogger(AUDIT).info("audit", extra={FIELDS: {"what": words}})


def test_an_audit_that_was_moved_away_is_begun_anew_for_its_owner_alone(audit: Path) -> None:
    for turn in range(3):
        audited(f"ü {turn}")
        audit.rename(audit.with_suffix(f".{turn}"))
    audited("last")
    files = list(audit.parent.iterdir())
    assert [len(each.read_text("utf-8").splitlines()) for each in files] == [1] * 4
    assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}


def test_an_audit_that_cant_be_written_is_told_elsewhere(audit: Path, caplog: pytest.LogCaptureFixture) -> None:
    shutil.rmtree(audit.parent)
    audited("one")
    (told,) = [record.getMessage() for record in caplog.records if record.name == "budwood"]
    assert told.startswith(f"the audit log {audit} can't be written (")
    assert '"what": "one"' in told
    audit.parent.mkdir()
    audited("two")
    assert json.loads(audit.read_text())["what"] == "two"


def test_a_line_is_one_line_whatever_it_holds() -> None:
    record = logging.LogRecord("budwood.x", logging.ERROR, "", 0, 'a "b"\n%s', ("c=d",), None)
    setattr(record, FIELDS, {"path": "/a\nb", "ok": True, "seconds": 0.5})
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    line = LineFormatter(json_line).format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["message"], told["path"], told["level"]) == ('a "b"\nc=d', "/a\nb", "error")
    assert told["exception"].endswith("ValueError: two\nlines")
    line = LineFormatter(logfmt_line).format(record)
    assert "\n" not in line
    assert ' message="a \\"b\\"\\nc=d" path="/a\\nb" ok=true seconds=0.5 exception=' in line

"""The files of `.budwood/`: what they read, and what writing to them does."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

import pytest

from budwood.fuse.names.virtual import Virtual, metrics_text, virtual_files
from budwood.volume.errors import BadInput, BudwoodError, Conflict, ReadOnly

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["trio"])]


class Verbs:
    """Stands for the mount's verbs; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    async def __call__(self, verb: str, arguments: list[str]) -> Any:
        self.asked.append((verb, arguments))
        match verb:
            case "metrics":
                return {"files_open": 3, "reads_total": {"from": {"here": 10, "remote": 2}}}
            case "push":
                raise Conflict("someone was first", head=7)
            case _:
                return [{"name": "shop", "asked": len(self.asked)}]


@pytest.fixture
def verbs() -> Verbs:
    return Verbs()


@pytest.fixture
def files(verbs: Verbs) -> dict[str, Virtual]:
    return virtual_files(verbs)


async def test_their_modes_let_everyone_read_and_only_the_owner_do(files: dict[str, Virtual]) -> None:
    assert {name: stat.filemode(file.mode) for name, file in files.items()} == {
        "status": "-r--r--r--",
        "metrics": "-r--r--r--",
        "control": "-rw-------",
    }
    assert all(file.name == name for name, file in files.items())


async def test_status_is_the_verb_s_answer_as_it_is_now(files: dict[str, Virtual]) -> None:
    assert json.loads(await files["status"].open(os.O_RDONLY)) == [{"name": "shop", "asked": 1}]
    assert json.loads(await files["status"].open(os.O_RDONLY)) == [{"name": "shop", "asked": 2}]


async def test_what_is_for_reading_refuses_to_be_written(files: dict[str, Virtual], verbs: Verbs) -> None:
    for name in ("status", "metrics"):
        for flags in (os.O_WRONLY, os.O_RDWR | os.O_APPEND):
            with pytest.raises(ReadOnly):
                await files[name].open(flags)
        with pytest.raises(ReadOnly):
            await files[name].write(b"status\n")
    assert verbs.asked == []


async def test_control_does_a_verb_and_reads_its_answer(files: dict[str, Virtual], verbs: Verbs) -> None:
    control = files["control"]
    assert json.loads(await control.open(os.O_RDWR)) == {"ok": None}
    assert await control.open(os.O_WRONLY | os.O_TRUNC) == b""
    await control.write(b"fetch 'my shop' --all\n")
    assert verbs.asked == [("fetch", ["my shop", "--all"])]
    assert json.loads(await control.open(os.O_RDONLY)) == {"ok": [{"name": "shop", "asked": 1}]}


async def test_a_write_is_whole_lines_and_needs_no_line_feed(files: dict[str, Virtual], verbs: Verbs) -> None:
    await files["control"].write(b"settle\n\n  \nstatus shop")
    assert verbs.asked == [("settle", []), ("status", ["shop"])]


async def test_a_verb_that_fails_fails_the_write_and_is_told_afterwards(
    files: dict[str, Virtual], verbs: Verbs
) -> None:
    control = files["control"]
    with pytest.raises(Conflict, match="someone was first") as failed:
        await control.write(b"settle\npush shop\nstatus\n")
    assert failed.value.head == 7
    assert [verb for verb, _ in verbs.asked] == ["settle", "push"], "what stands after it is not done"
    told = json.loads(await control.open(os.O_RDONLY))
    assert (told["error"]["code"], told["error"]["message"]) == ("Conflict", "someone was first")


@pytest.mark.parametrize("line", [b"push 'shop\n", b"\xff\xfe\n"])
async def test_what_is_no_verb_is_refused(files: dict[str, Virtual], verbs: Verbs, line: bytes) -> None:
    with pytest.raises(BadInput):
        await files["control"].write(line)
    assert verbs.asked == []


async def test_an_error_of_status_is_the_open_s(verbs: Verbs) -> None:
    async def answer(_verb: str, _arguments: list[str]) -> Any:
        raise BudwoodError("no")

    with pytest.raises(BudwoodError, match="no"):
        await virtual_files(answer)["status"].open(os.O_RDONLY)


async def test_metrics_are_prometheus_text(files: dict[str, Virtual]) -> None:
    assert (await files["metrics"].open(os.O_RDONLY)).decode() == (
        "# TYPE budwood_mount_files_open gauge\n"
        "budwood_mount_files_open 3\n"
        "# TYPE budwood_mount_reads_total counter\n"
        'budwood_mount_reads_total{from="here"} 10\n'
        'budwood_mount_reads_total{from="remote"} 2\n'
    )


async def test_a_label_s_value_can_hold_anything() -> None:
    text = metrics_text({"errors_total": {"errno": {'a "b"\\\n': 1.5}}, "read_only": True, "home": {"volumes": 2}})
    assert text.splitlines() == [
        "# TYPE budwood_edge_volumes gauge",
        "budwood_edge_volumes 2",
        "# TYPE budwood_mount_errors_total counter",
        'budwood_mount_errors_total{errno="a \\"b\\"\\\\\\n"} 1.5',
        "# TYPE budwood_mount_read_only gauge",
        "budwood_mount_read_only 1",
    ]

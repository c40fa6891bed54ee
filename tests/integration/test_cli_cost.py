"""`budwood cost`: what it prints, for people and for programs, its prices, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from .cli import Command, serving


@pytest.fixture
def store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """With two volumes of several commits."""
    store = tmp_path / "store"
    command = Command(capsys, tmp_path / "home", store.as_uri())
    for name in ("one", "two"):
        command.sql_made(name)
        for number in range(5):
            command.sql(name, f"INSERT INTO t VALUES ({number + 10}, 'more')")
            command.ok("push", name)
    return store


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, tmp_path / "nobody")


def objects_of(store: Path) -> dict[str, int]:
    paths = [path for path in store.rglob("*") if path.is_file() and ".tmp" not in path.parts]
    return {path.relative_to(store).as_posix(): path.stat().st_size for path in paths}


def rows_of(command: Command, store: Path, *options: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(command.ok("cost", "--json", "--store", store.as_uri(), *options))
    return rows


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    return str(path)


def test_a_table_of_volumes_and_what_they_come_to(store: Path, command: Command, tmp_path: Path) -> None:
    before = objects_of(store)
    lines = command.ok("cost", "--store", store.as_uri()).splitlines()
    assert lines[0].split()[0] == "volume"
    assert lines[0].endswith("USD/month")
    assert {line.split()[0] for line in lines[1:]} >= {"one", "two", "root", "all"}
    assert f"{len(before)} objects" in lines[-1]
    assert objects_of(store) == before, "it writes nothing"
    assert not (tmp_path / "nobody").exists()


def test_programs_get_every_figure(store: Path, command: Command) -> None:
    *usages, total = rows_of(command, store)
    objects = objects_of(store)
    assert total["all"] is True
    assert total["objects"] == len(objects)
    parts = ("pages", "entries", "records", "waiting")
    assert sum(total[part] for part in parts) == sum(objects.values())
    one = next(row for row in usages if row.get("names") == ["one"])
    own = [size for key, size in objects.items() if f"/{one['volume']}/" in key]
    assert sum(one[part] for part in parts) == sum(own), "a private log is its volume's"
    (day,) = one["days"]
    assert day["commits"] in {5, 6}
    entries = [key for key in objects if key.startswith(f"logs/{one['volume']}/entries/")]
    assert day["entries"] == len(entries)
    assert one["creates_a_day"] == pytest.approx((day["entries"] + day["fragments"] + day["upkeep"]) / 7)


def test_prices_come_from_a_file_and_what_it_leaves_out_stays(store: Path, command: Command, tmp_path: Path) -> None:
    prices = written(tmp_path, 'currency = "pears"\nstorage_gb_month = 1_000_000\nput_per_1000 = 0\n')
    *_, total = rows_of(command, store, "--prices", prices)
    size = sum(objects_of(store).values())
    assert total["storage_a_month"] == pytest.approx(size / 2**30 * 1_000_000)
    assert total["creates_a_month"] == 0
    assert total["currency"] == "pears"
    assert "pears/month" in command.ok("cost", "--store", store.as_uri(), "--prices", prices).splitlines()[0]
    *_, usual = rows_of(command, store)
    assert usual["storage_a_month"] == pytest.approx(size / 2**30 * 0.023)
    assert usual["creates_a_month"] == pytest.approx(usual["creates_a_day"] * 30 / 1000 * 0.005)


def test_it_says_what_would_save(store: Path, command: Command) -> None:
    *_, window, retention = rows_of(command, store, "--batch-window", "1d", "--all", "1s", "--days", "1d")
    assert window["batch_window_ms"] == 86_400_000
    assert window["would_be_a_day"] < window["entries_a_day"]
    assert window["saves_a_month"] > 0
    assert retention["retention"] == {"all": 1000, "hourly": 0, "daily": 0}
    told = command.ok("cost", "--store", store.as_uri(), "--batch-window", "1d", "--all", "7d")
    assert "a batch window of 86400000 ms: " in told
    assert "that retention: about 0 B would go, 0 USD less a month" in told


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("storage_gb_month = ", "no TOML"),
        ("storage = 1", "name 'storage': there are currency, egress_gb"),
        ("put_per_1000 = -1", "put_per_1000 in .* is -1: write a number, 0 or more"),
        ("get_per_1000 = '1'", "get_per_1000 in .* is '1': write a number"),
        ("list_per_1000 = nan", "write a number"),
        ("egress_gb = true", "write a number"),
        ("currency = 3", "the currency in .* is a word"),
        ("currency = ''", "the currency in .* is a word"),
    ],
)
def test_prices_that_can_t_be_meant_are_refused_in_one_line(
    command: Command, tmp_path: Path, text: str, words: str
) -> None:
    said = command("cost", "--store", "file:///not/looked/at", "--prices", written(tmp_path, text))
    assert said.out == ""
    assert re.search(words, said.line(2))


def test_what_is_no_file_no_store_or_no_time_is_refused_in_one_line(command: Command, tmp_path: Path) -> None:
    url = (tmp_path / "none").as_uri()
    assert "can't read the prices in" in command("cost", "--store", url, "--prices", str(tmp_path / "none")).line(2)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in command("cost", "--store", url, "--prices", str(tmp_path / "binary")).line(2)
    assert "say of what: --store" in command("cost").line(2)
    assert "there is no store" in command("cost", "--store", url).line()
    assert "no time to last" in command("cost", "--store", url, "--batch-window", "20").line(2)
    assert "no time to last" in command("cost", "--store", url, "--days", "week").line(2)
    assert "hourly alone says too little" in command("cost", "--store", url, "--hourly", "3d").line(2)


def test_a_volume_that_can_t_be_read_is_told_beside_the_others(store: Path, command: Command) -> None:
    birth = sorted(store.glob("volumes/*/birth"))[0]
    birth.chmod(0o600)
    birth.write_bytes(birth.read_bytes()[:-1])
    said = command("cost", "--store", store.as_uri())
    assert said.line(0).startswith(f"volume {birth.parent.name} was left out: ")
    assert "all of it" in said.out


def test_a_node_tells_what_it_has_asked_of_its_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    with serving(store) as url:
        user = Command(capsys, tmp_path / "home", url)
        user.sql_made("one")
        user.ok("push", "one")
        about, *rows = json.loads(user.ok("cost", "--json"))
        assert about["since"] <= about["now"]
        days = [row for row in rows if "day" in row]
        assert sum(row["creates"] for row in days) >= len(objects_of(store))
        for row in rows:
            puts = (row["creates"] + row["entries"] + row["lists"]) * 0.005 / 1000
            assert row["costs"] == pytest.approx(puts + row["gets"] * 0.0004 / 1000)
        volumes = {path.name for path in (store / "volumes").iterdir()}
        assert volumes <= {row["owner"] for row in rows if "owner" in row}
        lines = user.ok("cost").splitlines()
        assert lines[0].split()[0] == "creates"
        assert lines[-1].startswith("counted since ")
        assert "the store tells: --store URL" in user("cost", "--batch-window", "1s").line(2)

"""The command over a store with records: opened with them by everybody or by nobody, looked after, switched."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from budwood.server.store.open_store import open_store
from budwood.server.store.temporaries import FOLDER
from budwood.volume import faults

from .cli import Command
from .test_cli_upkeep import Clock, clock

__all__ = ["clock"]

DAYS = 86_400


@pytest.fixture
def plain(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


@pytest.fixture
def url(tmp_path: Path, plain: str) -> str:
    return f"{plain}?records=sqlite://{tmp_path}/records"


def cut_off(url: str, point: str, key: str) -> None:
    """A create that is cut at that step."""

    def cut() -> None:
        raise faults.Cut

    async def create() -> None:
        store = await open_store(url)
        try:
            await store.create(key, b"left")
        finally:
            await store.aclose()

    faults.arm(point, cut)
    with pytest.raises(faults.Cut):
        anyio.run(create)
    faults.disarm()


def test_a_store_with_records_is_used_as_any_other(
    tmp_path: Path, url: str, plain: str, capsys: pytest.CaptureFixture[str], clock: Clock
) -> None:
    """S0.6, S0.39: pushed to, cloned from, scrubbed and collected; what was cut off is finished, or goes in time."""
    ann = Command(capsys, tmp_path / "ann", url)
    ann.sql_made("shop")
    assert "LSN 1" in ann.ok("push", "shop")
    bob = Command(capsys, tmp_path / "bob", url)
    bob.ok("clone", "shop")
    assert bob.sql("shop", "SELECT count(*) FROM t")[-1].strip() == "3"
    cut_off(url, "two-phase: temporary written, no record", "volumes/lost")
    cut_off(url, "two-phase: recorded, not copied", "probe/kept")
    assert "nothing is wrong" in ann.ok("scrub", "--store", url)
    folder = tmp_path / "store" / FOLDER
    assert FOLDER not in ann.ok("gc", "--store", url, "--dry-run")
    ann.ok("gc", "--store", url)
    assert (tmp_path / "store/probe/kept").read_bytes() == b"left"
    (left,) = [path.relative_to(tmp_path / "store").as_posix() for path in folder.rglob("*") if path.is_file()]
    clock.ahead_seconds = 4 * DAYS
    assert f"{left}  of a create that was cut off\n" in ann.ok("gc", "--store", url, "--dry-run")
    ann.ok("gc", "--store", url)
    assert not folder.exists()


def test_one_way_of_opening_it_excludes_the_other(
    tmp_path: Path, url: str, plain: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """S0.13: and the switch from one to the other is one command, which may be given again."""
    ann = Command(capsys, tmp_path / "ann", url)
    ann.sql_made("shop")
    ann.ok("push", "shop")
    keys = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    words = f"creates in {plain} go through records: open it as {plain}?records=…, with those that it was made with"
    for verb in (("gc",), ("scrub",), ("cost",), ("serve", "--listen", "127.0.0.1:0")):
        assert ann(*verb, "--store", plain).line() == words
    assert ann("doctor", "--remote", plain).code == 1
    other = f"{plain}?records=sqlite://{tmp_path}/others"
    assert "give those that the store was made with" in ann("gc", "--store", other).line()
    assert "say with which records" in ann("to-native", "--store", plain).line(2)
    said = f"{plain} honours creates itself from now on (generation 2): leave out ?records=\n"
    assert ann.ok("to-native", "--store", url) == said
    assert ann.ok("to-native", "--store", url) == said
    assert ann("gc", "--store", url).line() == f"{plain} honours creates itself: open it without ?records="
    now = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert sorted(now) == sorted([*keys, tmp_path / "store/roots/0000000000000002"])
    assert "the store's root" in ann.ok("gc", "--store", plain, "--explain", "roots/0000000000000002")
    assert "nothing is wrong" in ann.ok("scrub", "--store", plain)
    bob = Command(capsys, tmp_path / "bob", plain)
    bob.ok("clone", "shop")
    assert bob.sql("shop", "SELECT count(*) FROM t")[-1].strip() == "3"


def test_a_store_that_never_had_records_has_none_to_be_switched_from(
    tmp_path: Path, url: str, plain: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ann = Command(capsys, tmp_path / "ann", plain)
    ann.sql_made("shop")
    ann.ok("push", "shop")
    assert "open it without ?records=" in Command(capsys, tmp_path / "bob", url)("clone", "shop").line()
    assert "has never gone through records" in ann("to-native", "--store", url).line()
    assert "there is no store" in ann("to-native", "--store", f"{plain}x?records=sqlite://{tmp_path}/x").line()

"""What an edge tells Prometheus: for how long something is unpushed, and what autosync does about it; all of it, and
nothing else, stands in docs/operations.md."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from budwood.sync.edge import open as open_edge
from budwood.sync.exposition import SECONDS, Distribution, prometheus
from budwood.sync.home_figures import home_figures

from ..documented import documented
from ..exposed import families, figure
from ..waits import LIMIT_SECONDS, wait_until
from .cli import Command

AGE = "budwood_edge_unpushed_oldest_seconds"


def test_the_oldest_unpushed_commit_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ann = Command(capsys, tmp_path / "ann", (tmp_path / "store").as_uri())
    text = ann.ok("metrics")
    assert figure(text, "budwood_edge_volumes") == 0
    assert figure(text, AGE) == 0
    ann.sql_made("one")
    ann.ok("push", "one")
    ann.sql_made("two")
    first = time.time()
    ann.sql("one", "INSERT INTO t VALUES (4, 'four')")
    text = ann.ok("metrics")
    assert figure(text, "budwood_edge_volumes") == 2
    assert figure(text, "budwood_edge_volumes_unpushed") == 2
    assert figure(text, "budwood_edge_unpushed_commits") >= 2
    with open_edge(home=ann.home) as edge:
        # Two's first, however late it is by now.
        told = home_figures(edge.volumes(), now=lambda: first + 3600)
        assert 3600 <= told["unpushed_oldest_seconds"] < 3600 + LIMIT_SECONDS
        ann.ok("push", "two")
        later = home_figures(edge.volumes(), now=lambda: first + 3600)
        assert later["unpushed_oldest_seconds"] <= 3600
    out = tmp_path / "budwood.prom"
    ann.ok("push", "one")
    ann.ok("metrics", "--out", str(out))
    assert figure(out.read_text(), AGE) == 0
    assert figure(out.read_text(), "budwood_edge_unpushed_commits") == 0
    assert "can't write" in ann("metrics", "--out", str(tmp_path / "nowhere" / "x.prom")).line(2)
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".new")] == []


def test_autosync_tells_what_it_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ann = Command(capsys, tmp_path / "ann", (tmp_path / "store").as_uri())
    ann.sql_made("v")
    out = tmp_path / "budwood.prom"
    with ann.start("autosync", "--metrics", str(out)) as child:
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            assert line.startswith("syncing"), (*child.communicate(timeout=LIMIT_SECONDS), child.returncode)
            assert figure(out.read_text(), "budwood_edge_volumes") == 1
            wanted = {name for name, row in documented("Metrics of an edge").items() if row.told_by != "mount"}
            found = families(out.read_text())
            assert found.keys() == wanted
            for name, row in documented("Metrics of an edge").items():
                assert row.told_by == "mount" or found[name].type == row.kind, name
            child.send_signal(signal.SIGTERM)
            assert child.wait(LIMIT_SECONDS) == 0
        finally:
            child.kill()


def test_pushes_are_timed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from budwood.cli.metrics import text_of_home

    ann = Command(capsys, tmp_path / "ann", (tmp_path / "store").as_uri())
    ann.sql_made("v")
    with open_edge(home=ann.home, remote=(tmp_path / "store").as_uri()) as edge, edge.autosync() as syncing:
        wait_until(lambda: figure(text_of_home(edge, syncing), "budwood_edge_push_seconds_count") >= 1)
        assert figure(text_of_home(edge, syncing), "budwood_edge_push_seconds_sum") > 0
        assert figure(text_of_home(edge, syncing), "budwood_edge_sync_leads") == 1


def test_a_distribution_is_cumulative() -> None:
    seen = Distribution()
    for seconds in (0.01, 0.011, 7.0, 1000.0):
        seen.note(seconds)
    text = prometheus({"x_seconds": seen}, "budwood_")
    counts = [figure(text, "budwood_x_seconds_bucket", le=bound) for bound in ("0.01", "0.025", "5.0", "10.0", "+Inf")]
    assert counts == [1, 2, 2, 3, 4]
    assert figure(text, "budwood_x_seconds_sum") == pytest.approx(1007.021)
    assert len(families(text)["budwood_x_seconds"].samples) == len(SECONDS) + 3

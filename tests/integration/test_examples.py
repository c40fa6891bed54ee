"""The examples run as they stand, and the demo cleans up behind itself, however it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def environment(folder: Path) -> dict[str, str]:
    """Temporary files go where they can be seen; nothing of the user's own budwood is used."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BUDWOOD_")}
    return kept | {"TMPDIR": str(folder), "HOME": str(folder), "PYTHONWARNINGS": "error"}


def run(example: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", str(EXAMPLES / example), *arguments],
        env=environment(folder),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_quickstart_shows_the_change_on_the_other_side(tmp_path: Path) -> None:
    done = run("quickstart.py", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "pushed, LSN 1",
        "there:  [('bolt', 40), ('nut', 60)]",
        "pushed, LSN 2",
        "pulled, LSN 2",
        "here:   [('bolt', 35), ('nut', 60)]",
        "LSN 1:  [('bolt', 40), ('nut', 60)]",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_demo_ends_well_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = run("demo.py", "--lines", "30000", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Every answer was the one that stock sqlite3 gives." in done.stdout
    assert "is a node listening there?" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_demo_stopped_halfway_ends_its_node_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-P", str(EXAMPLES / "demo.py"), "--lines", "30000"],
        env=environment(tmp_path) | {"PYTHONUNBUFFERED": "1"},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with demo:
        assert demo.stdout is not None
        address = ""
        for line in demo.stdout:
            if "a node serves" in line:
                address = line.split()[-1]
                break
        assert address
        demo.send_signal(signal.SIGTERM)
        rest = demo.stdout.read()
        assert demo.wait(60) == 130, rest
    assert "everything is cleaned up" in rest
    assert list(tmp_path.iterdir()) == []
    assert not listens(address), "the node outlived the demo"


def listens(address: str) -> bool:
    host, port = address.removeprefix("http://").split(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_the_demo_says_in_one_line_what_failed(tmp_path: Path) -> None:
    broken = (EXAMPLES / "demo.py").read_text().replace('ONLINE = "UPDATE files', 'ONLINE = "UPDATE nowhere')
    assert "nowhere" in broken
    (tmp_path / "demo.py").write_text(broken)
    done = run(str(tmp_path / "demo.py"), "--lines", "3000", folder=tmp_path)
    assert done.returncode == 1, done.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["demo.py"]

"""A script's background job: a shell has interrupts ignored in what a script starts with `&` (POSIX, 2.11), and so they
stay. Whoever presses Ctrl-C means what is in front; SIGTERM ends a node and a mount as ever.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from ..mounts import is_mounted, needs_fuse
from ..waits import LIMIT_SECONDS
from .cli import ENTRY

pytestmark = pytest.mark.slow

IN_THE_BACKGROUND = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]


@contextmanager
def job(*arguments: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """As `budwood … &` in a script; it, and the line by which it says that it serves."""
    with subprocess.Popen([*IN_THE_BACKGROUND, *ENTRY, *arguments], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            if process.poll() is None:
                process.terminate()


def test_a_node_in_the_background_serves_on_when_the_script_is_interrupted(tmp_path: Path) -> None:
    with job("serve", "--create", "--store", tmp_path.as_uri(), "--listen", "127.0.0.1:0") as (node, line):
        node.send_signal(signal.SIGINT)
        for _ in range(3):
            assert httpx.get(f"{line.split()[-1]}/healthz", timeout=LIMIT_SECONDS).status_code == 200
        node.terminate()
        assert node.wait(LIMIT_SECONDS) == 0


@needs_fuse
def test_a_mount_in_the_background_serves_on_when_the_script_is_interrupted(tmp_path: Path) -> None:
    home, directory = tmp_path / "home", tmp_path / "mnt"
    directory.mkdir()
    with job("--home", str(home), "mount", str(directory), "--foreground") as (mount, line):
        assert "mounted" in line
        mount.send_signal(signal.SIGINT)
        (directory / "a").write_text("still here")
        assert (directory / "a").read_text() == "still here"
        mount.terminate()
        assert mount.wait(LIMIT_SECONDS) == 0
    assert not is_mounted(directory)


SIGNALS = """
import os, signal, sys, threading
from budwood.cli.autosyncing import _until_signal

sys.setswitchinterval(1e-6)

def signals():
    for _ in range(20_000):
        os.kill(os.getpid(), signal.SIGTERM)

with _until_signal() as ended:
    sender = threading.Thread(target=signals)
    sender.start()
    told = 0
    while sender.is_alive():
        told += ended.wait(0.00001)
    assert told
"""


def test_a_signal_in_the_midst_of_waiting_for_it_is_no_deadlock() -> None:
    """A handler runs in the waiting thread, between any two of its steps."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SIGNALS], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")

"""A mount's log is bounded: by what is alike, and by its size."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

from budwood.fuse.host.logfile import LARGEST_BYTES, Repeats

from ..mounts import mounted, needs_fuse

WRITES = """
import logging, os, sys
from pathlib import Path
from budwood.fuse.host.logfile import LogFile
path = Path(sys.argv[1])
fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.dup2(fd, 1)
os.dup2(fd, 2)
logging.basicConfig(handlers=[LogFile(path, 10_000)], level=logging.INFO)
for n in range(1000):
    logging.getLogger("budwood").info("%d is a number", n)
logging.getLogger("budwood").info("long: %s", "x" * 100_000)
print("the end", flush=True)
"""


def test_lines_that_are_alike_are_left_out_and_counted() -> None:
    now = 0.0
    repeats, heard = Repeats(lambda: now), list[str]()

    def say(text: str, *args: object) -> None:
        record = logging.LogRecord("budwood", logging.INFO, "", 0, text, args, None)
        if repeats.filter(record):
            heard.append(record.getMessage())

    for n in range(1000):
        say("%s: %s", "create", f"mistake {n}")
    assert len(heard) == 20
    say("%s: %s", "rename", "another mistake")
    assert heard.pop() == "rename: another mistake"
    now = 61.0
    say("%s: %s", "create", "once more")
    assert heard.pop() == "create: once more (and 980 like it that were left out)"
    say("%s: %s", "create", "and again")
    assert heard.pop() == "create: and again"
    for n in range(1000):
        say(f"{n} is no kind that is remembered")
    assert len(heard) == 1020


def test_a_log_that_has_grown_large_is_begun_anew(tmp_path: Path) -> None:
    log = tmp_path / "log"
    subprocess.run([sys.executable, "-P", "-c", WRITES, str(log)], check=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log", "log.1"]
    before, last = (tmp_path / "log.1").read_text(), log.read_text()
    assert len(before) + len(last) < 2 * 10_000 + 5_000
    assert (before + last).endswith("the end\n")
    assert "999 is a number" in before + last


@needs_fuse
def test_a_program_that_makes_mistakes_does_not_fill_the_log(tmp_path: Path) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        for n in range(500):
            try:
                (mount.directory / f"back\\slash-{n}").mkdir()
            except OSError:
                continue
            raise AssertionError("it is a name that a volume can't have")
        (told,) = mount.ask("metrics")["errors_total"]["errno"].values()
        assert told >= 500
        assert len(mount.said().splitlines()) < 50
        assert len(mount.said()) < LARGEST_BYTES

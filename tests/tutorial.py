"""The tutorial, as one shell session of its own blocks, in their order.

    python -m tests.tutorial        # from a bare environment, as a stranger begins; says how long it took

Each block of sh or Python is run, and a block of text after it is what it must have printed. A block that begins a
node is waited for, as a reader waits before the next one is typed.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
TUTORIAL: Final = ROOT / "docs" / "tutorial.md"
INSTALL: Final = 'pip install "budwood[server]"'
NODE: Final = "127.0.0.1:7447"

_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_MARK: Final = "=== block "
_WAIT: Final = """
until grep -q " at http" node.log; do sleep 0.1; kill -0 $! 2>/dev/null || { cat node.log; exit 1; }; done
"""
_SYNCED: Final = """
until [ "$(budwood status todo --json | python -c 'import json, sys; print(json.load(sys.stdin)[0]["lsn"])')" = 5 ]
do sleep 0.1; done
"""


class Block(NamedTuple):
    language: str
    text: str
    says: str
    """What it must print; nothing where the tutorial doesn't say."""


def blocks() -> Iterator[Block]:
    found = _BLOCK.findall(TUTORIAL.read_text())
    for number, (language, text) in enumerate(found):
        if language == "text":
            continue
        follows = found[number + 1] if number + 1 < len(found) else ("", "")
        yield Block(language, text, follows[1] if follows[0] == "text" else "")


def script(first: str) -> str:
    """One session of bash; `first` stands for the first block, which installs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    lines = ["set -eu", "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT"]
    for number, block in enumerate(blocks()):
        text = block.text if number else first
        text = text.replace(NODE, f"127.0.0.1:{port}")
        text = text.replace("budwood serve ", f"budwood serve --listen 127.0.0.1:{port} ")
        lines.append(f"echo {shlex.quote(_MARK + str(number))}")
        lines.append(text if block.language == "sh" else f"python - <<'PYTHON'\n{text}PYTHON")
        if "budwood serve" in text:
            lines.append(_WAIT)
        elif "budwood autosync" in text:
            lines.append(_SYNCED)
    return "\n".join(lines)


def check(said: str, home: Path) -> None:
    """That each block has printed what the tutorial says. Raises AssertionError."""
    parts = re.split(rf"^{_MARK}\d+\n", said, flags=re.MULTILINE)[1:]
    wanted = list(blocks())
    assert len(parts) == len(wanted), said
    for part, block in zip(parts, wanted, strict=True):
        if block.says:
            shown = re.sub(r"127\.0\.0\.1:\d+", NODE, part.replace(str(home), "/home/you"))
            assert shown == block.says, f"{block.text}printed\n{shown}and not\n{block.says}"


def run(home: Path, first: str, path: str) -> str:
    """What the session printed. Raises AssertionError where a line of it failed."""
    done = subprocess.run(
        ["bash", "-c", script(first)],
        cwd=home,
        env={"HOME": str(home), "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def main() -> None:
    """With the wheel of this checkout, and the packages that it needs from wherever pip gets them."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        build = [sys.executable, "-m", "uv", "build", "-q", "--wheel", "-o", str(home / "dist"), str(ROOT)]
        subprocess.run(build, check=True)
        (wheel,) = (home / "dist").glob("*.whl")
        start = time.monotonic()
        first = next(blocks()).text
        assert INSTALL in first, first
        said = run(home, first.replace(INSTALL, f"pip install -q '{wheel}[server]'"), os.defpath)
        seconds = time.monotonic() - start
        check(said, home)
    print(f"tutorial: every block did what it says, from no environment to two homes in step, in {seconds:.0f} s")


if __name__ == "__main__":
    main()

"""`make bench`: every bench, one after the other; or those named: `python -m bench local push`."""

from __future__ import annotations

import subprocess
import sys

ALL = (
    "local",
    "room",
    "sync",
    "names",
    "heads",
    "rollups",
    "hedging",
    "many_volumes",
    "large_home",
    "new_files",
    "space",
    "upkeep",
    "collecting",
    "push",
    "commits",
    "offered",
    "workers",
    "appending",
    "steady",
    "bulk",
    "cold",
    "encrypted",
    "speedtest",
    "lite",
    "memory",
    "waiters",
    "mount",
    "decode",
    "lake_commits",
    "spark",
)


def main(names: list[str]) -> int:
    """Each in a process of its own, so that none inherits another's caches; goes on when one fails and says so."""
    failed: list[str] = []
    for name in names or ALL:
        if subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        print(f"could not be measured: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m tests.power`: see __init__.py."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from ..mounts import why_not
from .mount_run import record_program
from .run import judge_commits, judge_states, record, record_again
from .sync_run import record_sync

WAYS = [("oak", "full"), ("elm", "normal"), ("ash", "full")]
AGAIN = [("yew", "full"), ("fir", "normal")]


def main(arguments: list[str]) -> int:
    options = argparse.ArgumentParser(prog="python -m tests.power", description="Power losses; see tests/power.")
    options.add_argument("--seed", type=int, default=None, help="drawn, and told, if not given")
    options.add_argument("--commits", type=int, default=60, help="of each of the three programs")
    options.add_argument("--states", type=int, default=20_000, help="of the first power loss")
    options.add_argument("--again", type=int, default=20, help="second power losses, of a tenth of the states each")
    options.add_argument("--mount", type=int, default=0, metavar="STEPS", help="of a mount instead, and so many steps")
    options.add_argument("--sync", type=int, default=0, metavar="STEPS", help="of a home that syncs, and so many steps")
    options.add_argument("--shown", type=float, default=0.1, help="with --mount: the share that is mounted again")
    chosen = options.parse_args(arguments)
    if why_not():
        print(f"nothing can be recorded: {why_not()}")
        return 1
    seed = random.SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
    folder = Path(tempfile.mkdtemp(prefix="budwood-power-"))
    print(f"seed {seed}, in {folder}", flush=True)
    memory = Path("/dev/shm")
    scratch = Path(tempfile.mkdtemp(prefix="budwood-power-", dir=memory if memory.is_dir() else folder))
    if chosen.sync:
        _of_sync(folder, scratch, seed, chosen)
    elif chosen.mount:
        _of_mount(folder, scratch, seed, chosen)
    else:
        _of_home(folder, scratch, seed, chosen)
    shutil.rmtree(folder)
    shutil.rmtree(scratch, ignore_errors=True)
    return 0


def _of_home(folder: Path, scratch: Path, seed: int, chosen: argparse.Namespace) -> None:
    recorded = record(folder, WAYS, chosen.commits, seed)
    print(f"{len(recorded.steps)} steps recorded, {len(recorded.promises.commits)} commits", flush=True)
    judged = judge_commits(recorded, chosen.states, seed, scratch)
    print(f"seed {seed}: all held in {judged} states", flush=True)
    for number in range(chosen.again):
        place = folder / f"again-{number}"
        place.mkdir()
        later = record_again(place, recorded, AGAIN, 10, seed + number)
        judged += judge_commits(later, chosen.states // 10, seed + number, scratch)
        print(f"seed {seed}: all held in {judged} states, {number + 1} second power losses", flush=True)


def _of_mount(folder: Path, scratch: Path, seed: int, chosen: argparse.Namespace) -> None:
    mount = record_program(folder, chosen.mount, seed)
    print(f"{len(mount.recorded.steps)} steps recorded, {len(mount.trees)} of a tree", flush=True)
    judged = judge_states(mount.recorded, partial(mount.judge, chosen.shown), chosen.states, seed, scratch)
    print(f"seed {seed}: all held in {judged} states", flush=True)


def _of_sync(folder: Path, scratch: Path, seed: int, chosen: argparse.Namespace) -> None:
    sync = record_sync(folder, chosen.sync, seed)
    print(f"{len(sync.recorded.steps)} steps recorded", flush=True)
    judged = judge_states(sync.recorded, sync.judge, chosen.states, seed, scratch)
    print(f"seed {seed}: all held in {judged} states", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

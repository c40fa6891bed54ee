"""`python -m tests.power`: see __init__.py."""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from ..mounts import why_not
from .run import judge_states, record, record_again

WAYS = [("oak", "full"), ("elm", "normal"), ("ash", "full")]
AGAIN = [("yew", "full"), ("fir", "normal")]


def main(arguments: list[str]) -> int:
    options = argparse.ArgumentParser(prog="python -m tests.power", description="Power losses; see tests/power.")
    options.add_argument("--seed", type=int, default=None, help="drawn, and told, if not given")
    options.add_argument("--commits", type=int, default=60, help="of each of the three programs")
    options.add_argument("--states", type=int, default=20_000, help="of the first power loss")
    options.add_argument("--again", type=int, default=20, help="second power losses, of a tenth of the states each")
    chosen = options.parse_args(arguments)
    if why_not():
        print(f"nothing can be recorded: {why_not()}")
        return 1
    seed = random.SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
    folder = Path(tempfile.mkdtemp(prefix="budwood-power-"))
    print(f"seed {seed}, in {folder}", flush=True)
    recorded = record(folder, WAYS, chosen.commits, seed)
    print(f"{len(recorded.steps)} steps recorded, {len(recorded.promises.commits)} commits", flush=True)
    memory = Path("/dev/shm")
    scratch = Path(tempfile.mkdtemp(prefix="budwood-power-", dir=memory if memory.is_dir() else folder))
    judged = judge_states(recorded, chosen.states, seed, scratch)
    print(f"seed {seed}: all held in {judged} states", flush=True)
    for number in range(chosen.again):
        place = folder / f"again-{number}"
        place.mkdir()
        later = record_again(place, recorded, AGAIN, 10, seed + number)
        judged += judge_states(later, chosen.states // 10, seed + number, scratch)
        print(f"seed {seed}: all held in {judged} states, {number + 1} second power losses", flush=True)
    shutil.rmtree(folder)
    shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What a worker of Spark does about its garbage."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest

SCRIPT = """
import gc
from budwood.spark_export.source.resolution import plain_errors
from budwood.volume.errors import BadInput

def call(error=None):
    with plain_errors():
        if error:
            raise error

counts = [gc.get_freeze_count()]
kept = []
for number in range(6):
    kept += [[] for _ in range(1000)]
    try:
        call(BadInput("as asked") if number == 1 else None)
    except BadInput:
        pass
    counts.append(gc.get_freeze_count())
print(*counts)
"""


def frozen(**environment: str) -> list[int]:
    """How many objects the collector passes over, before and after each of some calls."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    return [int(count) for count in done.stdout.split()]


@pytest.mark.parametrize("variable", ["SPARK_REUSE_WORKER", "PYTHON_WORKER_FACTORY_SECRET"])
def test_a_worker_spares_the_collector_what_it_has_loaded_and_does_so_only_at_first(variable: str) -> None:
    counts = frozen(**{variable: "1"})
    assert counts[0] == 0
    assert counts[1] > 10_000
    assert all(later >= earlier + 1000 for earlier, later in pairwise(counts[:5])), "a call that failed counts too"
    assert counts[4] == counts[5] == counts[6], "later garbage must stay the collector's"


def test_no_other_process_is_touched() -> None:
    assert set(frozen()) == {0}

"""Worker: what is done because this process is one of Spark's in Python, which serves one task after another.

After each of them Spark collects garbage (pyspark/daemon.py), and for that looks at every object there is: 30 ms for
what the libraries hold alone, several times what a small task takes, while the next task may be waiting for just this
worker. But what is there when the first tasks have been served stays as long as the process. So it is put where the
collector doesn't look. It is freed as before when nobody refers to it any more; only cycles among what was there then
would stay.
"""

from __future__ import annotations

import gc
import os
from typing import Final

_REUSED: Final = "SPARK_REUSE_WORKER"
_SECRET: Final = "PYTHON_WORKER_FACTORY_SECRET"
_CALLS: Final = 4
"""By then a worker has loaded what it ever will: the first calls of a process are of different kinds."""

_calls = 0


def is_worker() -> bool:
    return _SECRET in os.environ or _REUSED in os.environ


def spare_collector() -> None:
    """At the end of whatever Spark called; does nothing but the first times, and nothing in other processes."""
    global _calls
    if _calls < _CALLS and is_worker():
        _calls += 1
        gc.freeze()

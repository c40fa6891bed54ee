"""Mutants of what is done where the system gives no more threads."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

LIMIT: Final = "tests/integration/test_thread_limit.py"

MUTANTS: Final = (
    Mutant(
        "threads: work that fails as a refusal is done again",
        "volume/thread_limit.py",
        "            if begun or not is_no_thread(error):\n",
        "            if not is_no_thread(error):\n",
        (LIMIT, "-k", "itself_raises"),
    ),
    Mutant(
        "threads: who gets none isn't asked again",
        "volume/thread_limit.py",
        "        await sleep(pause)\n    raise Unavailable(NO_THREAD)\n",
        "        break\n    raise Unavailable(NO_THREAD)\n",
        (LIMIT, "-k", "goes_on or done_once"),
    ),
    Mutant(
        "threads: a pool gives up though it has some",
        "volume/thread_pool.py",
        "            if not self._threads:\n",
        "            if error:\n",
        (LIMIT, "-k", "pool"),
    ),
    Mutant(
        "threads: a pool that has none takes work all the same",
        "volume/thread_pool.py",
        "            if not self._threads:\n",
        "            if not error:\n",
        (LIMIT, "-k", "pool"),
    ),
    Mutant(
        "threads: autosync ends where a pool has none",
        "sync/autosync.py",
        "        except Unavailable as error:\n            self._work(vid, task, partial(_fail, error), mark)\n",
        "        except Busy as error:\n            self._work(vid, task, partial(_fail, error), mark)\n",
        (LIMIT, "-k", "autosync"),
    ),
)

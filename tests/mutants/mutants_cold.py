"""Mutants of cold starts: what comes with the first answer, and what a node runs for others."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

COLD: Final = "tests/integration/test_cold.py"
QUERIES: Final = "tests/integration/test_query_plan.py"

MUTANTS: Final = (
    Mutant(
        "cold: frames that nobody asked for are taken",
        "remote/page_answers.py",
        "            self._left_bytes -= len(stored) + 4 * len(held)\n",
        "            pass\n",
        (COLD, "-k", "not_asked_for"),
    ),
    Mutant(
        "cold: what came along is not kept",
        "sync/edge.py",
        "            volume.keep(info.lsn, opening.pages())\n",
        "            pass\n",
        (COLD, "-k", "cold_edge"),
    ),
    Mutant(
        "cold: an older node's answer is taken for the volume's",
        "remote/opening.py",
        "    except NotFound:\n        return Unopened.UNTOLD\n",
        "    except NotFound:\n        return Unopened.FREE\n",
        (COLD, "-k", "does_not_know"),
    ),
    Mutant(
        "cold: a page that was asked for alone brings its frame",
        "server/pagestore/slices.py",
        "    if not kept or 2 * len(kept)",
        "    if kept or 2 * len(kept)",
        (COLD, "-k", "comes_alone"),
    ),
    Mutant(
        "queries: one that writes is run",
        "server/query_plan.py",
        "    return apsw.SQLITE_DENY\n",
        "    return apsw.SQLITE_OK\n",
        (QUERIES, "-k", "takes_too_much"),
    ),
    Mutant(
        "queries: one takes as many pages as it likes",
        "server/query_plan.py",
        "                if len(self.touched) >= self._limits.pages:\n",
        "                if False:\n",
        (QUERIES, "-k", "takes_too_much"),
    ),
)

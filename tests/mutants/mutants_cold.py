"""Mutants of cold starts: what comes with the first answer, and what a node runs for others."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

BULK: Final = "tests/integration/test_bulk_transfer.py"
COLD: Final = "tests/integration/test_cold.py"
ORDER: Final = "tests/unit/test_key_order.py"
AHEAD: Final = "tests/unit/test_local_prefetch.py"
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
        "cold: an order of keys ends with its interior page",
        "sqlite/key_order.py",
        "            del self._after[0]\n",
        "            self._after = []\n",
        (ORDER,),
    ),
    Mutant(
        "cold: look-ups at random pass for a scan",
        "sqlite/key_order.py",
        "        return at if self._at <= at and not self._tree.missing(self._order[self._at : at]) else None\n",
        "        return at\n",
        (ORDER,),
    ),
    Mutant(
        "cold: whoever turns round is lost",
        "sqlite/key_order.py",
        "            self._turn()\n            at = self._next(page)\n",
        "            self._turn()\n",
        (ORDER,),
    ),
    Mutant(
        "cold: one tree is gone through at a time",
        "sqlite/key_order.py",
        "_LINES: Final = 4\n",
        "_LINES: Final = 1\n",
        (ORDER,),
    ),
    Mutant(
        "cold: a view of an LSN knows no order of keys",
        "sync/remote_snapshot.py",
        "wanted = span(page, last) if window > 1 else self._order",
        "wanted = span(page, last) if window else self._order",
        (COLD, "-k", "order_of_keys"),
    ),
    Mutant(
        "cold: what was asked ahead stays when its view is closed",
        "sync/snapshot.py",
        "            self._fetching.leave()\n",
        "            pass\n",
        (COLD, "-k", "asked_ahead"),
    ),
    Mutant(
        "cold: a failure ahead is whoever misses its page's",
        "sync/prefetch.py",
        "                with suppress(Unavailable):\n                    return self._fly(flight, head, begun)\n",
        "                return self._fly(flight, head, begun)\n",
        (AHEAD,),
    ),
    Mutant(
        "cold: what was asked ahead is known before anyone can read it",
        "sync/prefetch.py",
        "            flight.begun = self._ask_ahead(head, flight.pages)\n",
        "            self._take_off(flight, head)\n            flight.begun = self._ask_ahead(head, flight.pages)\n",
        (AHEAD,),
    ),
    Mutant(
        "bulk: parts are as large as the answer",
        "remote/page_fetch.py",
        "            if part_bytes is not None and len(found) * size >= part_bytes:\n",
        "            if False:\n",
        (BULK,),
    ),
    Mutant(
        "bulk: all of it is unpacked, however slowly it is kept",
        "remote/bulk_fetch.py",
        "                    self._room.acquire()\n",
        "",
        (BULK,),
    ),
    Mutant(
        "bulk: pages of a sync point that has moved count as fetched",
        "sync/transfer.py",
        "            if not local.save(head.sync_remote, part):\n                break\n",
        "            local.save(head.sync_remote, part)\n",
        (BULK,),
    ),
    Mutant(
        "bulk: what came before an answer broke off is dropped",
        "remote/page_fetch.py",
        "            if part_bytes is not None and found:\n",
        "            if False:\n",
        (BULK, "-k", "breaks_off"),
    ),
    Mutant(
        "bulk: frames that wait for others are dropped where an answer breaks off",
        "remote/portal.py",
        "                self._batches.put(held)\n            self._batches.put(error)\n",
        "                pass\n            self._batches.put(error)\n",
        (BULK, "-k", "breaks_off"),
    ),
    Mutant(
        "bulk: an answer that broke off is given up",
        "remote/bulk_fetch.py",
        "            if len(left) == before:\n                raise\n",
        "            raise\n",
        (BULK, "-k", "breaks_off"),
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
        "                if sum(len(each.touched) for each in self.sources) >= self._limits.pages:\n",
        "                if False:\n",
        (QUERIES, "-k", "takes_too_much"),
    ),
)

"""Mutants of what a store costs, of counted requests, and of fingerprints."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

COSTS: Final = ("tests/integration/test_costs.py",)
COUNTS: Final = ("tests/integration/test_counted_requests.py",)
FINGERPRINTS: Final = ("tests/integration/test_fingerprints.py",)

MUTANTS: Final = (
    Mutant(
        "costs: a shared entry is given whole to each of its volumes",
        "server/upkeep/stored_bytes.py",
        "                divided[at] = size / pages[at]",
        "                divided[at] = size",
        COSTS,
    ),
    Mutant(
        "costs: what a checkpoint's tree takes is left out",
        "server/upkeep/stored_bytes.py",
        "                self._needs(held, folding.tree.folder, pointer.size)",
        "                pass",
        COSTS,
    ),
    Mutant(
        "costs: an entry counts whole for each stream in it",
        "server/upkeep/written.py",
        "            creates.entries += 1 / len(header.streams)",
        "            creates.entries += 1",
        COSTS,
    ),
    Mutant(
        "costs: rates go by days whose entries are gone",
        "server/upkeep/written.py",
        "                    found.covers_ms = self._now_ms - until",
        "                    pass",
        COSTS,
    ),
    Mutant(
        "costs: another retention lets go of what stays for an hour",
        "server/upkeep/forgettable.py",
        "                    hidden = _Hidden()",
        "                    pass",
        COSTS,
    ),
    Mutant(
        "costs: pages that are cut off are not let go of",
        "server/upkeep/forgettable.py",
        "        self._floor = min(self._floor, floor)",
        "        pass",
        COSTS,
    ),
    Mutant(
        "requests: a long listing is one",
        "server/store/counted.py",
        "            counts.lists += max(1, -(-count // _PAGE))",
        "            counts.lists += 1",
        COUNTS,
    ),
    Mutant(
        "requests: an entry is shared by nobody",
        "server/store/counted.py",
        "                self._owner(stream).entries += 1 / len(streams)",
        "                self._owner(stream)",
        COUNTS,
    ),
    Mutant(
        "fingerprints: zeros that were written count",
        "server/pagestore/fingerprint.py",
        "                if frame.info.encoding != Encoding.ZERO and own != item_hash(page, zeros):",
        "                if frame.info.encoding != Encoding.ZERO:",
        FINGERPRINTS,
    ),
    Mutant(
        "fingerprints: what lies behind a volume's end counts",
        "server/pagestore/fingerprint.py",
        "    whole = snapshot.length % snapshot.page_size == 0",
        "    whole = True",
        FINGERPRINTS,
    ),
    Mutant(
        "fingerprints: what was overwritten still counts",
        "server/pagestore/fingerprint.py",
        "        return known.content - gone + await self._of(volume, snapshot, pages)",
        "        return known.content + await self._of(volume, snapshot, pages)",
        FINGERPRINTS,
    ),
    Mutant(
        "fingerprints: the last page of before isn't looked at again",
        "server/pagestore/fingerprint.py",
        "        pages |= _cut_page(known.snapshot) | _cut_page(snapshot)",
        "        pages |= _cut_page(snapshot)",
        FINGERPRINTS,
    ),
)

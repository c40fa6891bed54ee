"""Mutants of plain logs: positions, limits, what is fetched, who may append."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

MACHINE: Final = "tests/property/test_plain_log_machine.py"
PLAIN: Final = "tests/integration/test_plain_log.py"
NAMES: Final = "tests/integration/test_cli_log.py"
STREAMS: Final = "tests/unit/test_plain_streams.py"

MUTANTS: Final = (
    Mutant(
        "positions begin again behind what is in flight",
        "server/plain/draft.py",
        "before[-1].last if before else streams.last",
        "streams.last",
        (PLAIN, "-k", "go_on_behind"),
    ),
    Mutant(
        "records of other streams are fetched",
        "server/plain/streams.py",
        "        return range(start, start + sum(self.part.sizes[self.begin : self.end]))",
        "        return range(start, start + sum(self.part.sizes[self.begin :]))",
        (PLAIN, "-k", "fetched"),
    ),
    Mutant(
        "a read begins at the position that it was to begin behind",
        "server/plain/streams.py",
        "            begin = max(after + 1 - part.first, 0)",
        "            begin = max(after - part.first, 0)",
        (STREAMS,),
    ),
    Mutant(
        "a limit of bytes may stop a reader for good",
        "server/plain/streams.py",
        "left and (not given or part.sizes[end] <= most_bytes)",
        "left and part.sizes[end] <= most_bytes",
        (STREAMS,),
    ),
    Mutant(
        "a plain log's writer fences nobody",
        "server/plain/log.py",
        "            await writer.fence()\n",
        "",
        (PLAIN, "-k", "deposes"),
    ),
    Mutant(
        "a damaged record is given out",
        "server/plain/log.py",
        "        if checksum(record) != part.sums[index]:",
        "        if not part.sums:",
        (PLAIN, "-k", "damaged"),
    ),
    Mutant(
        "a stream that can't be followed ends without a word",
        "server/plain/log.py",
        "        if stopped is not None and wanted:",
        "        if stopped is not None and not wanted:",
        (PLAIN, "-k", "not_known"),
    ),
    Mutant(
        "a closed stream takes records",
        "server/plain/draft.py",
        "        if not closed:\n",
        "        if closed or not closed:\n",
        (MACHINE,),
    ),
    Mutant(
        "a missing slot isn't told",
        "server/upkeep/log_names.py",
        "        return below + [gap for gap in standing if gap]",
        "        return below",
        (NAMES, "-k", "missing"),
    ),
    Mutant(
        "plain log: a scrub takes its records on trust",
        "server/upkeep/plain_check.py",
        "        if checksum(data[at : at + size]) != wanted:\n",
        "        if False:\n",
        ("tests/integration/test_cli_log.py", "-k", "damage_alone"),
    ),
    Mutant(
        "plain log: upkeep takes it for one of volumes",
        "server/upkeep/rounds.py",
        "if any(is_plain(part.carried) for",
        "if False and any(is_plain(part.carried) for",
        ("tests/integration/test_cli_log.py", "-k", "upkeep"),
    ),
)

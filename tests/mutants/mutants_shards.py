"""Mutants of fragments that are spread over prefixes (docs/design/0104-prefixes.md)."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

SHARDS: Final = "tests/integration/test_shards.py"
LEFTOVERS: Final = "tests/integration/test_leftovers.py"

MUTANTS: Final = (
    Mutant(
        "shards: all go into one",
        "volume/fragments.py",
        "% shards if shards > 1",
        "% 1 if shards > 1",
        (SHARDS, "-k", "large_batch and asyncio"),
    ),
    Mutant(
        "shards: the same segment goes elsewhere each time",
        "volume/fragments.py",
        "int.from_bytes(segment.raw[-4:])",
        "int.from_bytes(SegmentId.new().raw[-4:])",
        (SHARDS, "-k", "sent_again and asyncio"),
    ),
    Mutant(
        "shards: what nobody names is looked for in none",
        "server/upkeep/unnamed.py",
        "self._below(shards_prefix(log))",
        "self._below(shards_prefix(''))",
        (LEFTOVERS, "-k", "cut_off_goes and sharded"),
    ),
    Mutant(
        "shards: a plan says in none what lies in one",
        "server/upkeep/unnamed.py",
        'ids=b"".join(sorted(ids)), shard=shard)',
        'ids=b"".join(sorted(ids)))',
        (LEFTOVERS, "-k", "cut_off_goes and sharded"),
    ),
    Mutant(
        "shards: an entry doesn't say that its fragments lie there",
        "volume/entry.py",
        "        (header.shards, SHARDS),\n",
        "",
        (SHARDS, "-k", "older_program_is_told and False and asyncio"),
    ),
    Mutant(
        "shards: nor does a rollup",
        "server/metastore/rollup_builder.py",
        "        shards=chain.shards,\n",
        "",
        (SHARDS, "-k", "older_program_is_told and True and asyncio"),
    ),
    Mutant(
        "shards: nor a garbage plan",
        "volume/garbage.py",
        "return SHARDS if any(",
        "return 0 if any(",
        (SHARDS, "-k", "older_collector and asyncio"),
    ),
    Mutant(
        "shards: a fold's collection is refused what lies there",
        "server/upkeep/garbage_check.py",
        'not in ((5, "t"), (6, "shards"))',
        'not in ((5, "t"),)',
        (SHARDS, "-k", "every_shard and asyncio"),
    ),
    Mutant(
        "shards: all share the log's rate",
        "server/store/rates.py",
        'parts[: 4 if parts[2:3] == ["shards"] and len(parts) > 4 else 2]',
        "parts[:2]",
        ("tests/unit/test_store_rates.py", "-k", "each_shard and asyncio"),
    ),
    Mutant(
        "shards: a number that there is none of is taken",
        "volume/fragments.py",
        "if not 1 <= shards <= MOST_SHARDS:",
        "if not 1 <= shards:",
        (SHARDS, "-k", "cannot_be and asyncio"),
    ),
)

"""Mutants of what cares for homes: restore, verify, rebuild, migration (docs/design/0114-care.md)."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

CARE: Final = ("tests/integration/test_care.py",)
KILLED: Final = ("tests/fault/test_care_killed.py",)
REFUSED: Final = "tests/fault/test_each_refusal.py"

MUTANTS: Final = (
    Mutant(
        "care: what lies beyond the head's length is taken for the same",
        "sync/restore.py",
        "    now[None] = now.get(None, PageSet()) | (every - both)\n",
        "",
        CARE,
    ),
    Mutant(
        "care: who opened the home meanwhile is not noticed",
        "sync/rebuild.py",
        '    if clean_shutdown.is_in_use(aside / "data.mdb"):\n',
        "    if False:\n",
        CARE,
    ),
    Mutant(
        "care: a volume that is taken back forgets how short it was",
        "sync/home_builder.py",
        "    floor = min(commit.floor for commit in kept)\n",
        "    floor = kept[-1].floor\n",
        CARE,
    ),
    Mutant(
        "care: files that others may read are passed over",
        "sync/verify.py",
        "mode & 0o077:\n",
        "mode & 0o007:\n",
        CARE,
    ),
    Mutant(
        "care: a rebuild that was cut between its renames begins anew",
        "sync/rebuild.py",
        "    if aside is not None:\n        # Cut between",
        "    if aside is not None and False:\n        # Cut between",
        KILLED,
    ),
    Mutant(
        "care: a rebuild that is done begins again from where it ended",
        "sync/rebuild.py",
        'return aside if is_set_aside and (built / "store").exists() else None',
        "return aside if is_set_aside else None",
        (REFUSED, "-k", "make_anew"),
    ),
    Mutant(
        "care: a rebuild is built on what another one left",
        "sync/rebuild.py",
        "    if built.exists():\n        # Nothing is built on what was left there.\n        shutil.rmtree(built)\n",
        "",
        (*KILLED, "-k", "another_one_left"),
    ),
    Mutant(
        "care: a marker that can't be written keeps a home from being opened",
        "sync/migration.py",
        "    with suppress(OSError):\n        try:\n            with open(open_private",
        "    with suppress(KeyError):\n        try:\n            with open(open_private",
        (REFUSED, "-k", "begin"),
    ),
    Mutant(
        "care: a home stays open when its copy can't be taken away",
        "sync/compaction.py",
        "        with suppress(OSError):\n            os.unlink(copy)\n",
        "        with suppress(FileNotFoundError):\n            os.unlink(copy)\n",
        (REFUSED, "-k", "compact"),
    ),
    Mutant(
        "care: a reset forks in a transaction of its own",
        "sync/reset.py",
        "            def also(txn: Txn, after: Head) -> Head:\n                keep(txn)\n",
        "            snapshot.local.environment.update(keep)\n\n"
        "            def also(_txn: Txn, after: Head) -> Head:\n",
        (REFUSED, "-k", "keep"),
    ),
    Mutant(
        "care: a replay forks in a transaction of its own",
        "sync/rebase.py",
        "                def also(txn: Txn, after: Head) -> Head:\n                    keep(txn)\n",
        "                local.environment.update(keep)\n\n                def also(txn: Txn, after: Head) -> Head:\n",
        (REFUSED, "-k", "replayed"),
    ),
    Mutant(
        "care: what the newest transaction has freed is looked at",
        "sync/lmdb_salvage.py",
        "for meta in () if newest[1] else metas[1:]:",
        "for meta in metas[1:]:",
        ("tests/integration/test_room.py", "-k", "no_damage"),
    ),
    Mutant(
        "care: a marker of the format before stays",
        "sync/lmdb_open.py",
        "    if not read_only and not is_marked(marker, record):\n",
        "    if not read_only and not marker.exists():\n",
        KILLED,
    ),
)

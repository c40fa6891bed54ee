"""Mutants of rollups in a node: how logs are opened behind them, what is made of streams, and when they are written."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

READ: Final = "tests/integration/test_rollups.py"
WRITTEN: Final = "tests/integration/test_rollups_written.py"
MOVED: Final = (READ, "-k", "to_and_fro")
KEPT: Final = (READ, "-k", "is_kept_and_stops and unknown")
NAMES_ROLLED: Final = ("tests/property/test_names_rolled.py",)
LET_GO: Final = "tests/integration/test_letting_go.py"
KEPT_OPEN: Final = "tests/unit/test_kept_open.py"
FOLLOWS: Final = (WRITTEN, "-k", "another_has_named and asyncio")

MUTANTS: Final = (
    Mutant(
        "rollups: streams are rolled up without a turn for others",
        "server/metastore/rollup_builder.py",
        "            await checkpoint()\n",
        "            pass\n",
        ("tests/integration/test_rollups.py", "-k", "their_turns"),
    ),
    Mutant(
        "rollups: whoever made a volume reads its birth",
        "server/metastore/open_volumes.py",
        "            self._made.put(VolumeId(birth.vid), (self.logs.patience.now(), birth))\n",
        "            pass\n",
        ("tests/integration/test_node.py", "-k", "just_made"),
    ),
    Mutant(
        "rollups: a long tail is rolled up in the loop",
        "server/metastore/rollup_builder.py",
        "at_once=len(parts) > _MANY_PARTS",
        "at_once=False",
        ("tests/integration/test_rollups.py", "-k", "their_turns"),
    ),
    Mutant(
        "rollups: a volume goes on over what another log has of it",
        "server/metastore/rolled_stream.py",
        "clients = state.clients.over(_Clients(self), lambda _, last: last is None or last.lsn > stay.head)",
        "clients = state.clients.over(state.clients._below, lambda _, last: last is None or last.lsn > stay.head)",
        MOVED,
    ),
    Mutant(
        "rollups: what the clients of a volume last did is let go of before the rollup has it",
        "server/metastore/rolled_stream.py",
        "last is None or last.lsn > stay.head)",
        "last is None or last.lsn > stay.head + 1)",
        (WRITTEN, "-k", "comes_while and asyncio"),
    ),
    Mutant(
        "rollups: one forgets the clients that an open carried along",
        "server/metastore/rollup_builder.py",
        "self._state = carried_over(record, clients, forks)",
        "self._state = carried_over(msgspec.structs.replace(record, clients=()), clients, forks)",
        MOVED,
    ),
    Mutant(
        "rollups: one forgets the forks that an open carried along",
        "server/metastore/rollup_builder.py",
        "self._state = carried_over(record, clients, forks)",
        "self._state = carried_over(msgspec.structs.replace(record, forks=()), clients, forks)",
        MOVED,
    ),
    Mutant(
        "rollups: one has no runs",
        "server/metastore/rollup_builder.py",
        "            yield from self._runs(stay, _folded_to(state))\n",
        "",
        (READ, "-k", "forgotten_stays_so"),
    ),
    Mutant(
        "rollups: one passes over what can't be followed",
        "server/metastore/rollup_builder.py",
        "        for part in parts[followed:]:\n",
        "        for part in parts[followed + 1 :]:\n",
        KEPT,
    ),
    Mutant(
        "rollups: a stream is followed again behind what could not be",
        "server/metastore/rollup_builder.py",
        "        if not self._rolled.unfollowed():\n",
        "        if True:\n",
        KEPT,
    ),
    Mutant(
        "rollups: one says that all of it was followed, and forgets what the one before could not follow",
        "server/metastore/rollup_builder.py",
        "        followed = base.followed and not any(",
        "        followed = not any(",
        (READ, "-k", "all_of_it_was_followed"),
    ),
    Mutant(
        "rollups: whoever opens a stream is not given what a rollup kept of it",
        "server/metastore/open_volumes.py",
        "behind=left_at, before=standing.parts)",
        "behind=left_at)",
        KEPT,
    ),
    Mutant(
        "rollups: a volume enters a log as it left it later",
        "server/metastore/open_volumes.py",
        "stays.index(close)",
        "len(stays) - 1",
        MOVED,
    ),
    Mutant(
        "rollups: one is named before it stands",
        "server/metastore/rollups.py",
        "        await self._rollups.nodes.save(nodes_folder(log), built.made)\n",
        "        self._reader.propose(built.name, built.rollup.previous)\n"
        "        await self._rollups.nodes.save(nodes_folder(log), built.made)\n",
        (WRITTEN, "-k", "commits_go_on and rollups and asyncio"),
    ),
    Mutant(
        "rollups: one that was written is named by nobody",
        "server/metastore/rollups.py",
        "        self._reader.propose(built.name, built.rollup.previous)\n",
        "",
        (WRITTEN, "-k", "gone_by and asyncio"),
    ),
    Mutant(
        "rollups: one is named that wasn't made from the one named last",
        "server/log/reader.py",
        " if self._proposed and self._proposed_behind == named else",
        " if self._proposed else",
        ("tests/integration/test_log_loads.py", "-k", "named_by_nobody and asyncio"),
    ),
    Mutant(
        "rollups: what another process named is not gone by",
        "server/metastore/rollups.py",
        "        elif slot_of_rollup(name) > self._rolled.slot:",
        "        elif not name:",
        FOLLOWS,
    ),
    Mutant(
        "rollups: what one covers stays in memory",
        "server/metastore/streams.py",
        "            while parts and parts[0].slot <= slot:",
        "            while parts and parts[0].slot < 0:",
        FOLLOWS,
    ),
    Mutant(
        "rollups: a volume keeps in memory what one covers",
        "server/metastore/open_volume.py",
        "            self.history.rebase(stay.head)\n",
        "",
        FOLLOWS,
    ),
    Mutant(
        "rollups: a commit in one is told with the length behind it as the one before",
        "server/metastore/rolled_stream.py",
        "rolled.size, rolled.before)",
        "rolled.size, _commit_in(self._name, rolled).length)",
        (READ, "-k", "forgotten_stays_so"),
    ),
    Mutant(
        "rollups: whoever catches up lets go of a node before it has the other",
        "server/metastore/streams.py",
        "        while not await loading(partial(self._hand_out, stream, taking, _AT_ONCE)):\n"
        "            await checkpoint()\n",
        "        for _ in range(1000):\n"
        "            try:\n"
        "                if self._hand_out(stream, taking, _AT_ONCE):\n"
        "                    return\n"
        "            except NotLoaded as missing:\n"
        "                await missing.load()\n",
        (READ, "-k", "falls_behind"),
    ),
    Mutant(
        "rollups: one that is under way ends with its process",
        "server/metastore/rollups.py",
        "self._writing.stop(after_seconds=_CLOSING_SECONDS)",
        "self._writing.stop()",
        (WRITTEN, "-k", "while_the_node_closes and asyncio"),
    ),
    Mutant(
        "rollups: one that nobody named is gone by, whatever became of its log",
        "server/log/reader.py",
        "                and (entry.digest, entry.header.total) == (rollup.digest, rollup.total)\n",
        "",
        (WRITTEN, "-k", "as_it_says and asyncio"),
    ),
    Mutant(
        "rollups: one that nobody named is never gone by",
        "server/log/reader.py",
        "        if newest - first < LONG_TAIL:",
        "        if newest >= 0:",
        (WRITTEN, "-k", "live_shortly and asyncio"),
    ),
    Mutant(
        "letting go: a log goes though a volume takes its records",
        "server/metastore/open_volumes.py",
        "            volume.keeps = log\n",
        "",
        (LET_GO, "-k", "private_log_is_told and asyncio"),
    ),
    Mutant(
        "letting go: a log goes though what was written to it may be on its way",
        "server/metastore/logs.py",
        " or (self.writer is not None and self.writer.unsettled)",
        "",
        (LET_GO, "-k", "on_its_way and asyncio"),
    ),
    Mutant(
        "letting go: whoever opens a volume finds none that is in use",
        "server/metastore/open_volumes.py",
        "volume = Volume(birth) if found is None or found.ended else found",
        "volume = Volume(birth)",
        (LET_GO, "-k", "at_once and asyncio"),
    ),
    Mutant(
        "letting go: a log holds whatever takes its records",
        "server/metastore/streams.py",
        "self._taker = weakref.ref(taker, let_go)",
        "self._taker = lambda: taker",
        (LET_GO, "-k", "whoever_used and asyncio"),
    ),
    Mutant(
        "letting go: what has grown counts for what it was",
        "server/metastore/kept_open.py",
        "        self.held_bytes -= weight\n\n    def _keep",
        "\n    def _keep",
        (KEPT_OPEN,),
    ),
    Mutant(
        "letting go: what is busy goes in its turn",
        "server/metastore/kept_open.py",
        "            if oldest.busy:\n",
        "            if oldest.busy and False:\n",
        (KEPT_OPEN,),
    ),
    Mutant(
        "names: a rollup has a name that is gone",
        "server/metastore/names_rollup.py",
        "None if isinstance(bound, Gone) else encode(bound)",
        "b'\\x80' if isinstance(bound, Gone) else encode(bound)",
        NAMES_ROLLED,
    ),
    Mutant(
        "names: a rollup keeps what it need not remember",
        "server/metastore/names_rollup.py",
        "            yield self._key + CHANGE + number(lsn), None\n",
        "            yield self._key + CHANGE + number(lsn + (1 << 60)), None\n",
        NAMES_ROLLED,
    ),
    Mutant(
        "names: a change is let go of before the rollup has it",
        "server/metastore/namespace_state.py",
        "lambda change: _lsn_of(change) > head)",
        "lambda change: _lsn_of(change) > head + 1)",
        NAMES_ROLLED,
    ),
    Mutant(
        "names: what lies below moves on under whoever reads it",
        "server/metastore/rolled_names.py",
        "        self._tree = log.tree\n",
        "        self._log = log\n        NamesBehind._tree = property(lambda own: own._log.tree)\n",
        (READ, "-k", "as_one_rollup"),
    ),
    Mutant(
        "names: an edge is told of nothing that a rollup has",
        "server/metastore/namespace_state.py",
        "return self._recent.since(revision, rolled)",
        "return self._recent.since(revision)",
        NAMES_ROLLED,
    ),
    Mutant(
        "names: what was taken away stands below",
        "server/metastore/name_map.py",
        "return None if isinstance(found, Gone) else found",
        "return self._below.get(name) if isinstance(found, Gone) else found",
        NAMES_ROLLED,
    ),
)

"""Mutants of nodes that come and go: moves while a volume is used, nodes that are taken out, rescues, regions."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

MOVES: Final = "tests/integration/test_move_in_use.py"
RESCUE: Final = "tests/integration/test_rescue.py"
REGIONS: Final = "tests/integration/test_regions.py"
STANDBY: Final = "tests/integration/test_standby.py"
GONE: Final = "tests/integration/test_decommission.py"

MUTANTS: Final = (
    Mutant(
        "a volume is closed for a node that has not read it",
        "server/metastore/move.py",
        "        if ready < 0 or ready + MOST_BEHIND < source.reader.chain.next:",
        "        if ready < -1:",
        (MOVES, "-k", "has_read_it"),
    ),
    Mutant(
        "a node says that it is ready and has read nothing",
        "server/metastore/move.py",
        "        volume = await self.volumes.get(vid, fresh=True)\n        await loading",
        "        return LogPosition(to, 1 << 40)\n        await loading",
        (MOVES, "-k", "however_long"),
    ),
    Mutant(
        "a log is taken over before its volumes were read",
        "server/node.py",
        "            await self._mover.ready_for(log)\n",
        "",
        (MOVES, "-k", "however_long"),
    ),
    Mutant(
        "a move gives up where the new owner fell behind",
        "remote/moving.py",
        "            if rounds == 1 or",
        "            if rounds or",
        (MOVES, "-k", "asked_again"),
    ),
    Mutant(
        "a node fences though it was taken out while it took a number",
        "server/metastore/log_ownership.py",
        "        await self.check_mark(reader.store)\n        self._own",
        "        self._own",
        (GONE, "-k", "wherever_it_was_held_up"),
    ),
    Mutant(
        "a number that may still fence is passed over",
        "server/metastore/decommission.py",
        "            for n in await numbers(self.logs.store, name, newest + 1, self.logs.patience):",
        "            for n in list[int]():",
        (GONE, "-k", "wherever_it_was_held_up"),
    ),
    Mutant(
        "a node that does not answer is taken out unasked",
        "server/metastore/decommission.py",
        "        if not force:\n            await",
        "        if force:\n            await",
        (GONE, "-k", "when_forced"),
    ),
    Mutant(
        "a node that was taken out starts with --takeover",
        "server/metastore/log_ownership.py",
        "        if self.retired is not None:\n            raise",
        "        if self.retired is None:\n            raise",
        (GONE, "-k", "comes_back"),
    ),
    Mutant(
        "the folds of a node that was taken out may be granted",
        "server/metastore/decommission.py",
        "        rejected = {name: found for name in names if (found := await self._rejected(name, node))}",
        "        rejected = dict[str, list[int]]()",
        (GONE, "-k", "folds"),
    ),
    Mutant(
        "an heir that is started anew leaves what it inherited",
        "server/metastore/logs.py",
        "        if owner is not None and owner.node == self.claim.name and owner.address and not log.owned:",
        "        if owner is None:",
        (GONE, "-k", "when_it_ended"),
    ),
    Mutant(
        "a guest takes a number of the owner's",
        "server/log/chain.py",
        "            n=(self.n + (kind != GUEST)) if epoch == self.epoch else 0,",
        "            n=(self.n + 1) if epoch == self.epoch else 0,",
        (RESCUE,),
    ),
    Mutant(
        "a guest's entry does not count",
        "server/log/chain.py",
        "            return Verdict.CANONICAL if same and header.n == self.n else Verdict.VOID",
        "            return Verdict.VOID",
        (RESCUE,),
    ),
    Mutant(
        "a guest goes round an owner who answers",
        "server/metastore/logs.py",
        "not chain.has_owner or await self.is_alive(owner):",
        "not chain.has_owner:",
        (RESCUE, "-k", "not_gone_round"),
    ),
    Mutant(
        "a rescue deposes the owner",
        "server/metastore/move.py",
        "            await (await self.logs.guest(log)).submit(make())",
        "            await self.logs.take_over(log)\n            await (await self.logs.writer(log)).submit(make())",
        (RESCUE, "-k", "same_epoch"),
    ),
    Mutant(
        "a guest may bring more than one stream's record",
        "server/log/chain.py",
        "header.rollup != self.rollup or len(header.streams) != 1):",
        "header.rollup != self.rollup):",
        ("tests/unit/test_chain.py", "-k", "guest"),
    ),
    Mutant(
        "a volume is made wherever its maker asks",
        "server/node.py",
        "        if self.name and region not in",
        "        if not self.name and region not in",
        (REGIONS, "-k", "made_by"),
    ),
    Mutant(
        "a stand-by takes no heed of regions",
        "server/metastore/standby.py",
        "here = followed.owner is None or followed",
        "here = followed.owner is not None or followed",
        (REGIONS, "-k", "stand_by"),
    ),
    Mutant(
        "whoever is asked is the heir",
        "server/metastore/decommission.py",
        "        return None if region in",
        "        return None if region or region in",
        (REGIONS, "-k", "heir"),
    ),
    Mutant(
        "an edge keeps its region to itself",
        "sync/publish.py",
        'os.environ.get("BUDWOOD_REGION", "")',
        '""',
        ("tests/integration/test_edge_region.py",),
    ),
    Mutant(
        "a stand-by reads all that came at one look",
        "server/log/reader.py",
        "                if left <= 0 or self._fetched_bytes",
        "                if self._fetched_bytes",
        (STANDBY, "-k", "has_a_limit"),
    ),
    Mutant(
        "heads of any size are read at one look",
        "server/log/reader.py",
        "        self._fetched_bytes += len(data)\n",
        "",
        (STANDBY, "-k", "has_a_limit"),
    ),
)

"""Mutants of volumes at a node: admission, history, pins, retention, moves."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

NODE: Final = "tests/integration/test_node.py"
OWNERS: Final = "tests/integration/test_node_owners.py"
ROUTED: Final = "tests/unit/test_remote_routed.py"
RACES: Final = "tests/integration/test_races.py"
RETENTION: Final = "tests/integration/test_retention.py"
HOLDERS: Final = "tests/property/test_retention_machine.py"
STATE: Final = "tests/unit/test_state.py"
SUMS: Final = "tests/integration/test_sums.py"

MUTANTS: Final = (
    Mutant(
        "token by client id",
        "server/metastore/state.py",
        "return last if last is not None and last.token == token else None",
        "return last",
        (STATE,),
    ),
    Mutant(
        "calls: the outcome of a commit is asked of any reader",
        "volume/calls.py",
        "OutcomeRequest, Outcome, To.OWNER",
        "OutcomeRequest, Outcome, To.READER",
        (ROUTED, "-k", "home_is_asked_first"),
    ),
    Mutant(
        "calls: who owned the log that a volume left is remembered",
        "remote/routed.py",
        "        if call.moves:\n",
        "        if call.moves and not answer:\n",
        (ROUTED,),
    ),
    Mutant(
        "calls: an answer over HTTP is believed",
        "remote/http.py",
        '        call.check(f"the answer of {self.url}", answer)\n',
        "",
        ("tests/attack/test_hostile_remote.py",),
    ),
    Mutant(
        "calls: a node may leave one unanswered",
        "server/answers.py",
        "        if missing:\n",
        "        if len(missing) == len(CALLS):\n",
        ("tests/unit/test_calls.py",),
    ),
    Mutant(
        "an older commit's token is unknown",
        "server/metastore/lineage.py",
        "            if (landed.client, landed.token) == (client, token):",
        "            if landed.lsn == history.head and (landed.client, landed.token) == (client, token):",
        (RACES,),
    ),
    Mutant(
        "an outcome is told from memory",
        "server/node.py",
        "        volume = await self.volumes.get(vid, confirm=True)\n        head = volume.state.head\n        stands",
        "        head = volume.state.head\n        stands",
        (RACES,),
    ),
    Mutant(
        "base unchecked",
        "server/metastore/state.py",
        "    if record.base != state.head:",
        "    if record.base > state.head:",
        (STATE,),
    ),
    Mutant(
        "time stands still",
        "server/metastore/admission.py",
        "time = max(state.time + 1, now_ms)",
        "time = now_ms",
        (NODE, "-k", "time"),
    ),
    Mutant(
        "floor ignored",
        "server/metastore/history.py",
        "            cut = beyond(wanted, run.floor)\n",
        "            cut = PageSet()\n",
        ("tests/unit/test_history.py",),
    ),
    Mutant(
        "a cut that brings no page is not told to a puller",
        "server/metastore/history.py",
        "        return pages | span(floor + 1, reach)",
        "        return pages",
        ("tests/unit/test_history.py",),
    ),
    Mutant(
        "a fork reads what its parent wrote later",
        "server/pagestore/plan.py",
        "        lsn = min(lsn, volume.history.start)\n",
        "",
        (NODE, "-k", "fork"),
    ),
    Mutant(
        "a frame's overwritten pages are shown",
        "server/metastore/history.py",
        "            wanted.difference_update(run.pages)\n            wanted.difference_update(beyond",
        "            wanted.difference_update(beyond",
        ("tests/unit/test_history.py",),
    ),
    Mutant(
        "a fork is not told to its parent",
        "server/metastore/state.py",
        "    return replace(state, forks=state.forks.put(record.child, record.lsn))",
        "    return state",
        (STATE,),
    ),
    Mutant(
        "a client's word for the setsum is taken",
        "server/metastore/content.py",
        "    if setsum.digest != request.setsum:\n",
        "    if not request.setsum:\n",
        (SUMS, "-k", "a_clients_word and setsum-1-embedded"),
    ),
    Mutant(
        "a client's word for the content is taken",
        "server/metastore/content.py",
        "    if content.digest != request.content:\n",
        "    if not request.content:\n",
        (SUMS, "-k", "a_clients_word and content-1-embedded"),
    ),
    Mutant(
        "a log item is another LSN's too",
        "volume/setsum.py",
        "    prefix = vid + _LSN.pack(lsn)\n",
        "    prefix = vid\n",
        ("tests/unit/test_setsum.py",),
    ),
    Mutant(
        "pages are not compared with their item hashes",
        "server/pagestore/write_segment.py",
        "            if item_hash(page, plain) != segment.hashes[at : at + HASH_SIZE]:\n",
        "            if not plain:\n",
        (SUMS, "-k", "does_not_speak_of"),
    ),
    Mutant(
        "pages that a commit carries along are not compared",
        "server/pagestore/ingest.py",
        "encrypted=target.encrypted, pages=True",
        "encrypted=target.encrypted",
        (SUMS, "-k", "does_not_speak_of"),
    ),
    Mutant(
        "fragments' frames are not compared with their checksums",
        "server/pagestore/write_segment.py",
        "            await _aside(len(segment), partial(_check_frames, what, checked))\n",
        "            pass\n",
        (SUMS, "-k", "frame"),
    ),
    Mutant(
        "pages are checked where the loop runs",
        "server/pagestore/write_segment.py",
        "partial(_check_pages, what, checked))",
        "partial(_check_pages, what, checked)) if len(segment) > _AT_ONCE_BYTES else _check_pages(what, checked)",
        (SUMS, "-k", "takes_long"),
    ),
    Mutant(
        "sums are computed where the loop runs",
        "server/pagestore/ingest.py",
        "await to_thread.run_sync(check) if sum(len(part.ordered) for part in parts) > _FEW_PAGES else check()",
        "check()",
        (SUMS, "-k", "takes_long"),
    ),
    Mutant(
        "a fragment's hidden pages are counted",
        "server/metastore/content.py",
        "        if pages == self.pages:\n",
        "        if pages:\n",
        (SUMS, "-k", "takes_from_it"),
    ),
    Mutant(
        "a fragment's sum is of the entry's last commit",
        "server/metastore/entry_draft.py",
        " = self._with_earlier(fragment)",
        " = fragment",
        (SUMS, "-k", "two_commits"),
    ),
    Mutant(
        "fragments add what they like",
        "server/log/chain.py",
        "        if brought != total:\n",
        "        if not brought:\n",
        ("tests/unit/test_chain.py",),
    ),
    Mutant(
        "fragments of a dead epoch are named",
        "server/pagestore/ingest.py",
        "        if not key.startswith(folder):\n",
        '        folder = key.rpartition("/")[0] + "/"\n        if not key:\n',
        (OWNERS, "-k", "fragments"),
    ),
    Mutant(
        "a closed volume takes commits",
        "server/metastore/state.py",
        "    if state.closed is not None:\n        message",
        "    if state.closed is not None and state.finished:\n        message",
        (STATE,),
    ),
    Mutant(
        "a name's revision is not looked at",
        "server/metastore/namespace_state.py",
        "if (bound.revision if bound else 0) != touched.revision:",
        "if bound is None and touched.revision:",
        ("tests/unit/test_names.py",),
    ),
    Mutant(
        "a pin isn't checked against collections",
        "server/metastore/retention.py",
        "if stands.lsn < volume.state.collect and",
        "if stands.lsn < 0 and",
        (HOLDERS,),
    ),
    Mutant(
        "a pin is checked against what was read before it stood",
        "server/metastore/retention.py",
        "        volume = await self.volumes.get(own.vid, confirm=True)\n        if stands",
        "        volume = await self.volumes.get(own.vid)\n        if stands",
        (HOLDERS,),
    ),
    Mutant(
        "collectors pass over pins that are only asked for",
        "server/metastore/retention.py",
        "{pin.lsn for pin in pins if pin.holds}",
        "{pin.lsn for pin in pins if pin.state is PinState.LIVE}",
        (HOLDERS,),
    ),
    Mutant(
        "readers trust pins that are only asked for",
        "server/metastore/pin_store.py",
        "pin.lsn == lsn and pin.state is PinState.LIVE",
        "pin.lsn == lsn and pin.holds",
        (HOLDERS,),
    ),
    Mutant(
        "two pins that are only asked for vouch for each other",
        "server/metastore/retention.py",
        "p.state is PinState.LIVE and p.id != stands.id",
        "p.holds and p.id != stands.id",
        (RETENTION,),
    ),
    Mutant(
        "a fork may start from what is being collected",
        "server/metastore/state.py",
        "if record.lsn < state.collect and not record.pin and",
        "if record.lsn < 0 and not record.pin and",
        (HOLDERS,),
    ),
    Mutant(
        "whoever loses a renewal takes the winner's",
        "server/metastore/retention.py",
        "                stands = await self.pins.change(stands, PinEvent.RENEW, expiry=wanted)",
        "                return await self.pins.change(stands, PinEvent.RENEW, expiry=wanted)",
        (RETENTION,),
    ),
    Mutant(
        "a pin is found by a listing of all its revisions",
        "server/metastore/pin_store.py",
        "keys = await self._keys(prefix, limit=2)",
        "keys = await self._keys(prefix, limit=PINS_PAGE)",
        (RETENTION,),
    ),
    Mutant(
        "a volume's pins are listed with all their revisions",
        "server/metastore/pin_store.py",
        'if chain in begun else f"{chain}{_FIRST}"',
        'if chain in begun else f"{keys[-1]}\\0"',
        (RETENTION,),
    ),
    Mutant(
        "of a volume's pins one page is listed",
        "server/metastore/pin_store.py",
        "full = len(keys) == PINS_PAGE",
        "full = False",
        (RETENTION,),
    ),
    Mutant(
        "that nobody holds an LSN is believed",
        "server/metastore/pin_store.py",
        "self._patience.now() and _held(known.tips.values(), lsn):\n            return True",
        "self._patience.now():\n            return _held(known.tips.values(), lsn)",
        (RETENTION,),
    ),
)

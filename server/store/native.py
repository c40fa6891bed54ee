"""Native: a two-phase store is switched to the store's own create-if-absent (S0.13).

Every object lies under its final key already, so nothing is renamed, and nothing is copied but what was cut off.

1. The store is asked whether it honours create; one that doesn't is refused.
2. The records say that it is native: in one order with all creates, so that none is recorded any more. Whoever is still
   at it in two phases finds out by that, at its next create or delete, and stops with words.
3. What is recorded is finished.
4. `roots/{2}` says so to whoever opens the store.
5. Temporary objects go.

Any step may be done again, by anyone. Cut off between 2 and 4, the store can be read in the old way and written in
none, until somebody comes to the end.

Crash window (a fault point, cut by tests/fault/test_two_phase_killed.py):
  native: said in the records, not in the root
"""

from __future__ import annotations

from functools import partial

from ...volume import faults
from ...volume.errors import NotFound, Unsupported
from .probe import probe
from .protocol import Store
from .retrying import PATIENT, Patience, get_retried, retried
from .root import NATIVE, ROOT_KEY, Root, native_root, newest_root, parse_root, root_key, seal_root
from .temporaries import FOLDER
from .two_phase_store import TwoPhaseStore
from .two_phase_upkeep import check_records, recover

_SAID = faults.point("native: said in the records, not in the root")


async def to_native(old: TwoPhaseStore, new: Store, patience: Patience = PATIENT) -> Root:
    """The root of the new generation; `new` is the same store, opened without records. Raises NotFound, Corrupt,
    Unsupported, Unavailable, Unauthorized."""
    try:
        data = await get_retried(old, ROOT_KEY, patience=patience)
    except NotFound:
        raise NotFound(f"there is no Budwood store at {old.url}") from None
    first, newest = parse_root(data), await newest_root(old, data, patience)
    if first.cas == NATIVE:
        raise Unsupported(f"{new.url} has never gone through records")
    await check_records(old, ROOT_KEY, data, patience)
    if newest.cas != NATIVE:
        await probe(new, patience)
        await retried("switch the records", old.records.go_native, patience)
        _SAID()
        await retried("finish what was recorded", partial(recover, old), patience)
        newest = native_root(first)
        put = partial(old.plain.put, root_key(newest.generation), seal_root(newest))
        await retried("put the root", put, patience)
    for key in await retried("list temporary objects", partial(old.plain.list, FOLDER), patience):
        await retried(f"delete {key}", partial(old.plain.delete, key), patience)
    return newest

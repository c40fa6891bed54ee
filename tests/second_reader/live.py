"""What of a store is live, and what is garbage: the algorithm of docs/formats.md, step by step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .basics import SEGMENT, Damaged, check_id, unbase58
from .checkpoints import row_of
from .envelopes import unseal
from .log import Log
from .pin_chains import chains_of, key_of, newest_of_label
from .read_rollups import Rollup, slot_of_rollup

if TYPE_CHECKING:
    from .store import Store
    from .volume_streams import Volume


ID_LETTERS = 22


class Liveness:
    """Keys, and why."""

    def __init__(self, store: Store) -> None:
        self.live: dict[str, str] = {}
        self.garbage: dict[str, str] = {}
        self._store = store
        self._objects = store.objects
        self._volumes = [store.volume(vid) for vid in store.volumes]
        self._transactions: dict[str, dict[int, bytes]] = {}
        """By log: the numbers that were taken for one, and the volume that it is of."""
        self._rows = {
            volume.vid: row_of(store.objects, volume.vid, volume.fold.get("checkpoint", "")) for volume in self._volumes
        }
        own = ["root", *self._under("roots/"), *self._under("nodes/")]
        self._keep(own, "the store, the generations of its root, and the nodes that were taken out of it")
        for volume in self._volumes:
            if _is_empty(volume):
                last = f"{volume.fold['checkpoint']}/deadlist"
                self._drop([*self._under(f"volumes/{volume.id}/"), last], "its volume was removed")
            else:
                self._pins(volume.vid)
        keys = (key for key in store.objects if key.startswith("volumes/") and key not in self.garbage)
        self._keep(keys, "only what was removed goes, and what pins have been")
        for volume in self._volumes:
            self._volume(volume)
        for name in store.over:
            self._keep([f"logs/{name}/boundary/{0:016x}"], "it says that the log is over")
            self._drop(self._under(f"logs/{name}/"), "of a log that is over")
        for name in store.logs:
            self._log(store.log(name))
        for volume in self._volumes:
            for deadlist in self._rows[volume.vid]:
                self._drop(deadlist.objects, f"on {deadlist.key}")
        for name in store.logs:
            self._fragments(store.log(name))
        self.leftovers = store.objects.keys() - self.live.keys() - self.garbage.keys()

    def _keep(self, keys: Iterable[str], why: str) -> None:
        for key in keys:
            self.live.setdefault(key, why)

    def _drop(self, keys: Iterable[str], why: str) -> None:
        """Those that stand and aren't live."""
        for key in keys:
            if key in self._objects and key not in self.live:
                self.garbage.setdefault(key, why)

    def _under(self, prefix: str) -> list[str]:
        return [key for key in self._objects if key.startswith(prefix)]

    def _volume(self, volume: Volume) -> None:
        for lsn in range(volume.folded_to + 1, volume.head + 1):
            self._keep(volume.commits[lsn].objects, f"pages of LSN {lsn} of {volume.id}")
        if volume.checkpoint is not None:
            name = volume.checkpoint.key
            self._keep(volume.checkpoint.nodes | volume.checkpoint.segments, f"checkpoint {name}")
            dead = {key for deadlist in self._rows[volume.vid][:-1] for key in deadlist.objects}
            row = [deadlist.key for deadlist in self._rows[volume.vid]]
            assert set(row[1:]) <= dead, "a deadlist has the one before it"
            self._keep((key for key in row if key not in self.garbage), f"the row of {name}")

    def _pins(self, vid: bytes) -> None:
        chains = chains_of(self._objects, vid)
        labels: dict[str, set[bytes]] = {}
        for revisions in chains:
            if (newest := revisions[-1]).label and not revisions[0].rev:
                labels.setdefault(newest.label, set()).add(newest.id)
        kept = {newest_of_label(vid, label, ids) for label, ids in labels.items()}
        for revisions in chains:
            first, *between, newest = revisions if len(revisions) > 1 else revisions * 2
            stands = not first.rev and (newest.state in ("asked", "live") or newest.id in kept)
            gone = between if stands else revisions
            self._drop([key_of(vid, pin) for pin in gone], "what a pin has been")

    def _fragments(self, log: Log) -> None:
        """Those that nothing names: what does was looked at before."""
        prefix = f"logs/{log.name}/t/"
        for key in self._under(prefix):
            number, _, what = key[len(prefix) :].partition("/")
            epoch = f"logs/{log.name}/epochs/{number}"
            if len(what) != ID_LETTERS or (int(number, 16) and epoch not in self._objects):
                continue
            fields = unseal(epoch, b"BWEP", self._objects[epoch]).fields if int(number, 16) else None
            if fields is None or fields.text("purpose", "writer") == "writer":
                segment = check_id(key, unbase58(what), SEGMENT)
                if int.from_bytes(segment[1:7], "big") < log.fragments_since:
                    self._drop([key], "a fragment that nobody has named")
        for key in self._under(f"logs/{log.name}/shards/"):
            segment = check_id(key, unbase58(key.rpartition("/")[2]), SEGMENT)
            if int.from_bytes(segment[1:7], "big") < log.fragments_since:
                self._drop([key], "a fragment that nobody has named")

    def _log(self, log: Log) -> None:
        newest = Rollup(self._objects, log.name, log.rollup) if log.rollup else None
        self._entries(log, newest)
        self._rollups(log, newest)
        prefix = f"logs/{log.name}"
        boundaries = sorted(self._under(f"{prefix}/boundary/"))
        self._keep(boundaries[:1], "the highest boundary")
        self._drop(boundaries[1:], "a lower boundary")
        acknowledged = int(log.garbage, 16) if log.garbage else 0
        for key in self._under(f"{prefix}/epochs/"):
            fields = unseal(key, b"BWEP", self._objects[key]).fields
            if fields.text("purpose", "writer") == "writer":
                self._keep([key], "an epoch")
            else:
                self._transaction(log.name, key, fields.number("n"), fields.data("stream", b""), acknowledged)
        for plan in log.plans.values():
            if plan.number >= acknowledged:
                self._keep([plan.key, plan.key.replace("/plan", "/due")], "a plan")
            else:
                self._drop([plan.key], "a plan that never was acknowledged")
        self._drop(self._under(f"logs/{log.name}/gc/"), "of a plan that is gone")

    def _entries(self, log: Log, newest: Rollup | None) -> None:
        needed = [newest.slot + 1] if newest else [0]
        if newest is not None:
            needed += [int.from_bytes(at[17:], "big") for at in newest.items if at[16:17] == b"p"]
        for volume in self._volumes:
            kept = (volume.commits[lsn] for lsn in range(volume.settled_to + 1, volume.head + 1))
            needed += [commit.slot for commit in kept if commit.log == log.name and commit.inline]
        first = min(needed)
        entries = self._under(f"logs/{log.name}/entries/")
        self._keep((key for key in entries if _slot(key) >= first or not _slot(key)), f"of slot {first} or above")
        self._drop(entries, f"below slot {first}")

    def _rollups(self, log: Log, newest: Rollup | None) -> None:
        if newest is None:
            # One that nobody has named yet.
            self._keep((*self._under(f"logs/{log.name}/rollups/"), *self._under(f"logs/{log.name}/nodes/")), "a rollup")
            return
        prefix = f"logs/{log.name}/rollups/"
        for key in self._under(prefix):
            name = key[len(prefix) :]
            rollup = Rollup(self._objects, log.name, name)
            if name == newest.name or rollup.previous == newest.name:
                self._keep([key, *rollup.nodes], f"rollup {name}")
        for key in self._under(prefix):
            if slot_of_rollup(key, key[len(prefix) :]) < newest.slot:
                self._drop([key], "an older rollup")
        for key in self._under(f"logs/{log.name}/nodes/"):
            if int(key.split("/")[3], 16) <= newest.slot:
                self._drop([key], "a node of older rollups")

    def _transaction(self, log: str, key: str, number: int, stream: bytes, acknowledged: int) -> None:
        below = f"logs/{log}/t/{number:016x}"
        granted = any(below == each.checkpoint for each in self._rows.get(stream, ()))
        if number >= acknowledged:
            self._keep([key], "a number that was taken")
            if not granted:
                self._keep(self._under(f"{below}/"), "a transaction that may be granted")
        else:
            self._drop([key], "a number that is settled")
            if not granted:
                self._drop(self._under(f"{below}/"), "a transaction that was rejected")

    def check(self) -> None:
        """That nothing is missing. Raises Damaged."""
        for key, why in self.live.items():
            if key not in self._objects and not key.endswith("/due"):
                raise Damaged(key, f"it is missing, and live: {why}")


def _is_empty(volume: Volume) -> bool:
    """Whether it was removed, and nothing is left of it but what says so."""
    is_forgotten = volume.finished and volume.since > volume.head
    over = volume.checkpoint is not None and not volume.checkpoint.nodes and not volume.checkpoint.relocated
    return is_forgotten and over and not volume.forks


def _slot(key: str) -> int:
    return 2**64 - 1 - int(key.rpartition("/")[2], 16)

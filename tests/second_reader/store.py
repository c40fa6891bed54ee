"""A store: its root, and everything that can be reached from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from .basics import STORE, VOLUME, Damaged, Fields, Policy, TooNew, base58, check_id, unbase58
from .envelopes import object_of, unseal
from .live import Liveness
from .log import Log, boundary_in
from .namespaces import Name, Namespace, namespace_of
from .pin_chains import Pin, pins_of
from .rollups import check_rollups
from .volume_streams import Volume


def directory(folder: Path) -> dict[str, bytes]:
    """The objects of a `file://` store. What stands under `.tmp` is none."""
    files = (path for path in folder.rglob("*") if path.is_file())
    keys = ((path.relative_to(folder).as_posix(), path) for path in files)
    return {key: path.read_bytes() for key, path in keys if not key.startswith(".tmp/")}


def recorded(objects: Mapping[str, bytes], rows: Iterable[tuple[str, str, int]]) -> dict[str, bytes]:
    """The objects of a store with records, of which `rows` are key, source and state."""
    shown = {key: data for key, data in objects.items() if not key.startswith("temporary/")}
    for dest, source, state in rows:
        if state == 0:
            shown[dest] = objects[source] if source in objects else objects[dest]
    return shown


def _root_of(objects: Mapping[str, bytes], *, with_records: bool) -> Fields:
    """The newest generation."""
    root = unseal("root", b"BWRO", object_of(objects, "root")).fields
    if root.text("cas") == "native":
        return root
    key = f"roots/{root.number('generation') + 1:016x}"
    if key in objects and root.text("cas") == "two-phase":
        newest = unseal(key, b"BWRO", object_of(objects, key)).fields
        if newest.all() != root.all() | {"cas": "native", "generation": root.number("generation") + 1}:
            raise Damaged(key, "it is not the root's next generation")
        return newest
    if root.text("cas") != "two-phase" or not with_records:
        raise TooNew(f"root: creates go through {root.text('cas')!r}")
    return root


_OVER = f"/boundary/{0:016x}"


class Store:
    """What it is asked for is read once, and kept."""

    def __init__(self, objects: Mapping[str, bytes], *, newest: bool = False, with_records: bool = False) -> None:
        """With `newest` each log is read from the newest rollup on that it names, as most readers do. `with_records`:
        these are the objects of `recorded`."""
        self._newest = newest
        self.objects = dict(objects)
        """As they stand now, whoever writes meanwhile."""
        root = _root_of(objects, with_records=with_records)
        self.id = check_id("root", root.data("store"), STORE)
        self.namespace = check_id("root", root.data("names"), VOLUME)
        if not (root.number("generation") and root.number("gc_interval_seconds") and root.number("max_alpha")):
            raise Damaged("root", "its numbers make no sense")
        self._logs: dict[str, Log] = {}
        self._volumes: dict[bytes, Volume] = {}

    @property
    def volumes(self) -> list[bytes]:
        """Every volume that was born, by id."""
        keys = (key.split("/") for key in self.objects if key.startswith("volumes/"))
        return sorted(unbase58(parts[1]) for parts in keys if parts[2:] == ["birth"])

    @property
    def logs(self) -> list[str]:
        """All but those that are over."""
        return sorted({key.split("/")[1] for key in self.objects if key.startswith("logs/")} - self.over)

    @property
    def over(self) -> set[str]:
        """Logs of which nothing counts any more but a boundary behind every slot."""
        found = {key.split("/")[1] for key in self.objects if key.startswith("logs/") and key.endswith(_OVER)}
        for name in found:
            boundary_in(self.objects, name)
        return found

    def log(self, name: str) -> Log:
        if name not in self._logs:
            self._logs[name] = Log(self.objects, name, newest=self._newest)
        return self._logs[name]

    def volume(self, vid: bytes) -> Volume:
        if vid not in self._volumes:
            self._volumes[vid] = Volume(self, vid)
        return self._volumes[vid]

    def names(self) -> dict[str, Name]:
        """The store's namespace: a volume without a birth, in a private log of its own."""
        return self._namespace().names

    def default_policy(self) -> Policy | None:
        """Of volumes that have none of their own."""
        return self._namespace().policy

    def _namespace(self) -> Namespace:
        name = base58(self.namespace)
        log = self.log(name)
        return namespace_of(self.namespace, log.base, log.stream(name))

    def pins(self, vid: bytes) -> list[Pin]:
        return pins_of(self.objects, vid)

    def readable(self, vid: bytes) -> set[int]:
        """The LSNs of a volume's own that can be read: those from `since` on, and those that something holds."""
        volume = self.volume(vid)
        held = {pin.lsn for pin in self.pins(vid) if pin.state == "live"} | set(volume.forks.values())
        return {lsn for lsn in range(volume.start + 1, volume.head + 1) if lsn >= volume.since or lsn in held}

    def check(self) -> None:
        """Everything that stands. Raises Damaged, TooNew."""
        for name in self.logs:
            self.log(name).check_objects()
            check_rollups(self.objects, self.log(name))
        for vid in self.volumes:
            for fork in self.volume(vid).fold.get("ended", []):
                if f"volumes/{base58(fork)}/birth" in self.objects:
                    raise Damaged(f"volumes/{base58(vid)}", f"it holds nothing for {base58(fork)}, which is there")
            self.pins(vid)
        self.names()
        self.liveness().check()

    def liveness(self) -> Liveness:
        """Which objects are live, which are garbage, and which neither."""
        return Liveness(self)

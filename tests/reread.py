"""Reread: what stands in a store or a home, read by the second reader (second_reader/) and compared with what is known.

await reread(objects)                       the second reader and a node see the same, at every LSN
check_home(folder, store, {"v1": pages})    a closed home reads as the model says
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from budwood.server.node import Node
from budwood.testing.commits import pages_at
from budwood.testing.stores import MemoryStore
from budwood.volume.calls import (
    LIST_NAMES,
    RETAINED,
    RETAINED_DEFAULT,
    SNAPSHOT,
    Done,
    NamesRequest,
    SnapshotRequest,
    VolumeRequest,
)
from budwood.volume.errors import Forgotten, NotFound
from budwood.volume.ids import VolumeId
from budwood.volume.retention_policy import RetentionPolicy

from .second_reader import Home, Store
from .second_reader.namespaces import Name

Pages = Mapping[int, bytes]


async def copy_of(objects: Mapping[str, bytes]) -> MemoryStore:
    """A node that is only to read may end pins that are overdue."""
    store = MemoryStore()
    for key, data in objects.items():
        await store.create(key, data)
    return store


async def reread(objects: Mapping[str, bytes]) -> Store:
    """Everything that stands, by both; the second reader's store."""
    second = Store(objects)
    second.check()
    # No pin is overdue by this clock, whatever clock proposed its expiry.
    async with Node.open(await copy_of(objects), create=False, now_ms=lambda: 0) as node:
        listed = (await node.ask(LIST_NAMES, NamesRequest(limit=10_000))).entries
        ours = {entry.name: Name(entry.target, entry.revision, entry.attributes, entry.time) for entry in listed}
        assert second.names() == ours
        assert second.default_policy() == _terms((await node.ask(RETAINED_DEFAULT, Done())).policy)
        for vid in second.volumes:
            await _reread_volume(second, node, VolumeId(vid))
    return second


async def _reread_volume(second: Store, node: Node, vid: VolumeId) -> None:
    volume, told = second.volume(vid.raw), None
    try:
        newest = await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))
        told = (newest.lsn, newest.page_size, newest.since, newest.log, newest.parent_lsn)
    except NotFound:
        # It was removed, and nobody holds its newest LSN.
        assert volume.finished
        assert volume.since > volume.head
    assert told in {None, (volume.head, volume.page_size, volume.since, volume.log, volume.start)}
    try:
        assert _terms((await node.ask(RETAINED, VolumeRequest(vid.raw))).policy) == volume.policy
    except NotFound:
        assert volume.since > volume.head
    readable: set[int] = set()
    for lsn in range(volume.start + 1, volume.head + 1):
        try:
            snapshot = await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=lsn))
        except (Forgotten, NotFound):
            continue
        readable.add(lsn)
        assert (snapshot.length, snapshot.time) == (volume.length_at(lsn), volume.time_at(lsn))
        assert await pages_at(node, vid, lsn) == volume.pages_at(lsn)
    assert readable == second.readable(vid.raw)


def _terms(policy: RetentionPolicy | None) -> tuple[int, ...] | None:
    return None if policy is None else (policy.all_ms, policy.hourly_ms, policy.daily_ms)


def check_home(folder: Path, store: Store | None, seen: Mapping[str, Pages]) -> Home:
    """What each volume of a closed home reads as, by name."""
    home = Home(folder)
    named = home.volumes()
    for name, pages in seen.items():
        expected = {page: data for page, data in pages.items() if any(data)}
        assert home.volume(named[name]).pages(store) == expected, name
    return home

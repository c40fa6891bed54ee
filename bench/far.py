"""Far: an eighth of a table, read through Spark over HTTP from a store with latency, by workers that hold nothing."""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import budwood
from budwood.remote.portal import BlockingRemote, open_remote
from budwood.tables.page_source import database
from budwood.tables.schema import read_relation, read_schema
from budwood.tables.splits import splits
from budwood.tables.trees import walk
from budwood.volume.calls import SNAPSHOT, SnapshotRequest
from budwood.volume.ids import VolumeId
from budwood.volume.pageset import PageSet

from .counting_proxy import Counter, node_on, proxy_to
from .decode import FilePages
from .harness import Figure, timed
from .sessions import drain, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATENCY_SECONDS: Final = 0.05
RUNS: Final = 3


def cold_read(session: SparkSession, folder: Path, path: Path, rows: int) -> list[Figure]:
    """Page by page is measured without the latency, since it would take minutes with it."""
    first = rows // 2
    last = first + rows // 8 - 1
    needed = pages_of(path, first, last)
    fewer: list[float] = []
    more: list[float] = []
    requests: list[int] = []
    seconds: list[float] = []
    with node_on(folder / "far") as (url, store):
        for number in range(RUNS):
            # A volume that no worker has seen.
            name = f"far{number}"
            with budwood.open(home=folder / "far-home", remote=url) as edge:
                edge.import_(path, name)
                edge.volume(name).push()
                vid = edge.volume(name).id
            with proxy_to(url) as (proxied, counter):
                single, stored = page_by_page(proxied, counter, vid, needed)
                counter.reset()
                store.latency = LATENCY_SECONDS
                frame = load(session, proxied, name, pushDownPredicate="true")
                wanted = frame.where(f"id BETWEEN {first} AND {last}")
                seconds.append(timed(partial(drain, wanted)))
                store.latency = 0.0
                fewer.append(single / counter.passed)
                more.append(counter.bytes / stored)
                requests.append(counter.passed)
    name = f"1/8 of the table, cold, over HTTP, the store at {LATENCY_SECONDS * 1e3:.0f} ms"
    note = f"{statistics.median(requests):.0f} for {len(needed)} pages, {statistics.median(seconds):.2f} s in all"
    return [
        Figure(
            f"{name}: requests, fewer than page by page", statistics.median(fewer), "×", 50, fewer, note, least=True
        ),
        Figure(
            f"{name}: bytes on the wire, both ways, against what these pages take in the store",
            statistics.median(more),
            "×",
            1.2,
            more,
        ),
    ]


def pages_of(path: Path, first: int, last: int) -> PageSet:
    """What a reader of these rows can't do without: the schema, the way down to them, their leaves."""
    source, header = database(FilePages(path))
    schema = read_schema(source, header)
    root = read_relation(source, schema, "t").root
    (run,) = splits(source, root, header, count=1, rowids=(first, last))
    return PageSet(schema.pages) | PageSet(walk(source, root, header).interior) | PageSet(run.leaves)


def page_by_page(url: str, counter: Counter, vid: VolumeId, needed: PageSet) -> tuple[int, float]:
    """Requests of one who reads each page by itself; and these pages' part of the frames that hold them."""
    remote = open_remote(url)
    try:
        lsn = remote.ask(SNAPSHOT, SnapshotRequest(vid.raw)).lsn
        counter.reset()
        for page in needed:
            with remote.read_pages(vid, lsn, PageSet((page,))) as answer:
                assert sum(page in frame.valid for frame in answer.frames()) == 1
        single = counter.passed
        return single, stored_bytes(remote, vid, lsn, needed)
    finally:
        remote.close()


def stored_bytes(remote: BlockingRemote, vid: VolumeId, lsn: int, needed: PageSet) -> float:
    total = 0.0
    with remote.read_pages(vid, lsn, needed) as answer:
        for frame in answer.frames():
            total += len(frame.stored) * len(frame.valid & needed) / len(frame.info.pages)
    return total

"""A node over a store that answers some requests late, or never: whoever asked it waits for none of them."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from budwood.server.node import Node
from budwood.server.store.hedge import HedgedStore
from budwood.testing.commits import commit_of, pages_at
from budwood.testing.stores import MemoryStore, RiggedStore, Rule
from budwood.volume.calls import CREATE, REQUESTS, CreateRequest, Done
from budwood.volume.ids import ClientId, VolumeId

from ..exposed import families, figure
from .cli import serving
from .s3_server import S3Server

pytestmark = pytest.mark.anyio

ANN = ClientId.new()
PAGE = 512


async def test_a_commit_and_a_read_whose_answers_never_come_are_answered() -> None:
    """S4.15: the entry is one, though it was sent twice."""
    store = RiggedStore(MemoryStore())
    vid = VolumeId.new()
    async with Node.open(HedgedStore(store), name="main") as node:
        await node.ask(CREATE, CreateRequest(vid.raw, page_size=PAGE))
        for base in range(40):
            await node.commit(*commit_of(vid, base, {1: bytes([base]) * PAGE}, client=ANN, page_size=PAGE))
        lost = store.add(Rule(op="create", key="logs/main/entries/*", hang="after"))
        done = await node.commit(*commit_of(vid, 40, {1: b"z" * PAGE}, client=ANN, page_size=PAGE))
        assert (done.lsn, lost.fired) == (41, 1)
        figures = (await node.ask(REQUESTS, Done())).figures
        assert figures["hedges"] >= figures["hedges_won"] >= 0
        assert figures["hedges"] >= 1
        assert (await pages_at(node, vid))[1] == b"z" * PAGE
    async with Node.open(HedgedStore(store)) as reader:
        assert (await pages_at(reader, vid))[1] == b"z" * PAGE


def test_a_node_over_a_bucket_hedges_unless_told_otherwise(tmp_path: Path) -> None:
    for options, hedging in (([], True), (["--no-hedging"], False)):
        with S3Server() as server, server.environment(), serving("s3://bucket/p", *options) as url:
            told = httpx.get(f"{url}/metrics").text
        assert ("budwood_store_hedges" in families(told)) is hedging
        assert figure(told, "budwood_store_waited_writes_total") == 0

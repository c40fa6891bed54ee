"""The pages, under `/ui/`: what the calls of the protocol tell, as HTML, with no script and nothing from elsewhere.

    /ui/            volumes, by name
    /ui/volume      one: its commits as a timeline, forks, pins, what is kept
    /ui/pages       how old its pages are, or how often they are asked for, and in which objects they lie
    /ui/tables      a SQLite database's tables at any LSN, and their rows
    /ui/changes     the rows of its tables that changed between two LSNs
    /ui/store       the store's logs: who owns each, and what of it is about to be deleted
    /ui/costs       what the store holds, how it grows, and what that costs
    /ui/node        this node: its logs, what it has asked of the store

Each page asks as its caller may, so that nobody sees more here than by a call. All are GET and change nothing, and
what comes into them goes through a template, which escapes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from ...volume.amounts import amount_of, date_of
from ...volume.byte_sizes import bytes_of
from ...volume.calls import (
    HEAT,
    HELLO,
    LIST_NAMES,
    LOCATE,
    LOOKUP,
    PINS,
    PULL_CHANGES,
    PULL_COMMITS,
    REQUESTS,
    RETAINED,
    SHARED_LOGS,
    SNAPSHOT,
    STORE_COSTS,
    Done,
    LocateRequest,
    LookupRequest,
    NamesRequest,
    RangeRequest,
    SharedLogsRequest,
    SnapshotRequest,
    VolumeRequest,
)
from ...volume.errors import BadInput, BudwoodError, Forbidden, NotFound
from ...volume.ids import VolumeId
from ...volume.name_attributes import volume_of
from ...volume.pageset import PageSet, decode_pages, encode_pages, page_count, span
from ...volume.protocols import Remote
from ...volume.wire import CommitInfo, Placement, SnapshotInfo
from ..query_plan import QueryPlanner
from ..telemetry.node_figures import Tariff
from .changed_rows import TableChanges, changes, look, nothing_before
from .pictures import COLUMNS, HEIGHT, WIDTH, age_map, growth, heat_map, timeline
from .words import cell_of, moment_of, policy_of

LISTED: Final = 50
"""Volumes, or rows, on one page."""
COMMITS: Final = 100
TABLES: Final = 500
OBJECTS: Final = 20


class Query(Protocol):
    """What a page is asked with: its query's values, "" where there is none of that name."""

    def __call__(self, name: str) -> str: ...


class Page(NamedTuple):
    text: str
    status: int = 200


class Console:
    """Of one node. Belongs to its event loop. With a `tariff` it says what the store costs."""

    def __init__(self, tariff: Tariff | None = None) -> None:
        self._tariff = tariff
        self._queries = QueryPlanner()
        self._templates = Environment(
            loader=PackageLoader("budwood.server.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "moment": moment_of,
            "date": date_of,
            "amount": amount_of,
            "size": bytes_of,
            "cell": cell_of,
            "query": _query,
            "number": lambda number: f"{number:,}",
        }
        self.style = self._templates.get_template("style.css").render().encode()
        self.pages: dict[str, Callable[[Remote, Query], Any]] = {
            "/ui/": self.volumes,
            "/ui/volume": self.volume,
            "/ui/pages": self.page_map,
            "/ui/tables": self.tables,
            "/ui/changes": self.changes,
            "/ui/store": self.store,
            "/ui/costs": self.costs,
            "/ui/node": self.node,
        }

    def error(self, error: BudwoodError, status: int) -> Page:
        return self._page("error.html", status, title="Not shown", message=str(error))

    def login(self, said: str = "", status: int = 200) -> Page:
        return self._page("login.html", status, title="Who calls?", said=said)

    async def volumes(self, node: Remote, query: Query) -> Page:
        after, prefix = query("after"), query("prefix")
        names = await node.ask(LIST_NAMES, NamesRequest(prefix=prefix, after=after, limit=LISTED))
        rows: list[dict[str, Any]] = []
        for entry in names.entries:
            snapshot: SnapshotInfo | None = None
            try:
                if entry.target:
                    snapshot = await node.ask(SNAPSHOT, SnapshotRequest(entry.target))
            except (BadInput, Forbidden, NotFound):
                # A directory, a link, or a volume that was removed, or isn't this caller's to read.
                snapshot = None
            rows.append({"name": entry.name, "snapshot": snapshot})
        return self._page("volumes.html", title="Volumes", rows=rows, next=names.next, prefix=prefix, after=after)

    async def volume(self, node: Remote, query: Query) -> Page:
        name, vid = await self._named(node, query)
        newest = await node.ask(SNAPSHOT, SnapshotRequest(vid.raw))
        upto = min(_number(query("upto"), "upto", newest.lsn), newest.lsn)
        kept = await node.ask(RETAINED, VolumeRequest(vid.raw))
        after = max(0, upto - COMMITS, kept.oldest - 1)
        commits: tuple[CommitInfo, ...] = ()
        if upto > after:
            commits = (await node.ask(PULL_COMMITS, RangeRequest(vid.raw, after=after, to=upto))).commits
        pins = (await node.ask(PINS, VolumeRequest(vid.raw))).pins
        return self._page(
            "volume.html",
            title=name,
            name=name,
            vid=str(vid),
            newest=newest,
            pages=page_count(newest.length, newest.page_size) if newest.page_size else 0,
            kept=kept,
            keeps=policy_of(kept.policy or kept.default),
            commits=commits[::-1],
            bars=timeline(commits),
            width=WIDTH,
            height=HEIGHT,
            held={pin.lsn for pin in pins} | ({kept.since} if kept.since > 1 else set()),
            pins=pins,
            older=after if after >= kept.oldest else 0,
            upto=upto,
        )

    async def page_map(self, node: Remote, query: Query) -> Page:
        name, vid = await self._named(node, query)
        snapshot = await self._snapshot(node, vid, query)
        last = page_count(snapshot.length, snapshot.page_size) if snapshot.page_size else 0
        pages, placements = span(1, last), list[Placement]()
        while pages:
            request = LocateRequest(vid.raw, lsn=snapshot.lsn, pages=encode_pages(pages))
            located = await node.ask(LOCATE, request)
            placements += located.placements
            pages = decode_pages("the node", located.rest) if located.rest else PageSet()
        objects: dict[str, list[int]] = {}
        for placement in placements:
            each = objects.setdefault(placement.object, [0, placement.size])
            each[0] += len(decode_pages("the node", placement.pages))
        by_heat = query("by") == "heat"
        shown = heat_map(await node.ask(HEAT, VolumeRequest(vid.raw)), last) if by_heat else age_map(placements, last)
        return self._page(
            "pages.html",
            title=f"Pages of {name}",
            name=name,
            snapshot=snapshot,
            last=last,
            by_heat=by_heat,
            map=shown,
            columns=COLUMNS,
            objects=sorted(objects.items(), key=lambda each: -each[1][0])[:OBJECTS],
            object_count=len(objects),
        )

    async def tables(self, node: Remote, query: Query) -> Page:
        name, vid = await self._named(node, query)
        snapshot = await self._snapshot(node, vid, query)
        wanted, offset = query("table"), _number(query("offset"), "offset", 0)
        listed = "SELECT name, type, sql FROM sqlite_schema WHERE type IN ('table', 'view') ORDER BY name"
        empty = not snapshot.length
        found = [] if empty else (await self._queries.rows(node, snapshot, listed, most=TABLES)).rows
        rows = None
        if wanted:
            if wanted not in {row[0] for row in found}:
                raise NotFound(f"there is no table {wanted!r} at LSN {snapshot.lsn}")
            quoted = wanted.replace('"', '""')
            sql = f'SELECT * FROM "{quoted}" LIMIT ? OFFSET ?'
            rows = await self._queries.rows(node, snapshot, sql, (LISTED + 1, offset), most=LISTED)
        return self._page(
            "tables.html",
            title=f"Tables of {name}",
            name=name,
            snapshot=snapshot,
            tables=found,
            table=wanted,
            sql=next((row[2] for row in found if row[0] == wanted), ""),
            rows=rows,
            offset=offset,
            listed=LISTED,
        )

    async def changes(self, node: Remote, query: Query) -> Page:
        name, vid = await self._named(node, query)
        after = await self._snapshot(node, vid, query)
        lsn = _number(query("after"), "after", max(after.lsn - 1, 0))
        if lsn > after.lsn:
            raise BadInput(f"LSN {lsn} lies behind LSN {after.lsn}: ask for what lies between the other way round")
        changed = await node.ask(PULL_CHANGES, RangeRequest(vid.raw, after=lsn, to=after.lsn))
        before = await self._snapshot_at(node, vid, lsn)
        tables: list[TableChanges] = []
        if after.length and before.length:
            tables = await self._queries.beside(node, after, before, look, changes(LISTED))
        elif after.length:
            tables = await self._queries.beside(node, after, after, nothing_before, changes(LISTED))
        return self._page(
            "changes.html",
            title=f"Changes of {name}",
            name=name,
            before=before,
            after=after,
            pages=len(decode_pages("the node", changed.pages)),
            tables=tables,
        )

    async def store(self, node: Remote, query: Query) -> Page:
        after = query("after")
        told = await node.ask(SHARED_LOGS, SharedLogsRequest(after=after, limit=LISTED))
        return self._page("store.html", title="The store", logs=told.logs, next=told.next, after=after)

    async def costs(self, node: Remote, _: Query) -> Page:
        told = await node.ask(STORE_COSTS, Done())
        return self._page(
            "costs.html",
            title="Costs",
            told=told,
            bars=growth(told.days),
            width=WIDTH,
            height=HEIGHT,
            tariff=self._tariff,
        )

    async def node(self, node: Remote, _: Query) -> Page:
        told = await node.ask(HELLO, Done())
        try:
            asked = await node.ask(REQUESTS, Done())
        except Forbidden:
            asked = None
        return self._page("node.html", title="This node", told=told, asked=asked)

    async def _named(self, node: Remote, query: Query) -> tuple[str, VolumeId]:
        name = query("name")
        entry = (await node.ask(LOOKUP, LookupRequest(name))).entry if name else None
        if entry is None or not entry.target:
            raise NotFound(f"there is no volume {name!r}")
        return name, volume_of(entry, "this node")

    async def _snapshot(self, node: Remote, vid: VolumeId, query: Query) -> SnapshotInfo:
        lsn = _number(query("lsn"), "lsn", -1)
        return await self._snapshot_at(node, vid, lsn)

    async def _snapshot_at(self, node: Remote, vid: VolumeId, lsn: int) -> SnapshotInfo:
        """-1: the newest."""
        return await node.ask(SNAPSHOT, SnapshotRequest(vid.raw, lsn=None if lsn < 0 else lsn))

    def _page(self, template: str, status: int = 200, **values: Any) -> Page:
        return Page(self._templates.get_template(template).render(**values), status)


def _number(text: str, what: str, otherwise: int) -> int:
    """Raises BadInput."""
    if not text:
        return otherwise
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise BadInput(f"{what} is a number, and not {text[:40]!r}")
    return int(text)


def _query(values: Mapping[str, object]) -> str:
    """Of a link: what isn't empty."""
    return urlencode({name: str(value) for name, value in values.items() if value not in ("", None)})

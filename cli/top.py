"""Top: a node's figures, live: calls, the store, the log, the cache, memory, what it has cost, and who asks the most.

Two looks at `/metrics` and at the node's count of requests, and what lies between them. On a terminal it is drawn anew
every two seconds until Ctrl-C; elsewhere, or with --once, one look of that length is written, and that is all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from ..volume.byte_sizes import bytes_of
from ..volume.errors import BadInput, Forbidden
from ..volume.ids import VolumeId
from .common_options import Context, Json, flag, option
from .durations import seconds_of
from .exit_status import Call
from .output import Column, on_terminal, printable, write_facts, write_json, write_table
from .upkeep import server_packages

if TYPE_CHECKING:
    from rich.console import Group

    from ..remote.portal import BlockingRemote
    from ..volume.calls import Requested

_SHOWN: Final = 12
"""Calls, or volumes."""

Labels = tuple[tuple[str, str], ...]


def top(
    context: Context,
    every: Annotated[str, option("--every", "TIME", "Between two looks.", default="2s")] = "2s",
    once: Annotated[bool, flag("--once", "Write one look, and end.")] = False,
    as_json: Json = False,
) -> None:
    """Watch a node at work: calls, the store, the log, memory, cost, and which volumes ask the most."""
    url, seconds = context.remote or "", seconds_of(every)
    if not url.startswith(("http://", "https://")):
        raise Call("a node is watched: budwood top --remote http://HOST:PORT")
    from ..remote.portal import open_remote

    with server_packages(), closing(open_remote(url, token=context.token)) as remote:
        names = _names(remote)
        before = Look.at(context, remote, names)
        if not (on_terminal() and not once and not as_json):
            time.sleep(seconds)
            _write(Seen(before, Look.at(context, remote, names)), as_json=as_json)
            return
        from rich.live import Live

        with Live(screen=True, auto_refresh=False) as live, suppress(KeyboardInterrupt):
            while True:
                time.sleep(seconds)
                after = Look.at(context, remote, names)
                live.update(_drawn(Seen(before, after), url), refresh=True)
                before = after


VERBS: Final[dict[str, Callable[..., None]]] = {"top": top}


@dataclass(frozen=True, slots=True)
class Look:
    """What a node has told at a moment."""

    moment: float
    """Seconds, of this machine's steady clock."""
    values: Mapping[str, dict[Labels, float]]
    """By the sample's name and labels."""
    asked: Mapping[str, Requested] = field(default_factory=dict[str, "Requested"])
    """By the name of a volume, or by the id or log that has none here; nothing where the caller may not know."""

    @classmethod
    def at(cls, context: Context, remote: BlockingRemote, names: Mapping[str, str]) -> Look:
        """Raises Unavailable, Unauthorized, Forbidden."""
        from ..remote.node_metrics import metrics_text
        from ..volume.calls import REQUESTS, Done

        text = metrics_text(remote.url, context.token or "")
        try:
            asked = {names.get(each.owner, each.owner): each for each in remote.ask(REQUESTS, Done()).owners}
        except Forbidden:
            asked = {}
        return cls(time.monotonic(), values_of(text), asked)


def _names(remote: BlockingRemote) -> dict[str, str]:
    """By the volume's id: of as many as one listing has."""
    from ..volume.calls import LIST_NAMES, NamesRequest

    found: dict[str, str] = {}
    with suppress(Forbidden):
        for entry in remote.ask(LIST_NAMES, NamesRequest(limit=10_000)).entries:
            # A directory or a link leads to no volume.
            with suppress(BadInput):
                found[str(VolumeId(entry.target))] = entry.name
    return found


def values_of(text: str) -> dict[str, dict[Labels, float]]:
    """Of the text that Prometheus reads."""
    from prometheus_client.parser import text_string_to_metric_families

    values: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return values


class CallRow(NamedTuple):
    name: str
    per_second: float
    p50_seconds: float
    p99_seconds: float
    refused_per_second: float


class AskedRow(NamedTuple):
    owner: str
    puts_per_second: float
    gets_per_second: float
    bytes_per_second: float


class Seen:
    """What lies between two looks."""

    def __init__(self, before: Look, after: Look) -> None:
        self.before = before
        self.after = after
        self.seconds = max(after.moment - before.moment, 1e-9)

    def value(self, name: str) -> float:
        """As it is by now; of several, their sum."""
        return sum(self.after.values.get(name, {}).values())

    def rate(self, name: str, **labels: str) -> float:
        """By which it grew in a second; of one that began anew, since then."""
        return sum(self._grown(name, labels).values()) / self.seconds

    def quantile(self, name: str, share: float, **labels: str) -> float:
        """Of a histogram: the upper end of the bucket that it lies in; 0 where there was nothing."""
        buckets: dict[float, float] = {}
        for key, count in self._grown(f"{name}_bucket", labels).items():
            end = float(dict(key)["le"])
            buckets[end] = buckets.get(end, 0) + count
        most = max(buckets.values(), default=0)
        return next((end for end in sorted(buckets) if most and buckets[end] >= share * most), 0.0)

    def calls(self) -> list[CallRow]:
        """Those that were made, the most frequent first."""
        names = {dict(key)["call"] for key in self.after.values.get("budwood_call_seconds_count", {})}
        rows = [
            CallRow(
                name,
                self.rate("budwood_call_seconds_count", call=name),
                self.quantile("budwood_call_seconds", 0.5, call=name),
                self.quantile("budwood_call_seconds", 0.99, call=name),
                self.rate("budwood_calls_refused_total", call=name),
            )
            for name in names
        ]
        made = [row for row in rows if row.per_second]
        return sorted(made, key=lambda row: (-row.per_second, row.name))[:_SHOWN]

    def asked(self) -> list[AskedRow]:
        """The volumes and logs that the store was asked for, those first that asked most."""
        rows: list[AskedRow] = []
        for owner, now in self.after.asked.items():
            old = self.before.asked.get(owner)
            grown = {name: getattr(now, name) - (getattr(old, name) if old else 0) for name in _COUNTED}
            row = AskedRow(
                owner,
                (grown["creates"] + grown["entries"]) / self.seconds,
                grown["gets"] / self.seconds,
                (grown["received_bytes"] + grown["sent_bytes"]) / self.seconds,
            )
            if row.puts_per_second or row.gets_per_second:
                rows.append(row)
        return sorted(rows, key=lambda row: (-row.puts_per_second - row.gets_per_second, row.owner))[:_SHOWN]

    def figures(self) -> dict[str, float]:
        """Rates are by the second."""
        rate, value = self.rate, self.value
        hits, misses = rate("budwood_cache_hits_total"), rate("budwood_cache_misses_total")
        entries = rate("budwood_entry_changes_count")
        return {
            "cpu": rate("process_cpu_seconds_total"),
            "memory_bytes": value("process_resident_memory_bytes"),
            "loop_lag_p99_seconds": self.quantile("budwood_loop_lag_seconds", 0.99),
            "calls": rate("budwood_call_seconds_count"),
            "calls_under_way": value("budwood_calls_under_way"),
            "waiting": value("budwood_polls"),
            "entries": entries,
            "changes_an_entry": rate("budwood_entry_changes_sum") / entries if entries else 0.0,
            "entry_p99_seconds": self.quantile("budwood_entry_seconds", 0.99),
            "queue_changes": value("budwood_queue_changes"),
            **{kind: rate(f"budwood_store_{kind}_total") for kind in _REQUESTS},
            "sent_bytes": rate("budwood_store_sent_bytes_total"),
            "received_bytes": rate("budwood_store_received_bytes_total"),
            "cache_bytes": value("budwood_cache_bytes"),
            "cache_looked_up": hits + misses,
            "cache_hits": hits,
            "changed_volumes": value("budwood_upkeep_changed_volumes"),
            "waiting_plans": value("budwood_upkeep_waiting_plans"),
            "folds_so_far": value("budwood_upkeep_folds_total"),
            "deleted_so_far": value("budwood_upkeep_deleted_objects_total"),
            "cost_so_far": value("budwood_store_cost_total"),
        }

    def facts(self) -> list[tuple[str, str]]:
        """The same in words."""
        told = self.figures()
        info = dict(next(iter(self.after.values.get("budwood_node_info", {})), ()))
        currency = dict(next(iter(self.after.values.get("budwood_store_cost_total", {})), ())).get("currency", "")
        requests = ", ".join(f"{told[kind]:,.1f} {kind}/s" for kind in _REQUESTS)
        hits = (
            f"{100 * told['cache_hits'] / told['cache_looked_up']:.0f} % hits"
            if told["cache_looked_up"]
            else "not used"
        )
        return [
            ("node", f"{info.get('node') or 'a process of its own'}, Budwood {info.get('version', '?')}"),
            (
                "process",
                f"{100 * told['cpu']:.0f} % of a core, {_bytes(told['memory_bytes'])}, "
                f"p99 of the loop's lag {_time(told['loop_lag_p99_seconds'])}",
            ),
            ("calls", f"{told['calls']:,.1f}/s, {told['calls_under_way']:,.0f} under way, {told['waiting']:,.0f} wait"),
            (
                "log",
                f"{told['entries']:,.1f} entries/s of {told['changes_an_entry']:,.1f} changes, "
                f"p99 {_time(told['entry_p99_seconds'])}; {told['queue_changes']:,.0f} changes wait",
            ),
            ("store", f"{requests}; {_bytes(told['sent_bytes'])}/s up, {_bytes(told['received_bytes'])}/s down"),
            ("cache", f"{_bytes(told['cache_bytes'])}, {hits}"),
            (
                "upkeep",
                f"{told['changed_volumes']:,.0f} volumes to look at, {told['waiting_plans']:,.0f} plans wait; "
                f"{told['folds_so_far']:,.0f} folds, {told['deleted_so_far']:,.0f} objects deleted so far",
            ),
            *([("cost", f"{told['cost_so_far']:.4f} {currency} so far")] if currency else []),
        ]

    def _grown(self, name: str, labels: Mapping[str, str]) -> dict[Labels, float]:
        old = self.before.values.get(name, {})
        return {
            key: value - old.get(key, 0) if value >= old.get(key, 0) else value
            for key, value in self.after.values.get(name, {}).items()
            if labels.items() <= dict(key).items()
        }


_REQUESTS: Final = ("creates", "gets", "lists", "deletes")
_COUNTED: Final = ("creates", "entries", "gets", "received_bytes", "sent_bytes")
_CALLS: Final = (
    Column("call"),
    Column("/s", "right"),
    Column("p50", "right"),
    Column("p99", "right"),
    Column("refused/s", "right"),
)
_ASKED: Final = (
    Column("volume or log"),
    Column("puts/s", "right"),
    Column("gets/s", "right"),
    Column("bytes/s", "right"),
)


def _bytes(count: float) -> str:
    return bytes_of(round(count))


def _time(seconds: float) -> str:
    return "over 30 s" if seconds == float("inf") else f"{seconds:g} s" if seconds >= 1 else f"{1000 * seconds:g} ms"


def _calls(seen: Seen) -> list[list[str]]:
    return [
        [
            row.name,
            f"{row.per_second:,.1f}",
            _time(row.p50_seconds),
            _time(row.p99_seconds),
            f"{row.refused_per_second:,.1f}",
        ]
        for row in seen.calls()
    ]


def _asked(seen: Seen) -> list[list[str]]:
    return [
        [row.owner, f"{row.puts_per_second:,.1f}", f"{row.gets_per_second:,.1f}", _bytes(row.bytes_per_second)]
        for row in seen.asked()
    ]


def _write(seen: Seen, *, as_json: bool) -> None:
    if as_json:
        calls, asked = ([row._asdict() for row in rows] for rows in (seen.calls(), seen.asked()))
        write_json([{"seconds": seen.seconds, **seen.figures(), "calls_made": calls, "asked": asked}])
        return
    write_facts(seen.facts())
    print()
    write_table(_CALLS, _calls(seen), empty="no calls meanwhile")
    print()
    write_table(_ASKED, _asked(seen), empty="the store was asked for nothing meanwhile")


def _drawn(seen: Seen, url: str) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    def table(columns: tuple[Column, ...], rows: list[list[str]]) -> Table:
        drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
        for column in columns:
            drawn.add_column(Text(column.title), justify=column.align)
        for row in rows:
            drawn.add_row(*(Text(printable(cell)) for cell in row))
        return drawn

    facts = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, words in seen.facts():
        facts.add_row(Text(name, style="bold"), Text(words))
    head = Text(f"{url}   {time.strftime('%H:%M:%S')}   Ctrl-C ends", style="reverse")
    return Group(head, facts, Text(), table(_CALLS, _calls(seen)), Text(), table(_ASKED, _asked(seen)))

"""Cost: what a store costs, by its own word (`--store`); and what a node has asked of it, reads too (`--remote`).

A line for each volume, for each log that several share, and for all: bytes that stand, what is written in a day, and
what that comes to in a month of 30 days. With --json one array: these lines, the days, and what another batch window or
retention would save.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from ..volume.amounts import amount_of, date_of
from ..volume.byte_sizes import bytes_of
from ..volume.errors import BudwoodError
from .common_options import Context, Json, option
from .durations import seconds_of
from .exit_status import Call
from .output import Column, count_of, printable, say, time_of, write_json, write_table
from .prices import Prices, read_prices
from .retention import policy_of

if TYPE_CHECKING:
    from ..server.upkeep.costs import Costs, Usage, Wanted
    from ..server.upkeep.written import Creates
    from ..volume.calls import Requested

_TITLES: Final = ("volume", "pages", "entries", "records", "waiting", "commits/day", "creates/day")
_DAY_SECONDS: Final = 86_400


def cost(
    context: Context,
    store: Annotated[str | None, option("--store", "URL", "file:///dir, s3://bucket/prefix, gs://…, az://…")] = None,
    prices: Annotated[
        Path | None, option("--prices", "FILE", "A TOML file of prices.", default="those of S3 standard")
    ] = None,
    days: Annotated[str, option("--days", "TIME", "Go by what was written in so long.")] = "7d",
    window: Annotated[
        str | None, option("--batch-window", "TIME", "What if commits were collected for so long? 0.5s")
    ] = None,
    every: Annotated[
        str | None, option("--all", "TIME|ever", "What if each LSN of each volume stayed for so long, no longer?")
    ] = None,
    hourly: Annotated[str | None, option("--hourly", "TIME", "And one for each full hour, for so long.")] = None,
    daily: Annotated[str | None, option("--daily", "TIME", "And one for each midnight (UTC), for so long.")] = None,
    as_json: Json = False,
) -> None:
    """Say what a store costs, by volume and day, and what would make it cheaper; or what a node has asked of it."""
    known = read_prices(prices)
    if store is None and context.remote is not None and context.remote.startswith(("http://", "https://")):
        if (window, every, hourly, daily) != (None, None, None, None):
            raise Call("what would be cheaper, the store tells: --store URL")
        _write_requests(context, known, as_json=as_json)
        return
    if store is None:
        raise Call("say of what: --store file:///dir or s3://bucket/prefix; or --remote URL for what a node has asked")
    policy = None if (every, hourly, daily) == (None, None, None) else policy_of(every, hourly, daily)
    window_ms = 0 if window is None else max(1, round(1000 * seconds_of(window)))
    try:
        from ..server.upkeep.costs import Wanted
    except ModuleNotFoundError as error:
        raise BudwoodError(f"a cost report needs the package {error.name!r}: pip install 'budwood[server]'") from error
    now_ms = time.time_ns() // 1_000_000
    wanted = Wanted(now_ms, seconds_of(days) / _DAY_SECONDS, window_ms, policy)
    costs = _survey(store, wanted)
    if as_json:
        write_json(list(_rows(costs, wanted, known)))
    else:
        _write(costs, wanted, known)
    for unread in costs.unread:
        print(f"budwood: {printable(f'{unread.what} was left out: {unread.error}')}", file=sys.stderr)


VERBS: Final[dict[str, Callable[..., None]]] = {"cost": cost}


def _write_requests(context: Context, prices: Prices, *, as_json: bool) -> None:
    """What a node has counted since it began."""
    from ..volume.calls import REQUESTS, Done

    with closing(context.edge()) as edge:
        counted = edge.connection().remote.ask(REQUESTS, Done())
    if as_json:
        about = {"since": counted.since_ms, "now": counted.now_ms, "currency": prices.currency}
        write_json([about, *(_requests_row(each, prices) for each in (*counted.days, *counted.owners))])
        return
    titles = ("", "creates", "shared", "gets", "lists", "received", "sent", prices.currency)
    write_table(
        [Column(title, "right" if title else "left") for title in titles],
        [_requests_line(each, prices) for each in (*counted.days, *counted.owners)],
        empty="nothing was asked of the store yet",
    )
    say(f"counted since {time_of(counted.since_ms)}")


def _requests_line(each: Requested, prices: Prices) -> list[str]:
    counts = [f"{each.creates:,}", _rate(each.entries), f"{each.gets:,}", f"{each.lists:,}"]
    sizes = [bytes_of(each.received_bytes), bytes_of(each.sent_bytes)]
    return [each.owner or date_of(each.day), *counts, *sizes, amount_of(_asked(each, prices))]


def _requests_row(each: Requested, prices: Prices) -> dict[str, object]:
    what = {"owner": each.owner} if each.owner else {"day": date_of(each.day)}
    counts = {name: getattr(each, name) for name in ("creates", "entries", "gets", "deletes", "lists")}
    sizes = {"received_bytes": each.received_bytes, "sent_bytes": each.sent_bytes}
    return {**what, **counts, **sizes, "costs": _asked(each, prices)}


def _asked(each: Requested, prices: Prices) -> float:
    puts = each.creates + each.entries
    return prices.requests(puts=puts, lists=each.lists, gets=each.gets, sent_bytes=each.received_bytes)


def _survey(url: str, wanted: Wanted) -> Costs:
    import anyio

    from ..server.store.open_store import open_store
    from ..server.upkeep.costs import survey

    async def main() -> Costs:
        store = await open_store(url, create=False)
        try:
            return await survey(store, wanted)
        finally:
            await store.aclose()

    return anyio.run(main, backend="asyncio")


def _write(costs: Costs, wanted: Wanted, prices: Prices) -> None:
    from ..server.upkeep.costs import total_of

    total = total_of(costs.usages)
    asks_for = wanted.policy is not None
    columns = [Column(title, "left" if title == "volume" else "right") for title in _TITLES]
    columns += [Column("would go", "right")] if asks_for else []
    columns.append(Column(f"{prices.currency}/month", "right"))
    cheapest_last = sorted(costs.usages, key=lambda usage: -_a_month(usage, prices))
    lines = [_line(usage, _name_of(usage), prices, asks_for=asks_for) for usage in cheapest_last]
    write_table(columns, [*lines, _line(total, "all of it", prices, asks_for=asks_for)])
    say(
        f"{count_of(costs.objects, 'object')}, {bytes_of(round(total.bytes))}; by day and month as in the last "
        f"{_days(costs.covers_days)}"
    )
    if wanted.window_ms:
        fewer = costs.spared_a_day
        say(
            f"a batch window of {wanted.window_ms} ms: {_rate(costs.entries_a_day - fewer)} entries a day rather than "
            f"{_rate(costs.entries_a_day)}, {_money(prices.puts_a_month(fewer), prices)} less a month"
        )
    if asks_for:
        saved = _money(prices.storage_a_month(total.let_go), prices)
        say(f"that retention: about {bytes_of(round(total.let_go))} would go, {saved} less a month")


def _line(usage: Usage, name: str, prices: Prices, *, asks_for: bool) -> list[str]:
    sizes = [usage.pages, round(usage.entries), usage.records, usage.waiting]
    line = [name, *map(bytes_of, sizes), _rate(usage.commits_a_day), _rate(usage.creates_a_day)]
    line += [bytes_of(round(usage.let_go))] if asks_for else []
    return [*line, amount_of(_a_month(usage, prices))]


def _rows(costs: Costs, wanted: Wanted, prices: Prices) -> Iterator[dict[str, object]]:
    from ..server.upkeep.costs import days_of, total_of

    for usage in costs.usages:
        what = {"volume": usage.volume} if usage.volume else {"log": usage.log} if usage.log else {"object": "root"}
        days = [_day(day, creates) for day, creates in sorted(usage.days.items())]
        yield {**what, "names": usage.names, **_figures(usage, prices), "days": days}
    total = total_of(costs.usages)
    covered = {"objects": costs.objects, "covers_days": costs.covers_days, "currency": prices.currency}
    days = [_day(day, creates) for day, creates in days_of(costs.usages)]
    yield {"all": True, **covered, **_figures(total, prices), "days": days}
    if wanted.window_ms:
        saves = prices.puts_a_month(costs.spared_a_day)
        entries = {"entries_a_day": costs.entries_a_day, "would_be_a_day": costs.entries_a_day - costs.spared_a_day}
        yield {"batch_window_ms": wanted.window_ms, **entries, "saves_a_month": saves}
    if wanted.policy is not None:
        policy = {"all": wanted.policy.all_ms, "hourly": wanted.policy.hourly_ms, "daily": wanted.policy.daily_ms}
        saves = prices.storage_a_month(total.let_go)
        yield {"retention": policy, "would_go": round(total.let_go), "saves_a_month": saves}


def _figures(usage: Usage, prices: Prices) -> dict[str, object]:
    return {
        "pages": usage.pages,
        "entries": round(usage.entries),
        "records": usage.records,
        "waiting": usage.waiting,
        "would_go": round(usage.let_go),
        "commits_a_day": usage.commits_a_day,
        "creates_a_day": usage.creates_a_day,
        "storage_a_month": prices.storage_a_month(usage.bytes),
        "creates_a_month": prices.puts_a_month(usage.creates_a_day),
    }


def _day(day: int, creates: Creates) -> dict[str, object]:
    return {
        "day": date_of(day),
        "commits": creates.commits,
        "entries": creates.entries,
        "fragments": creates.fragments,
        "upkeep": creates.upkeep,
        "bytes": round(creates.bytes),
    }


def _a_month(usage: Usage, prices: Prices) -> float:
    return prices.storage_a_month(usage.bytes) + prices.puts_a_month(usage.creates_a_day)


def _name_of(usage: Usage) -> str:
    if usage.names:
        more = f" and {len(usage.names) - 1} more" if len(usage.names) > 1 else ""
        return usage.names[0] + more
    return usage.volume or (f"log {usage.log}" if usage.log else "root")


def _rate(a_day: float) -> str:
    return f"{a_day:,.0f}" if a_day >= 10 or not a_day else f"{a_day:.1f}"


def _days(days: float) -> str:
    return f"{days:.1f} days" if days >= 1 else f"{24 * days:.1f} hours"


def _money(amount: float, prices: Prices) -> str:
    return f"{amount_of(amount)} {prices.currency}"

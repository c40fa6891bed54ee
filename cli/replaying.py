"""Replaying: the ways out of a divergence that keep both: row by row (rows/replay.py), or page by page
(sync/merge.py)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from ..volume.errors import BadInput
from .common_options import Context, Json, Name, flag, option
from .difference import line_of, row_object
from .exit_status import Call
from .output import count_of, say, write_json

if TYPE_CHECKING:
    from ..rows.replay import Conflict, Policy, Report

_POLICIES: Final = ("abort", "ours", "theirs")


def replay(
    context: Context,
    name: Name,
    on_conflict: Annotated[
        str, option("--on-conflict", "POLICY", "Of rows changed on both sides: abort, ours, theirs, FILE.py:FUNCTION.")
    ] = "abort",
    dry_run: Annotated[bool, flag("--dry-run", "Show what would happen, and change nothing.")] = False,
    keep_as: Annotated[str | None, option("--keep-as", "NEW", "Fork what is unpushed as it stands, first.")] = None,
    as_json: Json = False,
) -> None:
    """Apply the rows that were changed here to the remote's newest commit, and stand on that."""
    from ..rows.replay import replay as run

    policy = on_conflict if on_conflict in _POLICIES else _function(on_conflict)
    _check_unused(context)
    with closing(context.edge()) as edge:
        volume = edge.volume(name)
        report = run(volume, cast("Policy", policy), dry_run=dry_run, keep_as=keep_as)
        lsn = volume.status(count=False)["lsn"]
    if as_json:
        write_json([_object(report, lsn, dry_run=dry_run)])
    else:
        _tell(report, name, lsn, dry_run=dry_run)


def merge(
    context: Context,
    name: Name,
    dry_run: Annotated[bool, flag("--dry-run", "Say whether it would go, and change nothing.")] = False,
    keep_as: Annotated[str | None, option("--keep-as", "NEW", "Fork what is unpushed as it stands, first.")] = None,
    as_json: Json = False,
) -> None:
    """Lay the pages that were changed here over the remote's newest commit, if it changed others."""
    from ..sync.merge import merge as run

    _check_unused(context)
    with closing(context.edge()) as edge:
        volume = edge.volume(name)
        merged = run(volume, dry_run=dry_run, keep_as=keep_as)
        lsn = volume.status(count=False)["lsn"]
    if as_json:
        write_json([{**merged._asdict(), "lsn": lsn, "dry_run": dry_run}])
    elif not merged.onto:
        say(f"nothing to merge: {name} is at LSN {lsn}")
    else:
        verb = "would be laid" if dry_run else "laid"
        say(f"{count_of(merged.pages, 'page')} {verb} over LSN {merged.onto}")
        if not dry_run:
            say(f"{name} is at LSN {lsn}: push it")


VERBS: Final[dict[str, Callable[..., None]]] = {"replay": replay, "merge": merge}


def _check_unused(context: Context) -> None:
    if context.running():
        raise BadInput("this home is mounted, and a program may have the file open: `budwood umount` first")


def _function(text: str) -> Policy:
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise Call(f"{text!r} is no policy: abort, ours, theirs, or FILE.py:FUNCTION")
    spec = importlib.util.spec_from_file_location("budwood_policy", Path(path))
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise Call(f"there is no file {path!r} with a policy in it")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Call(f"{path} can't be loaded: {error!r}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise Call(f"{path} has no function {name!r}")

    def asked(conflict: Conflict) -> str:
        try:
            return str(found(conflict))
        except Exception as error:
            raise Call(f"{text} failed on row {conflict.key} of table {conflict.table}: {error!r}") from error

    return asked


def _tell(report: Report, name: str, lsn: str, *, dry_run: bool) -> None:
    if not report.onto:
        say(f"nothing to replay: {name} is at LSN {lsn}")
        return
    for sql in report.statements:
        print(f"  {sql}")
    table = ""
    for change in report.changes if dry_run else ():
        if change.table != table:
            table = change.table
            print(f"table {table}")
        print(f"  {line_of(change)}")
    for decided in report.decided:
        found = decided.conflict
        key = ", ".join(map(str, found.key))
        print(f"conflict ({found.reason}) at {key} of table {found.table}: {decided.choice}")
        for whose, row in (("base", found.base), ("ours", found.ours), ("theirs", found.theirs)):
            print(f"  {whose.ljust(6)}  {_row(row)}")
    for table, here, now in report.renumbered:
        print(f"table {table}: the row at rowid {here} here has {now}, since the remote has another there")
    verb = "would be applied" if dry_run else "applied"
    kept = f"; {count_of(report.agreed, 'row')} stood there already" if report.agreed else ""
    say(f"{count_of(report.applied, 'row')} {verb} to LSN {report.onto}{kept}")
    if not dry_run:
        say(f"{name} is at LSN {lsn}: push it")


def _row(row: dict[str, Any] | None) -> str:
    return "(gone)" if row is None else ", ".join(f"{column}={value!r}" for column, value in row.items())


def _object(report: Report, lsn: str, *, dry_run: bool) -> dict[str, Any]:
    return {
        "base": report.base,
        "onto": report.onto,
        "lsn": lsn,
        "dry_run": dry_run,
        "applied": report.applied,
        "agreed": report.agreed,
        "conflicts": [
            {
                "table": each.conflict.table,
                "key": each.conflict.key,
                "reason": each.conflict.reason,
                "base": each.conflict.base,
                "ours": each.conflict.ours,
                "theirs": each.conflict.theirs,
                "choice": each.choice,
            }
            for each in report.decided
        ],
        "renumbered": [{"table": table, "here": here, "now": now} for table, here, now in report.renumbered],
        "statements": report.statements,
        "changes": [row_object(change) for change in report.changes],
    }

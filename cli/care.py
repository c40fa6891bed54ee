"""Care at the command line: restore, verify, rebuild."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Final

import typer

from .common_options import At, Context, Json, Lsn, Name, flag, option
from .output import count_of, printable, say, write_json
from .progress import progress

if TYPE_CHECKING:
    from ..sync.home_builder import Fate
    from ..sync.home_image import Finding


def restore(
    context: Context,
    name: Name,
    lsn: Lsn = None,
    at: At = None,
    keep_as: Annotated[str | None, option("--keep-as", "NEW", "Keep unpushed commits as this volume.")] = None,
    push: Annotated[bool, flag("--push", "Send it to the remote at once.")] = False,
) -> None:
    """Make an old snapshot the newest commit. What came after it stays in the history."""
    with closing(context.edge()) as edge, progress(f"restoring {name}") as step:
        volume = edge.volume(name)
        told = volume.restore(lsn=lsn, at=at, keep_as=keep_as, progress=step)
        changed = volume.status(count=False)["unpushed"] > 0
        if changed and push:
            if mount := context.running():
                mount.ask("push", name)
            else:
                volume.push()
        label = volume.status(count=False)["lsn"]
        kept = keep_as is not None and any(row["name"] == keep_as for row in edge.ls())
    if changed:
        said = f"{name} is as it was at LSN {told.lsn}: {count_of(told.pages, 'page')} changed, now at LSN {label}"
        said += "" if push else f"; `budwood push {name}` shows it to others"
    else:
        said = f"{name} is at LSN {label}, which is that snapshot: nothing to restore"
    say(said + (f"; what was unpushed is {keep_as} now" if kept else ""))


def verify(context: Context, as_json: Json = False) -> None:
    """Look through all of this home, beside whoever uses it, and name what is wrong and what that spoils."""
    from ..sync.verify import verify as verify_home

    found = verify_home(context.real_home())
    if as_json:
        write_json([_row(each) for each in found.findings])
    else:
        for each in found.findings:
            say(printable(str(each)))
        wrong = "nothing is wrong" if not found.findings else f"{count_of(len(found.findings), 'thing')} wrong"
        held = f"{count_of(found.volumes, 'volume')}, {count_of(found.pages, 'page')}"
        say(f"read {held}, {count_of(found.unpushed, 'unpushed commit')}: {wrong}")
        if found.is_damaged:
            print("budwood: `budwood rebuild` makes the home anew from what is sound", file=sys.stderr, flush=True)
    if found.findings:
        raise typer.Exit(1)


def rebuild(
    context: Context,
    force: Annotated[bool, flag("--force", "Though nothing is wrong with it.")] = False,
    as_json: Json = False,
) -> None:
    """Make a damaged home anew from what is sound in it; the rest comes from the remote, and what is lost is named."""
    from ..sync.rebuild import rebuild as rebuild_home

    rebuilt = rebuild_home(context.real_home(), force=force)
    if as_json:
        write_json([{**_fate(each), "aside": str(rebuilt.aside)} for each in rebuilt.fates])
    elif rebuilt.aside is None:
        say("nothing is wrong with this home: nothing was done")
    else:
        for each in rebuilt.fates:
            say(printable(str(each)))
        if not rebuilt.fates:
            say("no volume could be read; those of the remote come in by their names")
        say(f"the damaged store is kept: {rebuilt.aside}")
    if any(each.lost for each in rebuilt.fates):
        raise typer.Exit(1)


VERBS: Final[dict[str, Callable[..., None]]] = {"restore": restore, "verify": verify, "rebuild": rebuild}


def _row(finding: Finding) -> dict[str, object]:
    return {
        "where": finding.where,
        "what": finding.what,
        "volume": finding.volume or None,
        "pages": list(finding.pages),
        "commits": list(finding.lsns),
        "lost": finding.lost,
    }


def _fate(fate: Fate) -> dict[str, object]:
    return {
        "name": fate.name,
        "outcome": fate.outcome,
        "kept": list(fate.kept),
        "lost": list(fate.lost),
        "rescued_as": fate.rescued_as or None,
        "rescued_pages": fate.rescued,
        "lost_pages": list(fate.pages),
    }

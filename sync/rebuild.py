"""Rebuild: a damaged home made anew from what is sound in it; the remote has the rest.

What holds is copied as it is, so that nothing has to be told to the remote anew: ids, names, heads, unpushed commits at
their LSNs, a push under way, and the pages that were fetched. A page that doesn't hold and that the remote has is left
out: it is fetched when it is read.

A volume whose unpushed commits can't all be read is taken back to the last commit after which everything can, and what
can be read of the later ones becomes a volume of its own, `NAME (rescued)`: page by page, on the same snapshot of the
remote, and so maybe not one that any program wrote. If there is no such commit, a volume that the remote has stands at
its sync point again where that is known, or is left out, and comes in by its name; one that only this home had is the
rescued one. Each of that is a `Fate`; what is nowhere is named by LSN and pages.

Order, and crash windows (each a fault point): the new store is built beside the old one, then the old one is renamed to
`store.damaged-N`, then the new one to `store`. A rebuild that came to an end before the first is done again from the
start; between the two it is finished by the next. Nothing that was set aside is ever removed.

Nobody may have the home open. Who opens it in the moment before the old store is set aside is noticed right after:
then it is put back.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from ..volume import faults
from ..volume.errors import Busy, Unavailable, Unsupported
from . import clean_shutdown
from .environment import open_environment, opened_here
from .folders import flush_folder
from .home_builder import Fate, HomeBuilder
from .home_image import read_home
from .home_permissions import open_private
from .lmdb_errors import system_errors
from .tables import (
    BEFORE_JOURNAL,
    FORMAT_VERSION,
)
from .verify import verify

BUILT = faults.point("rebuild: new store built, old one in place")
ASIDE = faults.point("rebuild: old store set aside, new one not in place")
MARKED = faults.point("rebuild: new marker in place, new store not")
REPLACED = faults.point("rebuild: new store in place, caller not told")

_ASIDE: Final = "store.damaged-"
_MARK: Final = "whole"


class Rebuilt(NamedTuple):
    fates: tuple[Fate, ...]
    aside: Path | None
    """Where the damaged store is; None where nothing was wrong, and nothing was done."""


def rebuild(home: Path, *, force: bool = False) -> Rebuilt:
    """Raises Busy while someone has the home open, Unavailable where there is none, Corrupt where nothing of it can be
    read, Unsupported for a newer format, Full. `force`: though nothing is wrong with it.
    """
    home = Path(os.path.realpath(home))
    with system_errors(f"the home {home} can't be rebuilt"):
        return _rebuild(home, force=force)


def _rebuild(home: Path, *, force: bool) -> Rebuilt:
    store, built = home / "store", home / "rebuilt"
    aside = _set_aside_before(home, built)
    if aside is not None:
        # Cut between the two renames. What was opened since holds nothing.
        if store.exists():
            store.rename(_next_aside(home))
        _put_in_place(home, store, built)
        return Rebuilt((), aside)
    _check_alone(home, store)
    if not force and not verify(home, modes=False).findings:
        return Rebuilt((), None)
    if built.exists():
        # Nothing is built on what was left there.
        shutil.rmtree(built)
    with read_home(home) as image:
        if image.format is not None and image.format.version not in (BEFORE_JOURNAL, FORMAT_VERSION):
            raise Unsupported(f"the home {home} is of format {image.format.version}: rebuild it with a newer Budwood")
        environment = open_environment(built)
        try:
            fates = HomeBuilder(image, environment).build()
            environment.flush()
        finally:
            environment.close()
    aside = _next_aside(home)
    _finish(built, aside)
    BUILT()
    _check_alone(home, store)
    store.rename(aside)
    if clean_shutdown.is_in_use(aside / "data.mdb"):
        aside.rename(store)
        raise Busy(f"the home {home} was opened meanwhile: end what uses it, then rebuild it")
    ASIDE()
    _put_in_place(home, store, built)
    REPLACED()
    return Rebuilt(tuple(fates), aside)


def _check_alone(home: Path, store: Path) -> None:
    """Raises Busy, Unavailable."""
    if not _has_data(store):
        raise Unavailable(f"{home} holds no local store: name the home with --home")
    if opened_here(home) is not None or clean_shutdown.is_in_use(store / "data.mdb"):
        raise Busy(f"the home {home} is open elsewhere: end what uses it (a mount: `budwood umount`), then rebuild it")


def _has_data(store: Path) -> bool:
    try:
        return (store / "data.mdb").stat().st_size > 0
    except OSError:
        return False


def _finish(built: Path, aside: Path) -> None:
    """The new store is whole and on the disk; where the old one goes is its mark."""
    mark = built / _MARK
    with open(open_private(mark, os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(aside.name)
        file.flush()
        os.fsync(file.fileno())
    for folder in (built / "store", built):
        flush_folder(folder)


def _set_aside_before(home: Path, built: Path) -> Path | None:
    """Where an earlier rebuild has put the old store, if the new one is whole and not in its place yet."""
    try:
        aside = home / (built / _MARK).read_text()
    except OSError:
        return None
    is_set_aside = aside.name.startswith(_ASIDE) and aside.exists()
    return aside if is_set_aside and (built / "store").exists() else None


def _put_in_place(home: Path, store: Path, built: Path) -> None:
    """The marker first: a new store that isn't in its place says that all this is still to be done."""
    with suppress(FileNotFoundError):
        os.replace(built / "home.json", home / "home.json")
    MARKED()
    (built / "store").rename(store)
    flush_folder(home)
    shutil.rmtree(built, ignore_errors=True)


def _next_aside(home: Path) -> Path:
    return next(path for number in count(1) if not (path := home / f"{_ASIDE}{number}").exists())

"""Verify: a home looked through from its bytes, without a write, beside whoever has it open.

    structure   the file's trees, every page of them (lmdb_tree_check.py)
    values      the checksum of every record, row and page, the journal's among them (home_image.py)
    sense       names lead to volumes and back, each volume has one head, unpushed commits have no gaps and their pages
                stand at the LSNs that they say, nothing stands above a head, pushes and stages belong to volumes
    modes       nothing in it is for others' eyes

Each thing that is wrong is a `Finding`, which says what it spoils, and whether the remote has that. Where others write
meanwhile, and something seems wrong, all of it is looked at again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from ..volume.errors import Corrupt
from .home_image import Finding, HomeImage, read_home
from .lmdb_tree_check import check_trees
from .rows import PENDING
from .tables import BEFORE_JOURNAL, FORMAT_VERSION, name_key
from .unpushed_state import UnpushedState, unpushed_states

_ROUNDS: Final = 5
_WIDE: Final = "others may read or change it"
_MOST_OF_A_KIND: Final = 1000


class Verified(NamedTuple):
    findings: tuple[Finding, ...]
    volumes: int
    pages: int
    unpushed: int
    """Commits."""
    format: int
    """0 where that can't be told."""

    @property
    def is_damaged(self) -> bool:
        """Whether anything but a mode is wrong."""
        return any(not each.what.startswith(_WIDE) for each in self.findings)


def verify(home: Path, *, modes: bool = True) -> Verified:
    """Raises Unavailable where there is no home. `modes`: whether it is private is looked at, too."""
    data = home / "store" / "data.mdb"
    found = _verify(home, data)
    for _ in range(_ROUNDS):
        if not found.findings:
            break
        again = _verify(home, data)
        if again.findings == found.findings:
            break
        found = again
    return found._replace(findings=(*found.findings, *_modes(home))) if modes else found


def _verify(home: Path, data: Path) -> Verified:
    try:
        with read_home(home) as image:
            pages, unpushed = _sense(image)
            try:
                check_trees(data)
            except Corrupt as error:
                if not image.salvage.broken:
                    image.found("store/data.mdb", error.what)
            for what in list(image.salvage.broken)[:_MOST_OF_A_KIND]:
                image.found("store/data.mdb", what)
            version = image.format.version if image.format is not None else 0
            return Verified(_merged(image.findings), len(image.volumes), pages, unpushed, version)
    except Corrupt as error:
        return Verified((Finding("store/data.mdb", error.what, lost=True),), 0, 0, 0, 0)


def _sense(image: HomeImage) -> tuple[int, int]:
    """How many pages are held, and how many commits are unpushed."""
    if image.format is None:
        image.found("meta", "its first record is gone")
    elif image.format.version not in (BEFORE_JOURNAL, FORMAT_VERSION):
        image.found("meta", f"it is of format {image.format.version}, and this Budwood knows {FORMAT_VERSION}")
    _check_names(image)
    states = unpushed_states(image)
    pages = _check_rows(image, states)
    for vid, state in states.items():
        _check_commits(image, vid, state.judge())
    for table, records in (("pushes", image.pushes), ("stages", image.stages)):
        for vid in records:
            if vid not in image.heads and not (table == "stages" and vid not in image.volumes):
                image.found(table, f"a record speaks of volume {image.name_of(vid)!r}, which has no head")
    return pages, sum(state.head.unpushed for state in states.values())


def _check_names(image: HomeImage) -> None:
    entries = {**image.volumes, **image.places}
    for key, record in entries.items():
        if image.names.get(name_key(record.name)) != key:
            image.found("names", f"the name {record.name!r} is gone, and what it led to is still there")
    for name, key in image.names.items():
        if key not in entries:
            image.found("names", f"the name {name.decode(errors='replace')!r} leads to no volume")
    for vid in image.volumes.keys() - image.heads.keys():
        image.found("heads", "its head is gone", volume=image.name_of(vid), lost=True)
    for vid in image.heads.keys() - image.volumes.keys():
        image.found("volumes", "its record is gone, and its head is still there", volume=image.name_of(vid), lost=True)


def _check_rows(image: HomeImage, states: dict[bytes, UnpushedState]) -> int:
    held, strange = 0, set[bytes]()
    for row in image.rows():
        state = states.get(row.vid)
        if state is None:
            if row.vid not in image.stages and row.vid not in strange:
                strange.add(row.vid)
                image.found("tails", f"there are rows of {image.name_of(row.vid)!r}, which is no volume of this home")
            continue
        held += row.state != PENDING
        state.note(row)
        if row.lsn > image.heads[row.vid].lsn and row.vid not in image.stages:
            name = image.name_of(row.vid)
            image.found("tails", f"page {row.page} of {name!r} stands at {row.lsn}, above its head", volume=name)
    return held


def _check_commits(image: HomeImage, vid: bytes, state: UnpushedState) -> None:
    name, head = image.name_of(vid), image.heads[vid]
    if state.gone:
        labels = tuple(map(state.label, state.gone))
        image.found("commits", "records of commits are gone", volume=name, lsns=labels, lost=True)
    if head.lsn - head.sync_local != head.unpushed and head.unpushed:
        image.found("heads", f"it says {head.unpushed} unpushed commits, from {head.sync_local} to {head.lsn}")
    if state.lost:
        lsns = tuple(state.label(lsn) for lsn in sorted(set(state.lost.values())))
        what = "pages that were not pushed yet are gone"
        image.found("tails", what, volume=name, pages=tuple(sorted(state.lost)), lsns=lsns, lost=True)
    push = image.pushes.get(vid)
    if push is not None and not push.start <= push.end <= head.lsn:
        image.found("pushes", f"the push under way captured {push.end}, and the volume stands at {head.lsn}")


def _merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Damaged pages of one volume in one line."""
    merged: dict[tuple[str, str, bool], list[int]] = {}
    others: list[Finding] = []
    for each in findings:
        if each.where == "tails" and "checksum" in each.what:
            merged.setdefault((each.where, each.volume, each.lost), []).extend(each.pages)
        else:
            others.append(each)
    what = "pages don't match their checksums"
    pages = [
        Finding(where, what, volume=volume, pages=tuple(sorted(set(numbers))), lost=lost)
        for (where, volume, lost), numbers in merged.items()
    ]
    return (*pages, *dict.fromkeys(others))


def _modes(home: Path) -> list[Finding]:
    """What others than the owner may look at or change; the home's own directory is the user's to open."""
    found: list[Finding] = []
    for folder, folders, files in os.walk(home):
        for name in (*folders, *files):
            path = Path(folder, name)
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                continue
            if not stat.S_ISLNK(mode) and mode & 0o077:
                right = "0700" if stat.S_ISDIR(mode) else "0600"
                where = str(path.relative_to(home))
                found.append(Finding(where, f"{_WIDE}: chmod {right} {path}"))
    return found
